//! `[ipvs]` and what is in it.

use crate::address::parse_address;
use crate::device::parse_interface;
use crate::ipvs::{Ipvs, MarkDestination};
use crate::read::Table;
use crate::report::Report;
use crate::schema::keys::{ipvs, service};
use crate::words::{Family, Role};
use crate::{HashKey, Scheduling};

pub(super) fn read(table: Table<'_>, report: &mut Report) -> Ipvs {
    let marks = table.many(&ipvs::MARK_SECTION, report);
    let daemons = table.many(&ipvs::DAEMON_SECTION, report);
    Ipvs {
        tcp_s: table.integer(&ipvs::TCP, report),
        tcp_fin_s: table.integer(&ipvs::TCP_FIN, report),
        udp_s: table.integer(&ipvs::UDP, report),
        marks: marks.into_iter().map(|mark| read_mark(mark, report)).collect(),
        daemons: daemons.into_iter().map(|daemon| read_daemon(daemon, report)).collect(),
    }
}

/// What else it says is only looked at: see [`Ipvs`].
fn read_mark(table: Table<'_>, report: &mut Report) -> (u32, bool) {
    let _: Scheduling = table.word(&ipvs::SCHEDULER, report);
    let _: HashKey = table.word(&service::HASH, report);
    table.boolean(&service::ONE_PACKET, report);
    let _: u32 = table.integer(&service::PERSISTENCE_S, report);
    let _: Option<u8> = table.integer_if_given(&service::PERSISTENCE_PREFIX, report);
    table.list::<MarkDestination>(&ipvs::DESTINATIONS, str::parse, report);
    table.labels(&service::LABELS, report);
    let family: Family = table.word(&ipvs::FAMILY, report);
    (table.integer(&ipvs::MARK, report), family == Family::V6)
}

fn read_daemon(table: Table<'_>, report: &mut Report) -> bool {
    table.parsed(&ipvs::INTERFACE, parse_interface, report);
    table.parsed(&ipvs::GROUP, parse_address, report);
    for number in [&ipvs::SYNC_ID, &ipvs::MAXIMUM_LENGTH, &ipvs::DAEMON_PORT, &ipvs::TTL] {
        let _: u32 = table.integer(number, report);
    }
    table.word::<Role>(&ipvs::ROLE, report) == Role::Master
}
