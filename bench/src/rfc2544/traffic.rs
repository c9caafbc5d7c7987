//! What a trial sends, and what must come out of it.
//!
//! Clients are addresses and ports drawn at random over the whole range for benchmarks (RFC 4814);
//! each has a session that was opened beforehand, and each frame is of one of them drawn at random.
//! Of each session it is known what the director made of it, so that answers can be written, and
//! both directions judged.

use super::frame::{Form, Mix, Stamp, Way, judge};
use crate::clients::{Clients, Endpoint, Random};
use crate::error::BenchError;

/// What a session is on the real servers' side. 12 bytes, since there may be millions.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Local {
    address: u32,
    real: u32,
    port: u16,
    real_port: u16,
}

const _: () = assert!(size_of::<Local>() == 12);

impl Local {
    /// Of a frame that came to a real server.
    pub fn of(from: Endpoint, to: Endpoint) -> Self {
        let (address, real) = (from.address as u32, to.address as u32);
        Self { address, real, port: from.port, real_port: to.port }
    }

    /// Whether anything is known.
    pub const fn is_known(&self) -> bool {
        self.real != 0
    }

    /// Source and destination of what comes to the real server.
    fn ends(&self) -> [Endpoint; 2] {
        let end = |address: u32, port| Endpoint { address: address.into(), port };
        [end(self.address, self.port), end(self.real, self.real_port)]
    }
}

/// Sessions, and the frames that belong to them.
#[derive(Clone, Debug)]
pub struct Traffic {
    pub mix: Mix,
    /// The directions that frames go.
    pub ways: &'static [Way],
    clients: Clients,
    vip: Endpoint,
    /// One a session.
    pub locals: Vec<Local>,
    /// By direction, and in it by the place of the size in the mix.
    forms: [Vec<Form>; 2],
}

impl Traffic {
    /// Sessions of which nothing is known yet.
    pub fn new(seed: u64, vip: Endpoint, sessions: u32) -> Self {
        Self {
            mix: Mix::parse("64").unwrap_or_else(|_| unreachable!("64 is a size")),
            ways: &[Way::Inbound],
            clients: Clients::new(seed, crate::args::Family::V4),
            vip,
            locals: vec![Local::default(); sessions as usize],
            forms: [Vec::new(), Vec::new()],
        }
    }

    /// Frames of these sizes, and of a direction between these MAC addresses.
    pub fn shape(&mut self, mix: &Mix, way: Way, macs: [[u8; 6]; 2]) {
        self.forms[way.index()] = mix.sizes().iter().map(|size| Form::new(*size, macs)).collect();
        self.mix = mix.clone();
    }

    /// Bytes in memory of the frame with a stamp.
    #[inline(always)]
    pub fn len(&self, stamp: Stamp) -> usize {
        self.forms[stamp.way.index()][self.mix.place(stamp.sequence)].len()
    }

    /// Writes the frame with a stamp into [`Self::len`] bytes.
    #[inline(always)]
    pub fn write(&self, frame: &mut [u8], stamp: Stamp) {
        let client = self.clients.endpoint(stamp.flow);
        let form = &self.forms[stamp.way.index()][self.mix.place(stamp.sequence)];
        match stamp.way {
            Way::Inbound => form.write(frame, client, self.vip, stamp),
            Way::Outbound => {
                let [local, real] = self.locals[stamp.flow as usize].ends();
                form.write(frame, real, local, stamp);
            }
        }
    }

    /// A session, drawn at random.
    #[inline(always)]
    pub fn draw(&self, random: &mut Random) -> u32 {
        random.below(self.locals.len() as u32)
    }

    /// Whether a frame can be one that was sent: what every one is asked.
    #[inline(always)]
    pub fn check(&self, frame: &[u8], stamp: Stamp) -> Result<(), BenchError> {
        if (stamp.flow as usize) < self.locals.len() && frame.len() == self.len(stamp) {
            return Ok(());
        }
        let what = format!("{stamp:?} has {} bytes", frame.len());
        Err(BenchError::Forged { what })
    }

    /// Reads a frame to the last field, by a parser that is not the director's: addresses, ports
    /// and all checksums.
    pub fn judge(&self, frame: &[u8], stamp: Stamp) -> Result<(), BenchError> {
        let seen = judge(frame)?;
        let expected = match stamp.way {
            Way::Inbound => self.locals[stamp.flow as usize].ends(),
            Way::Outbound => [self.vip, self.clients.endpoint(stamp.flow)],
        };
        if [seen.from, seen.to] == expected {
            return Ok(());
        }
        Err(BenchError::Forged {
            what: format!(
                "{stamp:?} has other addresses than its session had: {:?} instead of {expected:?}. \
                 Did the session time out? Fewer --sessions or a longer timeout help",
                [seen.from, seen.to]
            ),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const VIP: Endpoint = Endpoint { address: 0xc633_64c8, port: 9 };
    const LOCAL: Endpoint = Endpoint { address: 0xc000_0240, port: 7777 };
    const REAL: Endpoint = Endpoint { address: 0xc000_020b, port: 9 };

    fn traffic(mix: &str) -> Traffic {
        let mut traffic = Traffic::new(1, VIP, 3);
        for way in Way::BOTH {
            traffic.shape(&Mix::parse(mix).unwrap(), way, [[2; 6], [4; 6]]);
        }
        traffic.locals = vec![Local::of(LOCAL, REAL); 3];
        traffic
    }

    fn frame(traffic: &Traffic, stamp: Stamp) -> Vec<u8> {
        let mut frame = vec![0; traffic.len(stamp)];
        traffic.write(&mut frame, stamp);
        frame
    }

    #[test]
    fn answers_come_from_where_the_session_went() {
        let traffic = traffic("imix");
        let stamp = Stamp { trial: 1, way: Way::Outbound, flow: 2, sequence: 6 };
        let answer = frame(&traffic, stamp);
        let seen = judge(&answer).unwrap();
        assert_eq!((seen.from, seen.to, answer.len()), (REAL, LOCAL, 1514));
        // What a client gets has the VIP's address; this one does not yet.
        assert!(traffic.judge(&answer, stamp).unwrap_err().to_string().contains("time out"));
    }

    #[test]
    fn what_is_not_as_sent_is_refused() {
        let traffic = traffic("128");
        let stamp = Stamp { trial: 1, way: Way::Inbound, flow: 2, sequence: 6 };
        let mut sent = frame(&traffic, stamp);
        assert!(traffic.check(&sent, stamp).is_ok());
        assert!(traffic.check(&sent[1..], stamp).is_err());
        assert!(traffic.check(&sent, Stamp { flow: 3, ..stamp }).is_err());
        sent[100] ^= 1;
        let error = traffic.judge(&sent, stamp).unwrap_err().to_string();
        assert!(error.contains("Udp"), "the wrong checksum is named: {error}");
    }
}
