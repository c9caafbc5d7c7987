//! Files of keepalived, and what `ipvsadm-save` wrote, as Sluice's configuration.
//!
//! [`keepalived`] and [`ipvsadm_save`] make a document of `[[service]]`, `[[check]]` and
//! `[[pool]]` sections, and a [`Note`] for each line that has no equivalent, or one that behaves
//! otherwise: what it would do, and what to do instead. **Each statement of a file is either
//! converted or noted**; which lines were accounted for can be asked, so that a test can hold it.
//! What comes out is right to `sluice_config` together with a file that has ports: what would not
//! be is left out, with a note.
//!
//! Words of DPVS's fork of keepalived and ipvsadm are known, too.
//!
//! Pure: whoever calls reads files and resolves names.
#![forbid(unsafe_code)]

mod keepalived;
mod note;
mod output;
mod outward;
mod saved;

mod sound;
mod target;
mod tunnel;

pub use keepalived::{Files, Source, keepalived};
pub use note::{Kind, Note, Place};
pub use output::Imported;
pub use saved::{Names, ipvsadm_save};
