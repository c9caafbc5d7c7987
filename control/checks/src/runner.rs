//! The thread that checks run on, and its supervision.

use crate::probe::Tools;
use crate::spec::{Key, Spec};
use crate::task::{Cell, Sentence, Shared, Shown, check};
use sluice_health::{State, Transition};
use std::collections::HashMap;
use std::io;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};
use tokio::runtime::Builder;
use tokio::sync::Semaphore;
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use tokio::task::AbortHandle;
use tracing::error;

/// Probes at a time: each has a socket.
const PROBES: usize = 512;
/// Programs at a time.
const SCRIPTS: usize = 16;
/// How often the thread shows that it lives.
const BEAT: Duration = Duration::from_millis(500);
/// How long it may not, before another takes over.
const SILENCE: Duration = Duration::from_secs(5);

/// A change of a real server's state.
#[derive(Clone, Debug)]
pub struct News {
    /// Whose.
    pub key: Key,
    /// Name of the check that found it.
    pub check: Arc<str>,
    /// The state before.
    pub from: State,
    /// The state now.
    pub to: State,
    /// The evidence.
    pub reason: String,
    /// When it was found.
    pub at: Instant,
}

type Tell = Arc<dyn Fn(News) + Send + Sync>;
/// What is done right before a program is started.
pub(crate) type Contain = fn();
type Cells = HashMap<Key, Arc<Cell>>;

/// Runs checks on a thread of its own. It stops when dropped.
pub struct Runner {
    tell: Tell,
    contain: Contain,
    specs: Vec<Arc<Spec>>,
    cells: Arc<Mutex<Cells>>,
    /// The thread whose news count.
    generation: Arc<AtomicU64>,
    engine: Option<Engine>,
    restarts: u64,
}

enum Order {
    /// Check these, and nothing else.
    Check(Vec<Arc<Spec>>),
    /// This one is down, whatever probes say.
    Condemn(Key, Sentence),
}

struct Task {
    spec: Arc<Spec>,
    handle: AbortHandle,
    sentences: UnboundedSender<Sentence>,
}

/// How all checks stand, for whoever wants to look without the runner.
#[derive(Clone)]
pub struct Board(Arc<Mutex<Cells>>);

impl Board {
    /// See [`Runner::shown`].
    pub fn shown(&self) -> Vec<Shown> {
        let cells = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        cells.values().map(|cell| cell.get()).collect()
    }
}

struct Engine {
    orders: UnboundedSender<Order>,
    thread: JoinHandle<()>,
    /// Milliseconds since `born` when it last showed that it lives.
    beat: Arc<AtomicU64>,
    born: Instant,
}

impl Runner {
    /// Starts without any check. `tell` hears of each change, on the runner's thread, and must not
    /// block. `contain` is called right before a program is started, and keeps from it what the
    /// process has open: whoever opens without `O_CLOEXEC` knows.
    ///
    /// # Errors
    /// When there can be no thread.
    pub fn start(tell: impl Fn(News) + Send + Sync + 'static, contain: fn()) -> io::Result<Self> {
        let mut runner = Self {
            tell: Arc::new(tell),
            contain,
            specs: Vec::new(),
            cells: Arc::default(),
            generation: Arc::default(),
            engine: None,
            restarts: 0,
        };
        runner.engine = Some(runner.ignite()?);
        Ok(runner)
    }

    /// Checks these from now on, and nothing else. What is as before goes on undisturbed; what is
    /// checked in another way now keeps its state until that finds another.
    pub fn set(&mut self, specs: Vec<Spec>) {
        self.specs = specs.into_iter().map(Arc::new).collect();
        if let Some(engine) = &self.engine {
            // One that has ended is replaced by `look_after`, with these.
            let _ = engine.orders.send(Order::Check(self.specs.clone()));
        }
    }

    /// Something else than a probe has found a real server down. What is checked and up turns
    /// down, and stays so for at least `hold`.
    pub fn condemn(&mut self, key: Key, hold: Duration, reason: String) {
        if let Some(engine) = &self.engine {
            // One that has ended is replaced, and what has condemned comes again.
            let _ = engine.orders.send(Order::Condemn(key, Sentence { hold, reason }));
        }
    }

    /// How all checks stand, in no order. Those that were set a moment ago may not be there yet.
    pub fn shown(&self) -> Vec<Shown> {
        self.board().shown()
    }

    /// Shows the same, on any thread.
    pub fn board(&self) -> Board {
        Board(Arc::clone(&self.cells))
    }

    /// How often the thread had to be replaced.
    pub const fn restarts(&self) -> u64 {
        self.restarts
    }

    /// Replaces the thread if it has ended or shows no life. To be called once in a while.
    pub fn look_after(&mut self) {
        let lost = match &self.engine {
            None => Some("could not be started"),
            Some(engine) if engine.thread.is_finished() => Some("ended unexpectedly"),
            Some(engine) if engine.is_silent() => Some("hangs"),
            Some(_) => None,
        };
        let Some(what) = lost else { return };
        error!("the thread of the health checks {what}; another one takes over");
        self.restarts += 1;
        // A thread that hangs cannot be ended: it is left alone, and nobody listens to it.
        self.engine = match self.ignite() {
            Ok(engine) => Some(engine),
            Err(error) => {
                error!(%error, "there is no thread for health checks");
                None
            }
        };
    }

    fn ignite(&self) -> io::Result<Engine> {
        let generation = self.generation.fetch_add(1, Ordering::SeqCst) + 1;
        let (current, tell) = (Arc::clone(&self.generation), Arc::clone(&self.tell));
        let news = move |spec: &Spec, turned: Transition| {
            if current.load(Ordering::SeqCst) == generation {
                tell(News {
                    key: spec.key.clone(),
                    check: Arc::clone(&spec.check),
                    from: turned.from,
                    to: turned.to,
                    reason: turned.reason,
                    at: Instant::now(),
                });
            }
        };
        let shared = Shared {
            tools: Tools {
                contexts: Default::default(),
                scripts: Semaphore::new(SCRIPTS),
                contain: self.contain,
            },
            places: Arc::new(Semaphore::new(PROBES)),
            tell: Box::new(news),
        };
        let (orders, received) = unbounded_channel();
        // Nobody can have hung up yet.
        let _ = orders.send(Order::Check(self.specs.clone()));
        let (beat, born) = (Arc::new(AtomicU64::new(0)), Instant::now());
        let life = Life {
            shared: Arc::new(shared),
            cells: Arc::clone(&self.cells),
            tasks: HashMap::new(),
            beat: Arc::clone(&beat),
            born,
        };
        let runtime = Builder::new_current_thread().enable_all().build()?;
        let thread = std::thread::Builder::new()
            .name("health".to_owned())
            .spawn(move || runtime.block_on(life.run(received)))?;
        Ok(Engine { orders, thread, beat, born })
    }
}

impl Engine {
    fn is_silent(&self) -> bool {
        let last = Duration::from_millis(self.beat.load(Ordering::Relaxed));
        self.born.elapsed().saturating_sub(last) > SILENCE
    }
}

/// What the thread works with.
struct Life {
    shared: Arc<Shared>,
    cells: Arc<Mutex<Cells>>,
    tasks: HashMap<Key, Task>,
    beat: Arc<AtomicU64>,
    born: Instant,
}

impl Life {
    /// Obeys until nobody can order anything any more.
    async fn run(mut self, mut orders: UnboundedReceiver<Order>) {
        let mut beats = tokio::time::interval(BEAT);
        loop {
            tokio::select! {
                order = orders.recv() => match order {
                    Some(Order::Check(specs)) => self.obey(specs),
                    Some(Order::Condemn(key, sentence)) => {
                        if let Some(task) = self.tasks.get(&key) {
                            // One that has ended begins again.
                            let _ = task.sentences.send(sentence);
                        }
                    }
                    None => return,
                },
                _ = beats.tick() => {
                    let alive = self.born.elapsed().as_millis() as u64;
                    self.beat.store(alive, Ordering::Relaxed);
                }
            }
            // A check whose task has panicked begins again.
            let ended = self.tasks.values().filter(|task| task.handle.is_finished());
            let ended: Vec<_> = ended.map(|task| Arc::clone(&task.spec)).collect();
            for spec in ended {
                error!(service = %spec.key.service, real = %spec.key.address,
                    "a health check ended unexpectedly; it begins again");
                self.begin(spec);
            }
        }
    }

    fn obey(&mut self, specs: Vec<Arc<Spec>>) {
        let mut former = std::mem::take(&mut self.tasks);
        for spec in specs {
            match former.remove(&spec.key) {
                Some(task) if task.spec == spec => {
                    self.tasks.insert(spec.key.clone(), task);
                }
                other => {
                    if let Some(task) = other {
                        task.handle.abort();
                    }
                    self.begin(spec);
                }
            }
        }
        for task in former.values() {
            task.handle.abort();
        }
        let mut cells = self.cells.lock().unwrap_or_else(PoisonError::into_inner);
        cells.retain(|key, _| self.tasks.contains_key(key));
    }

    fn begin(&mut self, spec: Arc<Spec>) {
        let cell = {
            let mut cells = self.cells.lock().unwrap_or_else(PoisonError::into_inner);
            let before = cells.get(&spec.key).map(|cell| cell.get());
            let cell = Arc::new(Cell::new(Arc::clone(&spec), before.as_ref()));
            cells.insert(spec.key.clone(), Arc::clone(&cell));
            cell
        };
        let (sentences, received) = unbounded_channel();
        let work = check(Arc::clone(&spec), cell, Arc::clone(&self.shared), received);
        let handle = tokio::spawn(work).abort_handle();
        self.tasks.insert(spec.key.clone(), Task { spec, handle, sentences });
    }
}
