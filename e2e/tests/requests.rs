//! wrk against nginx in every mode and family, over connections that stay open and over one for
//! each request: nothing fails, what the director counted is what nginx counted, and no session
//! is left that is not over.

use std::collections::BTreeMap;

use sluice_e2e::bed::REALS;
use sluice_e2e::error::expect;
use sluice_e2e::family::url;
use sluice_e2e::load::{Wrk, curl, wrk_with};
use sluice_e2e::web::{Counted, nginx_counted};
use sluice_e2e::{Bed, Family, LabError, Mode, wait_until};

use crate::dual_stack::{on_modes, usual_services};
use crate::fixture::{Fixture, SOON};

/// Connections at a time.
const CONNECTIONS: u32 = 16;
/// How long each of the two runs takes.
const SPAN_S: u32 = 2;

on_modes! {
    services, all;
    fnat_ipv4: AfXdp, 1, Fnat, V4, V4;
    fnat_ipv6: AfXdp, 1, Fnat, V6, V6;
    fnat_ipv6_clients_of_ipv4_servers: AfXdp, 1, Fnat, V6, V4;
    fnat_ipv4_clients_of_ipv6_servers: AfXdp, 1, Fnat, V4, V6;
    nat_ipv4: AfXdp, 1, Nat, V4, V4;
    nat_ipv6: AfXdp, 1, Nat, V6, V6;
    dr_ipv4: AfXdp, 1, Dr, V4, V4;
    dr_ipv6: AfXdp, 1, Dr, V6, V6;
    ipip_ipv4: AfXdp, 1, Ipip, V4, V4;
    ipip_ipv6: AfXdp, 1, Ipip, V6, V6;
    ipip_ipv4_in_ipv6: AfXdp, 1, Ipip, V4, V6;
    ipip_ipv6_in_ipv4: AfXdp, 1, Ipip, V6, V4;
    fnat_ipv4_two_workers: AfXdp, 2, Fnat, V4, V4;
    nat_ipv6_two_workers: AfXdp, 2, Nat, V6, V6;
    nat_ipv4_by_packet_sockets: AfPacket, 1, Nat, V4, V4;
}

/// With several workers a handshake that is given up is to time out soon: the client's kernel
/// sends the reset by any queue of the veth (a NIC would choose it by the addresses), so that it
/// may meet a worker of full NAT that does not know the session.
fn services(bed: &Bed, mode: Mode, outer: Family, inner: Family) -> String {
    let usual = usual_services(bed, mode, outer, inner);
    if bed.workers == 1 { usual } else { format!("[timeouts]\ntcp_syn_recv_s = 3\n\n{usual}") }
}

fn all(fixture: &mut Fixture, mode: Mode, outer: Family) -> Result<(), LabError> {
    let url = format!("{}/", url(fixture.bed.vip_of(outer), 80));
    // The addresses of a twin are given while the director runs already; and only so many packets
    // wait for a neighbour.
    for _ in 0..REALS {
        wait_until("the service to answer", SOON, || Ok(curl(&fixture.bed.client, &url).ok()))?;
    }
    for header in ["Connection: keep-alive", "Connection: close"] {
        let before = counts(fixture)?;
        let wrk = wrk_with(&fixture.bed.client, &url, CONNECTIONS, SPAN_S, &["-H", header])?;
        let clean = wrk.requests > 500 && wrk.socket_errors == 0 && wrk.bad_answers == 0;
        expect(clean, || format!("{header}: {wrk:?}"))?;
        let left = over(fixture, mode)?;
        let after = counts(fixture)?;
        agree(mode, &wrk, header.ends_with("close"), &before, &after)
            .map_err(|error| LabError::Wrong(format!("{header}: {error}; left: {left:?}")))?;
    }
    Ok(())
}

/// What a real server has seen, by its own account and by the director's.
#[derive(Debug, Clone, Copy)]
struct Seen {
    nginx: Counted,
    sessions: u64,
    inbound: u64,
    outbound: u64,
}

fn counts(fixture: &Fixture) -> Result<Vec<Seen>, LabError> {
    let services = fixture.director.ask("services")?;
    let web = &services["services"][0];
    let number = |real: usize, path: &str| web["reals"][real].pointer(path)?.as_u64();
    (0..REALS)
        .map(|index| {
            let of = |path: &str| {
                number(index, path).ok_or_else(|| LabError::Wrong(format!("no {path} in {web}")))
            };
            Ok(Seen {
                nginx: nginx_counted(&fixture.bed.reals[index])?,
                sessions: of("/sessions_total")?,
                inbound: of("/packets/inbound")?,
                outbound: of("/packets/outbound")?,
            })
        })
        .collect()
}

/// When time is up wrk drops what is under way: as many requests as it has connections may have
/// been served that it does not count, and as many sessions have begun that nginx never accepted.
fn agree(
    mode: Mode,
    wrk: &Wrk,
    close: bool,
    before: &[Seen],
    after: &[Seen],
) -> Result<(), LabError> {
    let slack = u64::from(CONNECTIONS);
    let text = || format!("{wrk:?}, before {before:?}, after {after:?}");
    let mut sum = Counted::default();
    for (before, after) in before.iter().zip(after) {
        // Asking nginx for its counts is a connection and a request of its own.
        let accepts = after.nginx.accepts - before.nginx.accepts - 1;
        sum.accepts += accepts;
        sum.requests += after.nginx.requests - before.nginx.requests - 1;
        let sessions = after.sessions - before.sessions;
        let begun = (accepts..=accepts + if close { slack } else { 0 }).contains(&sessions);
        let (inbound, outbound) =
            (after.inbound - before.inbound, after.outbound - before.outbound);
        let ways = inbound > 3 * sessions && (outbound > 3 * sessions) != mode.answers_past();
        let past = !mode.answers_past() || outbound == 0;
        expect(begun && ways && past && sessions > 0, text)?;
    }
    let served = (wrk.requests..=wrk.requests + slack).contains(&sum.requests);
    // One more at the start, by which wrk sees whether the address answers.
    let connections = 1 + if close { sum.requests } else { slack };
    let opened = (connections..=connections + slack).contains(&sum.accepts);
    expect(served && opened, text)
}

/// Waits until no session of the service is left but those that are over: closed by both sides or
/// reset. Where answers go past the director it sees one side close.
fn over(fixture: &Fixture, mode: Mode) -> Result<BTreeMap<String, usize>, LabError> {
    let ended: &[&str] =
        if mode.answers_past() { &["FIN_WAIT", "CLOSE"] } else { &["TIME_WAIT", "CLOSE"] };
    let mut left = BTreeMap::new();
    let waited = wait_until("sessions to end", SOON, || {
        left.clear();
        for session in fixture.sessions(&[])? {
            let state = session["state"].as_str().unwrap_or_default();
            *left.entry(state.to_owned()).or_insert(0) += 1;
        }
        Ok(left.keys().all(|state| ended.contains(&state.as_str())).then_some(()))
    });
    waited.map_err(|error| LabError::Wrong(format!("{error}: {left:?}")))?;
    Ok(left)
}
