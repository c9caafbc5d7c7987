//! Workers whose sessions lie in files, and others that go on with these.

use super::{Kit, SESSIONS};
use sluice_director::path::{Former, MemoryFile, Owners, Restored, TableFiles};
use sluice_director::spec::{NetworkId, Spec};
use std::fs::File;
use std::os::fd::OwnedFd;
use std::os::unix::fs::FileExt;
use std::sync::atomic::{AtomicU32, Ordering};

/// The secret that [`Kit`]s place sessions by.
const SEED: u64 = 1;

/// The session tables in two files.
pub(super) fn tables([narrow, extended]: &[File; 2]) -> TableFiles {
    let of = |file: &File| MemoryFile::from(OwnedFd::from(file.try_clone().unwrap()));
    TableFiles { narrow: of(narrow), extended: of(extended) }
}

/// A file that nobody else sees.
fn file() -> File {
    static LAST: AtomicU32 = AtomicU32::new(0);
    let number = LAST.fetch_add(1, Ordering::Relaxed);
    let path = std::env::temp_dir().join(format!("sluice-kit-{}-{number}", std::process::id()));
    let mut options = File::options();
    let file = options.read(true).write(true).create(true).truncate(true).open(&path).unwrap();
    std::fs::remove_file(path).unwrap();
    file
}

impl Kit {
    /// Workers by a configuration, whose sessions outlive them.
    pub fn kept(spec: &Spec, workers: u16) -> Self {
        let files = (0..workers).map(|_| [file(), file()]).collect();
        Self::build_in(spec, (workers, SESSIONS, files), &[workers; 2], true, false)
    }

    /// The director ends, and another with so many workers takes up its sessions. What waits in
    /// queues and rings is lost.
    pub fn restart(&mut self, spec: &Spec, workers: u16) -> Restored {
        let read = |file: &File| {
            let mut bytes = vec![0; file.metadata().unwrap().len() as usize];
            file.read_exact_at(&mut bytes, 0).unwrap();
            bytes
        };
        let slots: Vec<[Vec<u8>; 2]> =
            self.files.iter().map(|[narrow, wide]| [read(narrow), read(wide)]).collect();
        let mut next = Self::kept(spec, workers);
        let (was, names) = (self.files.len() as u16, self.plan.names());
        let owners = Owners::new(SEED, workers);
        let former = Former::new(&next.plan, &names, owners, (was, 0)).scattered(self.scattered);
        let (mut all, mut taken) = (Restored::default(), Restored::default());
        let (now, scatters) = (self.now, former.scatters());
        for (worker, [narrow, wide]) in (0..).zip(&slots) {
            all += former.sort(worker, [narrow, wide], |batches| {
                for (worker, batch) in next.workers.iter_mut().zip(&batches) {
                    taken += worker.restore(now, NetworkId::DEFAULT, (batch, scatters));
                }
            });
        }
        all += taken;
        (next.now, next.scattered) = (now, scatters);
        *self = next;
        all
    }
}
