//! Changes of the desired state: asked for once, and asked about until it is known what became of
//! them.

use std::time::{Duration, Instant};

use hyper::header::IF_MATCH;
use hyper::http::request::Builder;
use hyper::{Method, Request};
use ring::rand::{SecureRandom, SystemRandom};

use super::{Client, PATIENCE};
use crate::error::ApiError;
use crate::model::Changed;
use crate::repeat;

/// How many times the usual patience a change is asked about before one gives up.
const ASKED_ABOUT: u32 = 4;
/// Pause before that.
const ASK_PAUSE: Duration = Duration::from_millis(200);

/// A change of the desired state, as a request.
#[derive(Clone, Debug, PartialEq)]
pub struct Change {
    /// The method.
    pub method: Verb,
    /// Path segments below `/v1/config`, not encoded.
    pub path: Vec<String>,
    /// The body, if there is one.
    pub body: Option<serde_json::Value>,
    /// The epoch that must be in force for it to be made.
    pub if_epoch: Option<u64>,
    /// Whether it is only asked what would change.
    pub dry_run: bool,
    /// Whether services may take what the director's machine itself listens on.
    pub force: bool,
}

/// What a change does with what its path names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verb {
    /// Makes or replaces it.
    Put,
    /// Changes parts of it.
    Patch,
    /// Takes it away.
    Delete,
    /// Does it.
    Post,
}

impl Change {
    /// A change with a body.
    pub fn new(method: Verb, path: &[&str], body: Option<serde_json::Value>) -> Self {
        let path = path.iter().map(|&segment| segment.to_owned()).collect();
        Self { method, path, body, if_epoch: None, dry_run: false, force: false }
    }

    fn target(&self) -> String {
        let mut target = "/v1/config".to_owned();
        for segment in &self.path {
            target.push('/');
            for byte in segment.bytes() {
                match byte {
                    b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'.' | b'_' | b'-' | b':' => {
                        target.push(byte.into());
                    }
                    other => target.push_str(&format!("%{other:02X}")),
                }
            }
        }
        target
            + match (self.dry_run, self.force) {
                (false, false) => "",
                (true, false) => "?dry_run=true",
                (false, true) => "?force=true",
                (true, true) => "?dry_run=true&force=true",
            }
    }
}

impl Client {
    /// Changes the desired state.
    ///
    /// # Errors
    /// See [`Self::text`].
    pub fn change(&self, change: &Change) -> Result<Changed, ApiError> {
        let method = match change.method {
            Verb::Put => Method::PUT,
            Verb::Patch => Method::PATCH,
            Verb::Delete => Method::DELETE,
            Verb::Post => Method::POST,
        };
        let body = change.body.as_ref().map(serde_json::Value::to_string).unwrap_or_default();
        let mut request = Request::builder().method(method).uri(change.target());
        if let Some(epoch) = change.if_epoch {
            request = request.header(IF_MATCH, format!("\"{epoch}\""));
        }
        let text = self.make(request, body)?;
        serde_json::from_str(&text).map_err(|error| self.strange(error))
    }

    /// Asks for something that must be made once, and goes on asking until it is known what became
    /// of it: no answer does not mean that nothing was done.
    pub(super) fn make(&self, request: Builder, body: String) -> Result<String, ApiError> {
        let mut key = [0; 16];
        let made = SystemRandom::new().fill(&mut key);
        made.map_err(|_| self.broken("the system gave no random numbers"))?;
        let key: String = key.iter().map(|byte| format!("{byte:02x}")).collect();
        let request = self.complete(request.header(repeat::HEADER, key), body)?;
        let begun = Instant::now();
        loop {
            let answer = self.exchanged(request.clone());
            let unknown = match &answer {
                Err(ApiError::Timeout { .. } | ApiError::Broken { .. }) => true,
                Err(ApiError::Refused(problem)) => repeat::is_unfinished(problem),
                _ => false,
            };
            if !unknown || begun.elapsed() >= self.patience.max(PATIENCE) * ASKED_ABOUT {
                return answer;
            }
            std::thread::sleep(ASK_PAUSE);
        }
    }
}
