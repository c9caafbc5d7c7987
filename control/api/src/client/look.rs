//! Asking for a trace or a capture, and reading it as it comes.

use std::ops::ControlFlow;
use std::time::Duration;

use http_body_util::BodyExt;
use hyper::Request;
use hyper::body::Incoming;

use super::Client;
use crate::error::ApiError;
use crate::model::{LookKind, LookRequest};

/// How often whoever reads is asked whether to go on while nothing comes.
const PAUSE: Duration = Duration::from_millis(100);

impl Client {
    /// Asks for a trace or a capture and gives `take` its bytes as they come, and no bytes ten
    /// times a second while none come; until it ends, or `take` breaks, which ends it too.
    ///
    /// # Errors
    /// See [`Self::text`]; and what `take` breaks with is no error.
    pub fn look(
        &self,
        kind: LookKind,
        request: &LookRequest,
        take: &mut dyn FnMut(&[u8]) -> ControlFlow<()>,
    ) -> Result<(), ApiError> {
        let body = serde_json::to_string(request).map_err(|error| self.strange(error))?;
        let request = Request::post(kind.path());
        let request = self.complete(request, body)?;
        self.runtime()?.block_on(async {
            let begun = tokio::time::timeout(self.patience, self.open(request)).await;
            let response = begun.map_err(|_| self.late())??;
            if !response.status().is_success() {
                return self.read(response).await.map(drop);
            }
            self.pour(response.into_body(), take).await
        })
    }

    async fn pour(
        &self,
        mut body: Incoming,
        take: &mut dyn FnMut(&[u8]) -> ControlFlow<()>,
    ) -> Result<(), ApiError> {
        loop {
            let flow = match tokio::time::timeout(PAUSE, body.frame()).await {
                Err(_) => take(&[]),
                Ok(None) => return Ok(()),
                Ok(Some(Err(error))) => return Err(self.broken(error)),
                Ok(Some(Ok(frame))) => {
                    frame.data_ref().map_or(ControlFlow::Continue(()), |b| take(b))
                }
            };
            if flow.is_break() {
                return Ok(());
            }
        }
    }
}
