//! The client: asks one thing and waits for the answer.

mod change;
mod ha;
mod look;
mod network;

use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use http_body_util::{BodyExt, Full, Limited};
use hyper::body::{Bytes, Incoming};
use hyper::client::conn::http1;
use hyper::header::{AUTHORIZATION, CONTENT_TYPE, HOST};
use hyper::http::request::Builder;
use hyper::{Request, Response};
use hyper_util::rt::TokioIo;
use serde::de::DeserializeOwned;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::UnixStream;
use tokio::runtime::{self, Runtime};

use crate::error::ApiError;
use crate::events::EventQuery;
use sluice_state::{Epoch, View};

use crate::model::{
    Drops, Elephants, Events, FlowPin, Health, HistoryPage, Killed, Ports, PortsRules, Rates,
    RatesQuery, Services, Sessions, SpreadFlows, Stages, Status,
};
use crate::problem::{MEDIA_TYPE, Problem};
use crate::query::SessionQuery;
use crate::remote::{Remote, Stream};

pub use change::{Change, Verb};

/// How long an answer may take; the server gives up on the daemon before that, and says why.
const PATIENCE: Duration = Duration::from_secs(15);
/// Largest answer that is read.
const ANSWER_LIMIT_BYTES: usize = 256 << 20;
/// Pause before trying again when the server's queue of connections is full.
const BUSY_PAUSE: Duration = Duration::from_millis(10);

/// What can be asked for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Resource {
    /// That the API answers, whatever the director is at.
    Alive,
    /// The director as a whole.
    Status,
    /// Virtual services.
    Services {
        /// Those with these names; all when none is named.
        names: Vec<String>,
        /// Those of this network.
        network: Option<String>,
    },
    /// Open sessions.
    Sessions(SessionQuery),
    /// Ports.
    Ports,
    /// Steering rules of ports.
    PortsRules,
    /// All networks.
    Networks,
    /// Reasons of all packets, or of some.
    Drops {
        /// Those of this service.
        service: Option<String>,
        /// Those of this network; not with a service.
        network: Option<String>,
    },
    /// Health checks.
    Health,
    /// Virtual addresses.
    Ha,
    /// What has happened.
    Events(EventQuery),
    /// Where the workers' time goes.
    Stages,
    /// At most so many of the sessions with the most traffic.
    Elephants(u32),
    /// Part of the last hour.
    Rates(RatesQuery),
    /// The page for Prometheus, which is no JSON.
    Metrics,
    /// The desired state.
    Config,
    /// At most so many of the last epochs.
    History(u32),
    /// One epoch.
    Epoch(u64),
}

impl Resource {
    /// Path and query of the request.
    pub(crate) fn target(&self) -> String {
        let pair = |name, value: &Option<String>| value.clone().map(|value| (name, value));
        let (path, pairs) = match self {
            Self::Alive => ("/healthz", Vec::new()),
            Self::Status => ("/v1/status", Vec::new()),
            Self::Services { names, network } => {
                let names = names.iter().map(|name| ("name", name.clone()));
                ("/v1/services", names.chain(pair("network", network)).collect())
            }
            Self::Sessions(query) => ("/v1/sessions", query.pairs()),
            Self::Ports => ("/v1/ports", Vec::new()),
            Self::PortsRules => ("/v1/ports/rules", Vec::new()),
            Self::Networks => ("/v1/networks", Vec::new()),
            Self::Drops { service, network } => {
                let of = pair("service", service).into_iter();
                ("/v1/drops", of.chain(pair("network", network)).collect())
            }
            Self::Health => ("/v1/health", Vec::new()),
            Self::Ha => ("/v1/ha", Vec::new()),
            Self::Events(query) => ("/v1/events", query.pairs()),
            Self::Stages => ("/v1/stages", Vec::new()),
            Self::Elephants(limit) => ("/v1/elephants", vec![("limit", limit.to_string())]),
            Self::Rates(query) => ("/v1/rates", query.pairs()),
            Self::Metrics => ("/metrics", Vec::new()),
            Self::Config => ("/v1/config", Vec::new()),
            Self::History(limit) => ("/v1/config/history", vec![("limit", limit.to_string())]),
            Self::Epoch(number) => return format!("/v1/config/history/{number}"),
        };
        if pairs.is_empty() {
            return path.to_owned();
        }
        let mut query = form_urlencoded::Serializer::new(String::new());
        format!("{path}?{}", query.extend_pairs(pairs).finish())
    }
}

/// Asks a director, over its Unix socket or over the network. Blocking; each question is a
/// connection.
#[derive(Clone, Debug)]
pub struct Client {
    /// The socket's path, or the URL.
    path: PathBuf,
    remote: Option<Remote>,
    patience: Duration,
}

impl Client {
    /// A client for the socket at `path`. Nothing is connected yet.
    pub fn new(path: impl Into<PathBuf>) -> Self {
        Self { path: path.into(), remote: None, patience: PATIENCE }
    }

    /// A client of a director over the network. Nothing is connected yet.
    pub fn remote(remote: Remote) -> Self {
        Self { path: remote.url().into(), remote: Some(remote), patience: PATIENCE }
    }

    /// The same with another limit on how long an answer may take.
    pub fn with_patience(self, patience: Duration) -> Self {
        Self { patience, ..self }
    }

    /// Path of the socket; over the network the URL.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The director as a whole.
    ///
    /// # Errors
    /// See [`Self::text`].
    pub fn status(&self) -> Result<Status, ApiError> {
        self.get(&Resource::Status)
    }

    /// The virtual services with these names; all when none is named.
    ///
    /// # Errors
    /// See [`Self::text`].
    pub fn services(&self, names: &[String]) -> Result<Services, ApiError> {
        self.get(&Resource::Services { names: names.to_owned(), network: None })
    }

    /// Open sessions.
    ///
    /// # Errors
    /// See [`Self::text`].
    pub fn sessions(&self, query: &SessionQuery) -> Result<Sessions, ApiError> {
        self.get(&Resource::Sessions(query.clone()))
    }

    /// Ends the sessions that a query admits, which must have a filter.
    ///
    /// # Errors
    /// See [`Self::text`].
    pub fn kill(&self, query: &SessionQuery) -> Result<Killed, ApiError> {
        self.delete_sessions(query, &[])
    }

    /// How many sessions a query admits, which must have a filter.
    ///
    /// # Errors
    /// See [`Self::text`].
    pub fn would_kill(&self, query: &SessionQuery, all: bool) -> Result<Killed, ApiError> {
        let all = all.then_some(("all", "true".to_owned()));
        let more: Vec<_> = all.into_iter().chain([("dry_run", "true".to_owned())]).collect();
        self.delete_sessions(query, &more)
    }

    /// Ends all sessions.
    ///
    /// # Errors
    /// See [`Self::text`].
    pub fn kill_all(&self) -> Result<Killed, ApiError> {
        self.delete_sessions(&SessionQuery::default(), &[("all", "true".to_owned())])
    }

    fn delete_sessions(
        &self,
        query: &SessionQuery,
        more: &[(&'static str, String)],
    ) -> Result<Killed, ApiError> {
        let mut pairs = query.pairs();
        pairs.extend_from_slice(more);
        let mut text = form_urlencoded::Serializer::new(String::new());
        let target = format!("/v1/sessions?{}", text.extend_pairs(pairs).finish());
        let text = self.make(Request::delete(target), String::new())?;
        serde_json::from_str(&text).map_err(|error| self.strange(error))
    }

    /// Ports.
    ///
    /// # Errors
    /// See [`Self::text`].
    pub fn ports(&self) -> Result<Ports, ApiError> {
        self.get(&Resource::Ports)
    }

    /// Steering rules of ports.
    ///
    /// # Errors
    /// See [`Self::text`].
    pub fn ports_rules(&self) -> Result<PortsRules, ApiError> {
        self.get(&Resource::PortsRules)
    }

    /// Reasons.
    ///
    /// # Errors
    /// See [`Self::text`].
    pub fn drops(&self) -> Result<Drops, ApiError> {
        self.get(&Resource::Drops { service: None, network: None })
    }

    /// Reasons for which packets of one service were dropped.
    ///
    /// # Errors
    /// See [`Self::text`].
    pub fn drops_of(&self, service: &str) -> Result<Drops, ApiError> {
        self.get(&Resource::Drops { service: Some(service.to_owned()), network: None })
    }

    /// Health checks.
    ///
    /// # Errors
    /// See [`Self::text`].
    pub fn health(&self) -> Result<Health, ApiError> {
        self.get(&Resource::Health)
    }

    /// What has happened.
    ///
    /// # Errors
    /// See [`Self::text`].
    pub fn events(&self, query: &EventQuery) -> Result<Events, ApiError> {
        self.get(&Resource::Events(query.clone()))
    }

    /// Where the workers' time goes.
    ///
    /// # Errors
    /// See [`Self::text`].
    pub fn stages(&self) -> Result<Stages, ApiError> {
        self.get(&Resource::Stages)
    }

    /// At most `limit` of the sessions with the most traffic.
    ///
    /// # Errors
    /// See [`Self::text`].
    pub fn elephants(&self, limit: u32) -> Result<Elephants, ApiError> {
        self.get(&Resource::Elephants(limit))
    }

    /// Has a flow spread over several workers, or gathered in again; gives those that are spread.
    ///
    /// # Errors
    /// See [`Self::text`].
    pub fn pin(&self, flow: &FlowPin, pinned: bool) -> Result<SpreadFlows, ApiError> {
        let body = serde_json::to_string(flow).unwrap_or_default();
        let path = if pinned { "/v1/elephants/pin" } else { "/v1/elephants/unpin" };
        let text = self.make(Request::post(path), body)?;
        serde_json::from_str(&text).map_err(|error| self.strange(error))
    }

    /// Part of the last hour.
    ///
    /// # Errors
    /// See [`Self::text`].
    pub fn rates(&self, query: &RatesQuery) -> Result<Rates, ApiError> {
        self.get(&Resource::Rates(query.clone()))
    }

    /// The desired state.
    ///
    /// # Errors
    /// See [`Self::text`].
    pub fn config(&self) -> Result<View, ApiError> {
        self.get(&Resource::Config)
    }

    /// At most `limit` of the last epochs.
    ///
    /// # Errors
    /// See [`Self::text`].
    pub fn history(&self, limit: u32) -> Result<HistoryPage, ApiError> {
        self.get(&Resource::History(limit))
    }

    /// One epoch.
    ///
    /// # Errors
    /// See [`Self::text`].
    pub fn epoch(&self, number: u64) -> Result<Epoch, ApiError> {
        self.get(&Resource::Epoch(number))
    }

    fn get<T: DeserializeOwned>(&self, resource: &Resource) -> Result<T, ApiError> {
        let text = self.text(resource)?;
        serde_json::from_str(&text).map_err(|error| self.strange(error))
    }

    /// The JSON of a resource, as the director wrote it.
    ///
    /// # Errors
    /// [`ApiError::Absent`], [`ApiError::Dead`] or [`ApiError::Denied`] when there is nobody to
    /// ask, [`ApiError::Refused`] when the director says no, and [`ApiError::Timeout`],
    /// [`ApiError::Broken`] or [`ApiError::Strange`] when it does not answer as it should.
    pub fn text(&self, resource: &Resource) -> Result<String, ApiError> {
        self.exchange(Request::get(resource.target()), String::new())
    }

    fn exchange(&self, request: Builder, body: String) -> Result<String, ApiError> {
        self.exchanged(self.complete(request, body)?)
    }

    fn exchanged(&self, request: Request<Full<Bytes>>) -> Result<String, ApiError> {
        self.runtime()?.block_on(async {
            let asked = async { self.read(self.open(request).await?).await };
            match tokio::time::timeout(self.patience, asked).await {
                Ok(answer) => answer,
                Err(_) => Err(self.late()),
            }
        })
    }

    /// A request with what every request has.
    pub(crate) fn complete(
        &self,
        request: Builder,
        body: String,
    ) -> Result<Request<Full<Bytes>>, ApiError> {
        let host = self.remote.as_ref().map_or("director", Remote::authority);
        let mut request = request.header(HOST, host);
        if let Some(remote) = &self.remote {
            request = request.header(AUTHORIZATION, remote.authorization());
        }
        if !body.is_empty() {
            request = request.header(CONTENT_TYPE, "application/json");
        }
        request.body(Full::new(Bytes::from(body))).map_err(|error| self.strange(error))
    }

    pub(crate) fn runtime(&self) -> Result<Runtime, ApiError> {
        let built = runtime::Builder::new_current_thread().enable_all().build();
        built.map_err(|error| self.broken(error))
    }

    pub(crate) fn late(&self) -> ApiError {
        ApiError::Timeout { path: self.path.clone(), after_s: self.patience.as_secs_f64() }
    }

    pub(crate) const fn patience(&self) -> Duration {
        self.patience
    }

    /// Connects, asks, and gives the beginning of the answer.
    pub(crate) async fn open(
        &self,
        request: Request<Full<Bytes>>,
    ) -> Result<Response<Incoming>, ApiError> {
        match &self.remote {
            None => self.converse(self.connect().await?, request).await,
            Some(remote) => match remote.connect().await? {
                Stream::Plain(stream) => self.converse(stream, request).await,
                Stream::Secure(stream) => self.converse(*stream, request).await,
            },
        }
    }

    async fn converse<S>(
        &self,
        stream: S,
        request: Request<Full<Bytes>>,
    ) -> Result<Response<Incoming>, ApiError>
    where
        S: AsyncRead + AsyncWrite + Send + Unpin + 'static,
    {
        let (mut sender, connection) =
            http1::handshake(TokioIo::new(stream)).await.map_err(|error| self.broken(error))?;
        // Ends with the exchange, or with the runtime.
        tokio::spawn(connection);
        sender.send_request(request).await.map_err(|error| self.lost(&error))
    }

    /// Connects, however long the server's queue of connections stays full: the caller limits it.
    async fn connect(&self) -> Result<UnixStream, ApiError> {
        loop {
            let error = match UnixStream::connect(&self.path).await {
                Ok(stream) => return Ok(stream),
                Err(error) => error,
            };
            let path = self.path.clone();
            return Err(match error.kind() {
                io::ErrorKind::NotFound => ApiError::Absent(path),
                io::ErrorKind::ConnectionRefused => ApiError::Dead(path),
                io::ErrorKind::PermissionDenied => ApiError::Denied(path),
                io::ErrorKind::WouldBlock => {
                    tokio::time::sleep(BUSY_PAUSE).await;
                    continue;
                }
                _ => self.broken(error),
            });
        }
    }

    pub(crate) async fn read<B>(&self, response: Response<B>) -> Result<String, ApiError>
    where
        B: hyper::body::Body<Data = Bytes>,
        B::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
    {
        let status = response.status();
        let is_problem = response
            .headers()
            .get(CONTENT_TYPE)
            .is_some_and(|kind| kind.as_bytes() == MEDIA_TYPE.as_bytes());
        let body = Limited::new(response.into_body(), ANSWER_LIMIT_BYTES);
        let bytes = body.collect().await.map_err(|error| self.broken(error))?.to_bytes();
        let text = String::from_utf8(bytes.into()).map_err(|error| self.strange(error))?;
        if is_problem {
            let problem: Problem =
                serde_json::from_str(&text).map_err(|error| self.strange(error))?;
            return Err(ApiError::Refused(Box::new(problem)));
        }
        if !status.is_success() {
            return Err(self.strange(format!("it answered {status}")));
        }
        Ok(text)
    }

    /// An exchange that ended early: hyper's own words say little.
    fn lost(&self, error: &hyper::Error) -> ApiError {
        if error.is_parse() { self.strange(error) } else { self.broken(error) }
    }

    pub(crate) fn broken(&self, reason: impl ToString) -> ApiError {
        ApiError::Broken { path: self.path.clone(), reason: reason.to_string() }
    }

    pub(crate) fn strange(&self, reason: impl ToString) -> ApiError {
        ApiError::Strange { path: self.path.clone(), reason: reason.to_string() }
    }
}
