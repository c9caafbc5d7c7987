//! A thread that obeys orders, and is replaced when it ends or shows no life. Who orders never
//! waits for it.

use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};
use tracing::error;

/// How long one order may take before the thread counts as hanging.
const PATIENCE: Duration = Duration::from_secs(5);

/// Obeys orders of one kind, with what it remembers of those before.
pub(crate) type Clerk<T> = Box<dyn FnMut(T) + Send>;

/// The way to such a thread. It ends with the last of these.
pub(crate) struct Line<T> {
    staffed: Arc<Mutex<Staffed<T>>>,
    hire: Arc<dyn Fn() -> Clerk<T> + Send + Sync>,
}

impl<T> Clone for Line<T> {
    fn clone(&self) -> Self {
        Self { staffed: Arc::clone(&self.staffed), hire: Arc::clone(&self.hire) }
    }
}

struct Staffed<T> {
    orders: Sender<T>,
    /// When it began what it is at.
    busy_since: Arc<Mutex<Option<Instant>>>,
    thread: JoinHandle<()>,
}

impl<T: Send + 'static> Line<T> {
    /// Starts the thread; `hire` gives a clerk who remembers nothing.
    pub fn start(hire: impl Fn() -> Clerk<T> + Send + Sync + 'static) -> io::Result<Self> {
        let hire: Arc<dyn Fn() -> Clerk<T> + Send + Sync> = Arc::new(hire);
        let staffed = Arc::new(Mutex::new(staff(&hire)?));
        Ok(Self { staffed, hire })
    }

    /// Orders something. Whoever waits for the answer learns of a thread that is gone by that.
    pub fn order(&self, order: T) {
        let _ = lock(&self.staffed).orders.send(order);
    }

    /// Replaces a thread that has ended or is at one order for [`PATIENCE`]. What was ordered of it
    /// it does when it wakes up, and then it ends.
    pub fn look_after(&self) {
        self.replace_after(PATIENCE);
    }

    fn replace_after(&self, patience: Duration) {
        let mut staffed = lock(&self.staffed);
        let since = *lock(&staffed.busy_since);
        let hangs = since.is_some_and(|since| since.elapsed() >= patience);
        if !hangs && !staffed.thread.is_finished() {
            return;
        }
        match staff(&self.hire) {
            Ok(other) => {
                error!(
                    "the metrics' thread showed no life and was replaced; the last hour is lost"
                );
                *staffed = other;
            }
            Err(error) => error!(%error, "the metrics' thread shows no life; no other starts"),
        }
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

fn staff<T: Send + 'static>(
    hire: &Arc<dyn Fn() -> Clerk<T> + Send + Sync>,
) -> io::Result<Staffed<T>> {
    let (orders, ordered) = channel();
    let busy_since = Arc::new(Mutex::new(None));
    let (hire, busy) = (Arc::clone(hire), Arc::clone(&busy_since));
    let thread = std::thread::Builder::new()
        .name("meter".to_owned())
        .spawn(move || work(&ordered, &*hire, &busy))?;
    Ok(Staffed { orders, busy_since, thread })
}

/// Obeys until nobody can order anything any more.
fn work<T>(ordered: &Receiver<T>, hire: &dyn Fn() -> Clerk<T>, busy: &Mutex<Option<Instant>>) {
    let mut clerk = hire();
    for order in ordered {
        *lock(busy) = Some(Instant::now());
        if catch_unwind(AssertUnwindSafe(|| clerk(order))).is_err() {
            error!("the metrics' thread panicked; the last hour is lost");
            clerk = hire();
        }
        *lock(busy) = None;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    enum Order {
        /// Answers with how many orders this clerk has had.
        Count(Sender<u32>),
        Panic,
        /// Hangs until somebody lets it go.
        Hang(Receiver<()>),
    }

    fn line() -> Line<Order> {
        let hire = || -> Clerk<Order> {
            let mut had = 0;
            Box::new(move |order| {
                had += 1;
                match order {
                    Order::Count(reply) => drop(reply.send(had)),
                    Order::Panic => panic!("as ordered"),
                    Order::Hang(until) => drop(until.recv()),
                }
            })
        };
        Line::start(hire).expect("a thread")
    }

    fn count(line: &Line<Order>) -> u32 {
        let (reply, answer) = channel();
        line.order(Order::Count(reply));
        answer.recv_timeout(Duration::from_secs(10)).expect("an answer")
    }

    #[test]
    fn a_panic_costs_what_was_remembered() {
        let line = line();
        assert_eq!((count(&line), count(&line)), (1, 2));
        line.order(Order::Panic);
        assert_eq!(count(&line), 1);
    }

    #[test]
    fn a_thread_that_hangs_is_replaced_and_ends_when_it_wakes_up() {
        let line = line();
        let (release, until) = channel();
        assert_eq!(count(&line), 1);
        line.order(Order::Hang(until));
        let (late, answer) = channel();
        line.order(Order::Count(late));
        line.look_after();
        let deadline = Instant::now() + Duration::from_secs(10);
        while lock(&lock(&line.staffed).busy_since).is_none() {
            assert!(Instant::now() < deadline, "it never begins");
            std::thread::yield_now();
        }
        line.replace_after(Duration::ZERO);
        assert_eq!(count(&line), 1, "another clerk");
        release.send(()).expect("who hangs");
        assert_eq!(answer.recv_timeout(Duration::from_secs(10)), Ok(3), "what was ordered before");
        assert_eq!(count(&line), 2, "and no more of it");
    }
}
