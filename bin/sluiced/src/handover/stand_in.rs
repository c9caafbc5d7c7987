//! Standing in for the main process of a systemd unit while systemd restarts it.
//!
//! `systemctl restart` ends the director before it starts it again. So that packets are forwarded
//! meanwhile, the unit's `ExecStop=` has the director hand over to a process that stands in
//! (`sluice ha upgrade --stand-in`). That one is not the unit's main process, and
//! `KillMode=process` leaves it alone. It waits at a socket beside the control socket for the
//! process that systemd starts, to which it hands over in turn.

use super::Channel;
use rustix::net::sockopt::socket_peercred;
use std::ffi::OsString;
use std::fs::Permissions;
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};
use tracing::warn;

/// How long it waits for a process that takes over: systemd tries at once, and again when a start
/// fails.
const LONGEST: Duration = Duration::from_secs(60);

/// A process that stands in, and the socket at which it waits.
pub(super) struct StandIn {
    listener: UnixListener,
    path: PathBuf,
    until: Instant,
}

/// Where a process waits that stands in for the one with this control socket.
fn place(control_socket: &Path) -> PathBuf {
    let mut name = OsString::from(control_socket.as_os_str());
    name.push(".stand-in");
    name.into()
}

impl StandIn {
    /// Begins to wait.
    pub fn begin(control_socket: &Path) -> io::Result<Self> {
        let path = place(control_socket);
        // That of a process that was killed.
        match std::fs::remove_file(&path) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            _ => {}
        }
        let listener = UnixListener::bind(&path)?;
        let stand_in = Self { listener, path, until: Instant::now() + LONGEST };
        std::fs::set_permissions(&stand_in.path, Permissions::from_mode(0o600))?;
        stand_in.listener.set_nonblocking(true)?;
        Ok(stand_in)
    }

    /// The process that has come to take over, and its id. One of another user gets nothing.
    pub fn accept(&mut self) -> Option<(Channel, u32)> {
        let (stream, _) = self.listener.accept().ok()?;
        let peer = socket_peercred(&stream).ok()?;
        if peer.uid != rustix::process::geteuid() {
            warn!(uid = peer.uid.as_raw(), "refused to hand over to a process of another user");
            return None;
        }
        stream.set_nonblocking(false).ok()?;
        self.until = Instant::now() + LONGEST;
        Some((Channel::from(stream), peer.pid.as_raw_pid().unsigned_abs()))
    }

    /// Whether nobody has come for too long.
    pub fn is_over(&self) -> bool {
        Instant::now() >= self.until
    }
}

impl AsFd for StandIn {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.listener.as_fd()
    }
}

impl Drop for StandIn {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.path);
    }
}

/// The channel to the process that stands in for the one with this control socket, if one does.
pub(crate) fn find(control_socket: &Path) -> Option<Channel> {
    UnixStream::connect(place(control_socket)).ok().map(Channel::from)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_comes_is_known_and_the_socket_goes_with_its_process() {
        let dir = tempfile::tempdir().unwrap();
        let control = dir.path().join("sluice.sock");
        assert!(find(&control).is_none());
        // What a killed process left is in nobody's way.
        drop(UnixListener::bind(place(&control)).unwrap());
        assert!(find(&control).is_none());
        let mut stand_in = StandIn::begin(&control).unwrap();
        let mode = std::fs::metadata(place(&control)).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600);
        assert!(stand_in.accept().is_none());
        let next = find(&control).unwrap();
        let (channel, pid) = stand_in.accept().unwrap();
        assert_eq!(pid, std::process::id());
        channel.send(&7, &[]).unwrap();
        assert_eq!(next.receive::<u32>(LONGEST).unwrap().0, 7);
        drop(stand_in);
        assert!(find(&control).is_none() && !place(&control).exists());
    }
}
