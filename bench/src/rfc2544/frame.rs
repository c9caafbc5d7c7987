//! The frames of a trial: UDP over IPv4, with a stamp in the payload that says which trial,
//! direction, flow and number of it a frame is.
//!
//! A stamp takes 16 bytes, so that it has room in a frame of 64. Everything in a frame that stays
//! is summed beforehand; what is written for each is addresses, ports and the stamp.

use crate::clients::Endpoint;
use crate::error::BenchError;
use std::ops::Range;

/// Bytes of the frame check sequence, which is never in memory.
pub const FCS: u16 = 4;
const IP: usize = 14;
const UDP: usize = IP + 20;
const PAYLOAD: usize = UDP + 8;
const STAMP: Range<usize> = PAYLOAD..PAYLOAD + 16;
/// How a stamp begins.
const MAGIC: u32 = 0x534c_3235;

/// Which way a frame goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Way {
    /// From a client to a real server.
    Inbound,
    /// From a real server to a client.
    Outbound,
}

impl Way {
    /// In the order of their indices.
    pub const BOTH: [Self; 2] = [Self::Inbound, Self::Outbound];

    /// For arrays.
    pub const fn index(self) -> usize {
        self as usize
    }
}

/// What a frame's payload begins with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stamp {
    pub trial: u16,
    pub way: Way,
    pub flow: u32,
    /// Counts the frames of its direction in its trial.
    pub sequence: u32,
}

impl Stamp {
    fn bytes(self) -> [u8; 16] {
        let mut bytes = [0; 16];
        bytes[..4].copy_from_slice(&MAGIC.to_be_bytes());
        bytes[4..6].copy_from_slice(&self.trial.to_be_bytes());
        bytes[6] = self.way as u8;
        bytes[8..12].copy_from_slice(&self.flow.to_be_bytes());
        bytes[12..].copy_from_slice(&self.sequence.to_be_bytes());
        bytes
    }

    /// The stamp of a frame that is one of ours; `None` of any other.
    #[inline(always)]
    pub fn read(frame: &[u8]) -> Option<Self> {
        let bytes: &[u8; 16] = frame.get(STAMP)?.first_chunk()?;
        let word = |at: usize| {
            u32::from_be_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]])
        };
        if word(0) != MAGIC || frame[IP - 2..=IP] != [0x08, 0x00, 0x45] || frame[IP + 9] != 17 {
            return None;
        }
        let way = match bytes[6] {
            0 => Way::Inbound,
            1 => Way::Outbound,
            _ => return None,
        };
        let trial = u16::from_be_bytes([bytes[4], bytes[5]]);
        Some(Self { trial, way, flow: word(8), sequence: word(12) })
    }
}

/// Frames of one size between two MAC addresses, but for what differs.
#[derive(Clone, Debug)]
pub struct Form {
    bytes: Vec<u8>,
    ip_sum: u32,
    udp_sum: u32,
}

impl Form {
    /// `size` counts the frame check sequence and is at least 64.
    pub fn new(size: u16, [from, to]: [[u8; 6]; 2]) -> Self {
        let mut bytes = vec![0; usize::from(size - FCS)];
        let (ip_len, udp_len) = (bytes.len() - IP, bytes.len() - UDP);
        let mut put = |at: usize, value: &[u8]| bytes[at..at + value.len()].copy_from_slice(value);
        put(0, &to);
        put(6, &from);
        put(IP - 2, &[0x08, 0x00, 0x45, 0]);
        put(IP + 2, &(ip_len as u16).to_be_bytes());
        // "Don't fragment", so that the identification may be zero (RFC 6864).
        put(IP + 6, &[0x40, 0, 64, 17]);
        put(UDP + 4, &(udp_len as u16).to_be_bytes());
        let ip_sum = sum(&bytes[IP..UDP]);
        let udp_sum = sum(&bytes[UDP..]) + 17 + udp_len as u32;
        Self { bytes, ip_sum, udp_sum }
    }

    /// Bytes of a frame in memory.
    pub fn len(&self) -> usize {
        self.bytes.len()
    }

    /// Writes a whole frame into as many bytes.
    #[inline(always)]
    pub fn write(&self, frame: &mut [u8], from: Endpoint, to: Endpoint, stamp: Stamp) {
        frame.copy_from_slice(&self.bytes);
        let mut put = |at: usize, value: &[u8]| frame[at..at + value.len()].copy_from_slice(value);
        let (source, destination) = (from.address as u32, to.address as u32);
        let addresses = words(source) + words(destination);
        put(IP + 10, &(!fold(self.ip_sum + addresses)).to_be_bytes());
        put(IP + 12, &source.to_be_bytes());
        put(IP + 16, &destination.to_be_bytes());
        put(UDP, &from.port.to_be_bytes());
        put(UDP + 2, &to.port.to_be_bytes());
        let stamp = stamp.bytes();
        put(PAYLOAD, &stamp);
        let ports = u32::from(from.port) + u32::from(to.port);
        let checksum = !fold(self.udp_sum + addresses + ports + sum(&stamp));
        // Zero would mean that there is none (RFC 768).
        put(UDP + 6, &checksum.max(u16::from(checksum == 0) * 0xffff).to_be_bytes());
    }
}

const fn words(value: u32) -> u32 {
    (value >> 16) + (value & 0xffff)
}

fn sum(bytes: &[u8]) -> u32 {
    let pair = |pair: &[u8]| u32::from(pair[0]) << 8 | u32::from(*pair.get(1).unwrap_or(&0));
    bytes.chunks(2).map(pair).sum()
}

const fn fold(mut total: u32) -> u16 {
    while total > 0xffff {
        total = (total & 0xffff) + (total >> 16);
    }
    total as u16
}

/// The sizes of a trial's frames, one after another and from the beginning again.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mix {
    /// As it was written: `64`, `imix`.
    pub name: String,
    sizes: Vec<u16>,
}

/// The simple IMIX, 7:4:1, in the order `aAaaAagaAaAa` (RFC 6985 with a = 64, A = 594, g = 1518):
/// evenly mixed, so that a part of it is like the whole.
const IMIX: [u16; 12] = [64, 594, 64, 64, 594, 64, 1518, 64, 594, 64, 594, 64];
/// Sizes that a frame may have.
const SIZES: std::ops::RangeInclusive<u16> = 64..=1518;

impl Mix {
    /// Reads `imix` or a size.
    pub fn parse(text: &str) -> Result<Self, String> {
        if text.eq_ignore_ascii_case("imix") {
            return Ok(Self { name: "imix".into(), sizes: IMIX.to_vec() });
        }
        let size = text.parse().ok().filter(|size| SIZES.contains(size));
        let size: u16 = size.ok_or("not imix nor a frame's size in bytes, 64 to 1518")?;
        Ok(Self { name: size.to_string(), sizes: vec![size] })
    }

    /// Which of [`Self::sizes`] the frame with a number has.
    #[inline(always)]
    pub fn place(&self, sequence: u32) -> usize {
        if self.sizes.len() == 1 { 0 } else { sequence as usize % self.sizes.len() }
    }

    /// Bytes, frame check sequences included.
    pub fn sizes(&self) -> &[u16] {
        &self.sizes
    }

    /// Mean bytes of a frame, frame check sequence included.
    pub fn mean(&self) -> f64 {
        self.sizes.iter().map(|size| f64::from(*size)).sum::<f64>() / self.sizes.len() as f64
    }
}

/// Reads a MAC address.
pub fn mac(text: &str) -> Result<[u8; 6], String> {
    let wrong = || "not a MAC address such as 02:00:00:00:00:01".to_owned();
    let bytes: Vec<u8> = text
        .split(':')
        .map(|byte| u8::from_str_radix(byte, 16).ok().filter(|_| byte.len() == 2))
        .collect::<Option<_>>()
        .ok_or_else(wrong)?;
    let mac: [u8; 6] = bytes.try_into().map_err(|_| wrong())?;
    if mac[0] & 1 == 1 {
        return Err("a group's address: it takes the address of one interface".into());
    }
    Ok(mac)
}

/// What is wrong with a frame that came, by a parser that shares nothing with the director.
pub fn judge(frame: &[u8]) -> Result<crate::judge::Seen, BenchError> {
    crate::judge::read(frame).map_err(|what| BenchError::Forged { what })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        /// What is written is what was asked for, by another's parser and with right checksums.
        #[test]
        fn frames_are_valid(
            from in any::<(u32, u16)>(), to in any::<(u32, u16)>(), outbound in any::<bool>(),
            trial in any::<u16>(), flow in any::<u32>(), sequence in any::<u32>(),
            size in SIZES,
        ) {
            let from = Endpoint { address: from.0.into(), port: from.1 };
            let to = Endpoint { address: to.0.into(), port: to.1 };
            let stamp = Stamp { trial, way: Way::BOTH[usize::from(outbound)], flow, sequence };
            let form = Form::new(size, [[2; 6], [4; 6]]);
            let mut frame = vec![0xff; form.len()];
            form.write(&mut frame, from, to, stamp);
            prop_assert_eq!(frame.len(), usize::from(size) - 4);
            prop_assert_eq!(Stamp::read(&frame), Some(stamp));
            let seen = judge(&frame).unwrap();
            prop_assert_eq!((seen.from, seen.to, seen.ttl), (from, to, 64));
            prop_assert_eq!((seen.macs, seen.flow), (([2; 6], [4; 6]), Some(MAGIC)));
        }

        #[test]
        fn nothing_else_has_a_stamp(mut bytes in prop::collection::vec(any::<u8>(), 0..100)) {
            prop_assert_eq!(Stamp::read(&bytes), None);
            if bytes.len() >= STAMP.end {
                bytes[STAMP.start..STAMP.start + 4].copy_from_slice(&MAGIC.to_be_bytes());
                bytes[12..14].copy_from_slice(&[0x86, 0xdd]);
                prop_assert_eq!(Stamp::read(&bytes), None);
            }
        }
    }

    #[test]
    fn sizes_are_read() {
        assert_eq!(Mix::parse("64").unwrap().mean(), 64.0);
        let imix = Mix::parse("IMIX").unwrap();
        let count = |size: u16| imix.sizes().iter().filter(|other| **other == size).count();
        assert_eq!([64, 594, 1518].map(count), [7, 4, 1]);
        assert!((imix.mean() - 361.8).abs() < 0.1 && imix.place(25) == 1);
        for wrong in ["63", "1519", "mix", ""] {
            assert!(Mix::parse(wrong).unwrap_err().contains("64 to 1518"), "{wrong}");
        }
    }

    #[test]
    fn mac_addresses_are_read() {
        assert_eq!(mac("02:00:0a:00:00:FF"), Ok([2, 0, 10, 0, 0, 255]));
        for wrong in ["", "02:00:00:00:00", "02:00:00:00:00:1", "02-00-00-00-00-01", "zz:0:0:0:0:0"]
        {
            assert!(mac(wrong).unwrap_err().contains("02:00"), "{wrong}");
        }
        assert!(mac("ff:ff:ff:ff:ff:ff").unwrap_err().contains("group"));
    }
}
