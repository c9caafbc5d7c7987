//! A connection whose peer must read: a write that makes no progress for too long breaks it.
//!
//! Without this a client that stops reading would hold its place for ever, since an answer without
//! an end has no deadline either.
//!
//! What the peer still sends at the end is read for a while and thrown away. A refusal is often
//! written before its request has come in whole; if the connection were closed then, the kernel
//! would reset it, and the peer might never see the answer (RFC 9112 9.6).

use std::future::Future;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::{Instant, Sleep, sleep};

/// How long the peer may go on sending after the end, and how many bytes: as many as the largest
/// body.
const LINGER: (Duration, usize) = (Duration::from_secs(5), 4 << 20);

/// A stream that breaks when its peer does not read.
pub(crate) struct Paced<S> {
    stream: S,
    patience: Duration,
    /// Runs while a write waits.
    stalled: Option<Pin<Box<Sleep>>>,
    /// Runs after the end of what is written, with the bytes that the peer may still send.
    lingering: Option<(Pin<Box<Sleep>>, usize)>,
    /// Whether nobody is waited for any more.
    hurried: Arc<AtomicBool>,
}

impl<S> Paced<S> {
    /// A write may wait for `patience`; once `hurried` is set nothing is read after the end.
    pub(crate) fn new(stream: S, patience: Duration, hurried: Arc<AtomicBool>) -> Self {
        Self { stream, patience, stalled: None, lingering: None, hurried }
    }

    fn judge<T>(
        &mut self,
        outcome: Poll<io::Result<T>>,
        context: &mut Context<'_>,
    ) -> Poll<io::Result<T>> {
        if outcome.is_ready() {
            self.stalled = None;
            return outcome;
        }
        let patience = self.patience;
        let timer = self.stalled.get_or_insert_with(|| Box::pin(sleep(patience)));
        if timer.as_mut().poll(context).is_pending() {
            return Poll::Pending;
        }
        timer.as_mut().reset(Instant::now() + patience);
        Poll::Ready(Err(io::Error::new(io::ErrorKind::TimedOut, "the client does not read")))
    }
}

impl<S: AsyncRead + Unpin> Paced<S> {
    /// Reads what the peer still sends, until it ends too.
    fn linger(&mut self, context: &mut Context<'_>) -> Poll<()> {
        let (timer, left) =
            self.lingering.get_or_insert_with(|| (Box::pin(sleep(LINGER.0)), LINGER.1));
        let mut space = [0; 4096];
        while *left > 0 && !self.hurried.load(Ordering::Relaxed) {
            if timer.as_mut().poll(context).is_ready() {
                break;
            }
            let mut buffer = ReadBuf::new(&mut space);
            let read = ready!(Pin::new(&mut self.stream).poll_read(context, &mut buffer));
            if read.is_err() || buffer.filled().is_empty() {
                break;
            }
            *left = left.saturating_sub(buffer.filled().len());
        }
        Poll::Ready(())
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for Paced<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_read(context, buffer)
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin> AsyncWrite for Paced<S> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let outcome = Pin::new(&mut self.stream).poll_write(context, bytes);
        self.judge(outcome, context)
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let outcome = Pin::new(&mut self.stream).poll_flush(context);
        self.judge(outcome, context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        if self.lingering.is_none() {
            let outcome = Pin::new(&mut self.stream).poll_shutdown(context);
            ready!(self.judge(outcome, context))?;
        }
        self.linger(context).map(Ok)
    }
}
