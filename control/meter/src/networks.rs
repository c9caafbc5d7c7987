//! The samples of networks, where there is any besides the default one.

use crate::families as f;
use crate::families::Family;
use crate::page::{Page, labels};
use crate::sample::{NetworkFigures, WorkerFigures};
use sluice_api::model;
use sluice_director::plan::Plan;
use sluice_director::reason::{Fate, Reason};
use sluice_director::spec::NetworkId;

type Gauge = (&'static Family, fn(&NetworkFigures) -> u64);

const GAUGES: [Gauge; 2] = [
    (&f::NETWORK_SESSIONS, |network| network.sessions),
    (&f::NETWORK_LIMIT, |network| network.session_capacity),
];

/// A network's name.
fn name(plan: &Plan, id: NetworkId) -> &str {
    plan.network_name(id).unwrap_or(model::Network::DEFAULT)
}

/// The label of what is in an isolated network.
pub(crate) fn label(plan: &Plan, id: NetworkId) -> Option<(&'static str, &str)> {
    plan.network_name(id).map(|name| ("network", name))
}

/// All networks: what workers said of them last.
pub(crate) fn rows(page: &mut Page, plan: &Plan, workers: &[(u16, bool, WorkerFigures)]) {
    if plan.network_count() == 1 {
        return;
    }
    let ids = (0..plan.network_count()).map(NetworkId);
    let tagged: Vec<_> = ids.map(|id| (id, labels(&[("network", name(plan, id))]))).collect();
    let sum = |id: NetworkId, of: &dyn Fn(&NetworkFigures) -> u64| -> u64 {
        let said = workers.iter().flat_map(|(_, _, said)| &said.networks);
        said.filter(|said| said.network == id).map(of).sum()
    };
    for (family, of) in GAUGES {
        page.family(family);
        tagged.iter().for_each(|(id, tag)| page.sample(tag, None, sum(*id, &of)));
    }
    page.family(&f::NETWORK_DROPPED);
    for (id, tag) in &tagged {
        for reason in Reason::ALL.iter().filter(|reason| reason.fate() == Fate::Dropped) {
            let packets = sum(*id, &|it| it.reasons[*reason as usize]);
            if packets > 0 {
                page.sample(tag, Some(("reason", reason.name())), packets);
            }
        }
    }
}
