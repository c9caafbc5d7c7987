//! A table against a NIC that is made up: room, refusals, order of calls, and random sequences.

use super::*;
use crate::flow::Endpoint;
use crate::limits::Capability;
use crate::matches::{EndpointMatch, LocalMatch, Matches};
use crate::rule::{Owned, Ports, rules_of};
use proptest::prelude::*;
use std::net::IpAddr;

/// A NIC with so much room. It counts what it never should have been without.
#[derive(Default)]
struct Nic {
    room: usize,
    there: BTreeMap<u32, Flow>,
    made: u32,
    /// What must be there whatever is done.
    held: BTreeSet<Key>,
    /// Entries that the driver refuses for itself.
    refuses: Option<u16>,
    calls: usize,
}

/// What an entry says, counting aside.
type Key = (Addresses, u8, Endpoint, Endpoint, Target);
fn key(flow: &Flow) -> Key {
    (flow.addresses, flow.protocol, flow.source, flow.destination, flow.target)
}

impl Nic {
    fn with_room(room: usize) -> Self {
        Self { room, ..Self::default() }
    }

    fn keys(&self) -> BTreeSet<Key> {
        self.there.values().map(key).collect()
    }

    fn check(&mut self) {
        assert!(self.held.is_subset(&self.keys()), "a rule that stays was gone");
    }
}

impl FlowPort for Nic {
    type Handle = u32;

    fn create(&mut self, flow: &Flow) -> Result<u32, Refused> {
        self.calls += 1;
        let refuse = |kind, reason: &str| Err(Refused { kind, reason: reason.to_owned() });
        if self.refuses == Some(flow.destination.port) {
            return refuse(RefusedKind::Unsupported, "not this one");
        }
        let packets = |it: &Flow| (it.addresses, it.protocol, it.source, it.destination);
        let same = |it: &Flow| packets(it) == packets(flow);
        if self.there.values().any(same) {
            return refuse(RefusedKind::Conflict, "exists");
        }
        if self.there.len() >= self.room {
            return refuse(RefusedKind::Full, "no room");
        }
        self.made += 1;
        self.there.insert(self.made, *flow);
        self.check();
        Ok(self.made)
    }

    fn destroy(&mut self, handle: u32) -> Result<(), Refused> {
        self.there.remove(&handle).expect("an entry that is there");
        self.check();
        Ok(())
    }

    fn hits(&mut self, handle: &u32) -> Option<u64> {
        self.there.get(handle).map(|_| 10 + u64::from(*handle))
    }
}

fn ip(text: &str) -> IpAddr {
    text.parse().unwrap()
}

/// Services on these ports.
fn services(ports: impl IntoIterator<Item = u16>) -> Vec<Rule> {
    let web = |port| EndpointMatch::port(6, ip("198.51.100.200"), port);
    let services = ports.into_iter().map(web).collect();
    rules_of(&Matches { services, ..Matches::default() }, 0, |_| Vec::new())
}

fn table(driver: &str) -> RuleTable<u32> {
    RuleTable::new(Limits::of(driver), 2)
}

fn reasons(table: &RuleTable<u32>) -> Vec<String> {
    let reason = |(_, row): (&Rule, Option<&Row<u32>>)| match &row?.placed {
        Placed::Software { reason, .. } => Some(reason.clone()),
        Placed::Hardware(_) => None,
    };
    table.listed().filter_map(reason).collect()
}

#[test]
fn what_did_not_fit_is_made_when_there_is_room() {
    let (mut nic, mut table) = (Nic::with_room(3), table("net_ice"));
    table.want(services(1..=5));
    table.work(&mut nic, || true);
    let totals = table.totals();
    assert_eq!((totals.hardware, totals.software, totals.no_room), (3, 2, 2));
    assert_eq!((totals.refused_full, reasons(&table)), (2, vec!["no room".to_owned(); 2]));
    // New rules are made before old ones go, so there is no room for them at first.
    table.want(services([1, 4, 5, 6]));
    table.work(&mut nic, || true);
    let totals = table.totals();
    assert_eq!((totals.hardware, totals.software, totals.waiting), (3, 1, 0));
    table.want(services([1, 6]));
    table.work(&mut nic, || true);
    assert_eq!((table.totals().hardware, nic.there.len()), (2, 2));
    assert!(!table.is_behind() && reasons(&table).is_empty());
}

/// Without change there are no calls, also where rules were refused.
#[test]
fn what_is_refused_is_not_tried_again_for_nothing() {
    let (mut nic, mut table) = (Nic::with_room(2), table("net_ice"));
    nic.refuses = Some(9);
    table.want(services([1, 2, 3, 9]));
    table.work(&mut nic, || true);
    assert_eq!(reasons(&table), ["no room", "not this one"]);
    let calls = nic.calls;
    table.want(services([1, 2, 3, 9]));
    table.work(&mut nic, || true);
    assert_eq!((nic.calls, table.totals().refused_full), (calls, 1));
}

#[test]
fn a_rule_is_in_the_nic_as_a_whole_or_not_at_all() {
    let service = EndpointMatch { protocol: 6, address: ip("198.51.100.200"), ports: 80..=83 };
    let wide = EndpointMatch { ports: 1..=6, ..service.clone() };
    let of = |services| rules_of(&Matches { services, ..Matches::default() }, 0, |_| Vec::new());
    let (mut nic, mut table) = (Nic::with_room(3), table("mlx5_pci"));
    // 1, 2-3, 4-5, 6: four entries.
    table.want(of(vec![wide]));
    table.work(&mut nic, || true);
    assert_eq!((nic.there.len(), table.totals().no_room), (0, 1));
    table.want(of(vec![service]));
    table.work(&mut nic, || true);
    assert_eq!((nic.there.len(), table.totals().hardware), (1, 1));
    let (_, row) = table.listed().next().unwrap();
    let row = row.unwrap();
    assert_eq!(row.queues(), [0, 1]);
    assert_eq!(row.hits(&mut nic), Some(10 + u64::from(nic.made)));
}

/// A driver with one set of fields for a type keeps the first one's, which are those of services.
#[test]
fn rules_with_other_fields_stay_in_software() {
    let address = ip("198.51.100.200");
    let matches = |services: Vec<EndpointMatch>| Matches {
        services,
        reals: vec![EndpointMatch::port(6, ip("192.0.2.11"), 80)],
        ..Matches::default()
    };
    let of = |matches: &Matches| rules_of(matches, 0, |_| Vec::new());
    // As if it counted: otherwise there are no rules of services.
    let counting = |driver| Limits { count: Capability::Yes, ..Limits::of(driver) };
    let (mut nic, mut table) = (Nic::with_room(9), RuleTable::new(counting("net_i40e"), 2));
    table.want(of(&matches(vec![
        EndpointMatch::port(6, address, 80),
        EndpointMatch::port(17, address, 53),
    ])));
    table.work(&mut nic, || true);
    assert_eq!((table.totals().hardware, reasons(&table).len()), (2, 1));
    assert!(reasons(&table)[0].contains("same fields"), "{:?}", reasons(&table));
    // Once no rule of that type has other fields, it fits.
    table.want(of(&matches(vec![EndpointMatch::port(17, address, 53)])));
    table.work(&mut nic, || true);
    assert_eq!((table.totals().hardware, reasons(&table).len()), (2, 0));
    let mut one = RuleTable::new(counting("net_ixgbe"), 1);
    one.want(of(&matches(vec![EndpointMatch::port(17, address, 53)])));
    one.work(&mut Nic::with_room(9), || true);
    assert_eq!((one.totals().hardware, one.totals().software), (1, 1));
}

/// Work is cut into steps, of which each call takes at least one.
#[test]
fn work_goes_on_where_it_stopped() {
    let (mut nic, mut table) = (Nic::with_room(9), table("net_ice"));
    table.want(services(1..=4));
    for left in (0..4).rev() {
        table.work(&mut nic, || false);
        assert_eq!((table.totals().waiting, table.is_behind()), (left, left > 0));
    }
    table.want(services(3..=6));
    table.work(&mut nic, || false);
    assert_eq!(nic.there.len(), 5, "new ones first");
    table.want(services(1..=2));
    table.work(&mut nic, || true);
    assert_eq!(nic.there.len(), 2);
}

impl Nic {
    /// The entry that a packet takes: of those that match, the one with the lowest priority.
    fn takes(&self, from: (IpAddr, u16), to: (IpAddr, u16)) -> Option<&Flow> {
        let bytes = |address: IpAddr| match address {
            IpAddr::V4(address) => [&address.octets()[..], &[0; 12]].concat(),
            IpAddr::V6(address) => address.octets().to_vec(),
        };
        let is_in = |end: &Endpoint, (address, port): (IpAddr, u16)| {
            let masked = bytes(address).into_iter().zip(end.address_mask).map(|(a, b)| a & b);
            masked.eq(end.address) && port & end.port_mask == end.port
        };
        let matching = |it: &&Flow| is_in(&it.source, from) && is_in(&it.destination, to);
        let mut all: Vec<&Flow> = self.there.values().filter(matching).collect();
        all.sort_by_key(|flow| flow.priority);
        let same = |two: &[&Flow]| two[0].priority == two[1].priority;
        assert!(!all.windows(2).any(same), "no order between {all:?}");
        all.first().copied()
    }
}

/// A flow's entry is before that of its service, whichever came first, and goes without it.
#[test]
fn a_flow_comes_to_its_owner_before_its_service_spreads_it() {
    let (client, vip) = ((ip("203.0.113.9"), 40_000), (ip("198.51.100.200"), 80));
    let flow = |owner| Rule::of_flow(0, 6, client, vip, owner);
    let target = |nic: &Nic, from| nic.takes(from, vip).map(|entry| entry.target);
    let (mut nic, mut table) = (Nic::with_room(9), table("mlx5_pci"));
    let mut set = |nic: &mut Nic, rules: Vec<Rule>| {
        table.want(rules);
        table.work(nic, || true);
        (table.totals().hardware, table.row(&flow(1)).map(Row::queues))
    };
    set(&mut nic, services([80]));
    assert_eq!(target(&nic, client), Some(Target::Spread(2)));
    let with = |owner| [services([80]), vec![flow(owner)]].concat();
    assert_eq!(set(&mut nic, with(1)), (2, Some(vec![1])));
    assert_eq!(target(&nic, client), Some(Target::Queue(1)));
    assert_eq!(target(&nic, (client.0, 40_001)), Some(Target::Spread(2)), "another flow");
    // Another worker owns it: the entry is replaced.
    assert_eq!(set(&mut nic, with(0)), (2, None));
    assert_eq!(target(&nic, client), Some(Target::Queue(0)));
    set(&mut nic, services([80]));
    assert_eq!(target(&nic, client), Some(Target::Spread(2)));
    // The other way round.
    set(&mut nic, vec![flow(1)]);
    assert_eq!(set(&mut nic, with(1)), (2, Some(vec![1])));
    assert_eq!(target(&nic, client), Some(Target::Queue(1)));
}

/// What a NIC has no room for stays in software, until it is wanted anew: its packets would change
/// their way unforeseen.
#[test]
fn a_full_nic_leaves_flows_in_software() {
    let flow = Rule::of_flow(0, 17, (ip("203.0.113.9"), 9), (ip("198.51.100.200"), 53), 1);
    let (mut nic, mut table) = (Nic::with_room(2), table("net_ice"));
    table.want([services([80, 81]), vec![flow.clone()]].concat());
    table.work(&mut nic, || true);
    let placed = table.row(&flow).map(|row| row.placed.clone());
    assert!(matches!(placed, Some(Placed::Software { kind: RefusedKind::Full, .. })));
    table.want([services([80]), vec![flow.clone()]].concat());
    table.work(&mut nic, || true);
    assert_eq!(table.row(&flow).map(Row::queues), Some(Vec::new()));
    table.want(services([80]));
    table.work(&mut nic, || true);
    table.want([services([80]), vec![flow.clone()]].concat());
    table.work(&mut nic, || true);
    assert_eq!(table.row(&flow).map(Row::queues), Some(vec![1]));
}

/// A list of rules: services, and a pool with an owner of its ports.
fn lists() -> impl Strategy<Value = Vec<Vec<Rule>>> {
    let list = (prop::collection::vec(1..12_u16, 0..10), any::<bool>(), 0..2_u16);
    let list = list.prop_map(|(ports, pool, first)| {
        let web = |port| EndpointMatch::port(6, ip("198.51.100.200"), port);
        let local = LocalMatch { address: ip("192.0.2.10"), ports: 1024..=2047, echo: false };
        let matches = Matches {
            services: ports.into_iter().map(web).collect(),
            locals: pool.then_some(local).into_iter().collect(),
            ..Matches::default()
        };
        let owned = |first, last, worker| Owned { ports: Ports { first, last }, worker };
        rules_of(&matches, 0, |_| vec![owned(1024, 1535, first), owned(1536, 2047, 1 - first)])
    });
    prop::collection::vec(list, 1..8)
}

proptest! {
    /// However lists follow each other, also in the middle of work: the NIC has at the end what a
    /// new one would have, and never was without a rule of both lists.
    #[test]
    fn differences_lead_where_a_fresh_table_leads(lists in lists(), steps in 0..12_usize) {
        let (mut nic, mut table) = (Nic::with_room(1000), table("mlx5_pci"));
        for list in &lists {
            let keep: BTreeSet<&Rule> = list.iter().collect();
            let stays = table.rows.iter().filter(|(rule, _)| keep.contains(rule));
            nic.held = stays.flat_map(|(_, row)| match &row.placed {
                Placed::Hardware(entries) => entries.iter().map(|(flow, _)| key(flow)).collect(),
                Placed::Software { .. } => Vec::new(),
            }).collect();
            table.want(list.clone());
            let mut left = steps;
            table.work(&mut nic, || { left = left.saturating_sub(1); left > 0 });
        }
        table.work(&mut nic, || true);
        let mut fresh = (Nic::with_room(1000), RuleTable::new(Limits::of("mlx5_pci"), 2));
        fresh.1.want(lists.last().cloned().unwrap_or_default());
        fresh.1.work(&mut fresh.0, || true);
        prop_assert_eq!(nic.keys(), fresh.0.keys());
        prop_assert_eq!(table.totals().hardware, fresh.1.totals().hardware);
    }

    /// With little room nothing is lost: each rule is in the NIC or says why not, and no room is
    /// left while one waits for it.
    #[test]
    fn a_full_table_is_filled(lists in lists(), room in 0..6_usize) {
        let (mut nic, mut table) = (Nic::with_room(room), table("net_ice"));
        for list in lists {
            let wanted = list.len() as u64;
            table.want(list);
            table.work(&mut nic, || true);
            let totals = table.totals();
            prop_assert_eq!((totals.hardware + totals.software, totals.waiting), (wanted, 0));
            prop_assert_eq!(totals.hardware, nic.there.len() as u64);
            prop_assert!(totals.no_room == 0 || nic.there.len() == room);
        }
    }
}
