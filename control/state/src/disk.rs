//! The journal on disk: the one file of this crate that reads and writes.
//!
//! `journal` in the state directory holds a state and the epochs since. Epochs are appended and
//! synced in groups; when the file has grown, it is written anew beside the old one and put in its
//! place by a rename, so that there is a whole one at any moment. What a crash tore off at the end
//! was never answered, and is cut off when the journal is opened again; what was damaged otherwise
//! is put aside, for people to look at, and everything before it is used. Where nothing of it can
//! be used, because it has no header or is of a newer version, all of it is put aside and a new one
//! begins: a director must start, if only with what its file says.

use std::fs::{self, DirBuilder, File, OpenOptions, TryLockError};
use std::io::{self, Write};
use std::os::unix::fs::{DirBuilderExt, FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use crate::history::{Epoch, History};
use crate::record::{self, AnyBase, Base, FORMAT, MARK};
use crate::state::State;

const NAME: &str = "journal";
const NEW: &str = "journal.new";
const DAMAGED: &str = "journal.damaged";
const NEWER: &str = "journal.newer";
/// Files of one such name that are kept, besides the first.
const KEPT_ASIDE: u32 = 9;
const LOCK: &str = "lock";
/// Mode of the folder: only the director's user, and its group for reading.
const FOLDER_MODE: u32 = 0o750;
const FILE_MODE: u32 = 0o640;
/// A journal below this length is not written anew.
const SMALL: u64 = 16 << 20;
/// How many times as long as when it was written a journal grows before it is written anew.
const GROWTH: u64 = 4;
/// How many bytes it grows at most before that.
const MOST_GROWTH: u64 = 64 << 20;

/// Why there is no journal.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// Another director has it.
    #[error(
        "another director keeps its state in {}: stop it, or give this one a state_dir of its own \
         in [director]",
        .0.display()
    )]
    Locked(PathBuf),
    /// The system does not let us.
    #[error("cannot keep changes in {}: {source}", path.display())]
    Unusable {
        /// What was tried.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
}

/// What a journal held.
#[derive(Debug, Default)]
pub struct Recovered {
    /// The state.
    pub state: State,
    /// The epochs that are kept.
    pub history: History,
    /// What an operator should know about it.
    pub notes: Vec<String>,
}

/// An open journal. While it is, no other director can open it.
#[derive(Debug)]
pub struct Journal {
    folder: PathBuf,
    file: File,
    length: u64,
    /// Length from which on it is written anew.
    enough: u64,
    /// Whether what is in the file is not known for sure: a write or a sync failed.
    suspect: bool,
    _lock: File,
}

impl Journal {
    /// Opens the journal of a state directory, which is made when it is missing.
    ///
    /// # Errors
    ///
    /// [`OpenError`]; with [`OpenError::Unusable`] one may go on without a journal.
    pub fn open(folder: &Path) -> Result<(Self, Recovered), OpenError> {
        let path = folder.join(NAME);
        let unusable = |source| OpenError::Unusable { path: folder.to_owned(), source };
        DirBuilder::new().recursive(true).mode(FOLDER_MODE).create(folder).map_err(unusable)?;
        let lock = lock(folder)?;
        let (found, whole, all) = load(folder, &path).map_err(unusable)?;
        if whole == 0 {
            let bytes = image(&State::default(), 0, &[]).map_err(unusable)?;
            replace(folder, &bytes).map_err(unusable)?;
        }
        let file = OpenOptions::new().write(true).open(&path).map_err(unusable)?;
        let length =
            if whole == 0 { file.metadata().map_err(unusable)?.len() } else { whole as u64 };
        if whole > 0 && whole < all {
            file.set_len(length).and_then(|()| file.sync_all()).map_err(unusable)?;
        }
        let enough = enough(length);
        let folder = folder.to_owned();
        let journal = Self { folder, file, length, enough, suspect: false, _lock: lock };
        Ok((journal, found))
    }

    /// Writes epochs behind the others, and returns when they will last.
    ///
    /// # Errors
    ///
    /// What the system said; none of them counts then.
    pub fn append(&mut self, epochs: &[Epoch]) -> io::Result<()> {
        if self.suspect {
            return Err(io::Error::other("an earlier write failed"));
        }
        let mut bytes = Vec::new();
        for epoch in epochs {
            record::write_epoch(&mut bytes, epoch)?;
        }
        let written = self.file.write_all_at(&bytes, self.length);
        if let Err(error) = written.and_then(|()| self.file.sync_data()) {
            // After a sync that failed the kernel may have forgotten what it did not write.
            self.suspect = true;
            let _ = self.file.set_len(self.length);
            return Err(error);
        }
        self.length += bytes.len() as u64;
        Ok(())
    }

    /// Whether it should be written anew: it has grown, or a write failed.
    pub const fn wants_rewrite(&self) -> bool {
        self.suspect || self.length > self.enough
    }

    /// Writes it anew, with the epochs that are kept and the state before them.
    ///
    /// # Errors
    ///
    /// What the system said; the old one is still there then.
    pub fn rewrite(&mut self, state: &State, history: &History) -> io::Result<()> {
        let (first, _) = history.reach();
        let base = history.state_at(first, state).unwrap_or_default();
        let epochs: Vec<&Epoch> = history.epochs().iter().collect();
        let bytes = image(&base, first, &epochs)?;
        self.file = replace(&self.folder, &bytes)?;
        self.length = bytes.len() as u64;
        self.enough = enough(self.length);
        self.suspect = false;
        Ok(())
    }
}

/// What the journal of a state directory holds, which another process has open and goes on
/// writing. Nothing is changed; what is torn at the end is left out.
pub(crate) fn peek(folder: &Path) -> io::Result<Recovered> {
    let path = folder.join(NAME);
    let bytes = match fs::read(&path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Recovered::default()),
        other => other?,
    };
    match recover(&bytes) {
        Ok((found, _)) => Ok(found),
        Err(Useless::Foreign) => Err(io::Error::other("the journal has no header of a journal")),
        Err(Useless::Newer(format)) => {
            let why = format!("the journal has format {format}, this version knows {FORMAT}");
            Err(io::Error::other(why))
        }
    }
}

/// Reads the journal at `path`: what it holds, how many of its bytes are sound, how many it has.
/// What cannot be used is kept under another name.
fn load(folder: &Path, path: &Path) -> io::Result<(Recovered, usize, usize)> {
    let anew = |why: &str, name: &str| {
        let aside = put_aside(folder, name)?;
        let notes = vec![format!(
            "{}: {why}; it was kept as {}, and a new one begins: what the API and IPVS's programs \
             had changed is not in force",
            path.display(),
            aside.display()
        )];
        Ok((Recovered { notes, ..Recovered::default() }, 0, 0))
    };
    let metadata = match fs::metadata(path) {
        Ok(metadata) => metadata,
        Err(error) if error.kind() == io::ErrorKind::NotFound && path.is_symlink() => {
            return anew("it is a link that leads nowhere", DAMAGED);
        }
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            return Ok((Recovered::default(), 0, 0));
        }
        Err(error) => return Err(error),
    };
    if !metadata.is_file() {
        return anew("it is no file", DAMAGED);
    }
    let bytes = fs::read(path)?;
    let (mut found, whole) = match recover(&bytes) {
        Ok(recovered) => recovered,
        Err(Useless::Foreign) => return anew("it has no header of a journal", DAMAGED),
        Err(Useless::Newer(format)) => {
            let why = format!(
                "a newer version of sluiced wrote it (format {format}, this version knows {FORMAT})"
            );
            return anew(&why, NEWER);
        }
    };
    if bytes.is_empty() {
        found.notes.push(format!("{}: it is empty, and a new one begins", path.display()));
    }
    if whole < bytes.len() {
        let aside = free(folder, DAMAGED);
        fs::write(&aside, &bytes)?;
        found.notes.push(format!(
            "{}: the last {} of {} bytes are torn or damaged and are not used; the whole file was \
             kept as {}; the state is that of epoch {}",
            path.display(),
            bytes.len() - whole,
            bytes.len(),
            aside.display(),
            found.history.last(),
        ));
    }
    Ok((found, whole, bytes.len()))
}

/// Gives the journal another name: the first free one of those that begin with `name`.
fn put_aside(folder: &Path, name: &str) -> io::Result<PathBuf> {
    let aside = free(folder, name);
    fs::rename(folder.join(NAME), &aside)?;
    File::open(folder)?.sync_all()?;
    Ok(aside)
}

/// Puts a journal aside whose state is not right any more, and gives its new name.
pub(crate) fn put_wrong_aside(folder: &Path) -> io::Result<PathBuf> {
    put_aside(folder, DAMAGED)
}

/// A name for what is kept; where all are taken, the last of them is given again.
fn free(folder: &Path, name: &str) -> PathBuf {
    let more = (1..=KEPT_ASIDE).map(|number| folder.join(format!("{name}.{number}")));
    let mut names = std::iter::once(folder.join(name)).chain(more);
    let last = || folder.join(format!("{name}.{KEPT_ASIDE}"));
    names.find(|it| fs::symlink_metadata(it).is_err()).unwrap_or_else(last)
}

fn lock(folder: &Path) -> Result<File, OpenError> {
    let path = folder.join(LOCK);
    let unusable = |source| OpenError::Unusable { path: path.clone(), source };
    let mut options = OpenOptions::new();
    let options = options.create(true).write(true).truncate(false).mode(FILE_MODE);
    let file = options.open(&path).map_err(unusable)?;
    match file.try_lock() {
        Ok(()) => Ok(file),
        Err(TryLockError::WouldBlock) => Err(OpenError::Locked(folder.to_owned())),
        Err(TryLockError::Error(error)) => Err(unusable(error)),
    }
}

/// Why nothing of a journal can be used.
enum Useless {
    /// It does not begin as one.
    Foreign,
    /// Its format, which this version does not know.
    Newer(u32),
}

/// What a journal's bytes hold, and how many of them are sound from the beginning on.
fn recover(bytes: &[u8]) -> Result<(Recovered, usize), Useless> {
    let nothing = || Ok((Recovered::default(), 0));
    let Some(records) = bytes.strip_prefix(MARK) else {
        let torn = MARK.starts_with(bytes);
        return if torn { nothing() } else { Err(Useless::Foreign) };
    };
    let Some((payload, mut at)) = record::next(records) else { return nothing() };
    let format = serde_json::from_slice::<AnyBase>(payload).map_or(0, |base| base.format);
    if format > FORMAT {
        return Err(Useless::Newer(format));
    }
    let Ok(base) = serde_json::from_slice::<Base>(payload) else { return nothing() };
    let mut history = History::after(base.epoch);
    let mut state = base.state();
    while let Some((payload, length)) = record::next(&records[at..]) {
        let Ok(epoch) = serde_json::from_slice::<Epoch>(payload) else { break };
        if epoch.epoch != history.last() + 1 || !retrace(&mut state, &mut history, epoch) {
            break;
        }
        at += length;
    }
    Ok((Recovered { state, history, notes: Vec::new() }, MARK.len() + at))
}

/// Takes the steps of an epoch again. `false` when they do not fit; nothing has changed then.
fn retrace(state: &mut State, history: &mut History, mut epoch: Epoch) -> bool {
    let mut taken = Vec::with_capacity(epoch.changes.len());
    for change in &epoch.changes {
        match state.apply(change) {
            Ok(change) => taken.push(change),
            Err(_) => {
                state.undo(&taken);
                return false;
            }
        }
    }
    epoch.changes = taken;
    // What is dropped here was dropped before, or the next change tells of it.
    let _ = history.push(epoch);
    true
}

/// The length from which on a journal that had `length` is written anew.
fn enough(length: u64) -> u64 {
    SMALL.max(length.saturating_mul(GROWTH).min(length.saturating_add(MOST_GROWTH)))
}

/// A whole journal.
fn image(base: &State, epoch: u64, epochs: &[&Epoch]) -> io::Result<Vec<u8>> {
    let mut bytes = MARK.to_vec();
    record::write(&mut bytes, &Base::of(base, epoch))?;
    for epoch in epochs {
        record::write_epoch(&mut bytes, epoch)?;
    }
    Ok(bytes)
}

/// Puts a journal in the place of the one that is there.
fn replace(folder: &Path, bytes: &[u8]) -> io::Result<File> {
    let new = folder.join(NEW);
    let mut options = OpenOptions::new();
    let mut file = options.create(true).truncate(true).write(true).mode(FILE_MODE).open(&new)?;
    file.write_all(bytes)?;
    file.sync_all()?;
    fs::rename(&new, folder.join(NAME))?;
    File::open(folder)?.sync_all()?;
    Ok(file)
}
