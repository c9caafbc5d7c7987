//! What the clients and the real servers send to one worker: first packets, handshakes, and
//! rounds of random flows over all of its sessions.

use crate::args::{Mode, Protocol, Throughput};
use crate::clients::{Clients, Endpoint, Random};
use crate::judge::{self, Seen};
use crate::port::MemFrame;
use crate::scene::{MACS, ROUTER_MAC, Scene};
use crate::template::{Kind, Template, l4_header, transport_at};
use sluice_director::Frame;
use sluice_director::path::Owners;
use sluice_lanes::prefetch;
use std::ops::Range;

/// A session's other half, as its first packet showed it: its local address and port if it has
/// one, and which real server or outside endpoint it goes to.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Local {
    /// The number of the local address; 0 for none.
    pub address: u16,
    pub port: u16,
    pub far: u16,
}

const _: () = assert!(size_of::<Local>() <= 8);

/// Flows ahead of the one that is written whose [`Local`] is asked for.
const AHEAD: usize = 16;

/// Clients that are tried for one that is a worker's: none is found once in 2⁶⁴ times with two
/// workers, in 5,000 with eight.
pub const TRIES: u32 = 64;

/// A direction of a session.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Way {
    /// From the client.
    In,
    /// To the client.
    Out,
}

/// The traffic of one worker.
pub struct Traffic {
    number: usize,
    workers: usize,
    sessions_each: u32,
    /// Of a round, the packets for each other worker.
    pub misdirected_each: usize,
    scene: Scene,
    /// Of the first frames of a round, every second is outbound: so many of them.
    outbound: usize,
    /// Bytes ahead of the transport header of a packet that came out.
    l4_at: usize,
    /// The first frame of each so many opens a session; 0: none does.
    first_every: usize,
    /// The next flow that opens one.
    next: u32,
    clients: Clients,
    /// Where a hash of the client says whose its sessions are.
    owners: Option<Owners>,
    random: Random,
    picks: Vec<u32>,
    /// Of 65,536 packets so many belong to the first flow.
    elephant: u32,
    /// Of the protocol of all flows, or of UDP and TCP.
    templates: Vec<Templates>,
}

/// Frames of a protocol; data by size.
struct Templates {
    protocol: Protocol,
    syn: Template,
    syn_ack: Template,
    inbound: Vec<Template>,
    outbound: Vec<Template>,
}

impl Templates {
    fn new(scene: &Scene, args: &Throughput, protocol: Protocol) -> Self {
        let least = Template::least_size(args.family, protocol);
        let template = |kind: Kind, way, size: u16| {
            let content = kind.content(args.family, protocol, size.max(least));
            Template::new(args.family, content, macs_of(scene, way))
        };
        let usual = if args.mix { least } else { args.frame_size() };
        let sizes = if args.mix { &MIX_SIZES[..] } else { std::slice::from_ref(&usual) };
        let of = |way| sizes.iter().map(|size| template(Kind::Data, way, *size)).collect();
        Self {
            protocol,
            syn: template(Kind::Syn, Way::In, usual),
            syn_ack: template(Kind::SynAck, Way::Out, usual),
            inbound: of(Way::In),
            outbound: of(Way::Out),
        }
    }
}

/// Frame sizes of the mix, each as often as the others; frame check sequence included.
const MIX_SIZES: [u16; 8] = [64, 64, 64, 128, 256, 576, 1518, 1518];
/// Of ten flows of the mix so many are UDP.
pub const MIX_UDP: u32 = 3;
/// Of the mix, one packet in so many opens a session: 5 %. Even, so that it is an inbound one.
pub const MIX_FIRST_EVERY: usize = 20;

impl Traffic {
    pub fn new(args: &Throughput, number: usize) -> Self {
        let scene = Scene::new(args);
        let protocols: &[Protocol] = match args.mix {
            true => &[Protocol::Udp, Protocol::Tcp],
            false => std::slice::from_ref(&args.protocol),
        };
        let templates = |protocol: &Protocol| Templates::new(&scene, args, *protocol);
        let outer = match (args.mode, args.family) {
            (Mode::Ipip, crate::args::Family::V4) => 20,
            (Mode::Ipip, crate::args::Family::V6) => 40,
            _ => 0,
        };
        Self {
            number,
            workers: usize::from(args.workers),
            sessions_each: args.sessions_each(),
            misdirected_each: args.misdirected_each(),
            scene,
            outbound: args.frames_by_way()[Way::Out as usize],
            l4_at: transport_at(args.family) + outer,
            first_every: if args.mix { MIX_FIRST_EVERY } else { 0 },
            next: args.sessions_each(),
            clients: Clients::new(args.seed, args.family),
            owners: args.clients_have_owners().then(|| Owners::new(args.seed, args.workers)),
            random: Random::new(args.seed ^ (number as u64 + 1) << 32),
            picks: vec![1; args.frames as usize],
            elephant: (args.elephant * 65_536.0) as u32,
            templates: protocols.iter().map(templates).collect(),
        }
    }

    /// Frames of a flow.
    #[inline(always)]
    fn templates(&self, flow: u32) -> &Templates {
        let is_tcp = self.templates.len() > 1 && flow % 10 >= MIX_UDP;
        &self.templates[usize::from(is_tcp)]
    }

    /// Of a round's frames, those that open a session.
    pub const fn firsts_of(&self, frames: usize) -> usize {
        if self.first_every == 0 { 0 } else { frames.div_ceil(self.first_every) }
    }

    /// Whether the frame with a place in a round opens a session.
    #[inline(always)]
    const fn is_first(&self, at: usize) -> bool {
        self.first_every > 0 && at.is_multiple_of(self.first_every)
    }

    /// The network around the worker.
    pub const fn scene(&self) -> &Scene {
        &self.scene
    }

    /// The client of a flow of a worker.
    #[inline(always)]
    fn client(&self, worker: usize, flow: u32) -> Endpoint {
        // Flows that open later come behind those that stay, of all workers in turn.
        let number = match flow.checked_sub(self.sessions_each) {
            None => (worker as u32).wrapping_mul(self.sessions_each).wrapping_add(flow),
            Some(later) => {
                let workers = self.workers as u32;
                let all = self.sessions_each.wrapping_mul(workers);
                all.wrapping_add(later.wrapping_mul(workers)).wrapping_add(worker as u32)
            }
        };
        match &self.owners {
            None => self.clients.endpoint(number),
            Some(owners) => self.client_of(owners, worker, number),
        }
    }

    /// The first client that is a worker's of those whose numbers are this one and so many more:
    /// as steering by the same hash would bring it there.
    fn client_of(&self, owners: &Owners, worker: usize, number: u32) -> Endpoint {
        let all = self.sessions_each.wrapping_mul(self.workers as u32);
        let mut client = self.clients.endpoint(number);
        for round in 1..TRIES {
            if usize::from(owners.of(self.clients.address(client), client.port)) == worker {
                break;
            }
            client = self.clients.endpoint(number.wrapping_add(round.wrapping_mul(all)));
        }
        client
    }

    /// Source and destination of what a client sends.
    #[inline(always)]
    pub fn sent(&self, flow: u32) -> (Endpoint, Endpoint) {
        (self.client(self.number, flow), self.scene.target(flow))
    }

    /// Source and destination of what the far side answers to a flow of a worker.
    #[inline(always)]
    pub fn answered(&self, worker: usize, flow: u32, local: Local) -> (Endpoint, Endpoint) {
        let to = match self.scene.mode {
            Mode::Fnat | Mode::Snat => {
                Endpoint { address: self.scene.local_address(local.address), port: local.port }
            }
            Mode::Nat | Mode::Dr | Mode::Ipip => self.client(worker, flow),
        };
        (self.scene.far_endpoint(local.far), to)
    }

    /// Writes one inbound packet for each of `flows`: what `kind` says if it is TCP.
    pub fn write_in(&self, flows: Range<u32>, kind: Kind, frames: &mut [MemFrame]) {
        for (flow, frame) in flows.zip(frames) {
            let (from, to) = self.sent(flow);
            let templates = self.templates(flow);
            let template = match kind {
                Kind::Syn => &templates.syn,
                _ => &templates.inbound[0],
            };
            template.write(frame, from, to, flow);
        }
    }

    /// Writes the answer to the first packet of each of `flows`.
    pub fn write_answers(&self, flows: Range<u32>, locals: &[Local], frames: &mut [MemFrame]) {
        for (flow, frame) in flows.zip(frames) {
            let (from, to) = self.answered(self.number, flow, locals[flow as usize]);
            self.templates(flow).syn_ack.write(frame, from, to, flow);
        }
    }

    /// The way of the frame with a place in a round.
    #[inline(always)]
    pub const fn way(&self, at: usize) -> Way {
        if at % 2 == 1 && at / 2 < self.outbound { Way::Out } else { Way::In }
    }

    /// Writes a round: random flows, first frame inbound, second outbound if there are answers, and
    /// so on. `locals` are those of each worker; of the outbound frames a fixed number belongs to
    /// the other workers.
    pub fn write_round(&mut self, locals: &[&[Local]], frames: &mut [MemFrame]) {
        self.picks.clear();
        for at in 0..frames.len() {
            if self.is_first(at) {
                self.picks.push(self.next);
                self.next = self.next.wrapping_add(1).max(self.sessions_each);
                continue;
            }
            let elephant = self.elephant > 0 && self.random.below(65_536) < self.elephant;
            let flow = if elephant { 0 } else { self.random.below(self.sessions_each) };
            self.picks.push(flow);
        }
        let outbound = self.outbound;
        let misdirected = self.misdirected_each * (self.workers - 1);
        for (at, frame) in frames.iter_mut().enumerate() {
            let later = self.picks.get(at + AHEAD);
            if let Some(local) = later.and_then(|flow| locals[self.number].get(*flow as usize)) {
                prefetch::read(local);
            }
            let (flow, pair) = (self.picks[at], at / 2);
            let size = self.size();
            if self.way(at) == Way::In {
                let (from, to) = self.sent(flow);
                let templates = self.templates(flow);
                let template = match self.is_first(at) {
                    true => &templates.syn,
                    false => &templates.inbound[size],
                };
                template.write(frame, from, to, flow);
                continue;
            }
            // The misdirected packets are spread evenly, and go round the other workers.
            let (before, behind) =
                (pair * misdirected / outbound, (pair + 1) * misdirected / outbound);
            let owner = match before == behind {
                true => self.number,
                false => (self.number + 1 + before % (self.workers - 1)) % self.workers,
            };
            let (from, to) = self.answered(owner, flow, locals[owner][flow as usize]);
            self.templates(flow).outbound[size].write(frame, from, to, flow);
        }
    }

    /// Which of the sizes the next frame has.
    #[inline(always)]
    fn size(&mut self) -> usize {
        let sizes = self.templates[0].inbound.len();
        if sizes == 1 { 0 } else { self.random.below(sizes as u32) as usize }
    }

    /// The flow of the frame with a place in the round that was written last.
    pub fn picked(&self, at: usize) -> u32 {
        self.picks[at]
    }

    /// The flow that a frame's payload names, when the frame has come out.
    pub fn flow_of(&self, frame: &MemFrame) -> Option<u32> {
        let at = self.payload_at(frame.bytes())?;
        let flow = frame.bytes().get(at..)?.first_chunk()?;
        Some(u32::from_be_bytes(*flow))
    }

    /// Where the payload of a frame that came out is.
    fn payload_at(&self, bytes: &[u8]) -> Option<usize> {
        let protocol = match &self.templates[..] {
            [one] => one.protocol,
            // The protocol is the tenth byte of 20 of an IPv4 header, the seventh of 40 of IPv6.
            _ => {
                let before = if self.scene.family == crate::args::Family::V4 { 11 } else { 34 };
                let is_tcp = *bytes.get(self.l4_at - before)? == 6;
                if is_tcp { Protocol::Tcp } else { Protocol::Udp }
            }
        };
        Some(self.l4_at + l4_header(protocol))
    }

    /// What a session's first packet became, read at the places where it must be. The flow is
    /// the one that is known, or what the payload says.
    pub fn learn(&self, frame: &MemFrame, known: Option<u32>) -> Option<(u32, Local)> {
        let (bytes, scene) = (frame.bytes(), &self.scene);
        let v4 = scene.family == crate::args::Family::V4;
        let number = |at: usize| Some(u32::from_be_bytes(*bytes.get(at..)?.first_chunk()?));
        let port = |at: usize| Some(u16::from_be_bytes(*bytes.get(at..)?.first_chunk()?));
        let address = |at: usize| match v4 {
            true => number(at).map(u128::from),
            false => Some(u128::from_be_bytes(*bytes.get(at..)?.first_chunk()?)),
        };
        let (src, dst, ports) = if v4 { (26, 30, 34) } else { (22, 38, 54) };
        let far = match scene.mode {
            // Nothing but the link layer says it.
            Mode::Dr => (0..scene.far).find(|n| bytes.starts_with(&scene.far_mac(*n)))?,
            _ => scene.far_number(address(dst)?)?,
        };
        let flow = known.or_else(|| number(self.payload_at(bytes)?))?;
        let (address, port) = match scene.mode.has_pool() {
            true => (scene.local_number(address(src)?)?, port(ports)?),
            false => (0, 0),
        };
        Some((flow, Local { address, port, far }))
    }

    /// Judges a frame that came out: every field that the director wrote, and all checksums. Gives
    /// the flow with what is wrong.
    pub fn judge(&self, way: Way, locals: &[Local], frame: &MemFrame) -> Result<(), (u32, String)> {
        let seen = judge::read(frame.bytes()).map_err(|what| (u32::MAX, what))?;
        let Some(flow) = seen.flow else { return Err((u32::MAX, "no payload".into())) };
        let local = match locals.get(flow as usize) {
            Some(local) => *local,
            // It must be right for what it says of itself.
            None if self.first_every > 0 => match self.learn(frame, Some(flow)) {
                Some((_, local)) => local,
                None => return Err((flow, "not a first packet".into())),
            },
            None => return Err((flow, "there is no such flow".into())),
        };
        self.compare(way, flow, local, &seen).map_err(|what| (flow, what))
    }

    /// Compares a frame of a flow that came out with what it must be.
    pub fn compare(&self, way: Way, flow: u32, local: Local, seen: &Seen) -> Result<(), String> {
        let (scene, (client, target)) = (&self.scene, self.sent(flow));
        let (far, seen_client) = self.answered(self.number, flow, local);
        let (from, to) = match (way, scene.mode) {
            (Way::In, Mode::Dr | Mode::Ipip) => (client, target),
            (Way::In, _) => (seen_client, far),
            (Way::Out, _) => (target, client),
        };
        let next = if way == Way::In { scene.far_mac(local.far) } else { ROUTER_MAC };
        let leaves = scene.port(if way == Way::In { Way::Out } else { Way::In });
        let macs = (MACS[usize::from(leaves.0)], next);
        // Any of the tunnel's sources is right.
        let source = seen.outer.map(|(from, ..)| from).filter(|from| scene.is_tunnel_source(*from));
        let outer = (scene.mode == Mode::Ipip && way == Way::In)
            .then(|| (source.unwrap_or_default(), far.address, 64));
        let right = Seen { macs, outer, from, to, ttl: 63, flow: seen.flow };
        if *seen == right { Ok(()) } else { Err(format!("{seen:x?}, not {right:x?}")) }
    }
}

/// Source and destination MAC of what comes in.
pub fn macs_of(scene: &Scene, way: Way) -> [[u8; 6]; 2] {
    let from = if way == Way::In { ROUTER_MAC } else { scene.far_mac(0) };
    [from, MACS[usize::from(scene.port(way).0)]]
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
        let far = |flow| (flow % 3) as u16;
        let local = |flow| Local { address: 1 + worker as u16, port: flow as u16, far: far(flow) };
        (0..count).map(local).collect()
    }

    /// Half in, half out, every flow of the worker's range, and the misdirected packets where they
    /// belong.
    #[test]
    fn a_round_is_mixed() {
        let args = args("--sessions 3000 --workers 3 --misdirected 0.25 --frames 4096");
        let all: Vec<_> = (0..3).map(|worker| locals(worker, 1000)).collect();
        let all: Vec<&[Local]> = all.iter().map(Vec::as_slice).collect();
        let mut frames = port::frames(4096, PagePolicy::Ordinary).unwrap();
        let mut traffic = Traffic::new(&args, 1);
        traffic.write_round(&all, &mut frames);
        let seen: Vec<_> = frames.iter().map(|f| judge::read(f.bytes()).unwrap()).collect();
        let mut owners = [0; 3];
        for (at, seen) in seen.iter().enumerate() {
            let flow = seen.flow.unwrap();
            if at % 2 == 0 {
                assert_eq!((seen.from, seen.to), traffic.sent(flow));
            } else {
                let owner = usize::from(traffic.scene.local_number(seen.to.address).unwrap()) - 1;
                let local = all[owner][flow as usize];
                assert_eq!((seen.from, seen.to), traffic.answered(owner, flow, local));
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
    fn a_round_without_answers_is_inbound() {
        for mode in ["dr", "ipip"] {
            let args = args(&format!("--mode {mode} --family 6 --sessions 100 --frames 256"));
            let mut frames = port::frames(256, PagePolicy::Ordinary).unwrap();
            let mut traffic = Traffic::new(&args, 0);
            traffic.write_round(&[&locals(0, 100)], &mut frames);
            for frame in &frames {
                let seen = judge::read(frame.bytes()).unwrap();
                assert_eq!((seen.from, seen.to), traffic.sent(seen.flow.unwrap()));
            }
        }
    }

    #[test]
    fn a_wrong_frame_is_told() {
        for line in ["--protocol udp", "--protocol tcp", "--family 6", "--mode dr"] {
            let args = args(&format!("--sessions 10 {line}"));
            let traffic = Traffic::new(&args, 0);
            let mine = locals(0, 10);
            let mut frames = port::frames(10, PagePolicy::Ordinary).unwrap();
            traffic.write_in(0..10, Kind::Syn, &mut frames);
            let (_, what) = traffic.judge(Way::In, &mine, &frames[3]).unwrap_err();
            assert!(what.contains("ttl: 40"), "not rewritten: {what}");
            assert_eq!(traffic.learn(&frames[4], None), None, "it goes to no real");
            frames[3].bytes_mut()[30] ^= 1;
            let (_, what) = traffic.judge(Way::In, &mine, &frames[3]).unwrap_err();
            assert!(what.contains("Ip") || what.contains("checksum"), "{what}");
        }
    }

    /// The outer header is judged too.
    #[test]
    fn a_tunnel_must_be_there() {
        let args = args("--mode ipip --sessions 10");
        let traffic = Traffic::new(&args, 0);
        let local = locals(0, 10)[4];
        let (from, to) = traffic.sent(4);
        let macs = (MACS[1], traffic.scene.far_mac(local.far));
        let (source, end, ttl) = (0xc000_02e3, traffic.scene.far_endpoint(local.far).address, 64);
        let outer = Some((source, end, ttl));
        let right = Seen { macs, outer, from, to, ttl: 63, flow: Some(4) };
        assert_eq!(traffic.compare(Way::In, 4, local, &right), Ok(()));
        let wrong = |(source, to, ttl)| Seen { outer: Some((source, to, ttl)), ..right.clone() };
        for seen in [
            Seen { outer: None, ..right.clone() },
            wrong((source + 16, end, ttl)),
            wrong((source, end + 1, ttl)),
            wrong((source, end, 63)),
        ] {
            assert!(traffic.compare(Way::In, 4, local, &seen).is_err(), "{seen:x?}");
        }
    }
}
