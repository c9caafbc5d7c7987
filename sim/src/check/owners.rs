//! With several workers: whether a frame goes to one that may have its session, comes to an end,
//! and is not refused while another has it.

use super::{Checker, Owned, Scene, Violation};
use crate::frame::Buffer;
use crate::universe::{Service, Universe};
use crate::wire::Tuple;
use sluice_director::spec::Mode;

impl Checker {
    /// A frame that was handed to another worker: it owns the local port or the client, once did,
    /// or has received the frame.
    pub(super) fn handed(
        &mut self,
        scene: Scene<'_>,
        frame: &mut Buffer,
        owner: Option<u16>,
        to: u16,
    ) -> Result<(), Violation> {
        let Scene { universe, snapshot, .. } = scene;
        let (packet, home) = (frame.packet, frame.home);
        frame.handed += 1;
        // Once to every other, and back to who opens sessions.
        if scene.agreed && u16::from(frame.handed) > universe.workers {
            return Err("handed on and on".into());
        }
        if owner.is_some() {
            let right = owner == Some(to);
            return if right {
                Ok(())
            } else {
                Err(format!("handed to worker {to}, not {owner:?}"))
            };
        }
        let Tuple { src, sport, dst, dport, protocol } = packet.tuple;
        let services = snapshot.owned_at(universe, protocol, (dst, dport));
        let mut clients: Vec<_> =
            services.map(|at| (at, universe.services[at].client((src, sport)))).collect();
        if snapshot.service_at(universe, protocol, (dst, dport)).is_none() {
            clients.extend(clients_behind(universe, packet.tuple));
            clients.extend(clients_inside(scene, packet.tuple));
        }
        let lookup = self.look_up(scene, &packet);
        frame.resumes |= lookup.mid_stream;
        if lookup.found.is_some() || to == scene.worker {
            return Err(format!("handed to worker {to}"));
        }
        let owner = |client: &Owned| self.owners.get(client).copied();
        match clients[..] {
            _ if to == home && !clients.is_empty() => Ok(()),
            [client] => self.owns(to, client),
            // Of several services any may be meant.
            _ if clients.iter().any(|client| owner(client).is_none_or(|at| at == to)) => Ok(()),
            _ => Err(format!("handed to worker {to}")),
        }
    }

    /// A worker acts as, or is taken for, the owner of a service's client.
    pub(super) fn owns(&mut self, worker: u16, client: Owned) -> Result<(), Violation> {
        let owner = *self.owners.entry(client).or_insert(worker);
        if owner == worker { Ok(()) } else { Err(format!("worker {worker} is not owner {owner}")) }
    }

    /// A packet is said to belong to no session: no worker has one for it. While a reload is in
    /// progress that is not known everywhere; nor is what fragments have opened where they came.
    pub(super) fn is_nobodys(&self, scene: Scene<'_>, tuple: Tuple) -> Result<(), Violation> {
        let known = scene.agreed && !self.pieces.apart.contains(&tuple);
        for worker in (0..scene.universe.workers).filter(|_| known) {
            if self.find(Scene { worker, ..scene }, tuple).is_some() {
                return Err(format!("worker {worker} has its session"));
            }
        }
        Ok(())
    }
}

/// What of a client's endpoint says which worker its sessions by NAT belong to, when a real server
/// answers: by the services that it may answer for.
pub(super) fn clients_behind(universe: &Universe, answer: Tuple) -> Vec<Owned> {
    let Tuple { src, sport, dst, dport, .. } = answer;
    let reaches = |(_, service): &(usize, &Service)| {
        service.reals.iter().any(|real| {
            let there = universe.nodes[real.node].address == src;
            there && real.mode == Mode::Nat && (real.port == 0 || real.port == sport)
        })
    };
    let services = universe.services.iter().enumerate().filter(reaches);
    services.map(|(at, service)| (at, service.client((dst, dport)))).collect()
}

/// The same for a packet from inside, by the rules that it may have been for.
pub(super) fn clients_inside(scene: Scene<'_>, tuple: Tuple) -> impl Iterator<Item = Owned> {
    let rules = scene.snapshot.once_ruled(scene.universe, tuple);
    rules.map(move |at| (at, (tuple.src, tuple.sport)))
}

/// The worker that a packet for a local port belongs to, if that is another one.
pub(super) fn of_port(scene: Scene<'_>, tuple: Tuple) -> Option<u16> {
    let (pool, _) = scene.snapshot.locals.get(&tuple.dst)?;
    let owner = scene.universe.pools[*pool].owner(tuple.dport, scene.universe.workers)?;
    (owner != scene.worker).then_some(owner)
}
