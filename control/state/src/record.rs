//! The journal's bytes: a mark, then records one behind another. A record is its length (32 bits,
//! little endian), a CRC-32C of length and payload (32 bits), and the payload in JSON.
//!
//! The checksum covers the length, so that a file full of zeros holds no record.

use std::net::SocketAddr;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::history::Epoch;
use crate::object::{Key, Object, Override};
use crate::state::State;

/// What a journal begins with.
pub(crate) const MARK: &[u8; 16] = b"sluice journal\n\0";
/// The format that this program writes, and the newest that it reads.
pub(crate) const FORMAT: u32 = 1;
/// Bytes before a payload.
const HEAD: usize = 8;
/// The longest payload.
const LONGEST: usize = 1 << 30;

/// The first record: the state that the epochs behind it go out from.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Base {
    /// The format of the whole journal.
    pub format: u32,
    /// The epoch of this state.
    pub epoch: u64,
    file: Option<String>,
    objects: Vec<Stored>,
    overrides: Vec<StoredOverride>,
}

/// What every version's first record has.
#[derive(Debug, Deserialize)]
pub(crate) struct AnyBase {
    /// The format of the whole journal.
    pub format: u32,
}

#[derive(Debug, Serialize, Deserialize)]
struct Stored {
    #[serde(flatten)]
    key: Key,
    object: Arc<Object>,
}

#[derive(Debug, Serialize, Deserialize)]
struct StoredOverride {
    service: String,
    real: SocketAddr,
    over: Override,
}

impl Base {
    /// The record of a state.
    pub fn of(state: &State, epoch: u64) -> Self {
        let objects = state.objects().iter();
        let overrides = state.overrides().iter().map(|((service, real), over)| StoredOverride {
            service: service.clone(),
            real: *real,
            over: *over,
        });
        Self {
            format: FORMAT,
            epoch,
            file: state.file().map(str::to_owned),
            objects: objects
                .map(|(key, object)| Stored { key: key.clone(), object: Arc::clone(object) })
                .collect(),
            overrides: overrides.collect(),
        }
    }

    /// The state of the record.
    pub fn state(self) -> State {
        let overrides = self.overrides.into_iter().map(|it| ((it.service, it.real), it.over));
        State::of(self.objects.into_iter().map(|it| (it.key, it.object)), overrides, self.file)
    }
}

/// Adds a record to `out`.
pub(crate) fn write(out: &mut Vec<u8>, payload: &impl Serialize) -> serde_json::Result<()> {
    let start = out.len();
    out.extend([0; HEAD]);
    serde_json::to_writer(&mut *out, payload)?;
    let length = out.len() - start - HEAD;
    // Far from the limit: the API's bodies and the file's size are bounded.
    let bytes = u32::try_from(length).unwrap_or(u32::MAX).to_le_bytes();
    out[start..start + 4].copy_from_slice(&bytes);
    let crc = crc32c::crc32c_append(crc32c::crc32c(&bytes), &out[start + HEAD..]);
    out[start + 4..start + HEAD].copy_from_slice(&crc.to_le_bytes());
    Ok(())
}

/// An epoch as it is kept: without what was there before, which the state tells.
pub(crate) fn write_epoch(out: &mut Vec<u8>, epoch: &Epoch) -> serde_json::Result<()> {
    let changes = epoch.changes.iter().map(crate::Change::forward).collect();
    let (author, summary) = (epoch.author.clone(), epoch.summary.clone());
    let Epoch { epoch, at_unix_ms, .. } = *epoch;
    write(out, &Epoch { epoch, at_unix_ms, author, summary, changes })
}

/// The payload of the record that `bytes` begin with, and how long the record is. `None` when
/// there is no whole and sound one.
pub(crate) fn next(bytes: &[u8]) -> Option<(&[u8], usize)> {
    let length = bytes.first_chunk::<4>()?;
    let crc = u32::from_le_bytes(*bytes.get(4..)?.first_chunk::<4>()?);
    let end = usize::try_from(u32::from_le_bytes(*length)).ok().filter(|it| *it <= LONGEST)? + HEAD;
    let payload = bytes.get(HEAD..end)?;
    let found = crc32c::crc32c_append(crc32c::crc32c(length), payload);
    (found == crc).then_some((payload, end))
}
