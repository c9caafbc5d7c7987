//! The thread that checks run on, and its supervision.

use crate::probe::Tools;
use crate::spec::{Key, Spec};
use crate::task::{Cell, Shared, Shown, check};
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
type Cells = HashMap<Key, Arc<Cell>>;

/// Runs checks on a thread of its own. It stops when dropped.
pub struct Runner {
    tell: Tell,
    specs: Vec<Arc<Spec>>,
    cells: Arc<Mutex<Cells>>,
    /// The thread whose news count.
    generation: Arc<AtomicU64>,
    engine: Option<Engine>,
    restarts: u64,
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
    orders: UnboundedSender<Vec<Arc<Spec>>>,
    thread: JoinHandle<()>,
    /// Milliseconds since `born` when it last showed that it lives.
    beat: Arc<AtomicU64>,
    born: Instant,
}

impl Runner {
    /// Starts without any check. `tell` hears of each change, on the runner's thread, and must not
    /// block.
    ///
    /// # Errors
    /// When there can be no thread.
    pub fn start(tell: impl Fn(News) + Send + Sync + 'static) -> io::Result<Self> {
        let mut runner = Self {
            tell: Arc::new(tell),
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
            let _ = engine.orders.send(self.specs.clone());
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
            tools: Tools { contexts: Default::default(), scripts: Semaphore::new(SCRIPTS) },
            places: Arc::new(Semaphore::new(PROBES)),
            tell: Box::new(news),
        };
        let (orders, received) = unbounded_channel();
        // Nobody can have hung up yet.
        let _ = orders.send(self.specs.clone());
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
    tasks: HashMap<Key, (Arc<Spec>, AbortHandle)>,
    beat: Arc<AtomicU64>,
    born: Instant,
}

impl Life {
    /// Obeys until nobody can order anything any more.
    async fn run(mut self, mut orders: UnboundedReceiver<Vec<Arc<Spec>>>) {
        let mut beats = tokio::time::interval(BEAT);
        loop {
            tokio::select! {
                order = orders.recv() => match order {
                    Some(specs) => self.obey(specs),
                    None => return,
                },
                _ = beats.tick() => {
                    let alive = self.born.elapsed().as_millis() as u64;
                    self.beat.store(alive, Ordering::Relaxed);
                }
            }
            // A check whose task has panicked begins again.
            let ended: Vec<_> =
                self.tasks.values().filter(|(_, task)| task.is_finished()).collect();
            let ended: Vec<_> = ended.into_iter().map(|(spec, _)| Arc::clone(spec)).collect();
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
                Some((known, task)) if known == spec => {
                    self.tasks.insert(spec.key.clone(), (spec, task));
                }
                other => {
                    if let Some((_, task)) = other {
                        task.abort();
                    }
                    self.begin(spec);
                }
            }
        }
        for (_, task) in former.values() {
            task.abort();
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
        let work = check(Arc::clone(&spec), cell, Arc::clone(&self.shared));
        let task = tokio::spawn(work).abort_handle();
        self.tasks.insert(spec.key.clone(), (spec, task));
    }
}
