//! The head of kept sessions, in the file `names`: what the ids in slots stand for, and what else
//! their reader must know.
//!
//! The first line has the layout of the slots and a checksum over everything else, in this form in
//! every version; the rest is the head, in the form of its layout. So what was torn or has flipped
//! is told from what another version wrote.

use serde::{Deserialize, Serialize};
use sluice_director::path::{SLOT_LAYOUT, table_bytes};
use sluice_director::plan::{Names, Plan, RealName, ServiceId, ServiceName};
use sluice_director::spec::Mode;
use std::collections::BTreeMap;
use std::fmt;
use std::fs;
use std::io::{self, Read, Write};
use std::net::IpAddr;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

/// The first line of the file.
struct FirstLine {
    layout: u32,
    length: usize,
    checksum: u32,
}

impl FirstLine {
    /// That of a head with slots of this layout.
    fn of(layout: u32, head: &[u8]) -> Self {
        let begin = format!("layout {layout} length {} ", head.len());
        let checksum = crc32c::crc32c_append(crc32c::crc32c(begin.as_bytes()), head);
        Self { layout, length: head.len(), checksum }
    }

    /// Reads it.
    fn read(line: &str) -> Option<Self> {
        let words: Vec<&str> = line.split(' ').collect();
        let ["layout", layout, "length", length, "crc32c", checksum] = words[..] else {
            return None;
        };
        Some(Self {
            layout: layout.parse().ok()?,
            length: length.parse().ok()?,
            checksum: u32::from_str_radix(checksum, 16).ok()?,
        })
    }
}

impl fmt::Display for FirstLine {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { layout, length, checksum } = self;
        write!(to, "layout {layout} length {length} crc32c {checksum:08x}")
    }
}

/// The layout, and the head as it was written: why not, if they are not what was written.
fn checked(bytes: &[u8]) -> Result<(u32, &[u8]), String> {
    let end = bytes.iter().position(|byte| *byte == b'\n').ok_or("it has no first line")?;
    let line = str::from_utf8(&bytes[..end]).map_err(|_| "its first line is no text")?;
    let read = FirstLine::read(line).ok_or("its first line is none of a head")?;
    let head = &bytes[end + 1..];
    if read.length != head.len() {
        return Err(format!("it is torn: {} bytes of {}", head.len(), read.length));
    }
    // Written in one way only.
    let right = FirstLine::of(read.layout, head).to_string();
    if right != line {
        return Err(format!("it is damaged: \"{line}\" should be \"{right}\""));
    }
    Ok((read.layout, head))
}

/// The head of a directory of kept sessions.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Head {
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
    /// They are sound, and of slots with another layout, in words.
    OtherLayout(String),
    /// They cannot be used, for this reason.
    Unusable(String),
}

impl Head {
    /// One without names, workers and seed.
    pub const fn new(state_dir: PathBuf, slots: PathBuf) -> Self {
        Self {
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
        let named = |why| format!("{}: {why}", file.display());
        match fs::read(file) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => Err(NoNames::Absent),
            Err(error) => Err(NoNames::Unusable(named(error.to_string()))),
            Ok(bytes) => Self::parse(&bytes).map_err(|no| match no {
                NoNames::Absent => no,
                NoNames::OtherLayout(why) => NoNames::OtherLayout(named(why)),
                NoNames::Unusable(why) => NoNames::Unusable(named(why)),
            }),
        }
    }

    /// Reads what is in a file.
    fn parse(bytes: &[u8]) -> Result<Self, NoNames> {
        let (layout, head) = checked(bytes).map_err(NoNames::Unusable)?;
        if layout != SLOT_LAYOUT {
            let why = format!("its sessions have layout {layout}, not {SLOT_LAYOUT}");
            return Err(NoNames::OtherLayout(why));
        }
        serde_json::from_slice(head).map_err(|error| NoNames::Unusable(error.to_string()))
    }

    /// Writes a file, whole or not at all.
    pub fn write(&self, file: &Path) -> io::Result<()> {
        let (head, new) = (serde_json::to_vec(self)?, file.with_extension("new"));
        let mut out = fs::File::create(&new)?;
        out.write_all(format!("{}\n", FirstLine::of(SLOT_LAYOUT, &head)).as_bytes())?;
        out.write_all(&head)?;
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
        let file = dir.path().join("names");
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

    /// Why these bytes are not believed, and whether it is for their layout.
    fn refused(bytes: &[u8]) -> (bool, String) {
        match Head::parse(bytes) {
            Err(NoNames::Unusable(why)) => (false, why),
            Err(NoNames::OtherLayout(why)) => (true, why),
            other => panic!("{other:?}: {}", String::from_utf8_lossy(bytes)),
        }
    }

    /// What [`Head::write`] writes.
    fn written() -> Vec<u8> {
        let dir = tempfile::tempdir().unwrap();
        head().write(&dir.path().join("names")).unwrap();
        fs::read(dir.path().join("names")).unwrap()
    }

    /// Damage and other layouts are refused with a reason, and nothing panics.
    #[test]
    fn what_is_torn_or_of_another_layout_is_not_believed() {
        let right = written();
        for length in 0..right.len() {
            let (other, why) = refused(&right[..length]);
            assert!(!other && why.contains("it "), "{length} bytes: {why}");
        }
        let more = [&right[..], b"\n"].concat();
        assert!(refused(&more).1.contains("torn"));
        // Another layout is known for one whatever its head is, if it is what was written.
        for head in [&b"{}"[..], b"", b"\x00\n\xff"] {
            let line = FirstLine::of(SLOT_LAYOUT + 6, head).to_string();
            let (other, why) = refused(&[line.as_bytes(), b"\n", head].concat());
            assert!(other && why.contains("layout 7, not 1"), "{why}");
            let line = FirstLine::of(SLOT_LAYOUT, head).to_string();
            assert!(!refused(&[line.as_bytes(), b"\n", head].concat()).0);
        }
        let mut unknown = head();
        unknown.reals[0].3 = "teleport".to_owned();
        assert!(unknown.names().reals[0].is_probe, "of a mode from a later version: none");
    }

    /// No bit can flip unseen, and no byte be another one.
    #[test]
    fn a_flipped_bit_anywhere_is_not_believed() {
        let right = written();
        let mut bytes = right.clone();
        for at in 0..right.len() {
            for mask in [1, 2, 4, 8, 16, 32, 64, 128, 255, right[at]] {
                bytes[at] = right[at] ^ mask;
                let (other, why) = refused(&bytes);
                assert!(!other && !why.is_empty(), "byte {at}, {mask}: {why}");
            }
            bytes[at] = right[at];
        }
        assert_eq!(checked(&bytes).map(|(layout, _)| layout), Ok(SLOT_LAYOUT));
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
