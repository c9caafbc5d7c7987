//! Messages between a director and the one that is to follow it, with descriptors.
//!
//! Both are the same program's, of two versions maybe, and started one by the other: what comes is
//! bounded, and what is not understood ends the attempt, not the director.

use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, recvmsg, sendmsg,
};
use serde::Serialize;
use serde::de::DeserializeOwned;
use std::io::{self, IoSlice, IoSliceMut, Read, Write};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::time::Duration;

/// Bytes of a message at most.
const LONGEST: usize = 256 << 20;
/// Descriptors of a message at most.
const MOST: usize = 8192;
/// Descriptors that go at once; the kernel takes 253.
const AT_ONCE: usize = 128;
/// For how long the other side may take nothing of a message. A process that stands still must not
/// stop this one.
const TAKEN_WITHIN: Duration = Duration::from_secs(10);

/// One end.
#[derive(Debug)]
pub struct Channel(UnixStream);

impl From<UnixStream> for Channel {
    fn from(stream: UnixStream) -> Self {
        Self(stream)
    }
}

impl AsFd for Channel {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

impl Channel {
    /// Sends a message; the other side gets copies of the descriptors, in their order.
    pub fn send(&self, message: &impl Serialize, fds: &[OwnedFd]) -> io::Result<()> {
        self.send_within(TAKEN_WITHIN, message, fds)
    }

    fn send_within(
        &self,
        most: Duration,
        message: &impl Serialize,
        fds: &[OwnedFd],
    ) -> io::Result<()> {
        self.0.set_write_timeout(Some(most))?;
        let text = serde_json::to_vec(message)?;
        let mut head = (text.len() as u64).to_ne_bytes().to_vec();
        head.extend((fds.len() as u64).to_ne_bytes());
        (&self.0).write_all(&head)?;
        for part in fds.chunks(AT_ONCE) {
            let part: Vec<BorrowedFd<'_>> = part.iter().map(AsFd::as_fd).collect();
            let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(AT_ONCE))];
            let mut ancillary = SendAncillaryBuffer::new(&mut space);
            if !ancillary.push(SendAncillaryMessage::ScmRights(&part)) {
                return Err(io::ErrorKind::InvalidInput.into());
            }
            sendmsg(&self.0, &[IoSlice::new(&[0])], &mut ancillary, SendFlags::NOSIGNAL)?;
        }
        (&self.0).write_all(&text)
    }

    /// The next message, for which it waits so long at most.
    pub fn receive<T: DeserializeOwned>(&self, most: Duration) -> io::Result<(T, Vec<OwnedFd>)> {
        self.0.set_read_timeout(Some(most))?;
        let mut number = [0; 8];
        (&self.0).read_exact(&mut number)?;
        let length = u64::from_ne_bytes(number) as usize;
        (&self.0).read_exact(&mut number)?;
        let count = u64::from_ne_bytes(number) as usize;
        if length > LONGEST || count > MOST {
            return Err(io::Error::new(io::ErrorKind::InvalidData, "the message is too long"));
        }
        let mut fds = Vec::with_capacity(count);
        while fds.len() < count {
            self.take_fds(&mut fds)?;
        }
        let mut text = vec![0; length];
        (&self.0).read_exact(&mut text)?;
        Ok((serde_json::from_slice(&text)?, fds))
    }

    fn take_fds(&self, fds: &mut Vec<OwnedFd>) -> io::Result<()> {
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(AT_ONCE))];
        let mut ancillary = RecvAncillaryBuffer::new(&mut space);
        let (mut byte, before) = ([0], fds.len());
        let into = &mut [IoSliceMut::new(&mut byte)];
        recvmsg(&self.0, into, &mut ancillary, RecvFlags::CMSG_CLOEXEC)?;
        for message in ancillary.drain() {
            if let RecvAncillaryMessage::ScmRights(came) = message {
                fds.extend(came);
            }
        }
        // The end, or no room for more descriptors in this process.
        if fds.len() == before { Err(io::ErrorKind::UnexpectedEof.into()) } else { Ok(()) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs::File;

    #[test]
    fn messages_arrive_with_their_descriptors_in_order() {
        let (one, other) = UnixStream::pair().unwrap();
        let (one, other) = (Channel::from(one), Channel::from(other));
        let dir = tempfile::tempdir().unwrap();
        let made = |at: usize| {
            let mut file = File::create_new(dir.path().join(at.to_string())).unwrap();
            write!(file, "{at}").unwrap();
            OwnedFd::from(File::open(dir.path().join(at.to_string())).unwrap())
        };
        for count in [0, 1, AT_ONCE, 2 * AT_ONCE + 7] {
            let fds: Vec<_> = (0..count).map(made).collect();
            let text = "x".repeat(100_000 * usize::from(count > 1));
            let sender = std::thread::scope(|scope| {
                let sent = scope.spawn(|| one.send(&(count, &text), &fds));
                let (said, came): ((usize, String), _) =
                    other.receive(Duration::from_secs(10)).unwrap();
                sent.join().unwrap().unwrap();
                (said, came)
            });
            let (said, came) = sender;
            assert_eq!((said.0, said.1.len(), came.len()), (count, text.len(), count));
            for (at, fd) in came.into_iter().enumerate() {
                let mut read = String::new();
                File::from(fd).read_to_string(&mut read).unwrap();
                assert_eq!(read, at.to_string());
            }
            (0..count)
                .for_each(|at| std::fs::remove_file(dir.path().join(at.to_string())).unwrap());
        }
    }

    /// It would wait for ever.
    #[test]
    fn a_side_that_takes_nothing_is_given_up() {
        let (one, _other) = UnixStream::pair().unwrap();
        let long = "x".repeat(8 << 20);
        let sent = Channel::from(one).send_within(Duration::from_millis(20), &long, &[]);
        assert_eq!(sent.unwrap_err().kind(), io::ErrorKind::WouldBlock);
    }

    #[test]
    fn what_ends_or_makes_no_sense_is_an_error() {
        for sent in [&b""[..], &[1; 16], &[0, 0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0]] {
            let (mut one, other) = UnixStream::pair().unwrap();
            one.write_all(sent).unwrap();
            drop(one);
            let came = Channel::from(other).receive::<u32>(Duration::from_secs(10));
            assert!(came.is_err(), "{sent:?}");
        }
        let (_one, other) = UnixStream::pair().unwrap();
        let came = Channel::from(other).receive::<u32>(Duration::from_millis(1));
        assert_eq!(came.unwrap_err().kind(), io::ErrorKind::WouldBlock);
    }
}
