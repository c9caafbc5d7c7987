//! What the service manager is told, by systemd's protocol (`sd_notify(3)`).
//!
//! A manager that stands still must not stop a director with it. Its socket's queue holds few
//! datagrams (`net.unix.max_dgram_qlen`: 10, or 512 by systemd), and a send to a full one waits for
//! as long as nobody reads. So each send here is bounded.

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::net::{SendFlags, send};
use sd_notify::NotifyState;
use std::ffi::OsStr;
use std::fmt::Write as _;
use std::io;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::net::{SocketAddr, UnixDatagram};
use std::time::{Duration, Instant};
use tracing::{debug, warn};

/// The environment variable that names the manager's socket.
const SOCKET: &str = "NOTIFY_SOCKET";
/// How long a change of state may wait for room in the queue.
const PATIENCE: Duration = Duration::from_secs(2);
/// Between two tries.
const PAUSE: Duration = Duration::from_millis(10);

/// Tells a change of state. Waits for room for at most 2 s.
pub(crate) fn tell(states: &[NotifyState<'_>]) {
    let Some(socket) = std::env::var_os(SOCKET) else { return };
    if let Err(error) = tell_at(&socket, states, PATIENCE) {
        warn!(%error, ?states, "cannot tell the service manager");
    }
}

/// Tells that the director is alive, if the manager watches it. Does not wait: it is told again a
/// second later.
pub(crate) fn tell_alive() {
    // WATCHDOG_PID names the first process, which may have handed over to this one.
    if std::env::var_os("WATCHDOG_USEC").is_none() {
        return;
    }
    let Some(socket) = std::env::var_os(SOCKET) else { return };
    if let Err(error) = tell_at(&socket, &[NotifyState::Watchdog], Duration::ZERO) {
        debug!(%error, "cannot tell the service manager");
    }
}

fn tell_at(socket: &OsStr, states: &[NotifyState<'_>], patience: Duration) -> io::Result<()> {
    let mut text = String::new();
    for state in states {
        let _ = writeln!(text, "{state}");
    }
    let until = Instant::now() + patience;
    let datagrams = UnixDatagram::unbound()?;
    datagrams.connect_addr(&address(socket)?)?;
    loop {
        match send(&datagrams, text.as_bytes(), SendFlags::DONTWAIT | SendFlags::NOSIGNAL) {
            Ok(_) => return Ok(()),
            Err(rustix::io::Errno::AGAIN) if Instant::now() < until => wait(&datagrams),
            Err(error) => return Err(error.into()),
        }
    }
}

/// Waits until there may be room. A queue that others fill too can be full again by then.
fn wait(datagrams: &UnixDatagram) {
    let mut fds = [PollFd::new(datagrams, PollFlags::OUT)];
    let pause = Timespec { tv_sec: 0, tv_nsec: i64::from(PAUSE.subsec_nanos()) };
    let _ = poll(&mut fds, Some(&pause));
}

/// A path, or a name of the abstract namespace after `@`.
fn address(socket: &OsStr) -> io::Result<SocketAddr> {
    match socket.as_bytes().strip_prefix(b"@") {
        Some(name) => SocketAddr::from_abstract_name(name),
        None => SocketAddr::from_pathname(socket),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn receive(socket: &UnixDatagram) -> String {
        let mut buffer = [0; 512];
        let len = socket.recv(&mut buffer).unwrap();
        String::from_utf8_lossy(&buffer[..len]).into_owned()
    }

    #[test]
    fn states_come_as_lines_of_one_datagram() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("notify");
        let socket = UnixDatagram::bind(&path).unwrap();
        let states = [NotifyState::Ready, NotifyState::Status("forwarding")];
        tell_at(path.as_os_str(), &states, PATIENCE).unwrap();
        assert_eq!(receive(&socket), "READY=1\nSTATUS=forwarding\n");
    }

    #[test]
    fn a_socket_may_have_an_abstract_name() {
        let name = format!("sluice-test-{}", std::process::id());
        let socket =
            UnixDatagram::bind_addr(&SocketAddr::from_abstract_name(&name).unwrap()).unwrap();
        let told = tell_at(OsStr::new(&format!("@{name}")), &[NotifyState::Stopping], PATIENCE);
        told.unwrap();
        assert_eq!(receive(&socket), "STOPPING=1\n");
    }

    /// It would wait for ever.
    #[test]
    fn a_queue_that_nobody_reads_is_given_up() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("notify");
        let socket = UnixDatagram::bind(&path).unwrap();
        let tell = |patience| tell_at(path.as_os_str(), &[NotifyState::Watchdog], patience);
        let mut queued = 0;
        while tell(Duration::ZERO).is_ok() {
            queued += 1;
        }
        let refused = tell(Duration::from_millis(30)).unwrap_err();
        assert_eq!(refused.kind(), io::ErrorKind::WouldBlock);
        // What was queued has not been lost, and there is room again after it was read.
        for _ in 0..queued {
            assert_eq!(receive(&socket), "WATCHDOG=1\n");
        }
        tell(PATIENCE).unwrap();
    }

    #[test]
    fn a_socket_that_has_gone_is_an_error() {
        let dir = tempfile::tempdir().unwrap();
        let gone = dir.path().join("notify");
        assert!(tell_at(gone.as_os_str(), &[NotifyState::Ready], PATIENCE).is_err());
    }
}
