//! Signals, as streams that a loop can wait on.

use crate::errors::{Error, system};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM, SIGUSR2};
use std::io::Read;
use std::os::unix::net::UnixStream;

/// What the process was told by signals.
pub(crate) struct Signals {
    pub reload: UnixStream,
    pub upgrade: UnixStream,
    pub stop: UnixStream,
}

impl Signals {
    /// Catches them from now on.
    pub fn catch() -> Result<Self, Error> {
        let what = "catch signals";
        let pipe = |signals: &[i32]| -> std::io::Result<UnixStream> {
            let (read, write) = UnixStream::pair()?;
            read.set_nonblocking(true)?;
            for signal in signals {
                signal_hook::low_level::pipe::register(*signal, write.try_clone()?)?;
            }
            Ok(read)
        };
        Ok(Self {
            reload: pipe(&[SIGHUP]).map_err(system(what))?,
            upgrade: pipe(&[SIGUSR2]).map_err(system(what))?,
            stop: pipe(&[SIGTERM, SIGINT]).map_err(system(what))?,
        })
    }

    /// Whether a signal of this kind has come since the last look.
    pub fn came(stream: &mut UnixStream) -> bool {
        let mut bytes = [0; 64];
        let mut any = false;
        while matches!(stream.read(&mut bytes), Ok(count) if count > 0) {
            any = true;
        }
        any
    }
}
