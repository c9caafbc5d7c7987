//! Queues in memory, and a two-arm network around workers.

mod frame;
mod kept;
mod queue;

pub use frame::MemFrame;
pub use queue::MemQueue;

use etherparse::{IpFragOffset, IpNumber, Ipv4Header, PacketBuilder, UdpHeader};
use sluice_director::fib::{Fib, FibBuilder, Link, PortId, Target};
use sluice_director::path::{PagePolicy, PathConfig};
use sluice_director::plan::{Plan, Retired};
use sluice_director::spec::{
    LocalPool, Mode, NetworkId, Ports, Protocol, RealServer, Scheduling, Spec, VirtualService,
};
use sluice_director::vxlan::{Remote, Tunnel, Tunnels};
use sluice_director::{Frame, Reason, Time};
pub use sluice_testkit::world::{CLIENT, LOCAL, REAL, VIP};
use sluice_testkit::world::{CLIENT_MAC, REAL_MAC, World, back, front};
use sluice_worker::{
    Event, Idle, Inbox, Message, NetworksConfig, Published, Snapshot, Wake, Worker, WorkerConfig,
};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, channel};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

pub const FRONT: PortId = PortId(0);
pub const BACK: PortId = PortId(1);
/// Room of each worker, where a test does not ask for another one.
const SESSIONS: u32 = 100;
/// This end of blue's tunnel, its network identifier, and its virtual port.
pub const VTEP: [u8; 4] = [198, 51, 100, 1];
pub const VNI: u32 = 100;
pub const BLUE_TUNNEL: PortId = PortId(3);

/// A worker's queues of one port.
struct Line {
    line: Option<MemQueue>,
    twin: Option<MemQueue>,
}

/// Workers, their queues, and what they run against.
pub struct Kit {
    pub workers: Vec<Worker<MemQueue>>,
    pub events: Receiver<Event>,
    pub now: Time,
    pub wakes: Vec<Wake>,
    lines: Vec<Vec<Line>>,
    pub plan: Arc<Plan>,
    tunnels: Arc<Tunnels>,
    /// Where the sessions of each worker lie, if they outlive it.
    files: Vec<[std::fs::File; 2]>,
    /// Whether these were taken up by workers that their packets do not come to by themselves.
    scattered: bool,
}

/// A worker whose loop runs on a thread.
pub struct Running {
    pub inbox: Inbox<MemQueue>,
    pub thread: JoinHandle<()>,
}

impl Kit {
    /// `queues` says how many queues each port has; neighbours are `known` or not.
    pub fn new(workers: u16, queues: &[u16], known: bool) -> Self {
        Self::build(workers, queues, known, false)
    }

    /// One worker with a queue of each port, and room for so many sessions.
    pub fn with_sessions(sessions: u32) -> Self {
        Self::build_in(&spec(), (1, sessions, Vec::new()), &[1, 1], true, false)
    }

    pub fn with_twins(workers: u16, queues: &[u16]) -> Self {
        Self::build(workers, queues, true, true)
    }

    /// The same service, by the same addresses, in the default network and in two others; network
    /// n has the ports 2n and 2n + 1.
    pub fn with_networks(workers: u16) -> Self {
        Self::build_of(&networks(), workers, &[workers; 6], true, false)
    }

    /// The same networks and services, in another order: red is number 1, blue number 2.
    pub fn with_networks_reversed(workers: u16) -> Self {
        let mut spec = networks();
        spec.networks.reverse();
        spec.services.reverse();
        spec.pools.reverse();
        Self::build_of(&spec, workers, &[workers; 6], true, false)
    }

    /// As by [`Self::with_networks`], but blue's back is a VXLAN port, with the underlay at the
    /// default network's front: 198.51.100.1 is this end, and the client's address the other one.
    pub fn with_tunnel(workers: u16) -> Self {
        let mut kit = Self::build_of(
            &networks(),
            workers,
            &[workers, workers, workers, 0, workers, workers],
            true,
            true,
        );
        kit.tunnels = Arc::new(tunnels());
        kit.publish_neighbours();
        kit
    }

    fn build(workers: u16, queues: &[u16], known: bool, twins: bool) -> Self {
        Self::build_of(&spec(), workers, queues, known, twins)
    }

    fn build_of(spec: &Spec, workers: u16, queues: &[u16], known: bool, twins: bool) -> Self {
        Self::build_in(spec, (workers, SESSIONS, Vec::new()), queues, known, twins)
    }

    fn build_in(
        spec: &Spec,
        (workers, sessions, files): (u16, u32, Vec<[std::fs::File; 2]>),
        queues: &[u16],
        known: bool,
        twins: bool,
    ) -> Self {
        let plan = Arc::new(Plan::compile(spec, None, &Retired::default()).unwrap());
        let snapshot = snapshot(&plan, known);
        let isolated = spec.networks.len() as u16;
        let of_port = (0..=isolated).flat_map(|network| [NetworkId(network); 2]).collect();
        let networks = NetworksConfig { sessions: vec![100; isolated.into()], of_port, twins };
        let (sender, events) = channel();
        let wakes: Vec<_> = (0..workers).map(|_| Wake::new().unwrap()).collect();
        let (mut lines, mut made) = (Vec::new(), Vec::new());
        for (number, rings) in (0..workers).zip(sluice_worker::mesh(workers.into())) {
            let path = PathConfig {
                worker: number,
                workers,
                sessions,
                fragments: 64,
                seed: 1,
                pages: PagePolicy::Ordinary,
            };
            let config = WorkerConfig {
                held_frames: 8,
                networks: networks.clone(),
                files: files.get(usize::from(number)).map(kept::tables).into_iter().collect(),
                ..WorkerConfig::of(path)
            };
            let events = (sender.clone(), Wake::new().unwrap());
            let mut worker = Worker::new(config, &snapshot, rings, wakes.clone(), events).unwrap();
            let mut of_worker = Vec::new();
            for (port, count) in queues.iter().enumerate() {
                let line = (number < *count).then(MemQueue::new);
                let twin = line.as_ref().filter(|_| twins).map(|_| MemQueue::new());
                if let Some(line) = &line {
                    worker.attach(PortId(port as u16), line.clone(), twin.clone());
                }
                of_worker.push(Line { line, twin });
            }
            lines.push(of_worker);
            made.push(worker);
        }
        let tunnels = Arc::default();
        Self {
            workers: made,
            events,
            now: Time(1000),
            wakes,
            lines,
            plan,
            tunnels,
            files,
            scattered: false,
        }
    }

    fn line(&self, worker: u16, port: PortId) -> &MemQueue {
        self.lines[usize::from(worker)][usize::from(port.0)].line.as_ref().unwrap()
    }

    pub fn queue(&self, worker: u16, port: PortId) -> MemQueue {
        self.line(worker, port).clone()
    }

    fn twin(&self, worker: u16, port: PortId) -> &MemQueue {
        self.lines[usize::from(worker)][usize::from(port.0)].twin.as_ref().unwrap()
    }

    pub fn put(&mut self, worker: u16, port: PortId, frame: MemFrame) {
        self.line(worker, port).put(frame);
    }

    pub fn put_by_twin(&mut self, worker: u16, port: PortId, frame: MemFrame) {
        self.twin(worker, port).put(frame);
    }

    pub fn sent(&mut self, worker: u16, port: PortId) -> Vec<MemFrame> {
        self.line(worker, port).far().sent.drain(..).collect()
    }

    pub fn sent_by_twin(&mut self, worker: u16, port: PortId) -> Vec<MemFrame> {
        self.twin(worker, port).far().sent.drain(..).collect()
    }

    /// The queue takes `room` frames a call from now on.
    pub fn limit(&mut self, worker: u16, port: PortId, room: usize) {
        self.line(worker, port).far().room = room;
    }

    /// Gives a queue so many free buffers for pieces.
    pub fn give_spares(&mut self, worker: u16, port: PortId, count: usize) {
        let spare = || MemFrame::with_capacity(2048);
        self.line(worker, port).far().spares.extend((0..count).map(|_| spare()));
    }

    /// Free buffers that a queue still has.
    pub fn spares(&mut self, worker: u16, port: PortId) -> usize {
        self.line(worker, port).far().spares.len()
    }

    /// What a worker has counted under a reason.
    pub fn counted(&self, worker: u16, reason: Reason) -> u64 {
        self.workers[usize::from(worker)].path().counters().of(reason)
    }

    /// Gives a worker one more queue of a port.
    pub fn second_queue(&mut self, worker: u16, port: PortId) -> MemQueue {
        let queue = MemQueue::new();
        self.workers[usize::from(worker)].attach(port, queue.clone(), None);
        queue
    }

    pub fn turn(&mut self, worker: u16) {
        self.workers[usize::from(worker)].turn(self.now);
    }

    /// From now on the neighbours are known.
    pub fn publish_neighbours(&mut self) {
        let mut snapshot = (*snapshot(&self.plan, true)).clone();
        snapshot.tunnels = Arc::clone(&self.tunnels);
        self.workers.iter_mut().for_each(|worker| worker.publish(&snapshot));
    }

    /// From now on the real server's MAC is another one, for all workers.
    pub fn publish_mac(&mut self, mac: [u8; 6]) {
        let fib = Arc::new(routes(&self.plan, mac, 0));
        let default = Snapshot { plan: Arc::clone(&self.plan), fib };
        let published = Published::from(default);
        self.workers.iter_mut().for_each(|worker| worker.publish(&published));
    }

    /// A configuration takes the place of the one before, and reaches some workers.
    pub fn reload(&mut self, spec: &Spec, reaches: impl Fn(u16) -> bool) {
        let plan = Plan::compile(spec, Some(&self.plan), &Retired::default()).unwrap();
        self.plan = Arc::new(plan);
        for (number, worker) in (0..).zip(&mut self.workers) {
            if reaches(number) {
                worker.publish(&snapshot(&self.plan, true));
            }
        }
    }

    /// Turns of all workers until nothing is handed over any more.
    pub fn settle(&mut self) {
        let handed = |kit: &Self| -> u64 {
            kit.workers.iter().map(|worker| worker.path().counters().handed_off).sum()
        };
        for _ in 0..100 {
            let before = handed(self);
            self.workers.iter_mut().for_each(|worker| _ = worker.turn(self.now));
            if handed(self) == before {
                // What was handed over last is with its receiver after one more.
                self.workers.iter_mut().for_each(|worker| _ = worker.turn(self.now));
                return;
            }
        }
        panic!("handed on and on");
    }

    /// Runs a worker's loop on a thread.
    pub fn run(&mut self, worker: u16) -> Running {
        let mut worker = self.workers.remove(usize::from(worker));
        let (inbox, mailbox, wake) = Inbox::new().unwrap();
        // Its clock goes on from here: sessions would be from the future otherwise, and time out.
        let start = Instant::now().checked_sub(Duration::from_millis(self.now.0)).unwrap();
        let thread = std::thread::spawn(move || {
            sluice_worker::run(&mut worker, &mailbox, &wake, Idle::Adaptive, start);
        });
        assert!(inbox.send(Message::Publish(snapshot(&self.plan, true))));
        Running { inbox, thread }
    }
}

fn snapshot(plan: &Arc<Plan>, known: bool) -> Arc<Published> {
    let of = |network| {
        let plan = Arc::new(plan.of_network(NetworkId(network)));
        let fib = Arc::new(fib(&plan, known, network * 2));
        Snapshot { plan, fib }
    };
    let isolated = (1..plan.network_count()).map(of).collect();
    Arc::new(Published { default: of(0), isolated, ..Published::default() })
}

/// The same service in the default network and in two others.
fn networks() -> Spec {
    let mut all = Spec { networks: vec!["blue".into(), "red".into()], ..Spec::default() };
    for network in ["", "blue", "red"] {
        let mut own = spec();
        let (service, pool) = (&mut own.services[0], &mut own.pools[0]);
        (service.network, pool.network) = (network.into(), network.into());
        service.name = format!("dns{network}");
        pool.name = format!("lan{network}");
        service.pool.clone_from(&pool.name);
        all.services.append(&mut own.services);
        all.pools.append(&mut own.pools);
    }
    all
}

/// Blue's tunnel.
fn tunnels() -> Tunnels {
    let mut fib = FibBuilder::default();
    let link = fib.link(Link { port: FRONT, mac: [2; 6], mtu: 1600, ..Link::default() });
    fib.route([198, 51, 100, 0].into(), 24, Target::OnLink(link));
    fib.neighbour(link, CLIENT.into(), CLIENT_MAC);
    let fib = fib.build(&Plan::default(), None);
    let hop = fib.lookup(CLIENT.into()).ok().and_then(|hop| fib.hop(hop)).copied();
    let mut tunnel = Tunnel::new(BLUE_TUNNEL, VNI, VTEP.into());
    let remote = Remote { address: CLIENT.into(), udp_port: 4789, vni: VNI, hop };
    tunnel.remotes = vec![(REAL_MAC, remote)];
    Tunnels::new(&[tunnel], &[(FRONT, Vec::new())])
}

pub fn spec() -> Spec {
    let service = VirtualService {
        name: "dns".into(),
        protocol: Protocol::Udp,
        vip: VIP.into(),
        ports: Ports::one(53),
        mode: Mode::Fnat,
        scheduler: Scheduling::Rr,
        pool: "lan".into(),
        reals: vec![RealServer { address: REAL.into(), port: 53, ..RealServer::default() }],
        ..VirtualService::default()
    };
    let addresses = vec![LOCAL.into()];
    let pool = LocalPool {
        network: String::new(),
        name: "lan".into(),
        addresses,
        ports: 1024..=65535,
        peer_addresses: Vec::new(),
    };
    Spec { services: vec![service], pools: vec![pool], ..Spec::default() }
}

/// The routes of a network whose first port this is.
fn fib(plan: &Plan, known: bool, first: u16) -> Fib {
    if known { routes(plan, REAL_MAC, first) } else { routes_to(plan, None, first) }
}

fn routes(plan: &Plan, real: [u8; 6], first: u16) -> Fib {
    routes_to(plan, Some(real), first)
}

/// The same with this MAC of the real server; without one no neighbour is known.
fn routes_to(plan: &Plan, real: Option<[u8; 6]>, first: u16) -> Fib {
    let mut world = World::default();
    (world.front.port, world.back.port) = (first, first + 1);
    world.front.networks.truncate(1);
    world.back.networks.truncate(1);
    world.front.hosts.retain(|(host, _)| real.is_some() && *host == front(false, 48));
    world.back.hosts = real.map(|mac| (back(false, 11), mac)).into_iter().collect();
    let mut builder = FibBuilder::default();
    world.tell(
        &mut builder,
        |builder, arm| {
            let mac = [2, 0, 0, 0, 0, arm.port as u8];
            builder.link(Link { port: PortId(arm.port), mac, mtu: arm.mtu, ..Link::default() })
        },
        |builder, link, net, bits| builder.route(net, bits, Target::OnLink(link)),
        |builder, link, host, mac| builder.neighbour(link, host, mac),
    );
    builder.build(plan, None)
}

/// A UDP datagram.
pub fn udp(from: ([u8; 4], u16), to: ([u8; 4], u16)) -> MemFrame {
    udp_with(from, to, b"question")
}

/// A UDP datagram with this data.
pub fn udp_with(from: ([u8; 4], u16), to: ([u8; 4], u16), data: &[u8]) -> MemFrame {
    let mut bytes = Vec::new();
    let builder = PacketBuilder::ethernet2([4; 6], [6; 6]).ipv4(from.0, to.0, 64);
    builder.udp(from.1, to.1).write(&mut bytes, data).unwrap();
    MemFrame::new(&bytes)
}

/// An ICMP error of this code from a router, that quotes a frame's packet.
pub fn unreachable(router: [u8; 4], to: [u8; 4], code: u8, quoted: &MemFrame) -> MemFrame {
    let mut bytes = Vec::new();
    let builder = PacketBuilder::ethernet2([4; 6], [6; 6]).ipv4(router, to, 64);
    builder.icmpv4_raw(3, code, [0, 0, 2, 88]).write(&mut bytes, &quoted.bytes()[14..]).unwrap();
    MemFrame::new(&bytes)
}

/// A UDP datagram with so many bytes of data that may be fragmented, whole.
pub fn large(from: ([u8; 4], u16), to: ([u8; 4], u16), length: usize, id: u16) -> MemFrame {
    let data: Vec<u8> = (0..length).map(|n| (n * 31 % 251) as u8).collect();
    let udp = UdpHeader::with_ipv4_checksum(
        from.1,
        to.1,
        &Ipv4Header::new(0, 64, IpNumber::UDP, from.0, to.0).unwrap(),
        &data,
    );
    let payload = [&udp.unwrap().to_bytes()[..], &data].concat();
    piece(from.0, to.0, &payload, (0, payload.len()), id)
}

/// A UDP datagram in fragments, cut behind these octets of the IP packet's payload.
pub fn pieces(whole: &MemFrame, places: &[usize]) -> Vec<MemFrame> {
    let ip = Ipv4Header::from_slice(&whole.bytes()[14..]).unwrap().0;
    let payload = &whole.bytes()[34..];
    let starts = std::iter::once(0).chain(places.iter().copied());
    let spans = starts.zip(places.iter().copied().chain([payload.len()]));
    let id = ip.identification;
    spans.map(|span| piece(ip.source, ip.destination, payload, span, id)).collect()
}

fn piece(
    from: [u8; 4],
    to: [u8; 4],
    payload: &[u8],
    (start, end): (usize, usize),
    id: u16,
) -> MemFrame {
    let mut ip = Ipv4Header::new((end - start) as u16, 64, IpNumber::UDP, from, to).unwrap();
    (ip.identification, ip.dont_fragment) = (id, false);
    ip.fragment_offset = IpFragOffset::try_new((start / 8) as u16).unwrap();
    ip.more_fragments = end < payload.len();
    ip.header_checksum = ip.calc_header_checksum();
    let mut bytes = [[4; 6], [6; 6]].concat();
    bytes.extend([8, 0]);
    ip.write(&mut bytes).unwrap();
    bytes.extend(&payload[start..end]);
    MemFrame::new(&bytes)
}

/// An IPv4 endpoint.
pub type Endpoint = ([u8; 4], u16);

/// What `etherparse` puts together from frames in the order in which they left: source and
/// destination, and the data; asserts that every piece fits the MTU, and all checksums.
pub fn together(frames: &[MemFrame]) -> (Endpoint, Endpoint, Vec<u8>) {
    let mut pool = etherparse::defrag::IpDefragPool::<(), ()>::new();
    let (mut whole, mut ends) = (None, ([0; 4], [0; 4]));
    for frame in frames {
        assert_eq!(frame.bytes()[..14], frames[0].bytes()[..14], "the same link-layer header");
        let ip = Ipv4Header::from_slice(&frame.bytes()[14..]).unwrap().0;
        assert_eq!((ip.header_checksum, ip.time_to_live), (ip.calc_header_checksum(), 63));
        assert!(ip.total_len <= 1500);
        ends = (ip.source, ip.destination);
        let sliced = etherparse::SlicedPacket::from_ethernet(frame.bytes()).unwrap();
        whole = whole.or(pool.process_sliced_packet(&sliced, (), ()).unwrap());
    }
    let payload = whole.expect("not whole").payload;
    let (udp, data) = UdpHeader::from_slice(&payload).unwrap();
    let sum = udp.calc_checksum_ipv4_raw(ends.0, ends.1, data);
    assert_eq!(udp.checksum, sum.unwrap(), "UDP checksum");
    ((ends.0, udp.source_port), (ends.1, udp.destination_port), data.to_vec())
}

/// Source and destination of a frame, by another's parser.
pub fn addresses(frame: &MemFrame) -> (([u8; 4], u16), ([u8; 4], u16)) {
    let sliced = etherparse::SlicedPacket::from_ethernet(frame.bytes()).unwrap();
    let Some(etherparse::NetSlice::Ipv4(ip)) = sliced.net else { panic!("no IPv4") };
    let Some(etherparse::TransportSlice::Udp(udp)) = sliced.transport else { panic!("no UDP") };
    let ip = ip.header();
    ((ip.source(), udp.source_port()), (ip.destination(), udp.destination_port()))
}
