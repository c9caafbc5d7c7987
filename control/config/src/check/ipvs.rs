//! `[ipvs]`: no mark and no end of the synchronisation twice.

use super::unique;
use crate::Config;
use crate::path::{Path, Place};
use crate::report::Report;

pub(super) fn check(config: &Config, report: &mut Report) {
    let sound = |path: Path, report: &Report| (!report.is_broken(path)).then_some(path);
    let marks = config.ipvs.marks.iter().enumerate().filter_map(|(index, mark)| {
        Some((*mark, sound(Path::table(Place::Mark, index).key("mark"), report)?))
    });
    let marks: Vec<_> = marks.collect();
    unique(marks, report, |(mark, _), line| {
        let found = format!("mark {mark} has a service already (line {line})");
        (found, "use another mark, or another family".to_owned())
    });
    let daemons = config.ipvs.daemons.iter().enumerate().filter_map(|(index, role)| {
        Some((*role, sound(Path::table(Place::Daemon, index).key("role"), report)?))
    });
    let daemons: Vec<_> = daemons.collect();
    unique(daemons, report, |_, line| {
        let found = format!("there is one with this role already (line {line})");
        (found, "use the other role: each is there once at most".to_owned())
    });
}
