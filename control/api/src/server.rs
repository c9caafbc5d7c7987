//! The server as its owner sees it: started, told where to listen, looked after, stopped.
//!
//! What must survive is here, what may fail is on a thread of its own ([`Engine`]): sockets and
//! their file belong to the server, and a thread that ends or hangs is replaced by another on
//! copies of them. Packets never wait for any of it.

use std::net::{SocketAddr, TcpListener};
use std::os::unix::net::UnixListener;
use std::path::Path;
use std::sync::atomic::AtomicU64;
use std::sync::{Arc, PoisonError, RwLock};
use std::time::Duration;

use tokio::runtime::Builder;
use tokio::sync::Semaphore;
use tracing::error;

use crate::call::Call;
use crate::engine::{Engine, Listeners, Shared};
use crate::error::ApiError;
use crate::events::EventLog;
use crate::model::Event;
use crate::network::{Network, Prepared};
use crate::repeat::Repeats;
use crate::routes::{Desk, FOLLOWERS};
use crate::socket::{SocketFile, listen};

/// How long a thread may take to end.
const STOP_LIMIT: Duration = Duration::from_secs(2);

/// How a server behaves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Options {
    /// How long the daemon may take to answer a call; after that the client is told so (504).
    pub patience: Duration,
    /// How long the thread may show no life before another takes over.
    pub silence: Duration,
    /// The group that may use the control socket; otherwise that of the process.
    pub group: Option<u32>,
}

impl Default for Options {
    fn default() -> Self {
        let limit = Duration::from_secs(5);
        Self { patience: limit, silence: limit, group: None }
    }
}

/// A running server. It stops when dropped.
pub struct Server {
    shared: Arc<Shared>,
    socket: UnixListener,
    file: Option<SocketFile>,
    listeners: Vec<(SocketAddr, TcpListener)>,
    engine: Option<Engine>,
    silence: Duration,
    restarts: u64,
}

impl Server {
    /// Listens on a Unix socket and hands each request to `call`, from the server's own thread.
    /// `call` must not block: it passes the [`Call`] on and returns.
    ///
    /// The socket is the owner's and the group's (mode 0660). Missing folders are made; a socket
    /// that a killed director left is replaced.
    ///
    /// # Errors
    /// [`ApiError::AnotherDirector`], [`ApiError::NotASocket`], [`ApiError::Locked`] or
    /// [`ApiError::Listen`].
    pub fn start(path: &Path, call: Box<dyn Fn(Call) + Send + Sync>) -> Result<Self, ApiError> {
        Self::start_with(path, call, Options::default())
    }

    /// [`Self::start`] with other than the usual options.
    ///
    /// # Errors
    /// As [`Self::start`].
    pub fn start_with(
        path: &Path,
        call: Box<dyn Fn(Call) + Send + Sync>,
        options: Options,
    ) -> Result<Self, ApiError> {
        let failed = |source| ApiError::Listen { path: path.to_owned(), source };
        let runtime = Builder::new_current_thread().enable_all().build().map_err(failed)?;
        let (socket, file) = runtime.block_on(listen(path, options.group))?;
        let socket = socket.into_std().map_err(failed)?;
        let shared = Arc::new(Shared {
            desk: Arc::new(Desk {
                call,
                patience: options.patience,
                events: Arc::default(),
                followers: Arc::new(Semaphore::new(FOLLOWERS)),
                repeats: Repeats::default(),
            }),
            gate: Arc::default(),
            tls: RwLock::default(),
            generation: AtomicU64::new(0),
        });
        let mut server = Self {
            shared,
            socket,
            file: Some(file),
            listeners: Vec::new(),
            engine: None,
            silence: options.silence,
            restarts: 0,
        };
        server.engine = Some(server.ignite().map_err(failed)?);
        Ok(server)
    }

    /// Goes on listening by another path, in place of the director that listens there, whose
    /// clients it leaves to it. Both have to be in one folder.
    ///
    /// # Errors
    /// [`ApiError::Listen`].
    pub fn move_to(&mut self, path: &Path) -> Result<(), ApiError> {
        let Some(file) = &mut self.file else { return Ok(()) };
        file.move_to(path).map_err(|source| ApiError::Listen { path: path.to_owned(), source })
    }

    /// Reads the files and binds the addresses that the API over the network needs. What is served
    /// already stays as it is until [`Self::reach`].
    ///
    /// # Errors
    /// [`ApiError::File`] or [`ApiError::Bind`].
    pub fn prepare(&self, network: &Network) -> Result<Prepared, ApiError> {
        network.prepare(&self.listeners)
    }

    /// Serves the network like this from now on. Requests under way are not disturbed; tokens hold
    /// at once, a certificate from the next handshake on.
    pub fn reach(&mut self, prepared: Prepared) {
        let Prepared { listeners, tls, tokens, hosts } = prepared;
        self.shared.gate.set(tokens, hosts);
        *self.shared.tls.write().unwrap_or_else(PoisonError::into_inner) = tls;
        self.listeners = listeners;
        if let (Some(engine), Ok(copies)) = (&self.engine, self.copies()) {
            engine.listen(copies);
        }
    }

    /// Replaces the thread if it has ended or shows no life. To be called once in a while.
    pub fn look_after(&mut self) {
        let lost = match &self.engine {
            None => Some("could not be started"),
            Some(engine) => engine.lost(self.silence),
        };
        let Some(what) = lost else { return };
        error!("the API's thread {what}; another one takes over");
        self.restarts += 1;
        // A thread that hangs cannot be ended. Should it go on one day, it finds that it may not.
        self.engine = match self.ignite() {
            Ok(engine) => Some(engine),
            Err(error) => {
                error!(%error, "there is no thread for the API");
                None
            }
        };
    }

    /// What the server tells of what has happened.
    pub fn events(&self) -> &Arc<EventLog> {
        &self.shared.desk.events
    }

    /// Notes what has happened.
    pub fn note_all(&self, events: impl IntoIterator<Item = Event>) {
        events.into_iter().for_each(|event| self.events().note(event));
    }

    /// How often the thread had to be replaced.
    pub const fn restarts(&self) -> u64 {
        self.restarts
    }

    /// Stops listening, removes the socket, gives requests under way a moment to be answered, and
    /// returns when the server's thread has ended.
    pub fn stop(mut self) {
        self.end();
    }

    fn copies(&self) -> std::io::Result<Listeners> {
        self.listeners.iter().map(|(at, listener)| Ok((*at, listener.try_clone()?))).collect()
    }

    fn ignite(&self) -> std::io::Result<Engine> {
        Engine::start(&self.shared, self.socket.try_clone()?, self.copies()?)
    }

    fn end(&mut self) {
        drop(self.file.take());
        self.listeners.clear();
        if let Some(engine) = self.engine.take() {
            engine.stop(STOP_LIMIT);
        }
    }
}

impl std::fmt::Debug for Server {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        out.debug_struct("Server").field("restarts", &self.restarts).finish_non_exhaustive()
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.end();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Client;
    use std::io::{Read, Write};
    use std::os::unix::net::UnixStream;
    use std::time::Instant;

    /// Those who follow events, and those who have asked for nothing, are not waited for. The best
    /// of some attempts: another program may have the processor for a while.
    #[test]
    fn stopping_waits_for_no_idle_client() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("socket");
        let attempt = || {
            let server = Server::start(&path, Box::new(drop)).expect("a server");
            let mut silent = UnixStream::connect(&path).expect("a connection");
            let mut follower = UnixStream::connect(&path).expect("a connection");
            let asked = "GET /v1/events HTTP/1.1\r\nHost: d\r\nAccept: text/event-stream\r\n\r\n";
            follower.write_all(asked.as_bytes()).expect("a request");
            let mut head = [0; 12];
            follower.read_exact(&mut head).expect("an answer");
            assert_eq!(&head, b"HTTP/1.1 200");
            let began = Instant::now();
            server.stop();
            let took = began.elapsed();
            let mut rest = Vec::new();
            assert_eq!(silent.read_to_end(&mut rest).expect("the end"), 0);
            took
        };
        let best = (0..5).map(|_| attempt()).min().expect("attempts");
        assert!(best < Duration::from_millis(150), "stopping took {best:?} at best");
    }

    /// A director takes another's place: who connects comes to the one, who was connected stays.
    #[test]
    fn a_socket_moves_to_the_place_of_another() {
        let folder = tempfile::tempdir().expect("a folder");
        let (path, next) = (folder.path().join("socket"), folder.path().join("socket.next"));
        let former = Server::start(&path, Box::new(drop)).expect("a server");
        let mut connected = UnixStream::connect(&path).expect("a connection");
        let mut server = Server::start(&next, Box::new(drop)).expect("another one");
        server.move_to(&path).expect("it is free to");
        assert!(UnixStream::connect(&next).is_err(), "it listens there no more");
        connected.write_all(b"GET /v1/nothing HTTP/1.1\r\nHost: d\r\n\r\n").expect("a request");
        let mut head = [0; 12];
        connected.read_exact(&mut head).expect("the former one answers");
        former.stop();
        UnixStream::connect(&path).expect("and has left the other's file alone");
        server.stop();
        assert!(!path.exists());
    }

    #[test]
    fn a_thread_that_ended_is_replaced() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("socket");
        let mut server = Server::start(&path, Box::new(drop)).expect("a server");
        let engine = server.engine.take().expect("a thread");
        server.engine = Some(engine.ended_by_itself());
        server.look_after();
        assert_eq!(server.restarts(), 1);
        let answer = Client::new(&path).status().expect_err("calls are dropped");
        assert!(answer.to_string().contains("stopping"), "{answer}");
        server.look_after();
        assert_eq!(server.restarts(), 1);
    }
}
