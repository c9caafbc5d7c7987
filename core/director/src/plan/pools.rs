//! Local pools: the addresses and ports from which Full NAT and source NAT open sessions.

use super::ids::Ids;
use super::{CompileError, LocalId, Plan};
use crate::local_port::{Range, inverse};
use crate::spec::{LocalPool, NetworkId};
use std::collections::HashSet;

/// A local pool.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Pool {
    /// The operator's name for it.
    pub name: String,
    /// The network that its addresses are in.
    pub network: NetworkId,
    /// Its addresses of IPv4 and of IPv6, from which sessions are opened.
    pub locals: [Vec<LocalId>; 2],
    /// Those from which other directors open sessions, which may go on here.
    pub peers: [Vec<LocalId>; 2],
    /// Whether sessions of the IPv4 table and of the extended one take ports of its IPv4 addresses:
    /// each then has its own half of them. Those of IPv6 are all the extended one's.
    pub shared: bool,
    /// Whether hosts inside reach each other by its addresses and ports: rules of source NAT use
    /// it that say so, and no service.
    pub hairpins: bool,
    /// First local port.
    pub first_port: u16,
    /// Number of local ports for each address: 1 to 65,535.
    pub ports: u32,
    /// [`inverse`] of that.
    each: u64,
    /// That of the number of addresses from which sessions are opened, of either family.
    by_address: [u64; 2],
}

impl Pool {
    /// All addresses that sessions may have.
    pub fn all_locals(&self) -> impl Iterator<Item = LocalId> + Clone + '_ {
        self.locals.iter().chain(&self.peers).flatten().copied()
    }

    /// The same with so many ports from one on.
    pub(crate) fn with_ports(self, first_port: u16, ports: u32) -> Self {
        Self { first_port, ports, each: inverse(ports as usize), ..self }
    }

    /// The same once its addresses are known.
    fn counted(self) -> Self {
        let by_address = self.locals.each_ref().map(|locals| inverse(locals.len()));
        Self { by_address, ..self }
    }

    /// [`inverse`] of the number of its ports.
    pub(crate) const fn each(&self) -> u64 {
        self.each
    }

    /// The ports that belong to `worker` of `workers`: how many, and the offset of the first.
    pub fn share(&self, worker: u16, workers: u16) -> (u32, u32) {
        // Each new session asks, and divisions take their time.
        if workers < 2 {
            return (0, self.ports);
        }
        let (worker, workers) = (u32::from(worker), u32::from(workers));
        let start = self.ports * worker / workers;
        let end = self.ports * (worker + 1) / workers;
        (start, end - start)
    }

    /// The ports of addresses of IPv4 or IPv6 that new sessions of one of a worker's tables take:
    /// see [`Pool::share`].
    pub(crate) fn share_of(
        &self,
        (extended, six): (bool, bool),
        (worker, workers): (u16, u16),
    ) -> (u32, u32) {
        if self.shared && !six {
            self.share(worker * 2 + u16::from(extended), workers * 2)
        } else {
            self.share(worker, workers)
        }
    }

    /// What new sessions of one of a worker's tables take: see [`Self::share_of`].
    #[inline(always)]
    pub(crate) fn range(&self, (extended, six): (bool, bool), worker: (u16, u16)) -> Range<'_> {
        let locals = &self.locals[usize::from(six)];
        Range {
            locals,
            first_port: self.first_port,
            share: self.share_of((extended, six), worker),
            each: self.by_address[usize::from(six)],
        }
    }

    /// The worker that `port` belongs to, if it is one of the pool's.
    #[inline(always)]
    pub fn owner(&self, port: u16, workers: u16) -> Option<u16> {
        let offset = u32::from(port.checked_sub(self.first_port)?);
        if offset >= self.ports {
            return None;
        }
        // Exact, since what is divided is below 2³², and times `ports` below 2⁴⁸.
        let part = (u64::from(offset) + 1) * u64::from(workers) - 1;
        Some(((part * self.each) >> 48) as u16)
    }
}

impl Plan {
    pub(super) fn add_pool(
        &mut self,
        (from, network): (&LocalPool, NetworkId),
        ids: &mut Ids,
    ) -> Result<(), CompileError> {
        let taken: HashSet<LocalId> = self.pools.iter().flat_map(Pool::all_locals).collect();
        let mut pool = Pool { name: from.name.clone(), network, ..Pool::default() };
        let mut own = HashSet::new();
        for (addresses, locals) in
            [(&from.addresses, &mut pool.locals), (&from.peer_addresses, &mut pool.peers)]
        {
            for address in addresses {
                let id =
                    ids.local((&mut self.locals, &mut self.local_networks), (network, *address))?;
                if taken.contains(&id) || !own.insert(id) {
                    return Err(CompileError::DuplicateLocal { address: *address });
                }
                locals[usize::from(address.is_ipv6())].push(id);
            }
        }
        let (first, last) = (*from.ports.start(), *from.ports.end());
        let ports = u32::from(last).saturating_sub(first.into()) + 1;
        self.pools.push(pool.with_ports(first, ports).counted());
        Ok(())
    }

    /// Sessions may still use local addresses that the configuration no longer has.
    pub(super) fn keep_former_locals(&mut self, before: &Self) {
        let present: HashSet<LocalId> = self.pools.iter().flat_map(Pool::all_locals).collect();
        for pool in &before.pools {
            let gone = |locals: &Vec<LocalId>| -> Vec<_> {
                locals.iter().copied().filter(|local| !present.contains(local)).collect()
            };
            let former = Pool {
                locals: pool.locals.each_ref().map(gone),
                peers: pool.peers.each_ref().map(gone),
                ..pool.clone()
            };
            if former.all_locals().next().is_some() {
                self.pools.push(former.counted());
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        /// Every port of a pool belongs to one worker, and `owner` agrees with `share`.
        #[test]
        fn ports_are_shared_out(first in 1u16..60_000, ports in 1u32..5000, workers in 1u16..65) {
            let pool = Pool::default().with_ports(first, ports);
            let mut next = 0;
            for worker in 0..workers {
                let (start, count) = pool.share(worker, workers);
                prop_assert_eq!(start, next);
                next = start + count;
                for offset in [start, (start + count).saturating_sub(1)] {
                    if count > 0 {
                        let port = first + offset as u16;
                        prop_assert_eq!(pool.owner(port, workers), Some(worker));
                    }
                }
            }
            prop_assert_eq!(next, ports);
            prop_assert_eq!(pool.owner(first - 1, workers), None);
        }

        /// As dividing has it, at both ends of the range and around what is another worker's.
        #[test]
        fn an_owner_is_told_as_by_division(
            ports in prop_oneof![any::<u16>(), 65_530..=u16::MAX, 1u16..9],
            workers in prop_oneof![1..=u16::MAX, 65_530..=u16::MAX, 1u16..9],
            offset in any::<u16>(),
        ) {
            let ports = u32::from(ports.max(1));
            let pool = Pool::default().with_ports(0, ports);
            let near = u32::from(offset) / u32::from(workers) * u32::from(workers);
            for offset in [0, near, near.saturating_sub(1), u32::from(offset), ports - 1] {
                let divided = ((u64::from(offset) + 1) * u64::from(workers) - 1) / u64::from(ports);
                let expected = (offset < ports).then_some(divided as u16);
                prop_assert_eq!(pool.owner(offset as u16, workers), expected);
            }
        }
    }
}
