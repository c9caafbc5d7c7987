//! What the clients and the real servers send to one worker: first packets, handshakes, and
//! rounds of random flows over all of its sessions.

use crate::args::{Protocol, Throughput};
use crate::clients::{Clients, Endpoint, Random};
use crate::judge::{self, Seen};
use crate::port::MemFrame;
use crate::scene::{self, MACS, ROUTER_MAC, SERVICE};
use crate::template::{Kind, Template};
use sluice_director::Frame;
use sluice_lanes::prefetch;
use std::ops::Range;

/// A session's other half, as its first packet showed it: where the real server's packets go, and
/// which real server that is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Local {
    pub endpoint: Endpoint,
    pub real: u16,
}

const _: () = assert!(size_of::<Local>() <= 12);

/// Flows ahead of the one that is written whose [`Local`] is asked for.
const AHEAD: usize = 16;

/// A direction of a session.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Way {
    /// Client to real server.
    In,
    /// Real server to client.
    Out,
}

/// The traffic of one worker.
pub struct Traffic {
    number: usize,
    workers: usize,
    sessions_each: u32,
    strays_each: usize,
    clients: Clients,
    random: Random,
    picks: Vec<u32>,
    syn: Template,
    syn_ack: Template,
    inbound: Template,
    outbound: Template,
}

impl Traffic {
    pub fn new(args: &Throughput, number: usize) -> Self {
        let template = |kind, way| {
            let (from, to) = match way {
                Way::In => (ROUTER_MAC, MACS[0]),
                Way::Out => (scene::real_mac(0), MACS[1]),
            };
            Template::new(args.protocol, kind, args.size, from, to)
        };
        Self {
            number,
            workers: usize::from(args.workers),
            sessions_each: args.sessions_each(),
            strays_each: args.strays_each(),
            clients: Clients::new(args.seed),
            random: Random::new(args.seed ^ (number as u64 + 1) << 32),
            picks: vec![1; args.frames as usize],
            syn: template(Kind::Syn, Way::In),
            syn_ack: template(Kind::SynAck, Way::Out),
            inbound: template(Kind::Data, Way::In),
            outbound: template(Kind::Data, Way::Out),
        }
    }

    /// The client of a flow of a worker.
    #[inline(always)]
    fn client(&self, worker: usize, flow: u32) -> Endpoint {
        self.clients.endpoint(worker as u32 * self.sessions_each + flow)
    }

    /// Writes one inbound packet for each of `flows`: what `kind` says if it is TCP.
    pub fn write_in(&self, flows: Range<u32>, kind: Kind, frames: &mut [MemFrame]) {
        let template = if kind == Kind::Syn { &self.syn } else { &self.inbound };
        for (flow, frame) in flows.zip(frames) {
            template.write(frame, self.client(self.number, flow), SERVICE, flow);
        }
    }

    /// Writes the answer to the first packet of each of `flows`.
    pub fn write_answers(&self, flows: Range<u32>, locals: &[Local], frames: &mut [MemFrame]) {
        for (flow, frame) in flows.zip(frames) {
            let local = locals[flow as usize];
            self.syn_ack.write(frame, scene::real(local.real), local.endpoint, flow);
        }
    }

    /// Writes a round: random flows, first frame inbound, second outbound, and so on. `locals` are
    /// those of each worker; of the outbound frames a fixed number belongs to the other workers.
    pub fn write_round(&mut self, locals: &[&[Local]], frames: &mut [MemFrame]) {
        self.picks.clear();
        for _ in 0..frames.len() {
            self.picks.push(self.random.below(self.sessions_each));
        }
        let outbound = frames.len() / 2;
        let strays = self.strays_each * (self.workers - 1);
        for (at, frame) in frames.iter_mut().enumerate() {
            if let Some(later) = self.picks.get(at + AHEAD) {
                prefetch::read(&locals[self.number][*later as usize]);
            }
            let (flow, pair) = (self.picks[at], at / 2);
            if at % 2 == 0 {
                self.inbound.write(frame, self.client(self.number, flow), SERVICE, flow);
                continue;
            }
            // The strays are spread evenly, and go round the other workers.
            let (before, behind) = (pair * strays / outbound, (pair + 1) * strays / outbound);
            let owner = match before == behind {
                true => self.number,
                false => (self.number + 1 + before % (self.workers - 1)) % self.workers,
            };
            let local = locals[owner][flow as usize];
            self.outbound.write(frame, scene::real(local.real), local.endpoint, flow);
        }
    }

    /// What a session's first packet became, read at the places where it must be.
    pub fn learn(frame: &MemFrame, protocol: Protocol) -> Option<(u32, Local)> {
        let bytes = frame.bytes();
        let payload = match protocol {
            Protocol::Udp => 42,
            Protocol::Tcp => 54,
        };
        let address = |at: usize| Some(u32::from_be_bytes(*bytes.get(at..)?.first_chunk()?));
        let port = |at: usize| Some(u16::from_be_bytes(*bytes.get(at..)?.first_chunk()?));
        let real = Endpoint { address: address(30)?, port: port(36)? };
        let endpoint = Endpoint { address: address(26)?, port: port(34)? };
        let local = Local { endpoint, real: scene::number_of_real(real)? };
        Some((address(payload)?, local))
    }

    /// Judges a frame that came out: every field that the director wrote, and all checksums. Gives
    /// the flow with what is wrong.
    pub fn judge(&self, way: Way, locals: &[Local], frame: &MemFrame) -> Result<(), (u32, String)> {
        let seen = judge::read(frame.bytes()).map_err(|what| (u32::MAX, what))?;
        let flow = seen.flow;
        let Some(local) = locals.get(flow as usize) else {
            return Err((flow, "there is no such flow".into()));
        };
        let client = self.client(self.number, flow);
        let (from, to, macs) = match way {
            Way::In => {
                let real = scene::real(local.real);
                (local.endpoint, real, (MACS[1], scene::real_mac(local.real)))
            }
            Way::Out => (SERVICE, client, (MACS[0], ROUTER_MAC)),
        };
        let right = Seen { macs, from, to, ttl: 63, flow };
        if seen == right { Ok(()) } else { Err((flow, format!("{seen:x?}, not {right:x?}"))) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::port;
    use clap::Parser;
    use sluice_table::PagePolicy;

    fn args(line: &str) -> Throughput {
        let words = ["sluice-bench", "throughput"].into_iter().chain(line.split_whitespace());
        match crate::args::Cli::parse_from(words).command {
            crate::args::Command::Throughput(args) => args,
            other => panic!("{other:?}"),
        }
    }

    fn locals(worker: u32, count: u32) -> Vec<Local> {
        let local = |flow| Local {
            endpoint: Endpoint { address: 0xc613_0000 + worker, port: 1024 + flow as u16 },
            real: (flow % 3) as u16,
        };
        (0..count).map(local).collect()
    }

    /// Half in, half out, every flow of the worker's range, and the strays where they belong.
    #[test]
    fn a_round_is_mixed() {
        let args = args("--sessions 3000 --workers 3 --stray 0.25 --frames 4096");
        let all: Vec<_> = (0..3).map(|worker| locals(worker, 1000)).collect();
        let all: Vec<&[Local]> = all.iter().map(Vec::as_slice).collect();
        let mut frames = port::frames(4096, PagePolicy::Ordinary).unwrap();
        let mut traffic = Traffic::new(&args, 1);
        traffic.write_round(&all, &mut frames);
        let seen: Vec<_> = frames.iter().map(|f| judge::read(f.bytes()).unwrap()).collect();
        let mut owners = [0; 3];
        for (at, seen) in seen.iter().enumerate() {
            if at % 2 == 0 {
                assert_eq!((seen.to, seen.from), (SERVICE, traffic.client(1, seen.flow)));
            } else {
                let owner = (seen.to.address - 0xc613_0000) as usize;
                assert_eq!(seen.to, all[owner][seen.flow as usize].endpoint);
                assert_eq!(seen.from, scene::real((seen.flow % 3) as u16));
                owners[owner] += 1;
            }
        }
        assert_eq!(owners, [256, 2048 - 512, 256]);
        let flows: std::collections::HashSet<_> = seen.iter().map(|s| s.flow).collect();
        assert!(flows.len() > 950, "{} of 1000 flows", flows.len());
        let again = {
            let mut again = port::frames(4096, PagePolicy::Ordinary).unwrap();
            Traffic::new(&args, 1).write_round(&all, &mut again);
            again
        };
        let same = frames.iter().zip(&again).all(|(a, b)| a.bytes() == b.bytes());
        assert!(same, "the same seed gives the same packets");
    }

    #[test]
    fn a_wrong_frame_is_told() {
        for line in ["--protocol udp --sessions 10", "--protocol tcp --sessions 10"] {
            let args = args(line);
            let traffic = Traffic::new(&args, 0);
            let mine = locals(0, 10);
            let mut frames = port::frames(10, PagePolicy::Ordinary).unwrap();
            traffic.write_in(0..10, Kind::Syn, &mut frames);
            let (_, what) = traffic.judge(Way::In, &mine, &frames[3]).unwrap_err();
            assert!(what.contains("ttl: 40"), "not rewritten: {what}");
            frames[3].bytes_mut()[30] ^= 1;
            let (_, what) = traffic.judge(Way::In, &mine, &frames[3]).unwrap_err();
            assert!(what.contains("Ip"), "{what}");
            assert_eq!(Traffic::learn(&frames[4], args.protocol), None, "it goes to no real");
        }
    }
}
