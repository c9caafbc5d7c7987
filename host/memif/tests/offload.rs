//! Ends whose frames are copied by somebody else, who takes any time for it, has no room, fails,
//! and is still at it when the peer leaves.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use arrayvec::ArrayVec;
use proptest::prelude::*;
use sluice_memif::{
    Address, Buffer, Copier, Dock, Job, Landing, Link, LinkConfig, Mode, OffloadReceiver,
    OffloadSender, Receiver, Role, SECRET_BYTES, Sender,
};

const ROOM: usize = 9000;
/// Frames' parts of so many bytes are offloaded.
const FROM: u32 = 100;

/// A copier that copies when it is told.
#[derive(Debug, Default)]
struct Engine {
    begun: VecDeque<Job>,
    over: Vec<bool>,
    /// Copies that it takes at a time.
    room: usize,
    done: usize,
}

impl Engine {
    /// Ends some copies, or all; of these, every so many fails and leaves rubbish.
    fn finish(&mut self, most: usize, fails_every: usize) {
        for job in self.begun.drain(..most.min(self.begun.len())).collect::<Vec<_>>() {
            self.done += 1;
            let fails = fails_every > 0 && self.done.is_multiple_of(fails_every);
            // SAFETY: the copy was begun and is not over, so its memory may be accessed.
            unsafe {
                if fails {
                    job.to.write_bytes(0xee, job.length as usize);
                } else {
                    std::ptr::copy_nonoverlapping(job.from, job.to, job.length as usize);
                }
            }
            self.over.push(!fails);
        }
    }
}

#[derive(Clone, Debug)]
struct Handle(Arc<Mutex<Engine>>);

impl Handle {
    fn new(room: usize) -> Self {
        Self(Arc::new(Mutex::new(Engine { room, ..Engine::default() })))
    }

    fn lock(&self) -> MutexGuard<'_, Engine> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

// SAFETY: a copy is told to be over by `finish` only, which has done it.
unsafe impl Copier for Handle {
    unsafe fn begin(&mut self, jobs: &[Job]) -> usize {
        let mut engine = self.lock();
        let count = jobs.len().min(engine.room.saturating_sub(engine.begun.len()));
        engine.begun.extend(&jobs[..count]);
        count
    }

    fn over(&mut self, results: &mut Vec<bool>) {
        results.append(&mut self.lock().over);
    }
}

/// A frame's memory, which moves with no handle.
#[derive(Debug)]
struct Frame {
    memory: Box<[u8]>,
    length: usize,
}

// SAFETY: a box's memory stays where it is and is nobody else's.
unsafe impl Buffer for Frame {
    fn room(&mut self) -> &mut [u8] {
        &mut self.memory
    }

    fn bytes(&self) -> &[u8] {
        &self.memory[..self.length]
    }
}

#[derive(Default)]
struct Shelf(Vec<Vec<u8>>, Vec<u8>);

impl Dock<Frame> for Shelf {
    fn buffer(&mut self) -> Option<Frame> {
        Some(Frame { memory: vec![0xdd; ROOM].into(), length: 0 })
    }

    fn landed(&mut self, buffer: Frame, length: usize) {
        self.0.push(buffer.memory[..length].to_vec());
    }
}

impl Landing for Shelf {
    fn room(&mut self) -> Option<&mut [u8]> {
        self.1.resize(ROOM, 0);
        Some(&mut self.1)
    }

    fn landed(&mut self, length: usize) -> bool {
        self.0.push(self.1[..length].to_vec());
        true
    }
}

/// One test at a time counts mappings.
static TURN: Mutex<()> = Mutex::new(());

fn turn() -> MutexGuard<'static, ()> {
    TURN.lock().unwrap_or_else(PoisonError::into_inner)
}

fn until(what: &str, mut done: impl FnMut() -> bool) {
    let deadline = Instant::now() + Duration::from_secs(20);
    while !done() {
        assert!(Instant::now() < deadline, "{what}");
        std::thread::sleep(Duration::from_millis(1));
    }
}

type End = (Link, Receiver, Sender);

/// Both ends of a link: the server's, the client's.
fn linked() -> [End; 2] {
    static LAST: AtomicU32 = AtomicU32::new(0);
    let number = LAST.fetch_add(1, Ordering::Relaxed);
    let socket = format!("sluice-offload-{}-{number}", std::process::id());
    let ends = [Role::Server, Role::Client].map(|role| {
        let config = LinkConfig {
            name: "test".into(),
            socket: Address::Abstract(socket.clone()),
            id: 0,
            role,
            mode: Mode::Ethernet,
            secret: [0; SECRET_BYTES],
            queues: 1,
            log2: 8,
            buffer_bytes: 2048,
        };
        let (link, mut ends) = Link::open(config).unwrap();
        let (rx, tx) = ends.pop().unwrap();
        (link, rx, tx)
    });
    until("both are up", || ends.iter().all(|(link, ..)| link.is_up()));
    ends
}

fn frame(number: usize, length: usize) -> Vec<u8> {
    (0..length).map(|at| (number * 31 + at * 7) as u8).collect()
}

fn owned(bytes: &[u8]) -> Frame {
    let mut memory = vec![0; ROOM];
    memory[..bytes.len()].copy_from_slice(bytes);
    Frame { memory: memory.into(), length: bytes.len() }
}

fn mappings() -> usize {
    let maps = std::fs::read_to_string("/proc/self/maps").unwrap();
    maps.lines().filter(|line| line.contains("sluice-memif")).count()
}

/// What a step of a test does: copies that end, frames that are offered.
fn steps() -> impl Strategy<Value = Vec<(usize, usize)>> {
    prop::collection::vec((0_usize..40, 0_usize..40), 1..40)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(40))]

    /// Frames come whole and in their order, however long copies take, with a copier at either end
    /// in either role. The far end reads each frame as soon as its index says so: had that moved
    /// early, the frame would be wrong.
    #[test]
    fn frames_keep_their_order_and_are_never_seen_half_copied(
        steps in steps(), sizes in prop::collection::vec(1_usize..5000, 50),
        (room, fails, swap) in (0_usize..60, 0_usize..9, any::<bool>()),
    ) {
        let _turn = turn();
        let mut ends = linked();
        if swap {
            ends.swap(0, 1);
        }
        let [(near, rx, tx), (_far, mut far_rx, mut far_tx)] = ends;
        let (inward, outward) = (Handle::new(room), Handle::new(room));
        let mut rx = OffloadReceiver::new(rx, Box::new(inward.clone()), FROM);
        let mut tx = OffloadSender::new(tx, Box::new(outward.clone()), FROM);
        let (mut come, mut gone) = (Shelf::default(), Shelf::default());
        let (mut offered, mut sent) = (Vec::new(), Vec::new());
        let last = (100_000, 0);
        for (over, count) in steps.into_iter().chain([last; 400]) {
            let mut burst = ArrayVec::<Frame, 40>::new();
            for number in 0..count {
                let bytes = frame(offered.len() + number, sizes[(offered.len() + number) % 50]);
                if far_tx.send([bytes.as_slice()].into_iter()) == 1 {
                    sent.push(bytes.clone());
                }
                burst.push(owned(&bytes));
            }
            let all: Vec<_> = burst.iter().map(|frame| frame.bytes().to_vec()).collect();
            let taken = tx.send(&mut burst);
            prop_assert_eq!(burst.len(), all.len() - taken, "what was taken has left the vector");
            offered.extend(all.into_iter().take(taken));
            rx.receive(30, &mut come);
            outward.lock().finish(over, fails);
            inward.lock().finish(over, fails);
            tx.refresh();
            while far_rx.receive(64, &mut gone) > 0 {}
            prop_assert_eq!(&gone.0[..], &offered[..gone.0.len()]);
            prop_assert_eq!(&come.0[..], &sent[..come.0.len()]);
            if over == last.0 && come.0.len() == sent.len() && gone.0.len() == offered.len() {
                break;
            }
        }
        prop_assert_eq!((come.0.len(), gone.0.len()), (sent.len(), offered.len()));
        prop_assert!(!rx.is_busy() && !tx.is_busy());
        let stats = near.stats();
        prop_assert_eq!(stats.rx_frames, sent.len() as u64);
        prop_assert_eq!(stats.tx_frames, offered.len() as u64);
        prop_assert_eq!((stats.rx_errors, stats.tx_errors), (0, 0));
        if room == 0 {
            prop_assert_eq!(stats.copies_offloaded, 0);
        }
    }
}

#[test]
fn short_frames_wait_for_long_ones_before_them_and_for_nothing_else() {
    let _turn = turn();
    let [(near, rx, _), (_far, _, mut far_tx)] = linked();
    let engine = Handle::new(100);
    let mut rx = OffloadReceiver::new(rx, Box::new(engine.clone()), FROM);
    let frames = [frame(1, 60), frame(2, 1500), frame(3, 60)];
    until("they go", || far_tx.send(frames.iter().map(Vec::as_slice)) == 3);
    let mut come = Shelf::default();
    until("the first comes", || rx.receive(64, &mut come) == 1);
    assert_eq!(rx.receive(64, &mut come), 0, "the second is being copied");
    assert!(rx.is_busy());
    engine.lock().finish(1, 0);
    assert_eq!(rx.receive(64, &mut come), 2);
    assert_eq!(come.0, frames);
    assert_eq!((near.stats().copies_offloaded, near.stats().copies_full), (1, 0));
}

#[test]
fn a_peer_that_leaves_takes_no_memory_with_it_that_is_being_copied() {
    let _turn = turn();
    until("nothing is left of others", || mappings() == 0);
    let [(near, rx, tx), (far, far_rx, mut far_tx)] = linked();
    let (inward, outward) = (Handle::new(100), Handle::new(100));
    let mut rx = OffloadReceiver::new(rx, Box::new(inward.clone()), FROM);
    let mut tx = OffloadSender::new(tx, Box::new(outward.clone()), FROM);
    let bytes = frame(1, 1500);
    until("it goes", || far_tx.send([bytes.as_slice()].into_iter()) == 1);
    let mut come = Shelf::default();
    until("it is taken", || {
        assert_eq!(rx.receive(64, &mut come), 0);
        rx.is_busy()
    });
    let mut burst = ArrayVec::<Frame, 4>::new();
    burst.push(owned(&bytes));
    until("one is taken the other way", || tx.send(&mut burst) == 1);
    drop((far, far_rx, far_tx));
    until("the peer has left", || !near.is_up());
    for _ in 0..100 {
        assert_eq!(rx.receive(64, &mut come), 0);
        tx.refresh();
    }
    assert!(rx.is_busy() && tx.is_busy() && mappings() > 0, "copies go on");
    inward.lock().finish(1, 0);
    outward.lock().finish(1, 0);
    assert_eq!(rx.receive(64, &mut come), 1, "what was received is received");
    assert_eq!(come.0, [bytes]);
    until("the memory is given back", || {
        rx.receive(64, &mut come);
        tx.refresh();
        mappings() == 0
    });
    assert!(!rx.is_busy() && !tx.is_busy());
}

#[test]
fn an_end_that_is_dropped_waits_for_its_copies() {
    let _turn = turn();
    let [(_near, rx, _), (_far, _, mut far_tx)] = linked();
    let engine = Handle::new(100);
    let mut rx = OffloadReceiver::new(rx, Box::new(engine.clone()), FROM);
    let bytes = frame(1, 1500);
    until("it goes", || far_tx.send([bytes.as_slice()].into_iter()) == 1);
    until("it is taken", || {
        rx.receive(64, &mut Shelf::default());
        rx.is_busy()
    });
    let begin = Instant::now();
    let other = engine.clone();
    let late = std::thread::spawn(move || {
        std::thread::sleep(Duration::from_millis(50));
        other.lock().finish(1, 0);
    });
    drop(rx);
    assert_eq!(engine.lock().done, 1, "dropped after {:?}", begin.elapsed());
    late.join().unwrap();
}
