//! The thread that serves: a task for each listener, a task for each connection, a limit on
//! everything.
//!
//! Over the control socket a connection serves one request. Over the network it may serve several,
//! and idles for [`HEADER_LIMIT`]; each has [`CONNECTION_LIMIT`] in all, unless its answer has no
//! end. A client that stops reading, or never finishes its request, cannot keep others out for
//! long, one that says nothing at all is let go after [`FIRST_LIMIT`] or for another ([`Places`]),
//! and network clients never keep out those of the control socket.

use std::future::Future;
use std::io;
use std::net::{SocketAddr, TcpListener as StdTcpListener};
use std::os::unix::net::UnixListener as StdUnixListener;
use std::pin::pin;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, PoisonError, RwLock};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use axum::Router;
use axum::extract::Request;
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::{Service, service_fn};
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use rustls::ServerConfig;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpStream, UnixListener};
use tokio::runtime::{Builder, Runtime};
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use tokio::sync::{Semaphore, watch};
use tokio::task::JoinSet;
use tokio::time::{Instant as Moment, sleep, sleep_until, timeout, timeout_at};
use tokio_rustls::TlsAcceptor;
use tracing::{debug, warn};

use crate::access::{Gate, Way};
use crate::paced::Paced;
use crate::places::{Place, Places};
use crate::routes::{Desk, router};

/// Connections to the control socket at a time.
pub(crate) const CONNECTIONS: usize = 64;
/// How long a network client may take, TLS included, until its first request has come.
const FIRST_LIMIT: Duration = Duration::from_secs(5);
/// How long a client may take over its request line and header, or idle before the next.
const HEADER_LIMIT: Duration = Duration::from_secs(10);
/// After this a connection gets no further request.
const REUSE_LIMIT: Duration = Duration::from_secs(45);
/// How long a connection may last in all.
const CONNECTION_LIMIT: Duration = Duration::from_secs(60);
/// How long a client may read nothing of what it is sent.
const STALL_LIMIT: Duration = Duration::from_secs(20);
/// How much a request line and header may take, in bytes.
const HEADER_BYTES: usize = 16 << 10;
/// Lines that a header may have.
const HEADER_LINES: usize = 64;
/// How long connections may go on once the server is to stop.
const STOP_LIMIT: Duration = Duration::from_millis(250);
/// Pause after the system had no descriptor or memory for a connection.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);
/// How often the thread shows that it lives.
const BEAT: Duration = Duration::from_millis(100);

/// What all of a server's threads share.
pub(crate) struct Shared {
    pub(crate) desk: Arc<Desk>,
    pub(crate) gate: Arc<Gate>,
    /// What network clients are shown; `None` for plain HTTP.
    pub(crate) tls: RwLock<Option<Arc<ServerConfig>>>,
    /// The thread that may go on.
    pub(crate) generation: AtomicU64,
}

/// Where a thread is to listen from now on.
pub(crate) type Listeners = Vec<(SocketAddr, StdTcpListener)>;

/// Changes when the server stops: its sender is gone.
type End = watch::Receiver<()>;

/// A thread that serves.
pub(crate) struct Engine {
    orders: Option<UnboundedSender<Listeners>>,
    thread: JoinHandle<()>,
    /// Milliseconds since `born` when it last showed that it lives.
    beat: Arc<AtomicU64>,
    born: Instant,
}

impl Engine {
    /// Starts one on the control socket and these listeners.
    pub(crate) fn start(
        shared: &Arc<Shared>,
        socket: StdUnixListener,
        listeners: Listeners,
    ) -> io::Result<Self> {
        let generation = shared.generation.fetch_add(1, Ordering::SeqCst) + 1;
        let (orders, received) = unbounded_channel();
        // Nobody can have hung up yet.
        let _ = orders.send(listeners);
        let (beat, born) = (Arc::new(AtomicU64::new(0)), Instant::now());
        let runtime = Builder::new_current_thread().enable_all().build()?;
        let life = Life {
            shared: Arc::clone(shared),
            router: router(Arc::clone(&shared.desk), Arc::clone(&shared.gate)),
            generation,
            beat: Arc::clone(&beat),
            born,
        };
        let thread = std::thread::Builder::new()
            .name("api".to_owned())
            .spawn(move || life.run(&runtime, socket, received))?;
        Ok(Self { orders: Some(orders), thread, beat, born })
    }

    /// Listens on these from now on, and on no others.
    pub(crate) fn listen(&self, listeners: Listeners) {
        if let Some(orders) = &self.orders {
            // One that has ended is replaced, with these.
            let _ = orders.send(listeners);
        }
    }

    /// Why it is to be replaced, if it is.
    pub(crate) fn lost(&self, silence: Duration) -> Option<&'static str> {
        let last = Duration::from_millis(self.beat.load(Ordering::Relaxed));
        if self.thread.is_finished() {
            return Some("ended unexpectedly");
        }
        (self.born.elapsed().saturating_sub(last) > silence).then_some("hangs")
    }

    /// Has it end, and waits, but not for one that hangs.
    pub(crate) fn stop(mut self, most: Duration) {
        drop(self.orders.take());
        let deadline = Instant::now() + most;
        while !self.thread.is_finished() {
            if Instant::now() >= deadline {
                warn!("the API's thread hangs, and is left behind");
                return;
            }
            std::thread::sleep(Duration::from_millis(5));
        }
        if self.thread.join().is_err() {
            warn!("the API's thread had panicked");
        }
    }
}

#[cfg(test)]
impl Engine {
    /// The same after its thread has ended.
    pub(crate) fn ended_by_itself(mut self) -> Self {
        drop(self.orders.take());
        let deadline = Instant::now() + Duration::from_secs(10);
        while !self.thread.is_finished() && Instant::now() < deadline {
            std::thread::sleep(Duration::from_millis(5));
        }
        self
    }
}

/// What a thread works with.
struct Life {
    shared: Arc<Shared>,
    router: Router,
    generation: u64,
    beat: Arc<AtomicU64>,
    born: Instant,
}

impl Life {
    fn run(
        self,
        runtime: &Runtime,
        socket: StdUnixListener,
        mut orders: UnboundedReceiver<Listeners>,
    ) {
        let places = Arc::new(Semaphore::new(CONNECTIONS));
        let network = Arc::new(Places::default());
        let (going_on, end) = watch::channel(());
        runtime.block_on(async {
            let mut local = JoinSet::new();
            match UnixListener::from_std(socket) {
                Ok(socket) => {
                    local.spawn(self.accept_local(socket, Arc::clone(&places), end.clone()));
                }
                Err(error) => {
                    warn!(%error, "the control socket cannot be served");
                    return;
                }
            }
            let mut listening = JoinSet::new();
            let mut beats = tokio::time::interval(BEAT);
            loop {
                tokio::select! {
                    order = orders.recv() => match order {
                        Some(listeners) => {
                            listening = JoinSet::new();
                            self.listen(listeners, &mut listening, (&network, &end));
                        }
                        None => break,
                    },
                    _ = beats.tick() => {
                        let alive = self.born.elapsed().as_millis() as u64;
                        self.beat.store(alive, Ordering::Relaxed);
                        if self.shared.generation.load(Ordering::SeqCst) != self.generation {
                            return;
                        }
                    }
                    // A listener's task only ends by a panic; the thread then begins anew.
                    Some(_) = local.join_next() => return,
                    Some(_) = listening.join_next() => return,
                }
            }
            drop((local, listening, going_on));
            let all = async {
                let _ = places.acquire_many(CONNECTIONS as u32).await;
                while !network.is_empty() {
                    sleep(Duration::from_millis(5)).await;
                }
            };
            if timeout(STOP_LIMIT, all).await.is_err() {
                debug!("stopped with requests unanswered");
            }
        });
    }

    fn listen(&self, all: Listeners, tasks: &mut JoinSet<()>, (places, end): (&Arc<Places>, &End)) {
        for (at, listener) in all {
            match TcpListener::from_std(listener) {
                Ok(listener) => {
                    tasks.spawn(self.accept_remote(listener, Arc::clone(places), end.clone()));
                }
                Err(error) => warn!(%at, %error, "an address cannot be listened on"),
            }
        }
    }

    /// Takes connections to the control socket for ever.
    fn accept_local(
        &self,
        listener: UnixListener,
        places: Arc<Semaphore>,
        end: End,
    ) -> impl Future<Output = ()> + use<> {
        let router = self.router.clone();
        async move {
            while let Ok(place) = Arc::clone(&places).acquire_owned().await {
                match listener.accept().await {
                    Ok((stream, _)) => {
                        let (router, way) = (router.clone(), Way::new(None, false));
                        let limits = Limits { first: None, end: end.clone() };
                        tokio::spawn(async move {
                            serve(stream, router, way, limits).await;
                            drop(place);
                        });
                    }
                    Err(error) => pause(&error, "the control socket").await,
                }
            }
        }
    }

    /// Takes connections over the network for ever.
    fn accept_remote(
        &self,
        listener: TcpListener,
        places: Arc<Places>,
        end: End,
    ) -> impl Future<Output = ()> + use<> {
        let (router, shared) = (self.router.clone(), Arc::clone(&self.shared));
        async move {
            loop {
                let (stream, peer) = match listener.accept().await {
                    Ok(accepted) => accepted,
                    Err(error) => {
                        pause(&error, "the API's address").await;
                        continue;
                    }
                };
                let Some(place) = Places::admit(&places, peer) else {
                    debug!(%peer, "there is no place for a connection");
                    continue;
                };
                let tls = shared.tls.read().unwrap_or_else(PoisonError::into_inner).clone();
                let (number, first) = (place.number(), Moment::now() + FIRST_LIMIT);
                let limits = Limits { first: Some(first), end: end.clone() };
                let served = (router.clone(), place, limits);
                let task = tokio::spawn(serve_remote(stream, peer, tls, served));
                Place::is_of(&places, number, task.abort_handle());
            }
        }
    }
}

/// When a connection is over, whatever its client does.
struct Limits {
    /// The first request must have come by then.
    first: Option<Moment>,
    end: End,
}

/// Serves a network client that has a place.
async fn serve_remote(
    stream: TcpStream,
    peer: SocketAddr,
    tls: Option<Arc<ServerConfig>>,
    (router, place, mut limits): (Router, Place, Limits),
) {
    let way = Way::new(Some(peer), tls.is_some()).of_place(place.known());
    let Some(tls) = tls else {
        serve(stream, router, way, limits).await;
        return drop(place);
    };
    let first = limits.first.unwrap_or_else(Moment::now);
    let secured = tokio::select! {
        secured = timeout_at(first, TlsAcceptor::from(tls).accept(stream)) => secured,
        _ = limits.end.changed() => return drop(place),
    };
    match secured {
        Ok(Ok(stream)) => serve(stream, router, way, limits).await,
        Ok(Err(error)) => debug!(%peer, %error, "a TLS handshake failed"),
        Err(_) => debug!(%peer, "a TLS handshake took too long"),
    }
    drop(place);
}

/// The client went away, or the process is out of descriptors: neither may end the server.
async fn pause(error: &io::Error, place: &str) {
    if error.kind() != io::ErrorKind::ConnectionAborted {
        warn!(%error, "a connection to {place} was not accepted");
    }
    sleep(ACCEPT_PAUSE).await;
}

/// Serves a connection.
async fn serve<S>(stream: S, router: Router, way: Way, mut limits: Limits)
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let (tower, remote, kept) = (TowerToHyperService::new(router), way.peer.is_some(), way.clone());
    let service = service_fn(move |mut request: Request<Incoming>| {
        way.hear();
        request.extensions_mut().insert(way.clone());
        tower.call(request)
    });
    let hurried = Arc::new(AtomicBool::new(false));
    let stream = TokioIo::new(Paced::new(stream, STALL_LIMIT, Arc::clone(&hurried)));
    let connection = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(HEADER_LIMIT)
        .max_buf_size(HEADER_BYTES)
        .max_headers(HEADER_LINES)
        .keep_alive(remote)
        .serve_connection(stream, service);
    let mut connection = pin!(connection);
    let reused = async {
        let mut outcome = timeout(REUSE_LIMIT, connection.as_mut()).await;
        if outcome.is_err() {
            connection.as_mut().graceful_shutdown();
            outcome = match kept.is_kept() {
                true => Ok(connection.as_mut().await),
                false => timeout(CONNECTION_LIMIT - REUSE_LIMIT, connection.as_mut()).await,
            };
        }
        outcome
    };
    let outcome = tokio::select! {
        outcome = reused => Some(outcome),
        () = silent(&kept, limits.first) => return debug!("a client of the API said nothing"),
        _ = limits.end.changed() => None,
    };
    let outcome = match outcome {
        Some(outcome) => outcome,
        // Who follows has no last answer to wait for, nor has who asks for nothing.
        None if kept.is_kept() || !kept.is_heard() => return,
        None => {
            hurried.store(true, Ordering::Relaxed);
            connection.as_mut().graceful_shutdown();
            Ok(connection.await)
        }
    };
    match outcome {
        Ok(Ok(())) => {}
        Ok(Err(error)) => debug!(%error, "a connection to the API broke"),
        Err(_) => debug!("a connection to the API took too long"),
    }
}

/// Ends at a moment unless a request has come until then.
async fn silent(way: &Way, first: Option<Moment>) {
    if let Some(first) = first {
        sleep_until(first).await;
        if !way.is_heard() {
            return;
        }
    }
    std::future::pending().await
}
