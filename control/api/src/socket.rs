//! The socket's file: who may make it, who may use it, who takes it away.
//!
//! A director that was killed leaves its socket behind, and the next one replaces it; a socket
//! that somebody answers on is never touched. Two directors that start at the same moment would
//! both find the same dead socket, so looking and replacing happens under a lock of the folder,
//! which leaves nothing behind. Nobody can connect before the file's mode is set: until then the
//! socket does not listen.

use std::fs::{self, DirBuilder, File, Permissions, TryLockError};
use std::io;
use std::os::unix::fs::{DirBuilderExt, FileTypeExt, MetadataExt, PermissionsExt, lchown};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use tokio::net::{UnixListener, UnixSocket, UnixStream};
use tracing::warn;

use crate::error::ApiError;

/// Who may use the socket: its owner and its group.
const SOCKET_MODE: u32 = 0o660;
/// Mode of folders that are made for it.
const FOLDER_MODE: u32 = 0o755;
/// Connections that wait until they are looked at.
const BACKLOG: u32 = 64;
const LOCK_LIMIT: Duration = Duration::from_secs(5);
const LOCK_PAUSE: Duration = Duration::from_millis(10);

/// A socket file that this process made; gone when dropped.
#[derive(Debug)]
pub(crate) struct SocketFile {
    path: PathBuf,
    /// Device and inode: the file at the path may be somebody else's by now.
    identity: (u64, u64),
}

impl SocketFile {
    /// Gives the socket another path, in place of whatever socket is there: from now on whoever
    /// connects comes here. Those who are connected to the other one are not disturbed.
    pub(crate) fn move_to(&mut self, path: &Path) -> io::Result<()> {
        if fs::symlink_metadata(path).is_ok_and(|found| !found.file_type().is_socket()) {
            return Err(io::ErrorKind::AlreadyExists.into());
        }
        fs::rename(&self.path, path)?;
        self.path = path.to_owned();
        Ok(())
    }
}

impl Drop for SocketFile {
    fn drop(&mut self) {
        let ours = fs::symlink_metadata(&self.path).is_ok_and(|m| identity(&m) == self.identity);
        if ours {
            // A path that cannot be removed now will be replaced by the next director.
            let _ = fs::remove_file(&self.path);
        }
    }
}

fn identity(metadata: &fs::Metadata) -> (u64, u64) {
    (metadata.dev(), metadata.ino())
}

/// The number of a group: of a number itself, or of a name that `/etc/group` has.
pub fn group_id(group: &str) -> Option<u32> {
    let listed = || {
        let all = fs::read_to_string("/etc/group").ok()?;
        all.lines().find_map(|line| {
            let mut fields = line.split(':');
            (fields.next() == Some(group)).then(|| fields.nth(1)?.parse().ok())?
        })
    };
    group.parse().ok().or_else(listed)
}

/// Listens on `path`, for the owner and this group, or that of the process. To be run alone in its
/// runtime: waiting for the lock blocks it.
pub(crate) async fn listen(
    path: &Path,
    group: Option<u32>,
) -> Result<(UnixListener, SocketFile), ApiError> {
    let failed = |source| ApiError::Listen { path: path.to_owned(), source };
    let folder = match path.parent() {
        Some(folder) if !folder.as_os_str().is_empty() => folder,
        _ => Path::new("."),
    };
    DirBuilder::new().recursive(true).mode(FOLDER_MODE).create(folder).map_err(failed)?;
    // Held until the socket listens.
    let _lock = lock(folder, path)?;
    remove_dead(path).await?;
    let socket = UnixSocket::new_stream().map_err(failed)?;
    socket.bind(path).map_err(failed)?;
    let metadata = fs::symlink_metadata(path).map_err(failed)?;
    let file = SocketFile { path: path.to_owned(), identity: identity(&metadata) };
    if let Some(group) = group
        && metadata.gid() != group
        && let Err(error) = lchown(path, None, Some(group))
    {
        // Then only its owner may use it, which is no reason not to start.
        warn!(group, %error, "the control socket cannot be given to its group");
    }
    fs::set_permissions(path, Permissions::from_mode(SOCKET_MODE)).map_err(failed)?;
    let listener = socket.listen(BACKLOG).map_err(failed)?;
    Ok((listener, file))
}

fn lock(folder: &Path, path: &Path) -> Result<File, ApiError> {
    let failed = |source| ApiError::Listen { path: path.to_owned(), source };
    let file = File::open(folder).map_err(failed)?;
    let deadline = Instant::now() + LOCK_LIMIT;
    loop {
        match file.try_lock() {
            Ok(()) => return Ok(file),
            Err(TryLockError::Error(error)) => return Err(failed(error)),
            Err(TryLockError::WouldBlock) if Instant::now() >= deadline => {
                return Err(ApiError::Locked(path.to_owned()));
            }
            Err(TryLockError::WouldBlock) => std::thread::sleep(LOCK_PAUSE),
        }
    }
}

/// Makes way: removes a socket that nobody listens on, and nothing else.
async fn remove_dead(path: &Path) -> Result<(), ApiError> {
    let failed = |source| ApiError::Listen { path: path.to_owned(), source };
    match fs::symlink_metadata(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        Err(error) => return Err(failed(error)),
        Ok(metadata) if !metadata.file_type().is_socket() => {
            return Err(ApiError::NotASocket(path.to_owned()));
        }
        Ok(_) => {}
    }
    match UnixStream::connect(path).await {
        Ok(_) => Err(ApiError::AnotherDirector(path.to_owned())),
        // It lives, and is too busy to take a connection.
        Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
            Err(ApiError::AnotherDirector(path.to_owned()))
        }
        Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => {
            fs::remove_file(path).map_err(failed)
        }
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        Err(error) => Err(failed(error)),
    }
}
