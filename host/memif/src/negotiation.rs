//! The handshake of a link, without sockets: what to answer to which message.
//!
//! HELLO; then INIT, regions from 0 up, the rings to the server, those to the client, CONNECT; an
//! ACK for each but CONNECT, which CONNECTED answers. The descriptors that ride along are of any
//! type here, so that tests need none.

use std::fmt;

use crate::message::{AddRing, Hello, Init, Message, SECRET_BYTES, VERSION};

/// Smallest logarithm of a ring's descriptors that we make or take.
pub const MIN_LOG2: u8 = 8;
/// Largest logarithm of a ring's descriptors: the protocol's.
pub const MAX_LOG2: u8 = 14;
/// Most regions of a peer.
pub const MAX_REGIONS: u16 = 256;
/// Most bytes of all regions of a peer. Memory that we read is made if the peer has not, on our
/// account.
pub const MAX_SHARED_BYTES: u64 = 1 << 30;

/// Why a handshake ends.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct Refused(pub String);

/// Refuses with a reason.
pub(crate) fn refuse<T>(why: impl fmt::Display) -> Result<T, Refused> {
    Err(Refused(why.to_string()))
}

/// What an interface takes of a client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Most rings a direction.
    pub rings: u16,
    /// Largest logarithm of a ring's descriptors.
    pub log2: u8,
}

/// A ring as its maker named it, with what rode along.
#[derive(Debug)]
pub struct RingOffer<F> {
    /// Where it is.
    pub ring: AddRing,
    /// Its eventfd.
    pub event: F,
}

/// All that a client has shared.
#[derive(Debug)]
pub struct Offer<F> {
    /// The client's name for itself, or for its interface if it told that.
    pub name: String,
    /// Which interface.
    pub id: u32,
    /// Regions: descriptor and claimed size.
    pub regions: Vec<(F, u64)>,
    /// Rings to the server.
    pub to_server: Vec<RingOffer<F>>,
    /// Rings to the client.
    pub to_client: Vec<RingOffer<F>>,
}

impl<F> Offer<F> {
    fn add_region(&mut self, index: u16, size: u64, descriptor: Option<F>) -> Result<(), Refused> {
        let Some(descriptor) = descriptor else {
            return refuse("a region came without its descriptor");
        };
        let before: u64 = self.regions.iter().map(|region| region.1).sum();
        let fits = before.checked_add(size).is_some_and(|all| all <= MAX_SHARED_BYTES);
        if usize::from(index) != self.regions.len() || index >= MAX_REGIONS {
            return refuse(format_args!("region {index} is out of turn"));
        }
        if size == 0 || !fits {
            return refuse(format_args!("a region of {size} bytes is too large or empty"));
        }
        self.regions.push((descriptor, size));
        Ok(())
    }

    fn add_ring(
        &mut self,
        ring: AddRing,
        descriptor: Option<F>,
        limits: Limits,
    ) -> Result<(), Refused> {
        let Some(event) = descriptor else {
            return refuse("a ring came without its eventfd");
        };
        let rings = if ring.to_server { &mut self.to_server } else { &mut self.to_client };
        if usize::from(ring.index) != rings.len() || ring.index >= limits.rings {
            return refuse(format_args!(
                "ring {} is out of turn, or of more than {}",
                ring.index, limits.rings
            ));
        }
        // Small rings are of use to tests of others; their size is no danger.
        if ring.log2 > limits.log2 {
            return refuse(format_args!(
                "a ring of 2^{} descriptors; 2^{} is the most",
                ring.log2, limits.log2
            ));
        }
        if ring.private_header != 0 {
            return refuse("private headers are not known");
        }
        rings.push(RingOffer { ring, event });
        Ok(())
    }
}

/// The server's side.
#[derive(Debug)]
pub struct Server<F> {
    offer: Option<Offer<F>>,
    limits: Limits,
}

/// What a message led to.
#[derive(Debug)]
pub enum Next<F> {
    /// Send this.
    Reply(Message),
    /// All is said: answer with [`Message::Connected`] once the rings are ready.
    Ready(Offer<F>),
    /// The peer takes leave.
    Left(String),
}

impl<F> Server<F> {
    /// A server that waits for INIT, and its first message. `limits` are the widest of all
    /// interfaces of the socket.
    pub fn new(name: &str, limits: Limits) -> (Self, Message) {
        let hello = Hello {
            name: name.to_owned(),
            min_version: VERSION,
            max_version: VERSION,
            max_region: MAX_REGIONS - 1,
            max_to_client: limits.rings - 1,
            max_to_server: limits.rings - 1,
            max_log2: limits.log2,
        };
        (Self { offer: None, limits }, Message::Hello(hello))
    }

    /// Acts on a message. `admit` decides whether a client may have the interface that it asks
    /// for, and what that interface takes.
    pub fn handle(
        &mut self,
        message: Message,
        descriptor: Option<F>,
        admit: impl FnOnce(&Init) -> Result<Limits, Refused>,
    ) -> Result<Next<F>, Refused> {
        match (message, &mut self.offer) {
            (Message::Disconnect { text, .. }, _) => return Ok(Next::Left(text)),
            (Message::Init(init), None) => {
                if init.version != VERSION {
                    return refuse(format_args!("version {:#06x} is not 2.0", init.version));
                }
                self.limits = admit(&init)?;
                self.offer = Some(Offer {
                    name: init.name,
                    id: init.id,
                    regions: Vec::new(),
                    to_server: Vec::new(),
                    to_client: Vec::new(),
                });
            }
            (Message::AddRegion { index, size }, Some(offer)) => {
                offer.add_region(index, size, descriptor)?;
            }
            (Message::AddRing(ring), Some(offer)) => {
                offer.add_ring(ring, descriptor, self.limits)?;
            }
            (Message::Connect { name }, Some(_)) => {
                let Some(mut offer) = self.offer.take() else { return refuse("CONNECT twice") };
                if offer.to_server.is_empty() || offer.to_client.is_empty() {
                    return refuse("a ring is needed in each direction");
                }
                if !name.is_empty() {
                    offer.name = name;
                }
                return Ok(Next::Ready(offer));
            }
            (message, _) => return refuse(format_args!("{} is out of turn", message.name())),
        }
        Ok(Next::Reply(Message::Ack))
    }
}

/// What a client asks for.
#[derive(Clone, Debug)]
pub struct Wish {
    /// Our name.
    pub name: String,
    /// Which interface of the socket.
    pub id: u32,
    /// What the frames are, as in [`Init::mode`].
    pub mode: u8,
    /// What proves that we may.
    pub secret: [u8; SECRET_BYTES],
    /// Rings a direction and their largest size.
    pub limits: Limits,
}

/// The client's side: waits for HELLO, then says its messages one by one.
#[derive(Debug)]
pub struct Client {
    wish: Wish,
    /// Messages still to be said, last first; `None` before HELLO.
    script: Option<Vec<Message>>,
}

/// What the server's message led to.
#[derive(Debug, PartialEq, Eq)]
pub enum Turn {
    /// Make memory for so many rings of such a size, then call [`Client::share`].
    Share(Limits),
    /// Send this; regions and rings with their descriptors.
    Say(Message),
    /// The link is up.
    Connected,
    /// The peer takes leave.
    Left(String),
}

impl Client {
    /// A client that waits for HELLO.
    pub fn new(wish: Wish) -> Self {
        Self { wish, script: None }
    }

    /// Says what was shared: one region of `size` bytes with these rings, in the order of their
    /// index. Returns the first message to send.
    pub fn share(&mut self, size: u64, rings: Vec<AddRing>) -> Message {
        let Wish { name, id, mode, secret, .. } = self.wish.clone();
        let mut script = vec![Message::Connect { name: name.clone() }];
        script.extend(rings.into_iter().rev().map(Message::AddRing));
        script.push(Message::AddRegion { index: 0, size });
        self.script = Some(script);
        Message::Init(Init { version: VERSION, id, mode, secret, name })
    }

    /// Acts on a message.
    pub fn handle(&mut self, message: Message) -> Result<Turn, Refused> {
        match (message, &mut self.script) {
            (Message::Disconnect { text, .. }, _) => Ok(Turn::Left(text)),
            (Message::Hello(hello), None) => {
                if !(hello.min_version..=hello.max_version).contains(&VERSION) {
                    return refuse("the server does not speak version 2.0");
                }
                if hello.max_log2 < MIN_LOG2 {
                    return refuse(format_args!("rings of 2^{} descriptors", hello.max_log2));
                }
                // Those are highest indexes.
                let most = hello.max_to_client.min(hello.max_to_server).saturating_add(1);
                let wished = self.wish.limits;
                Ok(Turn::Share(Limits {
                    rings: wished.rings.min(most),
                    log2: wished.log2.min(hello.max_log2),
                }))
            }
            (Message::Ack, Some(script)) => match script.pop() {
                Some(message) => Ok(Turn::Say(message)),
                None => refuse("an ACK too many"),
            },
            (Message::Connected { .. }, Some(script)) if script.is_empty() => Ok(Turn::Connected),
            (message, _) => refuse(format_args!("{} is out of turn", message.name())),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIMITS: Limits = Limits { rings: 2, log2: 10 };

    fn ring(to_server: bool, index: u16) -> AddRing {
        AddRing { to_server, index, region: 0, offset: 0, log2: 10, private_header: 0 }
    }

    fn init(id: u32) -> Message {
        let secret = [0; SECRET_BYTES];
        Message::Init(Init { version: VERSION, id, mode: 0, secret, name: "c".into() })
    }

    /// Says messages to a server, each with a descriptor, and returns what the last led to.
    fn say(messages: Vec<Message>) -> Result<Next<()>, Refused> {
        let (mut server, _) = Server::new("s", LIMITS);
        let mut last = refuse("nothing was said");
        for message in messages {
            last = Ok(server.handle(message, Some(()), |_| Ok(LIMITS))?);
        }
        last
    }

    #[test]
    fn both_sides_agree() {
        let (mut server, hello) = Server::new("s", LIMITS);
        let wish = Wish {
            name: "c".into(),
            id: 3,
            mode: 1,
            secret: [7; SECRET_BYTES],
            limits: Limits { rings: 5, log2: 12 },
        };
        let mut client = Client::new(wish);
        assert_eq!(client.handle(hello), Ok(Turn::Share(LIMITS)), "the smaller of both");
        let rings = vec![ring(true, 0), ring(true, 1), ring(false, 0), ring(false, 1)];
        let mut message = client.share(4096, rings);
        let offer = loop {
            let next = server.handle(message, Some(()), |init| {
                assert_eq!((init.id, init.mode, init.secret), (3, 1, [7; SECRET_BYTES]));
                Ok(LIMITS)
            });
            match next.unwrap() {
                Next::Reply(reply) => match client.handle(reply).unwrap() {
                    Turn::Say(next) => message = next,
                    turn => panic!("{turn:?}"),
                },
                Next::Ready(offer) => break offer,
                Next::Left(_) => panic!("it left"),
            }
        };
        assert_eq!((offer.to_server.len(), offer.to_client.len()), (2, 2));
        assert_eq!(offer.regions, [((), 4096)]);
        let connected = Message::Connected { name: "s".into() };
        assert_eq!(client.handle(connected), Ok(Turn::Connected));
    }

    #[test]
    fn lies_of_a_client_are_refused() {
        let region = |index, size| Message::AddRegion { index, size };
        let connect = || Message::Connect { name: String::new() };
        let large = AddRing { log2: 11, ..ring(true, 0) };
        let private = AddRing { private_header: 8, ..ring(true, 0) };
        for (messages, why) in [
            (vec![connect()], "out of turn"),
            (vec![region(0, 4096)], "out of turn"),
            (vec![init(0), init(0)], "out of turn"),
            (vec![init(0), region(1, 4096)], "out of turn"),
            (vec![init(0), region(0, 0)], "empty"),
            (vec![init(0), region(0, MAX_SHARED_BYTES), region(1, 1)], "too large"),
            (vec![init(0), region(0, 1), region(1, u64::MAX)], "too large"),
            (vec![init(0), Message::AddRing(ring(true, 1))], "out of turn"),
            (vec![init(0), Message::AddRing(large)], "2^10"),
            (vec![init(0), Message::AddRing(private)], "private"),
            (vec![init(0), Message::AddRing(ring(true, 0)), connect()], "each direction"),
            (vec![Message::Ack], "out of turn"),
            (
                (0..3).map(|index| Message::AddRing(ring(true, index))).fold(
                    vec![init(0)],
                    |mut all, one| {
                        all.push(one);
                        all
                    },
                ),
                "more than 2",
            ),
        ] {
            let refused = say(messages.clone()).unwrap_err();
            assert!(refused.0.contains(why), "{messages:?}: {refused}");
        }
        let mut secret = [0; SECRET_BYTES];
        secret[..3].copy_from_slice(b"key");
        let open = Init { version: VERSION, id: 0, mode: 0, secret, name: "c".into() };
        let refused = say(vec![init(0), Message::Init(open)]).unwrap_err();
        assert_eq!(refused.0, "INIT is out of turn", "nothing of what it says");
        let (mut server, _) = Server::<()>::new("s", LIMITS);
        assert!(server.handle(init(0), None, |_| refuse("no such interface")).is_err());
        assert!(server.handle(init(0), None, |_| Ok(LIMITS)).is_ok());
        let refused = server.handle(region(0, 4096), None, |_| Ok(LIMITS)).unwrap_err();
        assert!(refused.0.contains("without its descriptor"));
    }

    #[test]
    fn lies_of_a_server_are_refused() {
        let wish =
            || Wish { name: "c".into(), id: 0, mode: 0, secret: [0; SECRET_BYTES], limits: LIMITS };
        let (_, hello) = Server::<()>::new("s", Limits { rings: u16::MAX, log2: 14 });
        let Message::Hello(hello) = hello else { panic!("HELLO comes first") };
        let old = Hello { min_version: 0x0300, max_version: 0x0300, ..hello.clone() };
        assert!(Client::new(wish()).handle(Message::Hello(old)).is_err());
        let small = Hello { max_log2: 2, ..hello.clone() };
        assert!(Client::new(wish()).handle(Message::Hello(small)).is_err());
        let widest = Hello { max_to_client: u16::MAX, max_to_server: u16::MAX, ..hello.clone() };
        let mut client = Client::new(wish());
        assert!(client.handle(Message::Ack).is_err());
        assert_eq!(client.handle(Message::Hello(widest)), Ok(Turn::Share(LIMITS)));
        client.share(1, vec![ring(true, 0)]);
        assert!(client.handle(Message::Connected { name: String::new() }).is_err(), "too early");
        for _ in 0..3 {
            assert!(matches!(client.handle(Message::Ack), Ok(Turn::Say(_))));
        }
        assert!(client.handle(Message::Ack).is_err(), "one too many");
        assert!(client.handle(Message::Hello(hello)).is_err(), "twice");
    }
}
