//! Tables for sessions: huge-page memory, a slab of fixed-size slots, and a bucketised index.
//!
//! Everything is addressed by 32-bit ids, never by pointer, so that a table is position
//! independent. Every table has a capacity that is fixed when it is made; nothing allocates
//! afterwards.
//!
//! Unsafe is allowed here for mapping memory and for viewing it as slots ([`region`] alone).

pub mod index;
pub mod region;
pub mod side;
pub mod slab;

pub use index::{Full, Index};
pub use region::{MemoryFile, PagePolicy, Pages, Region, RegionError};
pub use side::SideArray;
pub use slab::{Slab, Slot};
