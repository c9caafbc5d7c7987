//! What must hold whatever a peer says and writes: the body of the fuzz target `memif`, and what
//! the tests of transfers share with it.
//!
//! Unsafe: the peer's writes into shared memory, each inside of it.

use std::collections::VecDeque;
use std::sync::Arc;

use crate::message::{AddRing, MESSAGE_BYTES, Message, SECRET_BYTES};
use crate::negotiation::{Client, Limits, MAX_REGIONS, MAX_SHARED_BYTES, Next, Server, Turn, Wish};
use crate::region::Region;
use crate::ring::{Ring, ring_bytes};
use crate::transfer::{Buffers, Landing, RxRing, TxRing};

/// Descriptors of the rings, as a logarithm.
pub(crate) const LOG2: u8 = 4;
/// Descriptors of a ring.
pub(crate) const SIZE: u16 = 1 << LOG2;
/// Bytes of a buffer.
pub(crate) const BYTES: u32 = 128;

/// What the interface takes of a client.
const LIMITS: Limits = Limits { rings: 3, log2: 10 };

/// Where the ring lies by which a side sends.
pub(crate) const fn place(client_sends: bool) -> AddRing {
    AddRing {
        to_server: client_sends,
        index: 0,
        region: 0,
        offset: 0,
        log2: LOG2,
        private_header: 0,
    }
}

/// The two ends of a ring by which a side sends.
pub(crate) fn pair(client_sends: bool) -> (TxRing, RxRing, Arc<[Region]>) {
    let size = ring_bytes(LOG2) + usize::from(SIZE) * Buffers::stride(BYTES) as usize;
    let (region, _file) = Region::create(size).expect("a region");
    let regions: Arc<[Region]> = Arc::new([region]);
    let at = place(client_sends);
    let buffers = Some(Buffers { first: ring_bytes(LOG2) as u32, bytes: BYTES });
    let make = || Ring::make(&regions, at).expect("a ring");
    let (tx, rx) = if client_sends {
        (TxRing::new(make(), buffers), RxRing::new(make(), None))
    } else {
        let rx = RxRing::new(make(), buffers);
        (TxRing::new(make(), None), rx)
    };
    (tx, rx, regions)
}

/// Room for frames, and those that came.
pub(crate) struct Shelf {
    room: Vec<u8>,
    /// Those that came.
    pub frames: VecDeque<Vec<u8>>,
    /// So many more may come.
    left: usize,
}

impl Shelf {
    /// Room for so many frames.
    pub fn new(left: usize) -> Self {
        Self { room: vec![0; 1024], frames: VecDeque::new(), left }
    }
}

impl Landing for Shelf {
    fn room(&mut self) -> Option<&mut [u8]> {
        (self.left > 0).then_some(&mut self.room)
    }

    fn landed(&mut self, length: usize) -> bool {
        self.left -= 1;
        self.frames.push_back(self.room[..length].to_vec());
        true
    }
}

/// A frame that differs from others.
pub(crate) fn frame(number: usize, length: usize) -> Vec<u8> {
    (0..length).map(|at| (number * 31 + at) as u8).collect()
}

/// Reads the bytes as what a peer does, by the first of them: messages of a client or a server, or
/// words written into a ring that one of them sends by.
///
/// # Panics
/// When a property does not hold.
pub fn memif(data: &[u8]) {
    let Some((kind, rest)) = data.split_first() else { return };
    match kind % 4 {
        0 => client_says(rest),
        1 => server_says(rest),
        kind => memory_says(kind == 2, rest),
    }
}

/// The messages that bytes are: one byte whether a descriptor rides along, and up to 128.
fn messages(data: &[u8]) -> impl Iterator<Item = (bool, Message)> {
    data.chunks(MESSAGE_BYTES + 1).filter_map(|chunk| {
        let (rides, said) = chunk.split_first()?;
        let mut bytes = [0; MESSAGE_BYTES];
        bytes[..said.len()].copy_from_slice(said);
        let message = Message::decode(&bytes).ok()?;
        let again = Message::decode(&message.encode()).expect("ours is one");
        assert_eq!(again.name(), message.name());
        Some((rides & 1 == 1, message))
    })
}

/// A client that is let in has shared no more than a link may hold, and rings that are in it.
fn client_says(data: &[u8]) {
    let (mut server, _) = Server::new("server", LIMITS);
    for (rides, message) in messages(data) {
        let offer = match server.handle(message, rides.then_some(()), |_| Ok(LIMITS)) {
            Err(_) | Ok(Next::Left(_)) => return,
            Ok(Next::Reply(message)) => {
                assert_eq!(message, Message::Ack);
                continue;
            }
            Ok(Next::Ready(offer)) => offer,
        };
        let all: u64 = offer.regions.iter().map(|region| region.1).sum();
        assert!(all <= MAX_SHARED_BYTES && offer.regions.len() <= usize::from(MAX_REGIONS));
        let (region, _file) = Region::create(1 << 16).expect("a region");
        let regions: Arc<[Region]> = Arc::new([region]);
        for (rings, to_server) in [(&offer.to_server, true), (&offer.to_client, false)] {
            assert!((1..=usize::from(LIMITS.rings)).contains(&rings.len()));
            for (index, offered) in rings.iter().enumerate() {
                let ring = offered.ring;
                assert_eq!((usize::from(ring.index), ring.to_server), (index, to_server));
                assert!(ring.log2 <= LIMITS.log2 && ring.private_header == 0);
                if let Ok(ring) = Ring::make(&regions, ring) {
                    // Its last descriptor can be reached: a sanitizer would tell.
                    ring.set_descriptor(ring.size() - 1, ring.descriptor(0));
                }
            }
        }
        return;
    }
}

/// Our client says each message once, in order, whatever the server says.
fn server_says(data: &[u8]) {
    let secret = [0; SECRET_BYTES];
    let wish = Wish { name: "client".to_owned(), id: 0, mode: 0, secret, limits: LIMITS };
    let (mut client, mut said) = (Client::new(wish), Vec::new());
    for (_, message) in messages(data) {
        match client.handle(message) {
            Err(_) | Ok(Turn::Left(_)) => return,
            Ok(Turn::Share(limits)) => {
                assert!((1..=LIMITS.rings).contains(&limits.rings) && limits.log2 <= LIMITS.log2);
                assert!(said.is_empty(), "memory is shared once");
                said.push(client.share(4096, vec![place(true), place(false)]));
            }
            Ok(Turn::Say(message)) => said.push(message),
            Ok(Turn::Connected) => {
                let names: Vec<_> = said.iter().map(Message::name).collect();
                let expected = ["INIT", "ADD_REGION", "ADD_RING", "ADD_RING", "CONNECT"];
                assert_eq!(names, expected);
                return;
            }
        }
    }
}

/// Whatever is in shared memory, both ends stay in it and in their own (a fault or a sanitizer
/// would tell), come to an end, and give no frame longer than its room.
pub(crate) fn memory_says(client_sends: bool, data: &[u8]) {
    let (mut tx, mut rx, regions) = pair(client_sends);
    for (turn, writes) in data.chunks(8 * 6).enumerate() {
        for write in writes.chunks_exact(6) {
            let at = u32::from(u16::from_ne_bytes([write[0], write[1]])) % 640 / 4 * 4;
            let word = u32::from_ne_bytes([write[2], write[3], write[4], write[5]]);
            let to = regions[0].at(at, 4).expect("in the region");
            // SAFETY: in the region, and aligned.
            unsafe { to.cast::<u32>().write_volatile(word) };
        }
        let mut shelf = Shelf::new(64);
        if let Ok(came) = rx.receive(64, &mut shelf) {
            assert_eq!(came.frames, shelf.frames.len());
        }
        assert!(shelf.frames.iter().all(|frame| (1..=1024).contains(&frame.len())));
        let frames = [frame(turn, 60), frame(turn, 300)];
        if let Ok(sent) = tx.send(frames.iter().map(Vec::as_slice)) {
            assert!(sent.taken <= 2);
        }
    }
}
