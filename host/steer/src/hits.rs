//! Which number each rule has in the program's maps, and what its counter has counted for it.
//!
//! Invariant: a rule keeps its number as long as it is wanted, so its count goes on over reloads. A
//! number that is free again is given to another rule as late as possible, and only by a later
//! change than the one that freed it: by then no map names the old rule. Counters only grow; what
//! one said before is taken off.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use sluice_rules::{Kind, Protocol, Rule};

use crate::contents::SnatClass;
use crate::layout::{PLAIN_RULES, UNCOUNTED, snat_number};

/// The counter of a rule.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Counter {
    number: u16,
    /// What it had counted for others before.
    before: u64,
}

/// The numbers of rules.
#[derive(Debug)]
pub(crate) struct Numbers {
    of: BTreeMap<Rule, Counter>,
    /// Numbers that rules have had, the oldest first.
    free: VecDeque<u16>,
    /// The next one that no rule has had.
    next: u16,
}

impl Default for Numbers {
    fn default() -> Self {
        Self { of: BTreeMap::new(), free: VecDeque::new(), next: UNCOUNTED + 1 }
    }
}

impl Numbers {
    /// Gives numbers to new rules, and takes those of rules that are gone away. `read` reads a
    /// counter.
    pub fn assign<E>(
        &mut self,
        rules: impl Iterator<Item = Rule>,
        classes: &[SnatClass<'_>],
        read: impl Fn(u16) -> Result<u64, E>,
    ) -> Result<(), E> {
        let mut old = std::mem::take(&mut self.of);
        let snat = of_snat(classes);
        for rule in rules {
            let of_class = snat.get(&rule).copied().flatten();
            let is_snat = rule.kind == Kind::Snat;
            let counter = match old.remove(&rule) {
                Some(known) if !is_snat || of_class == Some(known.number) => Some(known),
                _ => {
                    let number = if is_snat { of_class } else { self.take() };
                    let new = |number| Ok(Counter { number, before: read(number)? });
                    number.map(new).transpose()?
                }
            };
            if let Some(counter) = counter {
                self.of.insert(rule, counter);
            }
        }
        let gone = old.values().map(|counter| counter.number);
        self.free.extend(gone.filter(|number| *number < PLAIN_RULES));
        Ok(())
    }

    fn take(&mut self) -> Option<u16> {
        if self.next < PLAIN_RULES {
            self.next += 1;
            return Some(self.next - 1);
        }
        self.free.pop_front()
    }

    /// A rule's number for the maps.
    pub fn get(&self, rule: &Rule) -> u16 {
        self.of.get(rule).map_or(UNCOUNTED, |counter| counter.number)
    }

    /// The number of a rule's counter, and what it had counted for others before.
    pub fn counter(&self, rule: &Rule) -> Option<(u16, u64)> {
        self.of.get(rule).map(|counter| (counter.number, counter.before))
    }
}

/// The rule as the maps know it: whose the local ports are does not matter to them, and neither
/// does the network of what is in no VXLAN.
pub(crate) fn plain(rule: &Rule) -> Rule {
    let network = if rule.inner || rule.kind == Kind::Vxlan { rule.network } else { 0 };
    Rule { network, owners: Vec::new(), ..rule.clone() }
}

/// The numbers of rules of source NAT. The program tells their classes apart, not the rules of a
/// class: a rule has a number if it is the only one of its class, protocol and family.
fn of_snat(classes: &[SnatClass<'_>]) -> BTreeMap<Rule, Option<u16>> {
    let mut numbers: BTreeMap<Rule, u16> = BTreeMap::new();
    let mut of: BTreeMap<u16, BTreeSet<Rule>> = BTreeMap::new();
    for class in classes {
        let at = class.bit.trailing_zeros() as u16;
        for rule in class.rule.rules(0) {
            let protocol = match rule.protocol {
                Protocol::Number(6) => 0,
                Protocol::Number(17) => 1,
                _ => 2,
            };
            let is_ipv6 = rule.source.is_some_and(|source| source.address.is_ipv6());
            let number = snat_number(at, protocol, is_ipv6);
            // The same rule may be said twice. Of several classes the program counts the first.
            let first = numbers.entry(rule.clone()).or_insert(number);
            *first = number.min(*first);
            of.entry(number).or_default().insert(rule);
        }
    }
    let alone = |number: &u16| of.get(number).is_some_and(|rules| rules.len() == 1);
    numbers.into_iter().map(|(rule, number)| (rule, Some(number).filter(alone))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use sluice_rules::{EndpointMatch, Matches, Network, SnatMatch, rules_of};
    use std::convert::Infallible;

    fn services(ports: impl IntoIterator<Item = u16>) -> Vec<Rule> {
        let web = |port| EndpointMatch::port(6, [198, 51, 100, 200].into(), port);
        let services = ports.into_iter().map(web).collect();
        rules_of(&Matches { services, ..Matches::default() }, 0, |_| Vec::new())
    }

    fn assign(numbers: &mut Numbers, rules: &[Rule], says: u64) {
        let read = |number| Ok::<u64, Infallible>(says + u64::from(number));
        numbers.assign(rules.iter().cloned(), &[], read).unwrap();
    }

    #[test]
    fn a_rule_that_stays_keeps_its_counter() {
        let mut numbers = Numbers::default();
        let (one, two) = (&services([1])[0], &services([2])[0]);
        assign(&mut numbers, &services([1, 2]), 0);
        assert_eq!((numbers.counter(one), numbers.counter(two)), (Some((2, 2)), Some((3, 3))));
        assign(&mut numbers, &services([2, 3]), 100);
        assert_eq!(numbers.counter(two), Some((3, 3)));
        assert_eq!((numbers.get(one), numbers.counter(one)), (UNCOUNTED, None));
        // One that comes back is new: it begins at what the counter says then.
        assign(&mut numbers, &services([1, 2]), 200);
        assert_eq!(numbers.counter(one), Some((5, 205)));
    }

    /// With all numbers given a rule is not counted, until others have gone by an earlier change.
    #[test]
    fn numbers_end_and_come_back() {
        let mut numbers = Numbers::default();
        let all = services(2..=PLAIN_RULES);
        assign(&mut numbers, &all, 0);
        let last = services([PLAIN_RULES]);
        assert_eq!(numbers.get(&last[0]), UNCOUNTED);
        assert_eq!(numbers.get(&services([PLAIN_RULES - 1])[0]), PLAIN_RULES - 1);
        assign(&mut numbers, &all[1..], 0);
        assert_eq!(numbers.get(&last[0]), UNCOUNTED, "the number has only just gone");
        assign(&mut numbers, &all[1..], 7);
        assert_eq!(numbers.counter(&last[0]), Some((2, 9)));
    }

    #[test]
    fn source_nat_is_counted_where_a_class_is_one_rule() {
        let net = |text: &str| Network { address: text.parse().unwrap(), prefix: 24 };
        let of = |sources: &[&str]| SnatMatch {
            sources: sources.iter().map(|text| net(text)).collect(),
            tcp: true,
            ..SnatMatch::default()
        };
        // A source of each family, and two of one.
        let (one, two) = (of(&["192.0.2.0", "2001:db8::"]), of(&["192.0.2.0", "203.0.113.0"]));
        let numbers = |rule: &SnatMatch| -> Vec<Option<u16>> {
            of_snat(&[SnatClass { bit: 1 << 5, rule }]).into_values().collect()
        };
        let (v4, v6) = (snat_number(5, 0, false), snat_number(5, 0, true));
        assert_eq!(numbers(&one), [Some(v4), Some(v6)]);
        assert_eq!(numbers(&two), [None, None]);
        // In two classes, which differ in UDP: the program counts TCP for the first.
        let (tcp, both) = (of(&["192.0.2.0"]), SnatMatch { udp: true, ..of(&["192.0.2.0"]) });
        let classes = [SnatClass { bit: 8, rule: &both }, SnatClass { bit: 2, rule: &tcp }];
        let found: Vec<Option<u16>> = of_snat(&classes).into_values().collect();
        assert_eq!(found, [Some(snat_number(1, 0, false)), Some(snat_number(3, 1, false))]);
    }
}
