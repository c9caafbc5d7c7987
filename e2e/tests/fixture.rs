//! The ground a test stands on: a bed with running peers and a running director, and what is said
//! when the test fails.

use std::io::Write;
use std::sync::{PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};
use std::time::Duration;

use serde_json::Value;
use sluice_e2e::director::program;
use sluice_e2e::load::curl;
use sluice_e2e::recipe::Recipe;
use sluice_e2e::{Bed, Director, Driver, LabError, Ran, Running, Shape, wait_until};

/// How the labs of these tests are called.
pub const PREFIX: &str = "sl-e2e";
/// For what should come about within a moment.
pub const SOON: Duration = Duration::from_secs(30);

/// What a test is run on.
#[derive(Debug, Clone)]
pub struct Setup {
    /// One or two arms.
    pub shape: Shape,
    /// How ports are driven.
    pub driver: Driver,
    /// Workers, and queues of each veth.
    pub workers: u32,
    /// The configuration.
    pub recipe: Recipe,
}

impl Setup {
    /// Two arms and the usual configuration.
    pub fn new(driver: Driver, workers: u32) -> Self {
        Self { shape: Shape::TwoArm, driver, workers, recipe: Recipe::default() }
    }

    /// AF_XDP with one worker: what most things are shown on.
    pub fn usual() -> Self {
        Self::new(Driver::AfXdp, 1)
    }
}

/// A bed and the director that runs in it.
pub struct Fixture {
    /// The program under test.
    pub director: Director,
    /// Where it runs.
    pub bed: Bed,
    /// The configuration it was started with.
    pub recipe: Recipe,
}

/// Runs a test on a bed with peers and a running director. `name` is the test's path, for the
/// command that repeats it.
pub fn on(name: &str, setup: Setup, test: impl FnOnce(&mut Fixture) -> Result<(), LabError>) {
    on_bed(
        name,
        setup,
        |bed, recipe| {
            let director = Director::start(bed, &recipe.text(bed))?;
            Ok((director, recipe))
        },
        test,
    );
}

/// As [`on`], with another way to start the director.
pub fn on_bed(
    name: &str,
    setup: Setup,
    start: impl FnOnce(&mut Bed, Recipe) -> Result<(Director, Recipe), LabError>,
    test: impl FnOnce(&mut Fixture) -> Result<(), LabError>,
) {
    let Some(_turn) = turn(name) else { return };
    let Setup { shape, driver, workers, recipe } = setup;
    let made = Bed::new(PREFIX, shape, driver, workers).and_then(|mut bed| {
        bed.start_reals()?;
        let (director, recipe) = start(&mut bed, recipe)?;
        Ok(Fixture { director, bed, recipe })
    });
    let mut fixture = made.unwrap_or_else(|error| panic!("{error}{}", repeat(name)));
    if let Err(error) = test(&mut fixture) {
        let said = fixture.director.said(40);
        // What it counted, if it is still there to be asked.
        let ask = |what| fixture.director.sluice(&[what]).unwrap_or_default();
        let (drops, ports) = (ask("drops"), ask("ports"));
        let kernel = lost_by_kernels(&fixture.bed);
        panic!(
            "{error}\n--- the director said:\n{said}\n--- drops:\n{drops}\n--- ports:\n{ports}\n\
             --- the kernels lost:\n{kernel}{}",
            repeat(name)
        );
    }
}

/// What the kernel of each namespace counted as lost: protocols, then devices.
fn lost_by_kernels(bed: &Bed) -> String {
    const LOOK: &str = "nstat -as | grep -E 'Discards|Errors|NoPorts|Drop|NoRoutes|ReasmFails'; \
        ip -s -s -o link | tr '\\\\' ' ' | grep -v ' lo:'; true";
    let spaces = [&bed.client, &bed.director].into_iter().chain(&bed.reals);
    spaces
        .map(|space| {
            let seen = space.run("sh", &["-c", LOOK]).map(|ran| ran.stdout).unwrap_or_default();
            format!("{}:\n{seen}", space.name())
        })
        .collect()
}

/// A test's share of the machine, until dropped.
pub enum Turn {
    /// Beside other tests.
    Shared { _held: RwLockReadGuard<'static, ()> },
    /// With the machine to itself.
    Alone { _held: RwLockWriteGuard<'static, ()> },
}

/// What a test's name begins with when it measures time or needs the whole machine.
const ALONE: &str = "alone_";

static TURN: RwLock<()> = RwLock::new(());

/// Waits for the test's turn: beside others, or alone if its name begins with `alone_`. `None` when
/// the test may not run here; that is said past the test harness's own capture, which shows nothing
/// of tests that pass.
pub fn turn(name: &str) -> Option<Turn> {
    if rustix::process::geteuid().is_root() {
        let alone = name.rsplit("::").next().is_some_and(|test| test.starts_with(ALONE));
        return Some(if alone {
            Turn::Alone { _held: TURN.write().unwrap_or_else(PoisonError::into_inner) }
        } else {
            Turn::Shared { _held: TURN.read().unwrap_or_else(PoisonError::into_inner) }
        });
    }
    assert!(std::env::var("CI").as_deref() != Ok("true"), "{name} needs root");
    let _ = writeln!(std::io::stderr(), "skipped: {name}: network namespaces need root");
    None
}

fn repeat(name: &str) -> String {
    let test = name.split_once("::").map_or(name, |(_, path)| path);
    format!("\n--- again: cargo test -p sluice-e2e --test e2e -- --exact {test}")
}

impl Fixture {
    /// `http://VIP` of the web service.
    pub fn url(&self) -> String {
        format!("http://{}", self.bed.vip())
    }

    /// `VIP:port`.
    pub fn server(&self, port: u16) -> String {
        format!("{}:{port}", self.bed.vip())
    }

    /// Runs one of `sluice-peer`'s clients at the client.
    pub fn peer(&self, args: &[&str]) -> Result<Ran, LabError> {
        self.bed.client.run(&program("sluice-peer")?.to_string_lossy(), args)
    }

    /// Open sessions, as `sluice sessions` with these filters has them.
    pub fn sessions(&self, filters: &[&str]) -> Result<Vec<Value>, LabError> {
        let usual = ["sessions", "--limit", "100000", "--json"];
        let text = self.director.sluice(&[&usual[..], filters].concat())?;
        serde_json::from_str::<Value>(&text)
            .ok()
            .and_then(|said| said["sessions"].as_array().cloned())
            .ok_or_else(|| LabError::Unreadable { what: "`sluice sessions`".to_owned(), text })
    }

    /// Opens a line session at the client that stays busy for some seconds.
    pub fn hold(&self, server: &str, seconds: u32) -> Result<Running, LabError> {
        let peer = program("sluice-peer")?;
        let seconds = seconds.to_string();
        let args = ["hold", server, &seconds];
        let mut held = self.bed.client.start("hold", &peer.to_string_lossy(), &args)?;
        held.wait_for_words("line 1", SOON)?;
        Ok(held)
    }

    /// Asks the web service until it answers; for after something was mended.
    pub fn wait_for_answer(&self, limit: Duration) -> Result<(), LabError> {
        let url = self.url();
        wait_until("the web service to answer", limit, || {
            // A twin that was made again has lost its addresses; the machine's network
            // configuration gives them back when the device appears.
            self.bed.settle_twins()?;
            let args = ["-sS", "--fail", "--max-time", "1", &url];
            Ok(self.bed.client.run("curl", &args)?.status.success().then_some(()))
        })
    }

    /// `count` answers of the web service, one connection each.
    pub fn answers(&self, count: usize) -> Result<Vec<String>, LabError> {
        (0..count).map(|_| curl(&self.bed.client, &self.url())).collect()
    }
}

/// curl's exit status when the connection is refused (28 would be silence).
pub const REFUSED: i32 = 7;

pub use sluice_e2e::web::{PYTHON, script};

/// Makes a test of each named function on each driver with one and with two workers.
macro_rules! on_every_setup {
    ($($test:ident),+ $(,)?) => {
        on_every_setup!(@module af_xdp_one_worker, AfXdp, 1, $($test),+);
        on_every_setup!(@module af_xdp_two_workers, AfXdp, 2, $($test),+);
        on_every_setup!(@module af_packet_one_worker, AfPacket, 1, $($test),+);
        on_every_setup!(@module af_packet_two_workers, AfPacket, 2, $($test),+);
    };
    (@module $module:ident, $driver:ident, $workers:literal, $($test:ident),+) => {
        mod $module {
            use crate::fixture::{Setup, on};
            use sluice_e2e::Driver;
            $(
                #[test]
                fn $test() {
                    let name = concat!(module_path!(), "::", stringify!($test));
                    on(name, Setup::new(Driver::$driver, $workers), super::$test);
                }
            )+
        }
    };
}
pub(crate) use on_every_setup;

/// The path of a test function, as the test harness knows it.
macro_rules! here {
    ($test:ident) => {
        concat!(module_path!(), "::", stringify!($test))
    };
}
pub(crate) use here;
