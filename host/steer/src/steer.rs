//! The maps of an interface's steering program.

use std::os::fd::RawFd;

use aya::maps::lpm_trie::LpmTrie;
use aya::maps::{Array, HashMap, Map, MapData, MapInfo, PerCpuArray, XskMap};
use aya::programs::{ProgramInfo, loaded_programs};
use sluice_rules::{Rule, rules_of};

use crate::contents::{Classes, Contents, Numbered};
use crate::hits::{Numbers, plain};
use crate::layout::{
    AddressInKey, EndpointKey, PortKey, PrefixKey, RoleValue, SettingsValue, VxlanKey, VxlanValue,
};
use crate::table::Table;
use crate::{Error, Matches, Mode, PROGRAM, Result, link};

type Hashed<K, V> = Table<HashMap<MapData, K, V>, K, V>;
type Prefixes<const N: usize, V> = Table<LpmTrie<MapData, [u8; N], V>, PrefixKey<N>, V>;

/// The steering program of one interface.
pub struct Steer {
    mode: Mode,
    addresses: Hashed<AddressInKey, RoleValue>,
    endpoints: Hashed<EndpointKey, u16>,
    ranges: Prefixes<24, u16>,
    inside: Prefixes<16, u64>,
    outside: Prefixes<16, u64>,
    tunnels: Prefixes<20, u16>,
    tunnel_ports: Hashed<PortKey, u8>,
    vxlans: Hashed<VxlanKey, VxlanValue>,
    settings: Array<MapData, SettingsValue>,
    counters: PerCpuArray<MapData, u64>,
    hits: PerCpuArray<MapData, u64>,
    classes: Classes,
    numbers: Numbers,
    /// What was set last, if it was set as a whole.
    present: Option<Matches>,
}

impl std::fmt::Debug for Steer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Steer").finish_non_exhaustive()
    }
}

/// What [`Steer::set`] changed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Changed {
    /// Entries that are new or differ.
    pub added: usize,
    /// Entries that went.
    pub removed: usize,
}

/// What the program did with the frames it saw, over all processors.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// Frames given to the director.
    pub taken: u64,
    /// Frames left to the kernel because they are not the director's.
    pub passed: u64,
    /// Frames that are the director's but went to the kernel: no queue of the director was bound
    /// where they arrived.
    pub unowned: u64,
}

impl Steer {
    /// Finds the maps of the steering program on an interface (given by its index).
    pub fn for_interface(index: u32) -> Result<Self> {
        let found = link::query(index)
            .map_err(|source| Error::Link { context: "ask for an interface", source })?;
        let (id, mode) = found.program.ok_or(Error::NotAttached { index })?;
        Ok(Self { mode, ..Self::for_program(index, id)? })
    }

    /// How the program is attached.
    pub fn mode(&self) -> Mode {
        self.mode
    }

    /// The same, attached so.
    pub(crate) fn attached(self, mode: Mode) -> Self {
        Self { mode, ..self }
    }

    pub(crate) fn for_program(index: u32, id: u32) -> Result<Self> {
        let context = "read about the steering program";
        let program = program(id)?.ok_or(Error::NotAttached { index })?;
        if program.name_as_str() != Some(PROGRAM) {
            return Err(Error::NotAttached { index });
        }
        let ids = program.map_ids().map_err(|source| Error::Program { context, source })?;
        let ids = ids.unwrap_or_default();
        Self::from_maps(|name| map_named(&ids, name)?.ok_or(Error::NoMap { index, map: name }))
    }

    /// For a program that is loaded but not attached: takes each map, by its name, from `find`.
    pub fn from_maps(mut find: impl FnMut(&'static str) -> Result<Map>) -> Result<Self> {
        let context = "open a map of the steering program";
        let wrong = |source| Error::Map { context, source };
        Ok(Self {
            mode: Mode::Native,
            addresses: Table::open("addresses", find("addresses")?)?,
            endpoints: Table::open("endpoints", find("endpoints")?)?,
            ranges: Table::open("ranges", find("ranges")?)?,
            inside: Table::open("inside", find("inside")?)?,
            outside: Table::open("outside", find("outside")?)?,
            tunnels: Table::open("tunnels", find("tunnels")?)?,
            tunnel_ports: Table::open("tunnel_ports", find("tunnel_ports")?)?,
            vxlans: Table::open("vxlans", find("vxlans")?)?,
            settings: find("settings")?.try_into().map_err(wrong)?,
            counters: find("counters")?.try_into().map_err(wrong)?,
            hits: find("hits")?.try_into().map_err(wrong)?,
            classes: Classes::default(),
            numbers: Numbers::default(),
            present: None,
        })
    }

    /// Makes the program take exactly this. What is new is added before what is old goes, so no
    /// packet of something that stays is missed. After an error the maps may hold a part of both;
    /// the next call goes on from there.
    ///
    /// # Errors
    /// [`Error::Full`] and [`Error::TooManyRules`] where there is too much of something;
    /// [`Error::Map`] when the kernel refuses a change.
    pub fn set(&mut self, matches: &Matches) -> Result<Changed> {
        if self.present.as_ref() == Some(matches) {
            return Ok(Changed::default());
        }
        self.present = None;
        let wanted = self.wanted(matches)?;
        let mut changed = Changed::default();
        // A role, an inside network or a VXLAN makes the program look at the other maps, so these
        // are filled first and emptied last.
        changed.added += self.endpoints.add(&wanted.endpoints)?;
        changed.added += self.ranges.add(&wanted.ranges)?;
        changed.added += self.outside.add(&wanted.outside)?;
        changed.added += self.tunnels.add(&wanted.tunnels)?;
        changed.added += self.tunnel_ports.add(&wanted.tunnel_ports)?;
        self.settings.set(0, wanted.settings, 0).map_err(|source| Error::Map {
            context: "change the steering program's settings",
            source,
        })?;
        changed.added += self.addresses.add(&wanted.addresses)?;
        changed.added += self.inside.add(&wanted.inside)?;
        changed.added += self.vxlans.add(&wanted.vxlans)?;
        changed.removed += self.vxlans.prune(&wanted.vxlans)?;
        changed.removed += self.inside.prune(&wanted.inside)?;
        changed.removed += self.addresses.prune(&wanted.addresses)?;
        changed.removed += self.endpoints.prune(&wanted.endpoints)?;
        changed.removed += self.ranges.prune(&wanted.ranges)?;
        changed.removed += self.outside.prune(&wanted.outside)?;
        changed.removed += self.tunnels.prune(&wanted.tunnels)?;
        changed.removed += self.tunnel_ports.prune(&wanted.tunnel_ports)?;
        self.present = Some(matches.clone());
        Ok(changed)
    }

    /// What the maps are to hold, with a number for each rule.
    fn wanted(&mut self, matches: &Matches) -> Result<Contents> {
        let rules = rules_of(matches, 0, |_| Vec::new());
        let classes = self.classes.assign(&matches.snat)?;
        let read = |number: u16| sum(&self.hits, number.into());
        self.numbers.assign(rules.iter().cloned(), &classes, read)?;
        let numbered: Vec<Numbered<'_>> =
            rules.iter().map(|rule| (rule, self.numbers.get(rule))).collect();
        Ok(Contents::of(matches, &numbered, &self.classes, &classes))
    }

    /// Packets that a rule has taken since it is there, whether or not a socket was bound. `None`
    /// of a rule that is not counted: there are more than counters, or it shares a class of source
    /// NAT with others.
    pub fn hits(&self, rule: &Rule) -> Option<u64> {
        let (number, before) = self.numbers.counter(&plain(rule))?;
        sum(&self.hits, number.into()).ok()?.checked_sub(before)
    }

    /// Reads the counters.
    pub fn counters(&self) -> Result<Counters> {
        let sum = |index| sum(&self.counters, index);
        Ok(Counters { taken: sum(0)?, passed: sum(1)?, unowned: sum(2)? })
    }
}

/// A counter over all processors.
fn sum(counters: &PerCpuArray<MapData, u64>, index: u32) -> Result<u64> {
    let context = "read the steering program's counters";
    let values = counters.get(&index, 0).map_err(|source| Error::Map { context, source })?;
    Ok(values.iter().sum())
}

/// Gives the program on an interface the sockets that serve its queues: number of the queue, and
/// descriptor. The AF_XDP driver does so itself for the socket it opened last.
pub fn bind(index: u32, queues: impl Iterator<Item = (u32, RawFd)>) -> Result<()> {
    let name = "xsks_map";
    let map = map_named(&map_ids(index)?, name)?.ok_or(Error::NoMap { index, map: name })?;
    let wrong = |source| Error::Map { context: "bind a socket to the steering program", source };
    let mut sockets: XskMap<MapData> = map.try_into().map_err(wrong)?;
    for (queue, socket) in queues {
        sockets.set(queue, socket, 0).map_err(wrong)?;
    }
    Ok(())
}

/// The numbers of the maps of the steering program on an interface.
fn map_ids(index: u32) -> Result<Vec<u32>> {
    let found = link::query(index)
        .map_err(|source| Error::Link { context: "ask for an interface", source })?;
    let (id, _) = found.program.ok_or(Error::NotAttached { index })?;
    let program = program(id)?.ok_or(Error::NotAttached { index })?;
    if program.name_as_str() != Some(PROGRAM) {
        return Err(Error::NotAttached { index });
    }
    let context = "read about the steering program";
    let ids = program.map_ids().map_err(|source| Error::Program { context, source })?;
    Ok(ids.unwrap_or_default())
}

/// The program of that number, if there is one.
pub(crate) fn program(id: u32) -> Result<Option<ProgramInfo>> {
    for program in loaded_programs() {
        let program =
            program.map_err(|source| Error::Program { context: "list BPF programs", source })?;
        if program.id() == id {
            return Ok(Some(program));
        }
    }
    Ok(None)
}

fn map_named(ids: &[u32], name: &str) -> Result<Option<Map>> {
    let wrong = |source| Error::Map { context: "open a map of the steering program", source };
    for id in ids {
        let info = MapInfo::from_id(*id).map_err(wrong)?;
        if info.name_as_str() == Some(name) {
            let data = MapData::from_id(*id).map_err(wrong)?;
            return Map::from_map_data(data).map(Some).map_err(wrong);
        }
    }
    Ok(None)
}
