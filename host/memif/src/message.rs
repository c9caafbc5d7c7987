//! The messages of memif's control socket: 128 bytes each, packed, in the host's byte order.
//!
//! Source: `memif.h` of VPP and DPDK, protocol version 2.0. What a message leaves unused is sent as
//! zeroes and ignored when received.

/// Bytes of every message.
pub const MESSAGE_BYTES: usize = 128;
/// Version 2.0.
pub const VERSION: u16 = 0x0200;
/// Bytes of a secret.
pub const SECRET_BYTES: usize = 24;
/// Bytes of a name, the zero at its end included.
const NAME_BYTES: usize = 32;

/// A message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Message {
    /// The server took the last message.
    Ack,
    /// The server's first message.
    Hello(Hello),
    /// The client's first message.
    Init(Init),
    /// The client shares memory; a descriptor rides along.
    AddRegion {
        /// Its index, from 0 up.
        index: u16,
        /// Its size in bytes.
        size: u64,
    },
    /// The client names a ring; an eventfd rides along.
    AddRing(AddRing),
    /// The client has said all.
    Connect {
        /// The client's name for its interface.
        name: String,
    },
    /// The link is up.
    Connected {
        /// The server's name for its interface.
        name: String,
    },
    /// The link ends.
    Disconnect {
        /// A number that no maker gives a meaning.
        code: u32,
        /// Why.
        text: String,
    },
}

/// What a server takes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Hello {
    /// The server's name for itself.
    pub name: String,
    /// Oldest version that it speaks.
    pub min_version: u16,
    /// Newest version that it speaks.
    pub max_version: u16,
    /// Highest index of a region.
    pub max_region: u16,
    /// Highest index of a ring from the server to the client.
    pub max_to_client: u16,
    /// Highest index of a ring from the client to the server.
    pub max_to_server: u16,
    /// Logarithm of the most descriptors of a ring.
    pub max_log2: u8,
}

/// Who a client is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Init {
    /// The version that it speaks.
    pub version: u16,
    /// Which interface of the socket it wants.
    pub id: u32,
    /// What the frames are: 0 Ethernet, 1 IP, 2 punt and inject.
    pub mode: u8,
    /// What proves that it may.
    pub secret: [u8; SECRET_BYTES],
    /// The client's name for itself.
    pub name: String,
}

/// A ring of the client's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AddRing {
    /// Whether the client sends by it.
    pub to_server: bool,
    /// Its index among those of its direction.
    pub index: u16,
    /// The region that it lies in.
    pub region: u16,
    /// Where it begins there.
    pub offset: u32,
    /// Logarithm of its descriptors.
    pub log2: u8,
    /// Bytes in front of each frame for the makers' own use.
    pub private_header: u16,
}

/// Why bytes are not a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Malformed {
    /// A message has 128 bytes.
    #[error("a message of {0} bytes instead of {MESSAGE_BYTES}")]
    Length(usize),
    /// Nobody knows such a message.
    #[error("a message of unknown type {0}")]
    Type(u16),
}

/// Writes or reads fields at their places.
struct Fields<'a>(&'a mut [u8; MESSAGE_BYTES]);

impl Fields<'_> {
    fn put(&mut self, at: usize, bytes: &[u8]) {
        self.0[at..at + bytes.len()].copy_from_slice(bytes);
    }

    /// Text, cut so that a zero ends it.
    fn text(&mut self, at: usize, text: &str, room: usize) {
        let bytes = &text.as_bytes()[..text.len().min(room - 1)];
        self.put(at, bytes);
    }
}

fn bytes_at<const N: usize>(from: &[u8; MESSAGE_BYTES], at: usize) -> [u8; N] {
    let mut bytes = [0; N];
    bytes.copy_from_slice(&from[at..at + N]);
    bytes
}

fn u16_at(from: &[u8; MESSAGE_BYTES], at: usize) -> u16 {
    u16::from_ne_bytes(bytes_at(from, at))
}

fn u32_at(from: &[u8; MESSAGE_BYTES], at: usize) -> u32 {
    u32::from_ne_bytes(bytes_at(from, at))
}

/// Text up to a zero. What could upset a terminal or a log is left out.
fn text_at(from: &[u8; MESSAGE_BYTES], at: usize, room: usize) -> String {
    let bytes = &from[at..at + room];
    let end = bytes.iter().position(|byte| *byte == 0).unwrap_or(room);
    let printable = |byte: &u8| if matches!(byte, b' '..=b'~') { char::from(*byte) } else { '?' };
    bytes[..end].iter().map(printable).collect()
}

impl Message {
    /// The bytes to send.
    pub fn encode(&self) -> [u8; MESSAGE_BYTES] {
        let mut bytes = [0; MESSAGE_BYTES];
        let mut to = Fields(&mut bytes);
        to.put(0, &self.kind().to_ne_bytes());
        match self {
            Self::Ack => {}
            Self::Hello(hello) => {
                to.text(2, &hello.name, NAME_BYTES);
                let numbers = [
                    hello.min_version,
                    hello.max_version,
                    hello.max_region,
                    hello.max_to_client,
                    hello.max_to_server,
                ];
                for (number, at) in numbers.iter().zip((34..).step_by(2)) {
                    to.put(at, &number.to_ne_bytes());
                }
                to.put(44, &[hello.max_log2]);
            }
            Self::Init(init) => {
                to.put(2, &init.version.to_ne_bytes());
                to.put(4, &init.id.to_ne_bytes());
                to.put(8, &[init.mode]);
                to.put(9, &init.secret);
                to.text(33, &init.name, NAME_BYTES);
            }
            Self::AddRegion { index, size } => {
                to.put(2, &index.to_ne_bytes());
                to.put(4, &size.to_ne_bytes());
            }
            Self::AddRing(ring) => {
                to.put(2, &u16::from(ring.to_server).to_ne_bytes());
                to.put(4, &ring.index.to_ne_bytes());
                to.put(6, &ring.region.to_ne_bytes());
                to.put(8, &ring.offset.to_ne_bytes());
                to.put(12, &[ring.log2]);
                to.put(13, &ring.private_header.to_ne_bytes());
            }
            Self::Connect { name } | Self::Connected { name } => to.text(2, name, NAME_BYTES),
            Self::Disconnect { code, text } => {
                to.put(2, &code.to_ne_bytes());
                to.text(6, text, 96);
            }
        }
        bytes
    }

    /// The message that bytes are.
    pub fn decode(bytes: &[u8]) -> Result<Self, Malformed> {
        let from: &[u8; MESSAGE_BYTES] =
            bytes.try_into().map_err(|_| Malformed::Length(bytes.len()))?;
        Ok(match u16_at(from, 0) {
            1 => Self::Ack,
            2 => Self::Hello(Hello {
                name: text_at(from, 2, NAME_BYTES),
                min_version: u16_at(from, 34),
                max_version: u16_at(from, 36),
                max_region: u16_at(from, 38),
                max_to_client: u16_at(from, 40),
                max_to_server: u16_at(from, 42),
                max_log2: from[44],
            }),
            3 => Self::Init(Init {
                version: u16_at(from, 2),
                id: u32_at(from, 4),
                mode: from[8],
                secret: bytes_at(from, 9),
                name: text_at(from, 33, NAME_BYTES),
            }),
            4 => Self::AddRegion {
                index: u16_at(from, 2),
                size: u64::from_ne_bytes(bytes_at(from, 4)),
            },
            5 => Self::AddRing(AddRing {
                to_server: u16_at(from, 2) & 1 != 0,
                index: u16_at(from, 4),
                region: u16_at(from, 6),
                offset: u32_at(from, 8),
                log2: from[12],
                private_header: u16_at(from, 13),
            }),
            6 => Self::Connect { name: text_at(from, 2, NAME_BYTES) },
            7 => Self::Connected { name: text_at(from, 2, NAME_BYTES) },
            8 => Self::Disconnect { code: u32_at(from, 2), text: text_at(from, 6, 96) },
            kind => return Err(Malformed::Type(kind)),
        })
    }

    /// The protocol's name for its type; what it says may be secret.
    pub const fn name(&self) -> &'static str {
        match self {
            Self::Ack => "ACK",
            Self::Hello(_) => "HELLO",
            Self::Init(_) => "INIT",
            Self::AddRegion { .. } => "ADD_REGION",
            Self::AddRing(_) => "ADD_RING",
            Self::Connect { .. } => "CONNECT",
            Self::Connected { .. } => "CONNECTED",
            Self::Disconnect { .. } => "DISCONNECT",
        }
    }

    const fn kind(&self) -> u16 {
        match self {
            Self::Ack => 1,
            Self::Hello(_) => 2,
            Self::Init(_) => 3,
            Self::AddRegion { .. } => 4,
            Self::AddRing(_) => 5,
            Self::Connect { .. } => 6,
            Self::Connected { .. } => 7,
            Self::Disconnect { .. } => 8,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn fields_lie_where_the_protocol_has_them() {
        // As DPDK's driver sends them, byte by byte (drivers/net/memif/memif.h).
        let ring = AddRing {
            to_server: true,
            index: 2,
            region: 3,
            offset: 0x0405_0607,
            log2: 11,
            private_header: 0,
        };
        let bytes = Message::AddRing(ring).encode();
        assert_eq!(bytes[..15], [5, 0, 1, 0, 2, 0, 3, 0, 7, 6, 5, 4, 11, 0, 0]);
        let bytes = Message::AddRegion { index: 1, size: 0x0102_0304_0506 }.encode();
        assert_eq!(bytes[..12], [4, 0, 1, 0, 6, 5, 4, 3, 2, 1, 0, 0]);
        let mut secret = [0; SECRET_BYTES];
        secret[..3].copy_from_slice(b"key");
        let init = Init { version: VERSION, id: 7, mode: 0, secret, name: "client".into() };
        let bytes = Message::Init(init).encode();
        assert_eq!(bytes[..12], [3, 0, 0, 2, 7, 0, 0, 0, 0, b'k', b'e', b'y']);
        assert_eq!(&bytes[33..40], b"client\0");
    }

    #[test]
    fn long_text_is_cut_and_strange_text_made_plain() {
        let message = Message::Connect { name: "n".repeat(60) };
        assert_eq!(
            Message::decode(&message.encode()),
            Ok(Message::Connect { name: "n".repeat(31) })
        );
        let message = Message::Disconnect { code: 1, text: "a\u{1b}[2Jb".into() };
        let text = "a?[2Jb".to_owned();
        assert_eq!(Message::decode(&message.encode()), Ok(Message::Disconnect { code: 1, text }));
    }

    proptest! {
        #[test]
        fn bytes_are_a_message_or_refused(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
            match Message::decode(&bytes) {
                Ok(message) => {
                    prop_assert_eq!(bytes.len(), MESSAGE_BYTES);
                    // What was understood is sent and understood the same.
                    let again = Message::decode(&message.encode()).unwrap();
                    prop_assert_eq!(again.kind(), message.kind());
                }
                Err(Malformed::Length(length)) => prop_assert_eq!(length, bytes.len()),
                Err(Malformed::Type(kind)) => prop_assert!(!(1..=8).contains(&kind)),
            }
        }

        #[test]
        fn every_type_survives_the_way(kind in 1_u16..=8, rest in any::<[u8; 32]>()) {
            let mut bytes = [0; MESSAGE_BYTES];
            bytes[..2].copy_from_slice(&kind.to_ne_bytes());
            bytes[2..34].copy_from_slice(&rest);
            // Where a name ends.
            bytes[33] = 0;
            let message = Message::decode(&bytes).unwrap();
            prop_assert_eq!(Message::decode(&message.encode()).unwrap(), message);
        }
    }
}
