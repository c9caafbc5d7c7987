//! What depends on where a configuration is used: on a running director, on this machine.

use std::fs::File;
use std::io::ErrorKind;
use std::path::PathBuf;

use crate::parse::Loaded;
use crate::path::{Path, Place};
use crate::report::Report;
use crate::{Diagnostic, Idle};

impl Loaded {
    /// What is questionable when a running director uses the configuration: static routes and
    /// neighbours, which only `sluice replay` uses.
    pub fn check_live(&self) -> Vec<Diagnostic> {
        let mut report = Report::resume(&self.origin);
        let hint = "a running director follows the kernel's (`ip route`, `ip neigh`); keep this \
                    section for `sluice replay`";
        if !self.config.routes.is_empty() {
            let found = "static routes are ignored";
            report.warn(Path::table(Place::Route, 0), found, hint);
        }
        if !self.config.neighbours.is_empty() {
            let found = "static neighbours are ignored";
            report.warn(Path::table(Place::Neighbour, 0), found, hint);
        }
        report.take_diagnostics(&self.config)
    }

    /// Files that `[api]` names and that cannot be used, with the reasons, as errors of the keys
    /// that name them. What this user may not look at is questionable only: the director is
    /// another user.
    pub fn check_api_files(
        &self,
        wrong: impl IntoIterator<Item = (PathBuf, String)>,
    ) -> Vec<Diagnostic> {
        let (api, section) = (&self.config.api, Path::table(Place::Api, 0));
        let keys = [("certificate", &api.certificate), ("key", &api.key), ("tokens", &api.tokens)];
        let mut report = Report::resume(&self.origin);
        for (file, reason) in wrong {
            let key = keys.iter().find(|(_, named)| named.as_ref() == Some(&file));
            let path = key.map_or(section, |(key, _)| section.key(key));
            let found = format!("{}: {reason}", file.display());
            let denied =
                File::open(&file).is_err_and(|it| it.kind() == ErrorKind::PermissionDenied);
            match denied {
                true => report.warn(path, found, "check it as the user that sluiced runs as"),
                false => report.error(path, found, "a director does not start without it"),
            }
        }
        report.take_diagnostics(&self.config)
    }

    /// What is questionable on a machine with `cpus` CPUs, numbered from 0: cores that it does
    /// not have, and polling workers that leave no core to anything else.
    pub fn check_machine(&self, cpus: usize) -> Vec<Diagnostic> {
        let mut report = Report::resume(&self.origin);
        let path = Path::table(Place::Director, 0).key("cores");
        let cores = self.config.director.cores.as_deref().unwrap_or_default();
        for (index, &core) in cores.iter().enumerate() {
            if usize::from(core) >= cpus {
                let found = format!("this machine has no core {core}");
                let hint = match cpus {
                    0 | 1 => "use core 0, the only one".to_owned(),
                    _ => format!("use cores from 0 to {}", cpus - 1),
                };
                report.warn(path.item(index), found, hint);
            }
        }
        if cpus > 0 && cores.len() >= cpus && self.config.director.idle == Idle::Busy {
            let found = format!("busy workers take all {cpus} cores of this machine");
            let hint = "leave at least one core to the kernel, or use idle = \"adaptive\"";
            report.warn(path, found, hint);
        }
        report.take_diagnostics(&self.config)
    }
}
