//! DPDK's environment layer: memory, and the devices' registry. One a process.
//!
//! Invariant: an [`Eal`] exists only after `rte_eal_init` succeeded, and the layer is never taken
//! down again: it leaves nothing behind in the file system (`--in-memory`), and packet buffers may
//! outlive everything else. Huge pages are chosen before the layer starts, because it cannot be
//! started a second time in a process after a failure.

use std::ffi::{CStr, CString, OsStr, c_char};
use std::os::unix::ffi::OsStrExt;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::{fs, mem};

use sluice_dpdk_sys as sys;
use tracing::{info, warn};

use crate::error::check;
use crate::pool::{self, FramePool, Layout};
use crate::{Error, Result, close_on_exec, log};

/// Whether packet memory is to lie in huge pages.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum HugePages {
    /// If there are enough; otherwise ordinary pages, and a warning.
    #[default]
    Auto,
    /// An error if there are too few.
    Required,
    /// Ordinary pages. No PCI devices then, and slower.
    Off,
}

/// How the environment layer is to be started.
#[derive(Clone, Debug)]
pub struct EalConfig {
    /// Huge pages or not.
    pub huge_pages: HugePages,
    /// Packet buffers in all. The ports' [`crate::PortConfig::frames`] together, and what workers
    /// hold besides. 2 KiB and a little each.
    pub frames: u32,
    /// Large buffers in all, of 64 KiB, for the super-packets of AF_PACKET ports: the ports'
    /// [`crate::PortConfig::large_frames`] together.
    pub large_frames: u32,
    /// The largest Ethernet frame in bytes that a buffer must hold, VLAN tags included.
    pub max_frame: u16,
    /// Memory in MB for packets and devices; `None` derives it from `frames`.
    pub memory_mb: Option<u32>,
    /// PCI addresses that may be touched. Empty: the PCI bus is left alone.
    pub pci_allow: Vec<String>,
}

impl Default for EalConfig {
    fn default() -> Self {
        Self {
            huge_pages: HugePages::Auto,
            frames: 32 * 1024,
            large_frames: 0,
            max_frame: 1536,
            memory_mb: None,
            pci_allow: Vec::new(),
        }
    }
}

/// MB for rings, device structures and fragmentation, besides packets.
const DEVICES_MB: u64 = 32;

impl EalConfig {
    fn megabytes(&self) -> u64 {
        let large = match self.large_frames {
            0 => 0,
            count => pool::large_megabytes(count),
        };
        let derived = pool::megabytes(self.frames, self.max_frame) + large + DEVICES_MB;
        self.memory_mb.map_or(derived, u64::from)
    }
}

/// The running environment layer. Copies are handles on the same one.
#[derive(Clone, Debug)]
pub struct Eal(Arc<Running>);

#[derive(Debug)]
struct Running {
    huge_pages: bool,
    max_frame: u16,
    frames: FramePool,
    large_frames: Option<FramePool>,
    tight: bool,
    /// The AF_XDP ports' pool where `frames` is not laid out as they need it.
    xdp_frames: Mutex<Option<FramePool>>,
    /// Held while a port is opened or closed: its file descriptors are told from others by what
    /// appeared meanwhile.
    opening: Mutex<()>,
    serial: AtomicU32,
}

static STARTED: AtomicBool = AtomicBool::new(false);

/// The processor's time stamp counter: cheap to read, and of constant speed.
pub fn ticks() -> u64 {
    // SAFETY: reads a counter, which is there on every processor that DPDK runs on.
    unsafe { sys::sluice_tsc() }
}

impl Eal {
    /// Starts the environment layer and reserves packet memory. The calling thread becomes DPDK's
    /// main thread and should live as long as the process; its processors stay what they are.
    ///
    /// Fails the second time in a process, when huge pages are required and missing, when free ones
    /// are refused, and when memory is short. The process cannot try again. DPDK's log
    /// goes to `tracing` (target `dpdk`) from now on.
    pub fn init(config: &EalConfig) -> Result<Self> {
        let huge_pages = choose_pages(config)?;
        if STARTED.swap(true, Ordering::SeqCst) {
            return Err(Error::AlreadyStarted);
        }
        log::redirect();
        start(&arguments(config, huge_pages)).map_err(|error| match error {
            Error::Dpdk { code: libc::ENOMEM, .. } if huge_pages => {
                Error::HugePagesRefused { needed_mb: config.megabytes() }
            }
            other => other,
        })?;
        close_on_exec();
        remove_runtime_folder();
        // SAFETY: the environment layer runs.
        let tight = unsafe { sys::sluice_iova_is_virtual() } == 1;
        let layout = if tight { Layout::Tight } else { Layout::WithinPages };
        let frames = FramePool::create("frames", config.frames, config.max_frame, layout)?;
        let large_frames = match config.large_frames {
            0 => None,
            count => Some(FramePool::create_large("large_frames", count)?),
        };
        info!(
            frames = config.frames,
            large_frames = config.large_frames,
            megabytes = config.megabytes(),
            huge_pages,
            "packet memory is ready"
        );
        Ok(Self(Arc::new(Running {
            huge_pages,
            max_frame: config.max_frame,
            frames,
            large_frames,
            tight,
            xdp_frames: Mutex::new(None),
            opening: Mutex::new(()),
            serial: AtomicU32::new(0),
        })))
    }

    /// How many [`ticks`] there are in a second.
    pub fn ticks_per_s(&self) -> u64 {
        // SAFETY: a number that DPDK found when it was initialised, which `self` proves.
        unsafe { sys::sluice_tsc_hz() }
    }

    /// Whether packet memory lies in huge pages.
    pub fn huge_pages(&self) -> bool {
        self.0.huge_pages
    }

    /// The pool that ports receive into.
    pub fn frames(&self) -> FramePool {
        self.0.frames
    }

    /// The pool that super-packets are received into, if there is one.
    pub(crate) fn large_frames(&self) -> Option<FramePool> {
        self.0.large_frames
    }

    /// The largest Ethernet frame that a buffer holds.
    pub(crate) fn max_frame(&self) -> u16 {
        self.0.max_frame
    }

    /// The pool for AF_XDP ports: the common one, except where physical addresses forbid that.
    pub(crate) fn xdp_frames(&self) -> Result<FramePool> {
        if self.0.tight {
            return Ok(self.0.frames);
        }
        let mut separate = self.0.xdp_frames.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(pool) = *separate {
            return Ok(pool);
        }
        let count = self.0.frames.capacity();
        let pool = FramePool::create("xdp_frames", count, self.0.max_frame, Layout::Tight)?;
        Ok(*separate.insert(pool))
    }

    /// Gives the free buffers that the calling thread keeps at hand back to everybody.
    pub(crate) fn flush(&self) {
        self.0.frames.flush();
        if let Some(large) = &self.0.large_frames {
            large.flush();
        }
        let separate = self.0.xdp_frames.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(pool) = &*separate {
            pool.flush();
        }
    }

    /// A number that no other device of this process has.
    pub(crate) fn next_serial(&self) -> u32 {
        self.0.serial.fetch_add(1, Ordering::Relaxed)
    }

    /// Keeps others from opening or closing ports meanwhile.
    pub(crate) fn exclusive(&self) -> MutexGuard<'_, ()> {
        self.0.opening.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Whether to use huge pages, decided by what is free now.
fn choose_pages(config: &EalConfig) -> Result<bool> {
    if config.huge_pages == HugePages::Off {
        return Ok(false);
    }
    let (free_mb, page_kb, total) = huge_page_state();
    let needed_mb = config.megabytes();
    if free_mb >= needed_mb {
        return Ok(true);
    }
    let missing = (needed_mb - free_mb) * 1024 / page_kb.max(1) + 1;
    let suggestion = total + missing;
    if config.huge_pages == HugePages::Required {
        return Err(Error::HugePages { needed_mb, free_mb, suggestion });
    }
    warn!(
        needed_mb,
        free_mb,
        "using ordinary pages, which is slower: too few huge pages are free \
         (sysctl vm.nr_hugepages={suggestion} would do)"
    );
    Ok(false)
}

/// Free MB in the default huge pages, their size in kB, and how many there are.
fn huge_page_state() -> (u64, u64, u64) {
    let meminfo = fs::read_to_string("/proc/meminfo").unwrap_or_default();
    let value = |key: &str| -> u64 {
        let line = meminfo.lines().find_map(|line| line.strip_prefix(key));
        line.and_then(|rest| rest.split_whitespace().next()?.parse().ok()).unwrap_or(0)
    };
    let free = value("HugePages_Free:").saturating_sub(value("HugePages_Rsvd:"));
    let page_kb = value("Hugepagesize:");
    (free * page_kb / 1024, page_kb, value("HugePages_Total:"))
}

fn arguments(config: &EalConfig, huge_pages: bool) -> Vec<String> {
    let mut arguments = vec![
        "sluice".to_owned(),
        "--no-telemetry".to_owned(),
        format!("--file-prefix=sluice-{}", std::process::id()),
        // One thread of DPDK's, allowed on the processors that this one is allowed on already:
        // workers are this program's own threads.
        format!("--lcores=0@({})", allowed_processors()),
        "-m".to_owned(),
        config.megabytes().to_string(),
    ];
    // Either way without files and without a door for other processes; DPDK does not let the
    // two options that say so be mixed.
    if huge_pages {
        arguments.push("--in-memory".to_owned());
    } else {
        arguments.extend(["--no-huge".to_owned(), "--no-shconf".to_owned()]);
    }
    if config.pci_allow.is_empty() {
        arguments.push("--no-pci".to_owned());
        // No device needs physical addresses then.
        arguments.push("--iova-mode=va".to_owned());
    }
    for address in &config.pci_allow {
        arguments.push("-a".to_owned());
        arguments.push(address.clone());
    }
    arguments
}

/// The processors the calling thread may use, as a comma-separated list.
fn allowed_processors() -> String {
    // SAFETY: a zeroed set is a valid empty set, and the size given is the set's.
    let set = unsafe {
        let mut set: libc::cpu_set_t = mem::zeroed();
        libc::sched_getaffinity(0, size_of::<libc::cpu_set_t>(), &mut set);
        set
    };
    // SAFETY: each index is below the set's capacity.
    let allowed = |cpu: &usize| unsafe { libc::CPU_ISSET(*cpu, &set) };
    let list: Vec<String> = (0..libc::CPU_SETSIZE as usize)
        .filter(allowed)
        .map(|processor| processor.to_string())
        .collect();
    if list.is_empty() { "0".to_owned() } else { list.join(",") }
}

/// The environment layer makes a folder for files that, as it is started here, it never writes.
fn remove_runtime_folder() {
    // SAFETY: the layer runs; the text lives as long as it does.
    let folder = unsafe { CStr::from_ptr(sys::sluice_runtime_folder()) };
    // Only an empty folder is removed; one that cannot be removed does no harm.
    let _ = fs::remove_dir(OsStr::from_bytes(folder.to_bytes()));
}

/// DPDK's arguments. It keeps pointers into them, so they live as long as the process.
struct Arguments(Vec<*mut c_char>);

// SAFETY: the pointers are only kept, never followed, on this side.
unsafe impl Send for Arguments {}
// SAFETY: as above.
unsafe impl Sync for Arguments {}

static ARGUMENTS: OnceLock<Arguments> = OnceLock::new();

fn start(arguments: &[String]) -> Result<()> {
    let texts = arguments.iter().map(|argument| CString::new(argument.as_str()));
    let texts = texts.collect::<Result<Vec<CString>, _>>()?;
    let kept = ARGUMENTS
        .get_or_init(|| Arguments(texts.into_iter().map(CString::into_raw).collect()))
        .0
        .as_slice();
    let mut pointers = kept.to_vec();
    pointers.push(std::ptr::null_mut());
    // SAFETY: a null-terminated vector of C strings that are never freed; the caller made sure
    // that this is the first call in the process.
    let status = unsafe { sys::sluice_eal_init(kept.len() as i32, pointers.as_mut_ptr()) };
    check(status, || format!("start DPDK ({})", arguments[1..].join(" ")))?;
    Ok(())
}
