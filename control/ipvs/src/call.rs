//! The client: asks the director one thing and waits for the answer.
//!
//! It runs inside foreign processes (stock `ipvsadm`, keepalived), so it brings no runtime, starts
//! no thread, raises no `SIGPIPE`, keeps nothing open between questions (what would a forked child
//! do with it?), and never waits past its deadline, even where the director accepts nothing.
//! Its socket calls are the kernel's, by `rustix`, not the C library's, which the preload replaces.

use std::io;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno as Os;
use rustix::net::{
    AddressFamily, RecvFlags, SendFlags, SocketAddrUnix, SocketFlags, SocketType, connect, recv,
    send, socket_with,
};
use serde::Deserialize;

use crate::{Answer, Connection, Reply, Request};

/// Where the director listens unless somebody says otherwise.
pub const DEFAULT_SOCKET: &str = "/run/sluice/sluice.sock";
/// The environment variable that says otherwise, the same as `sluice --socket`'s.
pub const SOCKET_VARIABLE: &str = "SLUICE_SOCKET";
/// How long an answer may take.
pub const PATIENCE: Duration = Duration::from_secs(15);
/// The longest answer that is read, in bytes.
const ANSWER_LIMIT_BYTES: usize = 256 << 20;
/// Headers that an answer may have, and the bytes they may take.
const HEADERS: usize = 32;
const HEAD_LIMIT_BYTES: usize = 16 << 10;
/// Bytes read at a time.
const PIECE_BYTES: usize = 64 << 10;
/// Pause before trying again when the director's queue of connections is full.
const BUSY_PAUSE: Duration = Duration::from_millis(10);
/// Pages of connections that are asked for at most: more than any table has.
const PAGES: usize = 1 << 20;

/// Why there is no answer.
#[derive(Debug, thiserror::Error)]
pub enum CallError {
    /// Nobody listens at the socket.
    #[error("{}: no director listens here ({source}): is sluiced running?", path.display())]
    Absent {
        /// The socket.
        path: PathBuf,
        /// What the kernel said.
        source: io::Error,
    },
    /// The caller may not open the socket.
    #[error("{}: {source}: only root and the socket's group may ask the director", path.display())]
    Denied {
        /// The socket.
        path: PathBuf,
        /// What the kernel said.
        source: io::Error,
    },
    /// The connection failed in another way, or ended before the answer did.
    #[error("{}: {source}", path.display())]
    Broken {
        /// The socket.
        path: PathBuf,
        /// What the kernel said.
        source: io::Error,
    },
    /// The answer took too long.
    #[error("{}: the director has not answered within {} s", path.display(), patience.as_secs())]
    Late {
        /// The socket.
        path: PathBuf,
        /// How long it was waited for.
        patience: Duration,
    },
    /// The director does not do it: it is of another version, or busy.
    #[error("the director answers {status}: {detail}")]
    Refused {
        /// The HTTP status.
        status: u16,
        /// What it says.
        detail: String,
    },
    /// The answer is not what it should be.
    #[error(
        "the director's answer makes no sense ({what}): it may be of another version than this \
         program, which is {}",
        env!("CARGO_PKG_VERSION")
    )]
    Strange {
        /// What is wrong with it.
        what: String,
    },
}

impl CallError {
    /// Whether there is no director, as opposed to one that does not answer as it should.
    pub const fn is_absent(&self) -> bool {
        matches!(self, Self::Absent { .. })
    }
}

/// Asks a director over its Unix socket. Each question is a connection.
#[derive(Clone, Debug)]
pub struct Caller {
    path: PathBuf,
    patience: Duration,
}

impl Caller {
    /// For the socket at `path`. Nothing is connected yet.
    pub fn new(path: impl Into<PathBuf>) -> Self {
        Self { path: path.into(), patience: PATIENCE }
    }

    /// For the socket that [`SOCKET_VARIABLE`] names, else [`DEFAULT_SOCKET`].
    pub fn from_environment() -> Self {
        let named = std::env::var_os(SOCKET_VARIABLE).filter(|path| !path.is_empty());
        Self::new(named.map_or_else(|| PathBuf::from(DEFAULT_SOCKET), PathBuf::from))
    }

    /// The same with another limit on how long an answer may take.
    #[must_use]
    pub fn with_patience(self, patience: Duration) -> Self {
        Self { patience, ..self }
    }

    /// The socket's path.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Asks.
    ///
    /// # Errors
    /// When there is no answer. That the director refuses what is asked is an answer.
    pub fn ask(&self, request: &Request) -> Result<Answer, CallError> {
        let body = serde_json::to_vec(request).map_err(strange)?;
        let (status, answer) = self.exchange(&body)?;
        if status == 200 {
            return serde_json::from_slice(&answer).map_err(strange);
        }
        let problem: Result<Problem, _> = serde_json::from_slice(&answer);
        let detail = problem.map_or_else(|_| "nothing that can be read".to_owned(), |p| p.detail);
        Err(CallError::Refused { status, detail })
    }

    /// Asks for all connections, page by page, and hands each over.
    ///
    /// # Errors
    /// When there is no answer; `Ok(Some(_))` is one that refuses.
    pub fn connections(
        &self,
        mut each: impl FnMut(Connection),
    ) -> Result<Option<Answer>, CallError> {
        let mut cursor = None;
        for _ in 0..PAGES {
            match self.ask(&Request::Connections { cursor: cursor.take() })? {
                Answer::Ok(Reply::Connections { connections, next }) => {
                    connections.into_iter().for_each(&mut each);
                    match next {
                        Some(next) => cursor = Some(next),
                        None => return Ok(None),
                    }
                }
                Answer::Ok(_) => return Err(strange("connections were asked for")),
                refused @ Answer::Refused { .. } => return Ok(Some(refused)),
            }
        }
        Err(strange("connections without end"))
    }

    /// Sends a body, and gives the status and body of the answer.
    fn exchange(&self, body: &[u8]) -> Result<(u16, Vec<u8>), CallError> {
        let deadline = Instant::now() + self.patience;
        let stream = self.connected(deadline)?;
        let head = format!(
            "POST /v1/ipvs HTTP/1.1\r\nHost: sluice\r\nContent-Type: application/json\r\n\
             Content-Length: {}\r\nConnection: close\r\n\r\n",
            body.len()
        );
        let request = [head.as_bytes(), body].concat();
        let mut left = &request[..];
        while !left.is_empty() {
            let flags = SendFlags::NOSIGNAL | SendFlags::DONTWAIT;
            match send(&stream, left, flags) {
                Ok(sent) => left = left.get(sent..).unwrap_or_default(),
                Err(Os::AGAIN) => self.wait(&stream, PollFlags::OUT, deadline)?,
                Err(Os::INTR) => {}
                // It may have answered already, and read no more (a body that is too large).
                Err(_) => break,
            }
        }
        self.answer(&stream, deadline)
    }

    fn connected(&self, deadline: Instant) -> Result<OwnedFd, CallError> {
        let broken =
            |source: Os| CallError::Broken { path: self.path.clone(), source: source.into() };
        let address = SocketAddrUnix::new(&self.path).map_err(broken)?;
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        let stream =
            socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None).map_err(broken)?;
        loop {
            let path = || self.path.clone();
            match connect(&stream, &address) {
                Ok(()) => return Ok(stream),
                Err(Os::INTR) => {}
                Err(Os::AGAIN) if Instant::now() < deadline => std::thread::sleep(BUSY_PAUSE),
                Err(Os::AGAIN) => return Err(self.late()),
                Err(source @ (Os::NOENT | Os::CONNREFUSED | Os::NOTDIR)) => {
                    return Err(CallError::Absent { path: path(), source: source.into() });
                }
                Err(source @ (Os::ACCESS | Os::PERM)) => {
                    return Err(CallError::Denied { path: path(), source: source.into() });
                }
                Err(source) => return Err(broken(source)),
            }
        }
    }

    fn answer(&self, stream: &OwnedFd, deadline: Instant) -> Result<(u16, Vec<u8>), CallError> {
        let mut answer = Vec::new();
        let mut piece = vec![0; PIECE_BYTES];
        let mut head = None;
        loop {
            if head.is_none() {
                head = Head::of(&answer)?;
            }
            if let Some(head) = &head
                && let Some(end) = head.end()
                && answer.len() >= end
            {
                answer.truncate(end);
                answer.drain(..head.bytes);
                return Ok((head.status, answer));
            }
            match recv(stream, &mut piece[..], RecvFlags::DONTWAIT) {
                Ok((0, _)) => break,
                Ok((count, _)) => answer.extend_from_slice(piece.get(..count).unwrap_or_default()),
                Err(Os::AGAIN) => self.wait(stream, PollFlags::IN, deadline)?,
                Err(Os::INTR) => {}
                Err(source) => {
                    let source = source.into();
                    return Err(CallError::Broken { path: self.path.clone(), source });
                }
            }
            if answer.len() > ANSWER_LIMIT_BYTES {
                return Err(strange(format!("longer than {ANSWER_LIMIT_BYTES} bytes")));
            }
        }
        match head {
            Some(head) if head.length.is_none() => {
                answer.drain(..head.bytes);
                Ok((head.status, answer))
            }
            _ => {
                let source = io::ErrorKind::UnexpectedEof.into();
                Err(CallError::Broken { path: self.path.clone(), source })
            }
        }
    }

    /// Waits until the socket is ready, or fails because the deadline is there.
    fn wait(
        &self,
        stream: &OwnedFd,
        events: PollFlags,
        deadline: Instant,
    ) -> Result<(), CallError> {
        let left = deadline.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Err(self.late());
        }
        let timeout = Timespec::try_from(left).ok();
        match poll(&mut [PollFd::new(stream, events)], timeout.as_ref()) {
            Ok(_) | Err(Os::INTR) => Ok(()),
            Err(source) => {
                Err(CallError::Broken { path: self.path.clone(), source: source.into() })
            }
        }
    }

    fn late(&self) -> CallError {
        CallError::Late { path: self.path.clone(), patience: self.patience }
    }
}

fn strange(what: impl std::fmt::Display) -> CallError {
    CallError::Strange { what: what.to_string() }
}

/// What is read of a problem (RFC 9457).
#[derive(Deserialize)]
struct Problem {
    detail: String,
}

/// Status line and headers of an answer.
struct Head {
    /// Their bytes.
    bytes: usize,
    status: u16,
    /// Of the body; none when it ends with the connection.
    length: Option<usize>,
}

impl Head {
    /// What `answer` begins with, if it is all there.
    fn of(answer: &[u8]) -> Result<Option<Self>, CallError> {
        let mut headers = [httparse::EMPTY_HEADER; HEADERS];
        let mut response = httparse::Response::new(&mut headers);
        let bytes = match response.parse(answer).map_err(strange)? {
            httparse::Status::Complete(bytes) => bytes,
            httparse::Status::Partial if answer.len() > HEAD_LIMIT_BYTES => {
                return Err(strange("headers without end"));
            }
            httparse::Status::Partial => return Ok(None),
        };
        let value = |name: &str| {
            let found = response.headers.iter().find(|h| h.name.eq_ignore_ascii_case(name));
            found.map(|header| String::from_utf8_lossy(header.value).trim().to_owned())
        };
        if value("transfer-encoding").is_some() {
            return Err(strange("its body comes in chunks"));
        }
        let length = match value("content-length") {
            Some(text) => match text.parse() {
                Ok(length) if length <= ANSWER_LIMIT_BYTES => Some(length),
                _ => return Err(strange(format!("content-length: {text:?}"))),
            },
            None => None,
        };
        Ok(Some(Self { bytes, status: response.code.unwrap_or(0), length }))
    }

    /// Where the answer ends, if it says so.
    fn end(&self) -> Option<usize> {
        self.length.map(|length| self.bytes + length)
    }
}

#[cfg(test)]
mod tests {
    use std::io::{Read, Write};
    use std::os::unix::net::UnixListener;
    use std::thread;
    use std::time::{Duration, Instant};

    use super::{CallError, Caller};
    use crate::{Answer, Errno, Reply, Request};

    /// A director that says one thing, whatever it is asked, and gives back what it was asked.
    fn told(answer: &str) -> (Result<Answer, CallError>, String) {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("socket");
        let listener = UnixListener::bind(&path).unwrap();
        let answer = answer.to_owned();
        let director = thread::spawn(move || {
            let (mut peer, _) = listener.accept().unwrap();
            let mut asked = vec![0; 4096];
            let count = peer.read(&mut asked).unwrap();
            // Byte by byte: no piece has a meaning of its own.
            for byte in answer.as_bytes() {
                if peer.write_all(&[*byte]).is_err() {
                    break;
                }
            }
            asked.truncate(count);
            String::from_utf8(asked).unwrap()
        });
        let caller = Caller::new(&path).with_patience(Duration::from_secs(10));
        (caller.ask(&Request::Info), director.join().unwrap())
    }

    fn with_length(status: &str, body: &str) -> String {
        format!("HTTP/1.1 {status}\r\ncontent-length: {}\r\n\r\n{body}", body.len())
    }

    #[test]
    fn a_question_and_its_answers() {
        let (answer, asked) = told(&with_length("200 OK", r#"{"ok":"done"} "#));
        assert_eq!(answer.unwrap(), Answer::Ok(Reply::Done));
        assert!(asked.starts_with("POST /v1/ipvs HTTP/1.1\r\n"), "{asked}");
        assert!(asked.contains("\r\nContent-Length: 6\r\n"), "{asked}");
        assert!(asked.ends_with("\r\n\r\n\"info\""), "{asked}");

        let refused = r#"{"refused":{"errno":"ESRCH","detail":"no"}}"#;
        let (answer, _) = told(&format!("HTTP/1.1 200 OK\r\n\r\n{refused}"));
        let detail = "no".to_owned();
        assert_eq!(answer.unwrap(), Answer::Refused { errno: Errno::Srch, detail });
    }

    #[test]
    fn what_is_no_answer_is_an_error_of_its_kind() {
        let problem = with_length("404 Not Found", r#"{"detail":"there is nothing at /v1/ipvs"}"#);
        assert!(matches!(told(&problem).0, Err(CallError::Refused { status: 404, detail })
            if detail.contains("/v1/ipvs")));
        let huge = "HTTP/1.1 200 OK\r\ncontent-length: 99999999999\r\n\r\n";
        let chunks = "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n0\r\n\r\n";
        let unknown = with_length("200 OK", r#"{"maybe":1}"#);
        let endless = format!("HTTP/1.1 200 OK\r\nx: {}", "x".repeat(20_000));
        for answer in [huge, chunks, &unknown, &endless, "SSH-2.0-x\r\n\r\n"] {
            let (answer, _) = told(answer);
            assert!(matches!(answer, Err(CallError::Strange { .. })), "{answer:?}");
        }
        let cut = "HTTP/1.1 200 OK\r\ncontent-length: 9\r\n\r\n{";
        for answer in ["", cut] {
            let (answer, _) = told(answer);
            assert!(matches!(answer, Err(CallError::Broken { .. })), "{answer:?}");
        }
    }

    #[test]
    fn nobody_is_there() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("socket");
        assert!(Caller::new(&path).ask(&Request::Info).unwrap_err().is_absent());
        drop(UnixListener::bind(&path).unwrap());
        let error = Caller::new(&path).ask(&Request::Info).unwrap_err();
        assert!(error.is_absent() && error.to_string().contains("is sluiced running"), "{error}");
    }

    #[test]
    fn a_director_that_hangs_holds_nobody_past_the_deadline() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("socket");
        let listener = UnixListener::bind(&path).unwrap();
        let caller = Caller::new(&path).with_patience(Duration::from_millis(5));
        // Until its queue of connections is full, and then on.
        let started = Instant::now();
        for _ in 0..200 {
            let error = caller.ask(&Request::Info).unwrap_err();
            assert!(matches!(error, CallError::Late { .. }), "{error}");
        }
        assert!(started.elapsed() < Duration::from_secs(60));
        drop(listener);
    }
}
