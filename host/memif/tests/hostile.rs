//! A peer that lies: in its messages, by the descriptors that it sends, and in shared memory. It
//! may end its own link; it may not harm the process, leave anything behind, or keep others out.
//!
//! Messages are written here byte by byte, from the protocol's description, and not by the driver.

use std::fs;
use std::io::{IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::{Duration, Instant};

use rustix::event::{EventfdFlags, eventfd};
use rustix::fs::{MemfdFlags, SealFlags};
use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvFlags, SendAncillaryBuffer, SendAncillaryMessage,
    SendFlags, SocketAddrUnix, SocketType,
};
use sluice_memif::{
    Address, Landing, Link, LinkConfig, Mode, Receiver, Role, SECRET_BYTES, Sender,
};

/// One test at a time: they count what the process holds.
static TURN: std::sync::Mutex<()> = std::sync::Mutex::new(());

fn turn() -> std::sync::MutexGuard<'static, ()> {
    TURN.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
}

/// Numbers that are the same at each run (xorshift64).
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }

    fn below(&mut self, end: u64) -> u64 {
        self.next() % end
    }
}

fn name() -> String {
    static LAST: AtomicU32 = AtomicU32::new(0);
    format!("sluice-hostile-{}-{}", std::process::id(), LAST.fetch_add(1, Ordering::Relaxed))
}

fn config(name: &str, role: Role) -> LinkConfig {
    LinkConfig {
        name: "test".into(),
        socket: Address::Abstract(name.to_owned()),
        id: 0,
        role,
        mode: Mode::Ethernet,
        secret: [0; SECRET_BYTES],
        queues: 1,
        log2: 8,
        buffer_bytes: 2048,
    }
}

fn until(what: &str, mut done: impl FnMut() -> bool) {
    let deadline = Instant::now() + Duration::from_secs(20);
    while !done() {
        assert!(Instant::now() < deadline, "{what}");
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// Counts what lands.
struct Count {
    room: [u8; 2048],
    frames: usize,
}

impl Landing for Count {
    fn room(&mut self) -> Option<&mut [u8]> {
        Some(&mut self.room)
    }

    fn landed(&mut self, length: usize) -> bool {
        assert!((1..=2048).contains(&length));
        self.frames += 1;
        true
    }
}

fn count() -> Count {
    Count { room: [0; 2048], frames: 0 }
}

/// Open descriptors and mappings of memory files.
fn holdings() -> (usize, usize) {
    let maps = fs::read_to_string("/proc/self/maps").unwrap();
    let shared = maps.lines().filter(|line| line.contains("/memfd:")).count();
    (fs::read_dir("/proc/self/fd").unwrap().count(), shared)
}

const RINGS: u64 = 2;
const LOG2: u8 = 8;
/// Of a ring of 2^8: its header and descriptors.
const RING_BYTES: u64 = 128 + 16 * 256;
const REGION_BYTES: u64 = RINGS * RING_BYTES + 65_536;

/// A client made by hand.
struct Liar(OwnedFd);

impl Liar {
    fn connect(name: &str) -> Self {
        let socket = rustix::net::socket(AddressFamily::UNIX, SocketType::SEQPACKET, None).unwrap();
        let address = SocketAddrUnix::new_abstract_name(name.as_bytes()).unwrap();
        rustix::net::connect(&socket, &address).unwrap();
        let time = Some(Duration::from_secs(5));
        rustix::net::sockopt::set_socket_timeout(
            &socket,
            rustix::net::sockopt::Timeout::Recv,
            time,
        )
        .unwrap();
        Self(socket)
    }

    /// Sends bytes and descriptors; whether they were taken.
    fn send(&self, bytes: &[u8], with: &[BorrowedFd<'_>]) -> bool {
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(4))];
        let mut control = SendAncillaryBuffer::new(&mut space);
        if !with.is_empty() {
            control.push(SendAncillaryMessage::ScmRights(with));
        }
        let flags = SendFlags::NOSIGNAL | SendFlags::DONTWAIT;
        rustix::net::sendmsg(&self.0, &[IoSlice::new(bytes)], &mut control, flags).is_ok()
    }

    /// The type of the next message, and its bytes; type 0 at the end.
    fn receive(&self) -> (u16, [u8; 128]) {
        let mut bytes = [0; 128];
        let mut control = RecvAncillaryBuffer::default();
        let parts = &mut [IoSliceMut::new(&mut bytes)];
        let got = rustix::net::recvmsg(&self.0, parts, &mut control, RecvFlags::empty());
        match got {
            Ok(got) if got.bytes == 128 => (u16::from_ne_bytes([bytes[0], bytes[1]]), bytes),
            _ => (0, bytes),
        }
    }

    /// Says a message and expects its ACK, or the reason why not.
    fn say(&self, message: [u8; 128], with: Option<&OwnedFd>) -> Result<(), String> {
        let with: Vec<_> = with.iter().map(|one| one.as_fd()).collect();
        self.send(&message, &with);
        match self.receive() {
            (1 | 7, _) => Ok(()),
            (8, bytes) => {
                let text = bytes[6..102].split(|byte| *byte == 0).next().unwrap_or_default();
                Err(String::from_utf8_lossy(text).into_owned())
            }
            (kind, _) => Err(format!("type {kind}")),
        }
    }

    /// The handshake with one ring each way; `size` is what is claimed of the memory.
    fn join(&self, memory: &OwnedFd, size: u64, events: [&OwnedFd; 2]) -> Result<(), String> {
        assert_eq!(self.receive().0, 2, "HELLO");
        self.say(init(), None)?;
        self.say(message(4, &[(4, &size.to_ne_bytes())]), Some(memory))?;
        self.say(ring(true, 0), Some(events[0]))?;
        self.say(ring(false, RING_BYTES as u32), Some(events[1]))?;
        self.say(message(6, &[]), None)
    }
}

fn message(kind: u16, fields: &[(usize, &[u8])]) -> [u8; 128] {
    let mut bytes = [0; 128];
    bytes[..2].copy_from_slice(&kind.to_ne_bytes());
    for (at, field) in fields {
        bytes[*at..at + field.len()].copy_from_slice(field);
    }
    bytes
}

fn init() -> [u8; 128] {
    message(3, &[(2, &0x0200_u16.to_ne_bytes())])
}

fn ring(to_server: bool, offset: u32) -> [u8; 128] {
    let flags = u16::from(to_server).to_ne_bytes();
    message(5, &[(2, &flags), (8, &offset.to_ne_bytes()), (12, &[LOG2])])
}

fn event() -> OwnedFd {
    eventfd(0, EventfdFlags::NONBLOCK).unwrap()
}

/// Memory with the cookies of two rings, and where it is mapped.
fn memory(seals: SealFlags) -> (OwnedFd, Mapped) {
    let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
    let file = rustix::fs::memfd_create("liar", flags).unwrap();
    rustix::fs::ftruncate(&file, REGION_BYTES).unwrap();
    rustix::fs::fcntl_add_seals(&file, seals).unwrap();
    let mapped = Mapped::new(&file);
    mapped.write(0, 0x03e3_1f20);
    mapped.write(RING_BYTES as usize, 0x03e3_1f20);
    (file, mapped)
}

struct Mapped(*mut u8);

// SAFETY: written by volatile writes only.
unsafe impl Sync for Mapped {}
// SAFETY: as above.
unsafe impl Send for Mapped {}

impl Mapped {
    fn new(file: &OwnedFd) -> Self {
        use std::os::fd::AsRawFd;
        // SAFETY: a new mapping at a place of the kernel's choice.
        let at = unsafe {
            libc::mmap(
                std::ptr::null_mut(),
                REGION_BYTES as usize,
                libc::PROT_READ | libc::PROT_WRITE,
                libc::MAP_SHARED,
                file.as_raw_fd(),
                0,
            )
        };
        assert_ne!(at, libc::MAP_FAILED);
        Self(at.cast())
    }

    fn write(&self, at: usize, word: u32) {
        assert!(at + 4 <= REGION_BYTES as usize && at.is_multiple_of(4));
        // SAFETY: in the mapping, and aligned.
        unsafe { self.0.add(at).cast::<u32>().write_volatile(word) };
    }
}

impl Drop for Mapped {
    fn drop(&mut self) {
        // SAFETY: the mapping is this value's alone.
        unsafe { libc::munmap(self.0.cast(), REGION_BYTES as usize) };
    }
}

/// Says so when it ends, however that comes.
struct SetAtEnd<'a>(&'a AtomicBool);

impl Drop for SetAtEnd<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// A link that waits for clients, its ends, and what the process holds now.
fn server(name: &str) -> (Link, (Receiver, Sender), (usize, usize)) {
    let (link, mut ends) = Link::open(config(name, Role::Server)).unwrap();
    until("those of other tests are gone", || holdings().1 == 0);
    (link, ends.pop().unwrap(), holdings())
}

/// An honest client comes, and a frame of its gets through; nothing else is left behind.
fn honest(name: &str, (rx, tx): &mut (Receiver, Sender), before: (usize, usize)) {
    let (client, mut ends) = Link::open(config(name, Role::Client)).unwrap();
    until("an honest client is let in", || client.is_up());
    let mut landing = count();
    until("its frame goes", || ends[0].1.send([&[1; 60][..]].into_iter()) == 1);
    until("its frame comes", || rx.receive(64, &mut landing) == 1);
    drop((client, ends));
    until("nothing is left behind", || {
        rx.receive(64, &mut landing);
        tx.refresh();
        holdings() == before
    });
}

#[test]
fn random_messages_cost_the_sender_its_own_link() {
    let _turn = turn();
    let name = name();
    let (link, mut ends, before) = server(&name);
    let mut random = Random(0x5eed);
    let sealed = memory(SealFlags::SHRINK).0;
    let kinds: [OwnedFd; 4] =
        [sealed, event(), fs::File::open("/dev/null").unwrap().into(), memory(SealFlags::GROW).0];
    for _ in 0..200 {
        let liar = Liar::connect(&name);
        if random.below(4) > 0 {
            liar.send(&init(), &[]);
        }
        for _ in 0..random.below(12) {
            let mut bytes: Vec<u8> =
                (0..random.below(200) + 1).map(|_| random.next() as u8).collect();
            if random.below(4) > 0 {
                // Of the right length and a type that there is, small numbers now and then.
                let mask = if random.below(2) == 0 { 0x03 } else { 0xff };
                bytes = (0..128).map(|_| random.next() as u8 & mask).collect();
                bytes[..2].copy_from_slice(&(random.below(8) as u16 + 1).to_ne_bytes());
            }
            let with: Vec<_> =
                (0..random.below(4)).map(|_| kinds[random.below(4) as usize].as_fd()).collect();
            liar.send(&bytes, &with);
        }
    }
    drop(kinds);
    until("nobody is there", || !link.is_up());
    honest(&name, &mut ends, before);
}

#[test]
fn random_memory_costs_the_writer_its_own_link() {
    let _turn = turn();
    let name = name();
    let (link, mut ends, before) = server(&name);
    let mut landing = count();
    for round in 1..=40_u64 {
        let (file, mapped) = memory(SealFlags::SHRINK);
        let events = [event(), event()];
        let liar = Liar::connect(&name);
        liar.join(&file, REGION_BYTES, [&events[0], &events[1]]).unwrap();
        until("the link is up", || link.is_up());
        let over = AtomicBool::new(false);
        std::thread::scope(|scope| {
            // Even when the driver panics: the scope waits for the thread.
            let _ends = SetAtEnd(&over);
            scope.spawn(|| {
                let mut random = Random(round);
                while !over.load(Ordering::Relaxed) {
                    let at = random.below(2 * RING_BYTES / 4) as usize * 4;
                    // Small numbers pass more checks.
                    let mask = if round.is_multiple_of(2) { 0x0001_00ff } else { u64::MAX };
                    mapped.write(at, (random.next() & mask) as u32);
                }
            });
            let frames = [[7_u8; 60]; 16];
            for _ in 0..300 {
                ends.0.receive(64, &mut landing);
                ends.1.send(frames.iter().map(|frame| &frame[..]));
                if ends.0.arm() {
                    ends.0.disarm();
                }
            }
        });
        drop(liar);
        until("it is noticed", || !link.is_up());
    }
    honest(&name, &mut ends, before);
}

#[test]
fn memory_that_could_end_the_process_is_refused() {
    let _turn = turn();
    let name = name();
    let (_link, mut ends, before) = server(&name);
    let refused = |seals, size, events: [&OwnedFd; 2]| {
        let (file, _mapped) = memory(seals);
        Liar::connect(&name).join(&file, size, events).unwrap_err()
    };
    {
        let (one, other) = (event(), event());
        let null: OwnedFd = fs::File::open("/dev/null").unwrap().into();
        let events = [&one, &other];
        let why = refused(SealFlags::GROW, REGION_BYTES, events);
        assert!(why.contains("F_SEAL_SHRINK"), "{why}");
        let why = refused(SealFlags::SHRINK, REGION_BYTES + 1, events);
        assert!(why.contains("a region of"), "{why}");
        let why = refused(SealFlags::SHRINK, RING_BYTES, events);
        assert!(why.contains("not in its region"), "{why}");
        let why = refused(SealFlags::SHRINK, REGION_BYTES, [&one, &null]);
        assert!(why.contains("instead of an eventfd"), "{why}");
    }
    honest(&name, &mut ends, before);
}

#[test]
fn handshakes_that_never_end_keep_nobody_out() {
    let _turn = turn();
    let name = name();
    let (_link, mut ends, before) = server(&name);
    let liars: Vec<Liar> = (0..12).map(|_| Liar::connect(&name)).collect();
    for liar in &liars {
        liar.send(&init(), &[]);
    }
    let (client, theirs) = Link::open(config(&name, Role::Client)).unwrap();
    until("an honest client is let in after all", || client.is_up());
    drop((client, theirs));
    drop(liars);
    honest(&name, &mut ends, before);
}

#[test]
fn a_peer_that_blocks_its_eventfd_stops_nobody() {
    let _turn = turn();
    let name = name();
    let (link, mut ends, before) = server(&name);
    {
        let (file, mapped) = memory(SealFlags::SHRINK);
        let full = eventfd(0, EventfdFlags::empty()).unwrap();
        rustix::io::write(&full, &(u64::MAX - 1).to_ne_bytes()).unwrap();
        let other = event();
        let liar = Liar::connect(&name);
        liar.join(&file, REGION_BYTES, [&other, &full]).unwrap();
        until("the link is up", || link.is_up());
        // It lends 16 buffers of 64 bytes, and wants to be woken.
        for slot in 0..16 {
            let at = (RING_BYTES + 128 + slot * 16) as usize;
            mapped.write(at + 4, 64);
            mapped.write(at + 8, (RINGS * RING_BYTES + slot * 64) as u32);
        }
        mapped.write(RING_BYTES as usize + 4, 16 << 16);
        until("a frame goes", || ends.1.send([&[7; 60][..]].into_iter()) == 1);
        let start = Instant::now();
        ends.0.receive(64, &mut count());
        assert!(start.elapsed() < Duration::from_secs(5), "it was woken without waiting");
    }
    honest(&name, &mut ends, before);
}
