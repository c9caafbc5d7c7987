//! `[elephants]`.

use crate::path::{Path, Place};
use crate::report::Report;
use crate::{Config, Spreading};

pub(super) fn check(config: &Config, report: &mut Report) {
    let elephants = &config.elephants;
    let rates = [elephants.packets_per_s, elephants.bits_per_s, elephants.worker_percent.into()];
    let none = rates.iter().all(|rate| *rate == 0);
    if elephants.mode == Spreading::Spread && none {
        let found = "the director is to spread flows, and no threshold says which";
        let hint = "set packets_per_s, bits_per_s or worker_percent, or use mode = \"observe\"";
        report.error(Path::table(Place::Elephants, 0).key("mode"), found, hint);
    }
    if elephants.workers == 1 {
        let found = "one worker is a flow that is not spread";
        let path = Path::table(Place::Elephants, 0).key("workers");
        report.error(path, found, "use 2 or more, or 0 for all");
    }
}

pub(super) fn warn(config: &Config, report: &mut Report) {
    if config.elephants.mode == Spreading::Spread && config.workers() == 1 {
        let found = "flows cannot be spread over one worker";
        let hint = "give director.cores more than one core";
        report.warn(Path::table(Place::Elephants, 0).key("mode"), found, hint);
    }
}
