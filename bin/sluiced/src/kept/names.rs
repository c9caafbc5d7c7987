//! `names.json`: what the ids in kept sessions stand for, and what else their reader must know.

use serde::{Deserialize, Serialize};
use sluice_director::path::{SLOT_LAYOUT, table_bytes};
use sluice_director::plan::{Names, Plan, RealName, ServiceId, ServiceName};
use sluice_director::spec::Mode;
use std::collections::BTreeMap;
use std::fs;
use std::io::{self, Read, Write};
use std::net::IpAddr;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

/// The head of a directory of kept sessions.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Head {
    /// [`SLOT_LAYOUT`] of who wrote it.
    pub layout: u32,
    /// `state_dir` of the director.
    pub state_dir: PathBuf,
    /// The directory of the slots.
    pub slots: PathBuf,
    /// How many workers there are.
    pub workers: u16,
    /// Whether sessions may be at workers that no packet of theirs comes to by itself.
    #[serde(default)]
    pub scattered: bool,
    /// Secret of the session hash.
    pub seed: u64,
    /// When the workers' clock began: milliseconds after the machine.
    pub zero_boot_ms: u64,
    /// How many directors have handed over to each other before this one: of two heads that one
    /// with more is the later one's.
    #[serde(default)]
    pub generation: u64,
    /// The plan that the names are of.
    epoch: u64,
    services: Vec<Service>,
    reals: Vec<Real>,
    locals: Vec<IpAddr>,
    /// The network of each local address that is not in the default one.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    local_networks: BTreeMap<usize, String>,
    /// The isolated networks with tables of their own, by the numbers in the names of their files.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub networks: Vec<String>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
enum Service {
    Service {
        #[serde(default, skip_serializing_if = "String::is_empty")]
        network: String,
        protocol: u8,
        vip: IpAddr,
        ports: (u16, u16),
        extended: bool,
    },
    Rule(String),
}

/// Its service, address, port, mode, and whether it is for probes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Real(u16, IpAddr, u16, String, bool);

/// Why there are no names.
#[derive(Debug)]
pub enum NoNames {
    /// No director has kept sessions here.
    Absent,
    /// They cannot be used, for this reason.
    Unusable(String),
}

impl Head {
    /// One without names, workers and seed.
    pub const fn new(state_dir: PathBuf, slots: PathBuf) -> Self {
        Self {
            layout: SLOT_LAYOUT,
            state_dir,
            slots,
            workers: 0,
            scattered: false,
            seed: 0,
            zero_boot_ms: 0,
            generation: 0,
            epoch: 0,
            services: Vec::new(),
            reals: Vec::new(),
            locals: Vec::new(),
            local_networks: BTreeMap::new(),
            networks: Vec::new(),
        }
    }

    /// Reads a file.
    pub fn read(file: &Path) -> Result<Self, NoNames> {
        let unusable = |why: String| NoNames::Unusable(format!("{}: {why}", file.display()));
        let text = match fs::read(file) {
            Ok(text) => text,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Err(NoNames::Absent),
            Err(error) => return Err(unusable(error.to_string())),
        };
        let head: Self = serde_json::from_slice(&text).map_err(|e| unusable(e.to_string()))?;
        if head.layout != SLOT_LAYOUT {
            let why = format!("its sessions have layout {}, not {SLOT_LAYOUT}", head.layout);
            return Err(unusable(why));
        }
        Ok(head)
    }

    /// Writes a file, whole or not at all.
    pub fn write(&self, file: &Path) -> io::Result<()> {
        let new = file.with_extension("new");
        let mut out = io::BufWriter::new(fs::File::create(&new)?);
        serde_json::to_writer(&mut out, self)?;
        out.flush()?;
        fs::rename(&new, file)
    }

    /// Takes the names of a plan; `false` when they are those already.
    pub fn take_names(&mut self, plan: &Plan) -> bool {
        // Health and weights change no ids, and no epoch.
        if self.epoch == plan.epoch && !self.services.is_empty() {
            return false;
        }
        let Names { services, reals, locals } = plan.names();
        self.epoch = plan.epoch;
        self.services = services.into_iter().map(Service::from).collect();
        self.reals = reals.into_iter().map(Real::from).collect();
        let isolated = locals.iter().enumerate().filter(|(_, (network, _))| !network.is_empty());
        self.local_networks = isolated.map(|(at, (network, _))| (at, network.clone())).collect();
        self.locals = locals.into_iter().map(|(_, address)| address).collect();
        true
    }

    /// The names. Of a mode that this version does not know there are no real servers.
    pub fn names(&self) -> Names {
        let unknown = RealName {
            service: ServiceId(u16::MAX),
            address: IpAddr::from([0; 4]),
            port: 0,
            mode: Mode::default(),
            is_probe: true,
        };
        let real = |real: &Real| real.name().unwrap_or_else(|| unknown.clone());
        let local = |(at, address): (usize, &IpAddr)| {
            (self.local_networks.get(&at).cloned().unwrap_or_default(), *address)
        };
        Names {
            services: self.services.iter().cloned().map(ServiceName::from).collect(),
            reals: self.reals.iter().map(real).collect(),
            locals: self.locals.iter().enumerate().map(local).collect(),
        }
    }

    /// The files of a worker's tables in a network: 0 for the default one, otherwise one more than
    /// its place among [`Self::networks`].
    pub fn tables(&self, worker: u16, network: usize) -> [PathBuf; 2] {
        let network = if network == 0 { String::new() } else { format!("network-{network}.") };
        ["ipv4", "extended"]
            .map(|table| self.slots.join(format!("worker-{worker}.{network}{table}")))
    }

    /// The slots of a worker's tables that are in use. A file that cannot be read has none.
    pub fn read_tables(&self, worker: u16, network: usize) -> [Vec<u8>; 2] {
        // One session more is one slot more.
        let sizes: [usize; 2] =
            std::array::from_fn(|at| (table_bytes(2)[at] - table_bytes(1)[at]) as usize);
        let [narrow, extended] = self.tables(worker, network);
        [(narrow, sizes[0]), (extended, sizes[1])].map(|(file, size)| {
            read_used(&file, size).unwrap_or_else(|error| {
                tracing::warn!(file = %file.display(), %error, "kept sessions cannot be read");
                Vec::new()
            })
        })
    }
}

/// Bytes of slots that are read at once.
const PART: usize = 1 << 20;

/// Reads the slots of a file up to the last one that was ever used, as they are now, in place of
/// what is in `slots`. Slots are used in their order, and of those that were used one at most is
/// all zero; so a part that is all zero is behind them all.
pub fn read_touched(file: &fs::File, slots: &mut Vec<u8>) -> io::Result<()> {
    let length = usize::try_from(file.metadata()?.len()).unwrap_or(usize::MAX);
    let mut filled = 0;
    while filled < length {
        let end = (filled + PART).min(length);
        if slots.len() < end {
            slots.resize(end, 0);
        }
        let part = &mut slots[filled..end];
        file.read_exact_at(part, filled as u64)?;
        if part.chunks(64).all(|chunk| chunk == &[0; 64][..chunk.len()]) {
            break;
        }
        filled = end;
    }
    slots.truncate(filled);
    Ok(())
}

/// Reads the slots of a file that are not all zero.
fn read_used(path: &Path, slot: usize) -> io::Result<Vec<u8>> {
    let mut file = fs::File::open(path)?;
    let (mut used, mut part) = (Vec::new(), vec![0; PART]);
    loop {
        let mut filled = 0;
        while filled < PART {
            match file.read(&mut part[filled..])? {
                0 => break,
                count => filled += count,
            }
        }
        let slots = part[..filled].chunks_exact(slot);
        slots.filter(|slot| slot.iter().any(|byte| *byte != 0)).for_each(|s| used.extend(s));
        if filled < PART {
            return Ok(used);
        }
    }
}

impl Real {
    fn name(&self) -> Option<RealName> {
        let Self(service, address, port, ref mode, is_probe) = *self;
        let modes = Mode::OF_REALS.into_iter().chain([Mode::Snat]);
        let mode = modes.into_iter().find(|known| known.name() == *mode)?;
        Some(RealName { service: ServiceId(service), address, port, mode, is_probe })
    }
}

impl From<RealName> for Real {
    fn from(name: RealName) -> Self {
        let RealName { service, address, port, mode, is_probe } = name;
        Self(service.0, address, port, mode.name().to_owned(), is_probe)
    }
}

impl From<ServiceName> for Service {
    fn from(name: ServiceName) -> Self {
        match name {
            ServiceName::Rule(name) => Self::Rule(name),
            ServiceName::Service { network, protocol, vip, ports, extended } => {
                Self::Service { network, protocol, vip, ports, extended }
            }
        }
    }
}

impl From<Service> for ServiceName {
    fn from(service: Service) -> Self {
        match service {
            Service::Rule(name) => Self::Rule(name),
            Service::Service { network, protocol, vip, ports, extended } => {
                Self::Service { network, protocol, vip, ports, extended }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn head() -> Head {
        let ip = |last| IpAddr::from([192, 0, 2, last]);
        let service = |network: &str, vip| Service::Service {
            network: network.to_owned(),
            protocol: 6,
            vip,
            ports: (80, 89),
            extended: true,
        };
        let mut head = Head::new("/var/lib/sluice".into(), "/dev/shm/sluice/x".into());
        (head.workers, head.seed, head.zero_boot_ms) = (2, u64::MAX, 77);
        head.services =
            vec![service("", ip(1)), Service::Rule("out".to_owned()), service("blue", ip(1))];
        head.reals = vec![Real(0, ip(11), 0, "fnat".to_owned(), false)];
        head.locals = vec![ip(10), ip(10)];
        head.local_networks = BTreeMap::from([(1, "blue".to_owned())]);
        head.networks = vec!["blue".to_owned()];
        head
    }

    #[test]
    fn a_head_is_written_whole_and_read_back() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("names.json");
        assert!(matches!(Head::read(&file), Err(NoNames::Absent)));
        head().write(&file).unwrap();
        assert_eq!(Head::read(&file).unwrap(), head());
        let names = head().names();
        assert_eq!(names.reals[0].mode, Mode::Fnat);
        assert_eq!(names.locals[1].0, "blue");
        // What was begun and not finished is not looked at.
        fs::write(file.with_extension("new"), "{").unwrap();
        assert_eq!(Head::read(&file).unwrap(), head());
    }

    /// Damage and other layouts are refused with a reason, and nothing panics.
    #[test]
    fn what_is_torn_or_of_another_layout_is_not_believed() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("names.json");
        let text = serde_json::to_string(&head()).unwrap();
        let other = text.replacen("\"layout\":1", "\"layout\":7", 1);
        for bad in [&text[..text.len() / 2], "", "[]", &other] {
            fs::write(&file, bad).unwrap();
            let Err(NoNames::Unusable(why)) = Head::read(&file) else { panic!("{bad}") };
            assert!(why.contains("names.json"), "{why}");
        }
        let mut unknown = head();
        unknown.reals[0].3 = "teleport".to_owned();
        assert!(unknown.names().reals[0].is_probe, "of a mode from a later version: none");
    }

    #[test]
    fn slots_are_read_up_to_the_last_one_in_use() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("slots");
        let mut slots = vec![0; 5 << 20];
        (slots[7], slots[(1 << 20) + 9]) = (1, 2);
        fs::write(&path, &slots).unwrap();
        let file = fs::File::open(&path).unwrap();
        let mut read = vec![9; 4 << 20];
        read_touched(&file, &mut read).unwrap();
        assert_eq!(read, slots[..2 << 20]);
        fs::write(&path, &slots[..100]).unwrap();
        read_touched(&file, &mut read).unwrap();
        assert_eq!(read, slots[..100]);
        fs::write(&path, "").unwrap();
        read_touched(&file, &mut read).unwrap();
        assert!(read.is_empty());
    }

    #[test]
    fn only_slots_in_use_are_read() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("slots");
        let mut slots = vec![0; 3 << 20];
        (slots[40], slots[(2 << 20) + 1]) = (1, 2);
        // A file that ends in the middle of a slot.
        slots.truncate((3 << 20) - 5);
        fs::write(&file, &slots).unwrap();
        let used = read_used(&file, 32).unwrap();
        assert_eq!((used.len(), used[8], used[33]), (64, 1, 2));
        assert!(read_used(&dir.path().join("absent"), 32).is_err());
    }
}
