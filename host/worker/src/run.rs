//! The loop around a worker's turns: when to look into the mailbox, when to sleep.

use crate::mailbox::{Message, Wake};
use crate::queue::Queue;
use crate::worker::Worker;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use sluice_director::Time;
use std::os::fd::AsFd;
use std::sync::mpsc::{Receiver, TryRecvError};
use std::time::{Duration, Instant};

/// What a worker does when there is nothing to do.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Idle {
    /// It sleeps until there is something.
    #[default]
    Adaptive,
    /// It goes on looking.
    Busy,
}

/// How long a worker goes on looking after the last frame before it sleeps. Waking up costs some
/// microseconds, so this bounds what a sleepy worker adds to the latency of steady traffic.
const LINGER: Duration = Duration::from_micros(50);
/// The longest sleep, when every queue can wake the worker; the sweep runs in between.
const LONG_SLEEP: Duration = Duration::from_millis(100);
/// The longest sleep when a queue cannot: two thousand looks a second cost about a percent.
const SHORT_SLEEP: Duration = Duration::from_micros(500);
/// Turns between looks into the mailbox while there is traffic.
const MAILBOX_TURNS: u64 = 16;

/// Runs a worker until it is told to stop or the control side has gone. `start` is the moment
/// that its clock counts from, the same for all workers.
pub fn run<Q: Queue>(
    worker: &mut Worker<Q>,
    mailbox: &Receiver<Message<Q>>,
    wake: &Wake,
    idle: Idle,
    start: Instant,
) {
    let born = Instant::now();
    let mut last_work = born;
    let mut working_since: Option<Instant> = None;
    loop {
        let moment = Instant::now();
        if let Some(since) = working_since {
            worker.tally.busy_us += (moment - since).as_micros() as u64;
        }
        let now = Time((moment - start).as_millis() as u64);
        let came = worker.turn(now);
        worker.tally.turns += 1;
        worker.tally.life_ms = (moment - born).as_millis() as u64;
        working_since = (came > 0).then_some(moment);
        if came > 0 {
            last_work = moment;
        } else {
            worker.tally.empty_turns += 1;
        }
        let look = came == 0 || worker.tally.turns.is_multiple_of(MAILBOX_TURNS);
        if look && !read_mail(worker, mailbox, now) {
            return;
        }
        // Without a queue there is nothing to look for, and another process may need the core.
        let sleeps = idle == Idle::Adaptive || worker.queues().next().is_none();
        if came == 0 && sleeps && moment - last_work > LINGER {
            sleep(worker, wake);
        }
    }
}

/// Acts on all messages that wait; `false` when there will be no more.
fn read_mail<Q: Queue>(worker: &mut Worker<Q>, mailbox: &Receiver<Message<Q>>, now: Time) -> bool {
    loop {
        match mailbox.try_recv() {
            Ok(message) => {
                if !worker.obey(now, message) {
                    return false;
                }
            }
            Err(TryRecvError::Empty) => return true,
            Err(TryRecvError::Disconnected) => return false,
        }
    }
}

/// Sleeps until a queue, another worker or the control side has something.
fn sleep<Q: Queue>(worker: &mut Worker<Q>, wake: &Wake) {
    // Mail may have made it hand something over since its last turn.
    worker.wake_called();
    wake.about_to_sleep();
    let mut failed = false;
    let quiet = worker.queues_mut().all(Queue::arm);
    if quiet && !worker.has_messages() {
        worker.tally.sleeps += 1;
        let mut fds = vec![PollFd::from_borrowed_fd(wake.as_fd(), PollFlags::IN)];
        let mut longest = if worker.has_changes() { SHORT_SLEEP } else { LONG_SLEEP };
        for queue in worker.queues() {
            match queue.wake_fd() {
                Some(fd) => fds.push(PollFd::from_borrowed_fd(fd, PollFlags::IN)),
                None => longest = SHORT_SLEEP,
            }
        }
        let timeout = Timespec { tv_sec: 0, tv_nsec: longest.as_nanos() as i64 };
        // An interrupted sleep is a short one.
        let _ = poll(&mut fds, Some(&timeout));
        failed = fds.iter().any(|fd| fd.revents().intersects(PollFlags::ERR | PollFlags::NVAL));
    }
    wake.awake();
    worker.queues_mut().for_each(Queue::disarm);
    if failed {
        worker.queues_mut().for_each(Queue::clear_wake_error);
    }
}
