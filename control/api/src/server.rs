//! The server: one thread, one request a connection, a limit on everything.
//!
//! A connection serves one request and has a deadline, so that a client that stops reading or
//! never finishes its request cannot keep others out for long. There may be [`CONNECTIONS`] at a
//! time; more wait in the socket's queue.

use std::io;
use std::path::Path;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;

use axum::{Extension, Router};
use hyper::server::conn::http1;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use tokio::net::{UnixListener, UnixStream};
use tokio::runtime::{Builder, Runtime};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, oneshot};
use tracing::{debug, warn};

use crate::call::Call;
use crate::error::ApiError;
use crate::look::Lasting;
use crate::routes::{Desk, router};
use crate::socket::{SocketFile, listen};

/// Connections at a time.
const CONNECTIONS: usize = 64;
/// How long a client may take over its request line and header.
const HEADER_LIMIT: Duration = Duration::from_secs(10);
/// How long a connection may last in all.
const CONNECTION_LIMIT: Duration = Duration::from_secs(60);
/// How long one may last whose answer goes on by itself: an hour, and time to read the end.
const STREAM_LIMIT: Duration = Duration::from_secs(3660);
/// How long connections may go on once the server is to stop.
const STOP_LIMIT: Duration = Duration::from_millis(250);
/// Pause after the system had no descriptor or memory for a connection.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// How a server behaves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Options {
    /// How long the daemon may take to answer a call; after that the client is told so (504).
    pub patience: Duration,
}

impl Default for Options {
    fn default() -> Self {
        Self { patience: Duration::from_secs(5) }
    }
}

/// A running server. It stops when dropped.
#[derive(Debug)]
pub struct Server {
    stop: Option<oneshot::Sender<()>>,
    thread: Option<JoinHandle<()>>,
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
        let (listener, file) = runtime.block_on(listen(path))?;
        let router = router(Arc::new(Desk { call, patience: options.patience }));
        let (stop, stopped) = oneshot::channel();
        let thread = std::thread::Builder::new()
            .name("api".to_owned())
            .spawn(move || run(&runtime, listener, file, router, stopped))
            .map_err(failed)?;
        Ok(Self { stop: Some(stop), thread: Some(thread) })
    }

    /// Stops listening, removes the socket, gives requests under way a moment to be answered, and
    /// returns when the server's thread has ended.
    pub fn stop(mut self) {
        self.end();
    }

    fn end(&mut self) {
        // Dropping the sender is the signal.
        drop(self.stop.take());
        if let Some(thread) = self.thread.take()
            && thread.join().is_err()
        {
            warn!("the API's thread had panicked");
        }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.end();
    }
}

fn run(
    runtime: &Runtime,
    listener: UnixListener,
    file: SocketFile,
    router: Router,
    stopped: oneshot::Receiver<()>,
) {
    runtime.block_on(async {
        let places = Arc::new(Semaphore::new(CONNECTIONS));
        tokio::select! {
            () = accept(&listener, &places, &router) => {}
            _ = stopped => {}
        }
        drop((listener, file));
        let all = places.acquire_many(CONNECTIONS as u32);
        if tokio::time::timeout(STOP_LIMIT, all).await.is_err() {
            debug!("stopped with requests unanswered");
        }
    });
}

/// Takes connections for ever.
async fn accept(listener: &UnixListener, places: &Arc<Semaphore>, router: &Router) {
    while let Ok(place) = Arc::clone(places).acquire_owned().await {
        match listener.accept().await {
            Ok((stream, _)) => {
                tokio::spawn(serve(stream, router.clone(), place));
            }
            Err(error) => {
                // The client went away, or the process is out of descriptors: neither may end it.
                if error.kind() != io::ErrorKind::ConnectionAborted {
                    warn!(%error, "a connection to the control socket was not accepted");
                }
                tokio::time::sleep(ACCEPT_PAUSE).await;
            }
        }
    }
}

async fn serve(stream: UnixStream, router: Router, place: OwnedSemaphorePermit) {
    let lasting = Lasting::default();
    let router = router.layer(Extension(lasting.clone()));
    let connection = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(HEADER_LIMIT)
        .keep_alive(false)
        .serve_connection(TokioIo::new(stream), TowerToHyperService::new(router));
    let mut connection = std::pin::pin!(connection);
    let mut ended = tokio::time::timeout(CONNECTION_LIMIT, connection.as_mut()).await;
    if ended.is_err() && lasting.is_set() {
        ended = tokio::time::timeout(STREAM_LIMIT, connection).await;
    }
    match ended {
        Ok(Ok(())) => {}
        Ok(Err(error)) => debug!(%error, "a connection to the control socket broke"),
        Err(_) => debug!("a connection to the control socket took too long"),
    }
    drop(place);
}
