//! A map of the program and what it holds, changed by differences.

use std::collections::BTreeMap;

use aya::maps::lpm_trie::{Key, LpmTrie};
use aya::maps::{HashMap, Map, MapData, MapError, MapInfo};

use crate::layout::PrefixKey;
use crate::{Error, Result};

/// A map of either kind, by its plain keys.
pub(crate) trait Store<K, V>: Sized {
    fn open(map: Map) -> Result<Self, MapError>;
    fn put(&mut self, key: &K, value: &V) -> Result<(), MapError>;
    fn delete(&mut self, key: &K) -> Result<(), MapError>;
    fn read(&self) -> Result<BTreeMap<K, V>, MapError>;
}

impl<K: aya::Pod + Ord, V: aya::Pod> Store<K, V> for HashMap<MapData, K, V> {
    fn open(map: Map) -> Result<Self, MapError> {
        map.try_into()
    }

    fn put(&mut self, key: &K, value: &V) -> Result<(), MapError> {
        self.insert(key, value, 0)
    }

    fn delete(&mut self, key: &K) -> Result<(), MapError> {
        self.remove(key)
    }

    fn read(&self) -> Result<BTreeMap<K, V>, MapError> {
        self.iter().collect()
    }
}

impl<const N: usize, V: aya::Pod> Store<PrefixKey<N>, V> for LpmTrie<MapData, [u8; N], V> {
    fn open(map: Map) -> Result<Self, MapError> {
        map.try_into()
    }

    fn put(&mut self, key: &PrefixKey<N>, value: &V) -> Result<(), MapError> {
        self.insert(&Key::new(key.0, key.1), value, 0)
    }

    fn delete(&mut self, key: &PrefixKey<N>) -> Result<(), MapError> {
        self.remove(&Key::new(key.0, key.1))
    }

    fn read(&self) -> Result<BTreeMap<PrefixKey<N>, V>, MapError> {
        self.iter().map(|entry| entry.map(|(key, v)| ((key.prefix_len(), key.data()), v))).collect()
    }
}

/// A map and a copy of what is in it: nobody else writes it.
#[derive(Debug)]
pub(crate) struct Table<S, K, V> {
    name: &'static str,
    limit: u32,
    map: S,
    held: BTreeMap<K, V>,
}

impl<S: Store<K, V>, K: Ord + Copy, V: PartialEq + Copy> Table<S, K, V> {
    /// Opens a map by its name and reads what it holds.
    pub fn open(name: &'static str, map: Map) -> Result<Self> {
        let context = "open a map of the steering program";
        let wrong = |source| Error::Map { context, source };
        let limit = info(&map).and_then(|data| data.info()).map_err(wrong)?;
        let map = S::open(map).map_err(wrong)?;
        let held = map.read().map_err(wrong)?;
        Ok(Self { name, limit: MapInfo::max_entries(&limit), map, held })
    }

    /// Adds what is wanted and not there, or differs; says how many.
    pub fn add(&mut self, wanted: &BTreeMap<K, V>) -> Result<usize> {
        let mut added = 0;
        for (key, value) in wanted {
            if self.held.get(key) == Some(value) {
                continue;
            }
            self.map.put(key, value).map_err(|source| self.refused(source))?;
            self.held.insert(*key, *value);
            added += 1;
        }
        Ok(added)
    }

    /// Removes what is there and not wanted; says how many.
    pub fn prune(&mut self, wanted: &BTreeMap<K, V>) -> Result<usize> {
        let gone: Vec<K> =
            self.held.keys().filter(|key| !wanted.contains_key(key)).copied().collect();
        for key in &gone {
            let context = "remove from the steering program";
            self.map.delete(key).map_err(|source| Error::Map { context, source })?;
            self.held.remove(key);
        }
        Ok(gone.len())
    }

    fn refused(&self, source: MapError) -> Error {
        let errno = match &source {
            MapError::SyscallError(failed) => failed.io_error.raw_os_error(),
            _ => None,
        };
        match errno {
            // Hash tables and tries say it differently.
            Some(libc::E2BIG | libc::ENOSPC) => Error::Full { map: self.name, limit: self.limit },
            _ => Error::Map { context: "add to the steering program", source },
        }
    }
}

fn info(map: &Map) -> Result<&MapData, MapError> {
    match map {
        Map::HashMap(data) | Map::LpmTrie(data) => Ok(data),
        _ => Err(MapError::InvalidMapType { map_type: 0 }),
    }
}
