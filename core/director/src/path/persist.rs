//! Persistence: the real server that a client's sessions go to, remembered in templates.

use super::open::TEMPLATE;
use super::parse::Parse;
use super::sweep::expired;
use super::table::Table;
use super::{Shared, sweep};
use crate::family::Tuple;
use crate::plan::{Plan, RealId, Service, ServiceId};
use crate::session::{Core, Session, State};
use crate::time::Time;

/// The key of a client's template.
fn template<F: Parse>(service: ServiceId, client: F::Addr, vip: F::Addr) -> Tuple<F::Addr> {
    // No packet has this: one without ports has zeros.
    Tuple { src: client, dst: vip, sport: service.0, dport: u16::MAX, protocol: TEMPLATE }
}

/// The real server that a client's earlier sessions went to.
pub(super) fn remembered<F: Parse>(
    table: &mut Table<F>,
    shared: &mut Shared,
    plan: &Plan,
    now: Time,
    tuple: &Tuple<F::Addr>,
    (id, service): (ServiceId, &Service),
) -> Option<RealId> {
    let persistence = service.persistence?;
    let client = F::masked(tuple.src, persistence.prefix);
    let key = template::<F>(id, client, F::side(plan).vip(id)?);
    let flow = table.sessions.find(plan, table.sessions.hash(&key), &key)?;
    let template = table.sessions.slab().at(flow.id());
    let real = template.real();
    let good = !expired(template, plan, now)
        && F::side(plan).real(real).is_some_and(|real| real.goes_on(true))
        && shared.admission.schedulers.is_eligible(real);
    if good {
        return Some(real);
    }
    sweep::remove(table, shared, plan, flow.id());
    None
}

/// The real server that persistence has for a packet's sender; nothing changes by asking.
pub(super) fn template_of<F: Parse>(
    table: &Table<F>,
    plan: &Plan,
    now: Time,
    tuple: &Tuple<F::Addr>,
    id: ServiceId,
) -> Option<RealId> {
    let persistence = plan.service(id)?.persistence?;
    let client = F::masked(tuple.src, persistence.prefix);
    let key = template::<F>(id, client, F::side(plan).vip(id)?);
    let flow = table.sessions.find(plan, table.sessions.hash(&key), &key)?;
    let template = table.sessions.slab().at(flow.id());
    (!expired(template, plan, now)).then(|| template.real())
}

/// Remembers where a client's session went, if its service does.
#[inline(always)]
pub(super) fn remember<F: Parse>(
    table: &mut Table<F>,
    shared: &mut Shared,
    plan: &Plan,
    now: Time,
    id: u32,
    service: &Service,
) {
    // Under pressure a half-open session is remembered once its handshake is complete.
    let session = table.sessions.slab().at(id);
    if let Some(persistence) = service.persistence
        && !(shared.admission.load.pressure.on && session.state.is_half_open())
    {
        bind(table, shared, plan, now, id, persistence.prefix);
    }
}

/// Remembers where a session went that is half-open no longer, if that was left out.
#[inline(always)]
pub(super) fn bind_late<F: Parse>(
    table: &mut Table<F>,
    shared: &mut Shared,
    plan: &Plan,
    (id, service, state): (u32, ServiceId, State),
) {
    if shared.admission.load.pressure.on
        && matches!(state, State::Established | State::Udp)
        && let Some(persistence) = plan.service(service).and_then(|it| it.persistence)
    {
        bind(table, shared, plan, shared.now, id, persistence.prefix);
    }
}

#[inline(never)]
fn bind<F: Parse>(
    table: &mut Table<F>,
    shared: &mut Shared,
    plan: &Plan,
    now: Time,
    id: u32,
    prefix: u8,
) {
    let session = *table.sessions.slab().at(id);
    let client = F::masked(session.client, prefix);
    let Some(service) = plan.service_of(&session) else { return };
    let Some(vip) = F::side(plan).vip(service) else { return };
    let key = template::<F>(service, client, vip);
    if let Some(flow) = table.sessions.find(plan, table.sessions.hash(&key), &key) {
        table.sessions.at_mut(flow.id()).seen_ms = now.low();
        return;
    }
    let core = Core {
        client_port: key.sport,
        virtual_port: key.dport,
        state: State::Template,
        seen_ms: now.low(),
        ..Core::default().to(session.real(), TEMPLATE)
    };
    let template = Session { client, core, ..Session::default() };
    // Without room for it the client's next session is scheduled anew.
    if shared.admission.live < shared.admission.capacity
        && let Ok(id) = table.sessions.insert(plan, template)
    {
        shared.remembers(&template);
        table.changes.note(id);
    }
}
