//! Rules of NICs that bring flows to the queues of their owners: one after the other, each behind a
//! fence of the owner's, so that no packet overtakes another when the way changes
//! ([`sluice_director::dealing::FenceOrder`]).
//!
//! First the fence is put up; then the rule is made, or removed, which may take some turns of the
//! control loop; then whoever may have packets of the flow in the old way is asked for a mark. A
//! rule that a NIC refuses is wanted no more for a while, and never tried again without a fence.

use crate::rules::Redirected;
use sluice_director::spec::NetworkId;
use sluice_rules::Rule;
use sluice_worker::spread::{FenceOrder, Spreading, Way};
use std::net::IpAddr;

/// Flows that are redirected at most: a NIC's table is for services first.
pub const MOST: usize = 64;
/// Changes in one turn of the control loop.
const AT_ONCE: usize = 8;
/// Seconds until a flow is tried again that NICs have refused.
const AGAIN: u32 = 60;

/// A flow that is to come to its owner.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Wish {
    pub owner: u16,
    network: NetworkId,
    protocol: u8,
    from: (IpAddr, u16),
    to: (IpAddr, u16),
}

impl Wish {
    pub const fn of(owner: u16, flow: &Spreading) -> Self {
        let (network, protocol) = (flow.network, flow.flow.protocol);
        Self { owner, network, protocol, from: flow.from, to: flow.to }
    }

    pub fn rule(&self) -> Rule {
        Rule::of_flow(self.network.0, self.protocol, self.from, self.to, self.owner)
    }

    /// Whether it is of the same packets, whoever is to get them.
    fn is_of(&self, other: &Self) -> bool {
        let of = |it: &Self| (it.network, it.protocol, it.from, it.to);
        of(self) == of(other)
    }
}

/// What redirecting needs of ports and workers.
pub trait Hands {
    /// Whether a port of the network has a table of flow rules.
    fn has_table(&self, network: NetworkId) -> bool;
    /// From now on all ports of the network are to have a rule, or not to have it.
    fn want(&mut self, network: NetworkId, rule: &Rule, wanted: bool);
    /// Works on what is wanted, for a short while.
    fn work(&mut self);
    /// Whether each of the ports has done, or refused, what is wanted.
    fn is_settled(&self, network: NetworkId, rule: &Rule, wanted: bool) -> bool;
    /// What has become of a rule.
    fn redirected(&self, network: NetworkId, rule: &Rule) -> Redirected;
    /// Has the owner put up a fence; `false` if it cannot.
    fn fence(&mut self, owner: u16, order: &FenceOrder) -> bool;
    /// Has those give marks who may have packets in the old way.
    fn ask_for_marks(&mut self, owner: u16, order: &FenceOrder);
    /// The way does not change after all.
    fn take_down(&mut self, owner: u16, fence: u32);
}

/// A change that is not done.
#[derive(Debug)]
struct Turning {
    wish: Wish,
    makes: bool,
    fence: FenceOrder,
}

/// A flow that no NIC has taken.
#[derive(Debug)]
struct Unmade {
    wish: Wish,
    why: String,
    rest: u32,
}

/// Which flows are redirected, and what is being done about it.
#[derive(Debug, Default)]
pub struct Redirects {
    last_fence: u32,
    wanted: Vec<Wish>,
    made: Vec<Wish>,
    unmade: Vec<Unmade>,
    turning: Option<Turning>,
}

impl Redirects {
    /// These flows are to be redirected from now on, as far as that can be. Once a second.
    pub fn want(&mut self, wanted: Vec<Wish>, hands: &mut impl Hands) {
        self.wanted = wanted;
        self.unmade.iter_mut().for_each(|it| it.rest = it.rest.saturating_sub(1));
        let wanted = &self.wanted;
        self.unmade.retain(|it| it.rest > 0 && wanted.contains(&it.wish));
        self.go_on(hands);
    }

    /// Goes on with what is to be done.
    pub fn go_on(&mut self, hands: &mut impl Hands) {
        for _ in 0..AT_ONCE {
            if self.turning.is_none() && !self.begin(hands) {
                return;
            }
            hands.work();
            let is_settled =
                |it: &mut Turning| hands.is_settled(it.wish.network, &it.wish.rule(), it.makes);
            let Some(turning) = self.turning.take_if(is_settled) else { return };
            self.finish(turning, hands);
        }
    }

    /// Why no NIC was to bring a flow to its owner, if that is known here.
    pub fn why_not(&self, wish: &Wish) -> Option<String> {
        let unmade = self.unmade.iter().find(|it| it.wish == *wish);
        let full = self.made.len() >= MOST && !self.made.contains(wish);
        let many = full.then(|| format!("{MOST} flows are redirected already"));
        unmade.map(|it| it.why.clone()).or(many)
    }

    /// Begins with the next change. `false` if there is none, or it has to wait.
    fn begin(&mut self, hands: &mut impl Hands) -> bool {
        let Some((wish, makes)) = self.next(hands) else { return false };
        self.last_fence = self.last_fence.wrapping_add(1);
        let Wish { owner, network, protocol, from, to } = wish;
        let to_way = if makes { Way::Direct } else { Way::Handed };
        let fence = FenceOrder { id: self.last_fence, network, protocol, from, to, to_way };
        if !hands.fence(owner, &fence) {
            return false;
        }
        hands.want(network, &wish.rule(), makes);
        self.made.retain(|it| *it != wish);
        self.made.extend(makes.then(|| wish.clone()));
        self.turning = Some(Turning { wish, makes, fence });
        true
    }

    /// The next rule to be made or removed: first those that are not wanted any more, at last those
    /// that a port lacks which was opened anew.
    fn next(&self, hands: &impl Hands) -> Option<(Wish, bool)> {
        if let Some(gone) = self.made.iter().find(|it| !self.wanted.contains(it)) {
            return Some((gone.clone(), false));
        }
        let is_new = |it: &&Wish| {
            hands.has_table(it.network)
                && self.made.iter().all(|made| !made.is_of(it))
                && self.unmade.iter().all(|unmade| unmade.wish != **it)
        };
        let new = self.wanted.iter().find(is_new).filter(|_| self.made.len() < MOST);
        let lacks = |it: &&Wish| !hands.is_settled(it.network, &it.rule(), true);
        let next = new.or_else(|| self.made.iter().find(lacks));
        next.map(|wish| (wish.clone(), true))
    }

    /// The ports have done what they can.
    fn finish(&mut self, turning: Turning, hands: &mut impl Hands) {
        let Turning { wish, makes, fence } = turning;
        let rule = wish.rule();
        let why = match hands.redirected(wish.network, &rule) {
            _ if !makes => return hands.ask_for_marks(wish.owner, &fence),
            Redirected::Yes => return hands.ask_for_marks(wish.owner, &fence),
            Redirected::No(why) => why,
            Redirected::Never(why) => why.to_owned(),
        };
        hands.want(wish.network, &rule, false);
        hands.take_down(wish.owner, fence.id);
        self.made.retain(|it| *it != wish);
        self.unmade.push(Unmade { wish, why, rest: AGAIN });
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use sluice_director::counters::Direction;
    use sluice_director::path::FlowName;
    use std::collections::BTreeSet;

    /// What was done, in order, by the local port of the flow.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    enum Did {
        Fence(u16, Way),
        Make(u16),
        Remove(u16),
        Marks(u16, Way),
        TakeDown(u32),
    }

    /// A NIC with so much room, and workers that put up fences if they may.
    struct Bench {
        room: usize,
        slow: bool,
        fences: bool,
        rules: BTreeSet<u16>,
        wanted: BTreeSet<u16>,
        done: Vec<Did>,
    }

    fn port(rule: &Rule) -> u16 {
        rule.destination_ports.first
    }

    impl Hands for Bench {
        fn has_table(&self, network: NetworkId) -> bool {
            network == NetworkId::DEFAULT
        }
        fn want(&mut self, _: NetworkId, rule: &Rule, wanted: bool) {
            match wanted {
                true => self.wanted.insert(port(rule)),
                false => self.wanted.remove(&port(rule)),
            };
        }
        fn work(&mut self) {
            if self.slow {
                return;
            }
            for gone in self.rules.difference(&self.wanted).copied().collect::<Vec<_>>() {
                self.rules.remove(&gone);
                self.done.push(Did::Remove(gone));
            }
            for new in self.wanted.difference(&self.rules).copied().collect::<Vec<_>>() {
                if self.rules.len() < self.room {
                    self.rules.insert(new);
                    self.done.push(Did::Make(new));
                }
            }
        }
        fn is_settled(&self, _: NetworkId, rule: &Rule, wanted: bool) -> bool {
            let full = self.rules.len() >= self.room;
            self.rules.contains(&port(rule)) == wanted || wanted && full
        }
        fn redirected(&self, _: NetworkId, rule: &Rule) -> Redirected {
            match self.rules.contains(&port(rule)) {
                true => Redirected::Yes,
                false => Redirected::No("no room".to_owned()),
            }
        }
        fn fence(&mut self, _: u16, order: &FenceOrder) -> bool {
            if self.fences {
                self.done.push(Did::Fence(order.to.1, order.to_way));
            }
            self.fences
        }
        fn ask_for_marks(&mut self, _: u16, order: &FenceOrder) {
            self.done.push(Did::Marks(order.to.1, order.to_way));
        }
        fn take_down(&mut self, _: u16, fence: u32) {
            self.done.push(Did::TakeDown(fence));
        }
    }

    fn bench(room: usize) -> Bench {
        let (rules, wanted, done) = (BTreeSet::new(), BTreeSet::new(), Vec::new());
        Bench { room, slow: false, fences: true, rules, wanted, done }
    }

    fn wish(network: u16, port: u16) -> Wish {
        let (client, virtual_) = (([198, 51, 100, 48].into(), 4000), ([203, 0, 113, 1].into(), 53));
        let direction = Direction::Outbound;
        let flow = Spreading {
            network: NetworkId(network),
            flow: FlowName { protocol: 17, client, virtual_, direction },
            from: ([192, 0, 2, 11].into(), 53),
            to: ([192, 0, 2, 10].into(), port),
            helpers: vec![1],
            pinned: true,
            age_ms: 0,
            dealt: 0,
            own: 0,
            kept: 0,
            late: 0,
            goes_round: false,
        };
        Wish::of(0, &flow)
    }

    /// Fence, rule, marks: in this order for each flow, one flow after the other, however long the
    /// NIC takes.
    #[test]
    fn a_rule_changes_behind_a_fence() {
        use Did::{Fence, Make, Marks, Remove};
        let (mut redirects, mut hands) = (Redirects::default(), bench(9));
        hands.slow = true;
        redirects.want(vec![wish(0, 1), wish(0, 2)], &mut hands);
        redirects.go_on(&mut hands);
        assert_eq!(hands.done, [Fence(1, Way::Direct)], "no marks before there is a rule");
        hands.slow = false;
        redirects.go_on(&mut hands);
        redirects.want(vec![wish(0, 2)], &mut hands);
        let direct = |port| [Fence(port, Way::Direct), Make(port), Marks(port, Way::Direct)];
        let mut all = [direct(1), direct(2)].concat();
        all.extend([Fence(1, Way::Handed), Remove(1), Marks(1, Way::Handed)]);
        assert_eq!(hands.done, all);
        redirects.want(vec![wish(0, 2)], &mut hands);
        assert_eq!(hands.done.len(), all.len(), "nothing more to be done");
    }

    /// Without a fence no rule is touched.
    #[test]
    fn without_a_fence_no_rule() {
        let (mut redirects, mut hands) = (Redirects::default(), bench(9));
        hands.fences = false;
        redirects.want(vec![wish(0, 1)], &mut hands);
        assert!(hands.wanted.is_empty() && hands.done.is_empty());
        // Nor where no port has a table.
        hands.fences = true;
        redirects.want(vec![wish(3, 1)], &mut hands);
        assert!(hands.wanted.is_empty() && hands.done.is_empty());
    }

    /// A NIC that is full: the fence comes down, the reason is told, and the flow is tried again
    /// after a minute, behind a fence.
    #[test]
    fn a_refused_flow_is_not_wanted_any_more() {
        let (mut redirects, mut hands) = (Redirects::default(), bench(1));
        let both = || vec![wish(0, 1), wish(0, 2)];
        redirects.want(both(), &mut hands);
        assert_eq!(hands.done[3..], [Did::Fence(2, Way::Direct), Did::TakeDown(2)]);
        assert_eq!(redirects.why_not(&wish(0, 2)).as_deref(), Some("no room"));
        assert_eq!(hands.wanted, BTreeSet::from([1]));
        hands.room = 2;
        (0..AGAIN - 1).for_each(|_| redirects.want(both(), &mut hands));
        assert_eq!(hands.rules.len(), 1, "not yet");
        redirects.want(both(), &mut hands);
        assert_eq!(hands.rules.len(), 2);
        assert_eq!(redirects.why_not(&wish(0, 2)), None);
    }

    /// A port that was opened again has no rule until there is a fence.
    #[test]
    fn a_port_opened_anew_gets_its_rules_behind_fences() {
        let (mut redirects, mut hands) = (Redirects::default(), bench(9));
        redirects.want(vec![wish(0, 1)], &mut hands);
        (hands.rules, hands.wanted) = Default::default();
        hands.done.clear();
        redirects.want(vec![wish(0, 1)], &mut hands);
        let again = [Did::Fence(1, Way::Direct), Did::Make(1), Did::Marks(1, Way::Direct)];
        assert_eq!(hands.done, again);
    }

    #[test]
    fn only_so_many() {
        let (mut redirects, mut hands) = (Redirects::default(), bench(1000));
        let all: Vec<Wish> = (0..100).map(|port| wish(0, port)).collect();
        (0..20).for_each(|_| redirects.want(all.clone(), &mut hands));
        assert_eq!(hands.rules.len(), MOST);
        assert!(redirects.why_not(&all[99]).is_some_and(|why| why.contains("64 flows")));
        assert_eq!(redirects.why_not(&all[0]), None);
    }
}
