//! The maps of an interface's steering program.

use std::collections::BTreeSet;
use std::os::fd::RawFd;

use aya::maps::{HashMap, Map, MapData, MapInfo, PerCpuArray, XskMap};
use aya::programs::{ProgramInfo, loaded_programs};

use crate::layout::{AddressKey, EndpointKey, PROTOCOLS, PortRange, address_key, endpoint_key};
use crate::{Error, LocalMatch, Mode, PROGRAM, Result, ServiceMatch, link};

/// The steering program of one interface.
pub struct Steer {
    mode: Mode,
    services: HashMap<MapData, EndpointKey, u8>,
    locals: HashMap<MapData, AddressKey, PortRange>,
    counters: PerCpuArray<MapData, u64>,
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

    fn for_program(index: u32, id: u32) -> Result<Self> {
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
            services: find("services")?.try_into().map_err(wrong)?,
            locals: find("locals")?.try_into().map_err(wrong)?,
            counters: find("counters")?.try_into().map_err(wrong)?,
        })
    }

    /// Makes the program take exactly this. What is new is added before what is old goes, so no
    /// packet of something that stays is missed. After an error the maps may hold a part of both.
    pub fn set(&mut self, services: &[ServiceMatch], locals: &[LocalMatch]) -> Result<Changed> {
        let endpoints = endpoints(services, locals);
        let ranges: Vec<(AddressKey, PortRange)> = locals
            .iter()
            .map(|local| (address_key(local.address), [*local.ports.start(), *local.ports.end()]))
            .collect();
        let mut changed = Changed::default();
        for key in &endpoints {
            if self.services.get(key, 0).is_err() {
                insert(&mut self.services, key, &1)?;
                changed.added += 1;
            }
        }
        for (key, range) in &ranges {
            if !self.locals.get(key, 0).is_ok_and(|present| present == *range) {
                insert(&mut self.locals, key, range)?;
                changed.added += 1;
            }
        }
        let kept: BTreeSet<AddressKey> = ranges.iter().map(|(key, _)| *key).collect();
        changed.removed += retain(&mut self.services, |key| endpoints.contains(key))?;
        changed.removed += retain(&mut self.locals, |key| kept.contains(key))?;
        Ok(changed)
    }

    /// Reads the counters.
    pub fn counters(&self) -> Result<Counters> {
        let context = "read the steering program's counters";
        let sum = |index: u32| -> Result<u64> {
            let values = self.counters.get(&index, 0);
            let values = values.map_err(|source| Error::Map { context, source })?;
            Ok(values.iter().sum())
        };
        Ok(Counters { taken: sum(0)?, passed: sum(1)?, unowned: sum(2)? })
    }
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

/// The keys of the map `services`: the services, and fragments for each protocol that is taken at
/// an address.
fn endpoints(services: &[ServiceMatch], locals: &[LocalMatch]) -> BTreeSet<EndpointKey> {
    let mut keys = BTreeSet::new();
    for service in services.iter().filter(|service| service.port != 0) {
        keys.insert(endpoint_key(service.address, service.protocol, service.port));
        keys.insert(endpoint_key(service.address, service.protocol, 0));
    }
    for local in locals {
        for protocol in PROTOCOLS {
            keys.insert(endpoint_key(local.address, protocol, 0));
        }
    }
    keys
}

fn insert<K: aya::Pod, V: aya::Pod>(
    map: &mut HashMap<MapData, K, V>,
    key: &K,
    value: &V,
) -> Result<()> {
    let context = "add to the steering program";
    map.insert(key, value, 0).map_err(|source| Error::Map { context, source })
}

/// Removes the keys that are not wanted; says how many went.
fn retain<K: aya::Pod, V: aya::Pod>(
    map: &mut HashMap<MapData, K, V>,
    wanted: impl Fn(&K) -> bool,
) -> Result<usize> {
    let context = "remove from the steering program";
    let wrong = |source| Error::Map { context, source };
    let present: Vec<K> = map.keys().collect::<Result<_, _>>().map_err(wrong)?;
    let mut removed = 0;
    for key in present.iter().filter(|key| !wanted(key)) {
        map.remove(key).map_err(wrong)?;
        removed += 1;
    }
    Ok(removed)
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
