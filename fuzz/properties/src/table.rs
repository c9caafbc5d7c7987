//! The session tables beside a `BTreeMap`.
//!
//! Hashes are made from few bits, so that buckets fill, inhabitants move, and tags collide.

use std::collections::BTreeMap;

use bytemuck::Zeroable;
use sluice_table::index::{First, MAX_VALUE, NONE};
use sluice_table::{Index, PagePolicy, Slab, Slot};

use crate::bytes::Bytes;

/// A slot that remembers its key; zero is vacant.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Zeroable)]
#[repr(C)]
struct Entry {
    key: u32,
    next: u32,
}

impl Slot for Entry {
    fn is_vacant(&self) -> bool {
        self.key == 0
    }

    fn vacate(&mut self, next: u32) {
        *self = Self { key: 0, next };
    }

    fn next(&self) -> u32 {
        self.next
    }
}

/// A hash whose home bucket comes from three bits of the key and whose tag from two others: keys
/// crowd into few buckets under few tags.
fn hash(key: u32) -> u64 {
    let bucket = u64::from(key % 8) << 61;
    bucket | (u64::from(key >> 3 & 3) * 0x1357)
}

struct Tables {
    slab: Slab<Entry>,
    index: Index,
    model: BTreeMap<u32, u32>,
}

/// Plays inserts, removals and lookups on a slab and an index, and on the model beside them.
///
/// # Panics
/// When they disagree.
pub fn table(data: &[u8]) {
    let mut bytes = Bytes(data);
    let capacity = u32::from(bytes.u8()) + 1;
    let pages = PagePolicy::Ordinary;
    let mut tables = Tables {
        slab: Slab::new(capacity, pages).expect("a small table fits"),
        index: Index::new(u64::from(capacity), pages).expect("a small table fits"),
        model: BTreeMap::new(),
    };
    while !bytes.is_empty() {
        let (operation, key) = (bytes.u8(), u32::from(bytes.u8()) + 1);
        match operation % 4 {
            0 | 1 => tables.insert(key),
            2 => tables.remove(key),
            _ => tables.look(key),
        }
        assert_eq!(tables.slab.live() as usize, tables.model.len());
        assert_eq!(tables.index.live() as usize, tables.model.len());
    }
    for key in 1..=256 {
        tables.look(key);
    }
}

impl Tables {
    fn found(&self, key: u32) -> Option<u32> {
        self.index.find(hash(key), |id| self.slab.at(id).key == key)
    }

    fn insert(&mut self, key: u32) {
        if self.model.contains_key(&key) {
            return self.look(key);
        }
        let Some(id) = self.slab.insert(Entry { key, next: 0 }) else {
            assert_eq!(self.model.len(), self.slab.capacity() as usize, "full before its time");
            return;
        };
        assert!(id < self.slab.capacity() && id <= MAX_VALUE);
        assert!(!self.model.values().any(|used| *used == id), "id {id} given twice");
        if self.index.insert(hash(key), id).is_ok() {
            self.model.insert(key, id);
        } else {
            assert_eq!(self.slab.remove(id).map(|entry| entry.key), Some(key));
        }
    }

    fn remove(&mut self, key: u32) {
        let Some(id) = self.model.remove(&key) else {
            assert_eq!(self.found(key), None, "key {key} was never inserted");
            return;
        };
        assert!(self.index.remove(hash(key), id), "key {key} cannot be removed");
        assert!(!self.index.remove(hash(key), id), "key {key} is removed twice");
        assert_eq!(self.slab.remove(id).map(|entry| entry.key), Some(key));
        assert_eq!(self.slab.remove(id), None, "id {id} is removed twice");
    }

    /// The general search, and the two steps of the fast one.
    fn look(&self, key: u32) {
        let known = self.model.get(&key).copied();
        assert_eq!(self.found(key), known, "key {key}");
        let candidate = match self.index.first(hash(key)) {
            First::Candidate(id) => Some(id),
            First::Elsewhere => Some(self.index.second(hash(key))).filter(|id| *id != NONE),
            First::None => None,
        };
        match candidate {
            Some(id) => assert!(!self.slab.at(id).is_vacant(), "candidate {id} is vacant"),
            None => assert_eq!(known, None, "key {key} has no candidate"),
        }
    }
}
