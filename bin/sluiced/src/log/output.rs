//! Standard error, for which nothing here waits long.
//!
//! A log that nobody takes must not stop a director: a terminal held by Ctrl-S, a container's log
//! driver or a journal that stands still. A write to a full pipe waits for its reader, and so would
//! the control loop and, at its next message, each worker. So a message of which [`AT_ONCE`] bytes
//! are not taken within [`PATIENCE`] is left out and counted, and nothing waits after that until
//! there is room again.
//!
//! Messages are written by the thread that has them and not by one of their own: the last ones
//! before a crash are those that matter.

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use std::io::{self, Write};
use std::os::fd::AsFd;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use tracing_subscriber::fmt::MakeWriter;

/// How long the bytes of a message that go at once may wait.
pub(super) const PATIENCE: Duration = Duration::from_millis(200);
/// A pipe that is writable takes so many bytes at once (`PIPE_BUF`).
const AT_ONCE: usize = 4096;

/// Where lines go. Copies share what they count.
#[derive(Debug)]
pub(super) struct Output<W>(Arc<Mutex<State<W>>>);

#[derive(Debug)]
struct State<W> {
    to: W,
    patience: Duration,
    /// Messages left out since that was told.
    lost: u64,
    /// The last one was left out.
    stalled: bool,
    /// The last one was broken off.
    torn: bool,
}

impl<W> Clone for Output<W> {
    fn clone(&self) -> Self {
        Self(Arc::clone(&self.0))
    }
}

impl<W> Output<W> {
    pub fn new(to: W, patience: Duration) -> Self {
        let state = State { to, patience, lost: 0, stalled: false, torn: false };
        Self(Arc::new(Mutex::new(state)))
    }

    /// Messages that were left out since this was asked, if there is room to tell of them.
    pub fn lost(&self) -> u64
    where
        W: AsFd,
    {
        let mut state = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if state.lost == 0 || !has_room(&state.to, Duration::ZERO) {
            return 0;
        }
        std::mem::take(&mut state.lost)
    }
}

impl<W: AsFd + Write> State<W> {
    fn write(&mut self, message: &[u8]) {
        let mut patience = if self.stalled { Duration::ZERO } else { self.patience };
        // What follows a broken line begins one of its own.
        let end: &[u8] = if self.torn { b"\n" } else { b"" };
        self.stalled = false;
        for part in std::iter::once(end).chain(message.chunks(AT_ONCE)) {
            if part.is_empty() {
                continue;
            }
            // A reader that has gone, or a disk that is full, is nobody to tell of it.
            if !has_room(&self.to, patience) || self.to.write_all(part).is_err() {
                self.stalled = true;
                self.lost += 1;
                return;
            }
            self.torn = !part.ends_with(b"\n");
            patience = self.patience;
        }
    }
}

fn has_room(to: &impl AsFd, patience: Duration) -> bool {
    let mut fds = [PollFd::new(to, PollFlags::OUT)];
    let patience = Timespec {
        tv_sec: patience.as_secs().cast_signed(),
        tv_nsec: i64::from(patience.subsec_nanos()),
    };
    // Only room counts: an error is met by writing, and a signal is a stall of one message.
    matches!(poll(&mut fds, Some(&patience)), Ok(count) if count > 0)
}

/// Each message comes by one call.
impl<W: AsFd + Write> Write for Output<W> {
    fn write(&mut self, message: &[u8]) -> io::Result<usize> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).write(message);
        Ok(message.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl<'a, W: AsFd + Write + 'a> MakeWriter<'a> for Output<W> {
    type Writer = Self;

    fn make_writer(&'a self) -> Self {
        self.clone()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{PipeReader, PipeWriter, Read, pipe};

    const SHORT: Duration = Duration::from_millis(20);

    /// A pipe's two ends.
    fn ends(patience: Duration) -> (PipeReader, Output<PipeWriter>) {
        let (from, to) = pipe().unwrap();
        (from, Output::new(to, patience))
    }

    /// Writes lines until one is left out.
    fn fill(output: &mut Output<PipeWriter>) -> usize {
        let line = [&[b'.'; 1000][..], b"\n"].concat();
        let mut written = 0;
        while output.0.lock().unwrap().lost == 0 {
            output.write_all(&line).unwrap();
            written += 1;
        }
        written - 1
    }

    fn lines(mut from: PipeReader) -> Vec<String> {
        let mut text = String::new();
        from.read_to_string(&mut text).unwrap();
        text.lines().map(str::to_owned).collect()
    }

    /// It would wait for ever.
    #[test]
    fn what_nobody_reads_is_left_out_and_counted() {
        let (mut from, mut output) = ends(SHORT);
        let written = fill(&mut output);
        for _ in 0..9 {
            output.write_all(b"left out\n").unwrap();
        }
        // There is no room to tell of it.
        assert_eq!(output.lost(), 0);
        let mut read = vec![0; written * 1001];
        from.read_exact(&mut read).unwrap();
        assert_eq!((output.lost(), output.lost()), (10, 0));
        output.write_all(b"read again\n").unwrap();
        drop(output);
        assert_eq!(lines(from), ["read again"]);
    }

    /// A long message is broken off where nobody reads on, and the next one is not its end.
    #[test]
    fn a_broken_line_is_ended() {
        let (mut from, mut output) = ends(SHORT);
        let long = [&[b'x'; 100_000][..], b"\n"].concat();
        output.write_all(&long).unwrap();
        assert_eq!(output.0.lock().unwrap().lost, 1);
        let mut read = vec![0; 16 * AT_ONCE];
        from.read_exact(&mut read).unwrap();
        output.write_all(b"the next\n").unwrap();
        drop(output);
        assert_eq!(lines(from), ["", "the next"]);
    }

    #[test]
    fn a_long_message_comes_whole_where_somebody_reads() {
        // However busy the machine is.
        let (from, mut output) = ends(Duration::from_secs(60));
        let long = [&[b'x'; 300_000][..], b"\n"].concat();
        let read = std::thread::spawn(|| lines(from));
        output.write_all(&long).unwrap();
        output.write_all(b"the next\n").unwrap();
        assert_eq!(output.lost(), 0);
        drop(output);
        let read = read.join().unwrap();
        assert_eq!(read.iter().map(String::len).collect::<Vec<_>>(), [300_000, 8]);
    }

    #[test]
    fn a_reader_that_has_gone_is_no_error() {
        let (from, mut output) = ends(SHORT);
        drop(from);
        output.write_all(b"to nobody\n").unwrap();
        assert_eq!(output.0.lock().unwrap().lost, 1);
    }
}
