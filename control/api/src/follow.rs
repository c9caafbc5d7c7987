//! The client's end of a stream of events.

use std::time::Duration;

use http_body_util::BodyExt;
use hyper::Request;
use hyper::header::ACCEPT;
use serde::Deserialize;
use tokio::time::timeout;

use crate::client::{Client, Resource};
use crate::error::ApiError;
use crate::events::EventQuery;
use crate::model::Event;

/// Without a sign of life for so long a stream is taken for broken; there is one every 15 s.
const SILENCE: Duration = Duration::from_secs(40);
/// The most that is kept of a part that has not ended, in bytes.
const PART_BYTES: usize = 1 << 20;

/// What a stream says.
#[derive(Clone, Debug, PartialEq)]
pub enum Followed {
    /// Something has happened.
    Event(Box<Event>),
    /// So many events were missed; `None` when the director was restarted and nobody knows.
    Lost(Option<u64>),
}

#[derive(Deserialize)]
struct Lost {
    lost: Option<u64>,
}

impl Client {
    /// Follows what happens until `each` says `false`, which also gets the name of the place, for
    /// `last` of the next call.
    ///
    /// # Errors
    /// As [`Client::text`]; always when the connection ends before `each` says so.
    pub fn follow(
        &self,
        query: &EventQuery,
        last: Option<&str>,
        each: &mut dyn FnMut(Followed, &str) -> bool,
    ) -> Result<(), ApiError> {
        let target = Resource::Events(query.clone()).target();
        let mut request = Request::get(target).header(ACCEPT, "text/event-stream");
        if let Some(last) = last {
            request = request.header("Last-Event-ID", last);
        }
        let request = self.complete(request, String::new())?;
        self.runtime()?.block_on(async {
            let opened = timeout(self.patience(), self.open(request)).await;
            let mut response = opened.map_err(|_| self.late())??;
            if !response.status().is_success() {
                self.read(response).await?;
                return Err(self.strange("it answered without a stream"));
            }
            let mut pending = Vec::new();
            loop {
                let frame = timeout(SILENCE, response.body_mut().frame()).await;
                let frame = frame.map_err(|_| self.broken("it gave no sign of life"))?;
                let Some(frame) = frame else { return Err(self.broken("it ended the stream")) };
                let frame = frame.map_err(|error| self.broken(error))?;
                pending.extend_from_slice(frame.data_ref().map_or(&[][..], |data| data));
                while let Some(end) = pending.windows(2).position(|pair| pair == b"\n\n") {
                    let part: Vec<u8> = pending.drain(..end + 2).collect();
                    let Some((followed, id)) = self.understand(&part)? else { continue };
                    if !each(followed, &id) {
                        return Ok(());
                    }
                }
                if pending.len() > PART_BYTES {
                    return Err(self.strange("an event has no end"));
                }
            }
        })
    }

    /// What a part of the stream says; nothing if it is a sign of life.
    fn understand(&self, part: &[u8]) -> Result<Option<(Followed, String)>, ApiError> {
        let text = std::str::from_utf8(part).map_err(|error| self.strange(error))?;
        let field = |name: &str| text.lines().find_map(|line| line.strip_prefix(name));
        let (Some(kind), Some(data)) = (field("event: "), field("data: ")) else {
            return Ok(None);
        };
        let id = field("id: ").unwrap_or_default().to_owned();
        let wrong = |error| self.strange(error);
        Ok(Some(match kind {
            "lost" => {
                let Lost { lost } = serde_json::from_str(data).map_err(wrong)?;
                (Followed::Lost(lost), id)
            }
            _ => (Followed::Event(Box::new(serde_json::from_str(data).map_err(wrong)?)), id),
        }))
    }
}
