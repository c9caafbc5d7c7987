//! The rules of one NIC: which are in its table, and why the others are not.
//!
//! Invariant: a rule that is wanted before and after a change is never out of the NIC's table in
//! between. New rules are made before old ones go; what the NIC had no room for is tried again once
//! something has gone. Nothing is ever flushed and filled again. A rule that only gets other owners
//! is replaced by itself, since a NIC has one entry for the same packets: in that moment packets
//! are spread like those without a rule.
//!
//! Steps are calls of the driver, some of which take milliseconds, so whoever calls says how long
//! to go on.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use crate::flow::{Addresses, Flow, Target, compile};
use crate::limits::{FieldSets, Limits};
use crate::rule::{Kind, Rule, diff};

/// A NIC's table as it is changed.
pub trait FlowPort {
    /// An entry that was made.
    type Handle;

    /// Has the driver check an entry, and make it.
    fn create(&mut self, flow: &Flow) -> Result<Self::Handle, Refused>;

    /// Takes an entry away.
    fn destroy(&mut self, handle: Self::Handle) -> Result<(), Refused>;

    /// Packets that an entry has matched, if the driver tells.
    fn hits(&mut self, handle: &Self::Handle) -> Option<u64>;
}

/// Why an entry was not made.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refused {
    /// What kind of refusal it is.
    pub kind: RefusedKind,
    /// The driver's words.
    pub reason: String,
}

/// Kinds of refusals.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RefusedKind {
    /// There is no room now.
    Full,
    /// Other rules may be in the way.
    Conflict,
    /// The driver does not have it.
    Unsupported,
}

/// Where a rule is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Placed<H> {
    /// In the NIC's table, by these entries.
    Hardware(Vec<(Flow, H)>),
    /// In the director's own lookup, for this reason.
    Software {
        /// Why the NIC does not have it.
        reason: String,
        /// What kind of reason it is. What is not [`RefusedKind::Unsupported`] is tried again when
        /// another rule has gone.
        kind: RefusedKind,
    },
}

/// A rule's row.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Row<H> {
    /// Where it is.
    pub placed: Placed<H>,
}

impl<H> Row<H> {
    fn may_fit_later(&self) -> bool {
        let never = RefusedKind::Unsupported;
        matches!(&self.placed, Placed::Software { kind, .. } if *kind != never)
    }

    /// The queues that its packets come to, if the NIC has it.
    pub fn queues(&self) -> Vec<u16> {
        let Placed::Hardware(entries) = &self.placed else { return Vec::new() };
        let queues = entries.iter().flat_map(|(flow, _)| match flow.target {
            Target::Queue(queue) => queue..=queue,
            Target::Spread(queues) | Target::Unchanged(queues) => 0..=queues.saturating_sub(1),
        });
        queues.collect::<BTreeSet<u16>>().into_iter().collect()
    }

    /// Packets that it has matched, if the NIC has it and counts.
    pub fn hits(&self, port: &mut impl FlowPort<Handle = H>) -> Option<u64> {
        let Placed::Hardware(entries) = &self.placed else { return None };
        entries.iter().map(|(_, handle)| port.hits(handle)).sum()
    }
}

/// How many rules are where, and what has become of calls.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Totals {
    /// Rules in the NIC's table.
    pub hardware: u64,
    /// Rules in software.
    pub software: u64,
    /// Of these, those that the NIC has no room for.
    pub no_room: u64,
    /// Rules that wait for their turn.
    pub waiting: u64,
    /// Times that the NIC had no room, since the port was opened.
    pub refused_full: u64,
    /// Entries that the driver did not take away when told to.
    pub stuck: u64,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Step {
    Create(Rule),
    Replace(Rule, Rule),
    Destroy(Rule),
    /// There is room again, perhaps.
    Retry(Rule),
}

/// A group of rules that must have the same fields.
type Group = Option<(Addresses, u8)>;

/// What rules a port is to have, and where each is.
#[derive(Debug)]
pub struct RuleTable<H> {
    limits: Limits,
    queues: u16,
    wanted: Vec<Rule>,
    rows: BTreeMap<Rule, Row<H>>,
    steps: VecDeque<Step>,
    /// Whether something went since the rules without room were tried.
    freed: bool,
    /// The fields of the rules of a group, and how many entries there are.
    fields: BTreeMap<Group, ([bool; 4], usize)>,
    refused_full: u64,
    stuck: u64,
}

impl<H> RuleTable<H> {
    /// That of a port with so many queues, which was just started: nothing is in its table.
    pub fn new(limits: Limits, queues: u16) -> Self {
        Self {
            limits,
            queues,
            wanted: Vec::new(),
            rows: BTreeMap::new(),
            steps: VecDeque::new(),
            freed: false,
            fields: BTreeMap::new(),
            refused_full: 0,
            stuck: 0,
        }
    }

    /// Says which rules there are to be; [`Self::work`] makes it so.
    pub fn want(&mut self, rules: Vec<Rule>) {
        if self.wanted == rules {
            return;
        }
        self.freed |= self.steps.iter().any(|step| matches!(step, Step::Retry(_)));
        let diff = diff(self.rows.keys(), &rules);
        let created = diff.create.into_iter().map(Step::Create);
        let replaced = diff.replace.into_iter().map(|(old, new)| Step::Replace(old, new));
        let gone = diff.destroy.into_iter().map(Step::Destroy);
        self.steps = created.chain(replaced).chain(gone).collect();
        self.wanted = rules;
    }

    /// Whether there is anything left to be done.
    pub fn is_behind(&self) -> bool {
        !self.steps.is_empty()
    }

    /// Takes steps for as long as `go_on` says so, at least one.
    pub fn work(&mut self, port: &mut impl FlowPort<Handle = H>, mut go_on: impl FnMut() -> bool) {
        while let Some(step) = self.steps.pop_front() {
            match step {
                Step::Create(rule) => self.create(port, rule),
                Step::Retry(rule) => {
                    self.rows.remove(&rule);
                    self.create(port, rule);
                }
                Step::Replace(old, new) => {
                    self.destroy(port, &old);
                    self.create(port, new);
                }
                Step::Destroy(rule) => self.destroy(port, &rule),
            }
            if self.steps.is_empty() && std::mem::take(&mut self.freed) {
                // Whoever wants a single flow redirected prepares its owner for each try.
                let may = |(rule, row): &(&Rule, &Row<H>)| {
                    rule.kind != Kind::Elephant && row.may_fit_later()
                };
                let rows = self.rows.iter().filter(may);
                self.steps = rows.map(|(rule, _)| Step::Retry(rule.clone())).collect();
            }
            if !go_on() {
                return;
            }
        }
    }

    /// The rules that are wanted, in order; without a row they wait for their turn.
    pub fn listed(&self) -> impl Iterator<Item = (&Rule, Option<&Row<H>>)> {
        self.wanted.iter().map(|rule| (rule, self.rows.get(rule)))
    }

    /// Where a rule is; `None` if it is not wanted, or waits for its turn.
    pub fn row(&self, rule: &Rule) -> Option<&Row<H>> {
        self.rows.get(rule)
    }

    /// How many there are of what.
    pub fn totals(&self) -> Totals {
        let mut totals =
            Totals { refused_full: self.refused_full, stuck: self.stuck, ..Totals::default() };
        for (_, row) in self.listed() {
            match row.map(|row| &row.placed) {
                None => totals.waiting += 1,
                Some(Placed::Hardware(_)) => totals.hardware += 1,
                Some(Placed::Software { kind, .. }) => {
                    totals.software += 1;
                    totals.no_room += u64::from(*kind == RefusedKind::Full);
                }
            }
        }
        totals
    }

    fn create(&mut self, port: &mut impl FlowPort<Handle = H>, rule: Rule) {
        let placed = self.place(port, &rule);
        self.rows.insert(rule, Row { placed });
    }

    fn place(&mut self, port: &mut impl FlowPort<Handle = H>, rule: &Rule) -> Placed<H> {
        let flows = match compile(rule, &self.limits, self.queues) {
            Ok(flows) => flows,
            Err(reason) => return Placed::Software { reason, kind: RefusedKind::Unsupported },
        };
        let mut entries: Vec<(Flow, H)> = Vec::with_capacity(flows.len());
        for flow in flows {
            let made = self.admit(&flow).and_then(|()| port.create(&flow));
            let refused = match made {
                Ok(handle) => {
                    self.enter(&flow);
                    entries.push((flow, handle));
                    continue;
                }
                Err(refused) => refused,
            };
            // A rule is in the NIC as a whole or not at all.
            entries.into_iter().for_each(|entry| self.take_away(port, entry));
            self.refused_full += u64::from(refused.kind == RefusedKind::Full);
            return Placed::Software { reason: refused.reason, kind: refused.kind };
        }
        Placed::Hardware(entries)
    }

    fn destroy(&mut self, port: &mut impl FlowPort<Handle = H>, rule: &Rule) {
        let Some(row) = self.rows.remove(rule) else { return };
        if let Placed::Hardware(entries) = row.placed {
            entries.into_iter().for_each(|entry| self.take_away(port, entry));
            self.freed = true;
        }
    }

    fn take_away(&mut self, port: &mut impl FlowPort<Handle = H>, (flow, handle): (Flow, H)) {
        let group = self.group(&flow);
        if let Some((_, count)) = self.fields.get_mut(&group) {
            *count -= 1;
            if *count == 0 {
                self.fields.remove(&group);
            }
        }
        // What stays brings packets that the director gets anyhow.
        self.stuck += u64::from(port.destroy(handle).is_err());
    }

    fn group(&self, flow: &Flow) -> Group {
        match self.limits.field_sets {
            FieldSets::OnePerType => Some((flow.addresses, flow.protocol)),
            FieldSets::Free | FieldSets::One => None,
        }
    }

    /// Refuses an entry with fields other than those of its group. It may do once they have gone.
    fn admit(&self, flow: &Flow) -> Result<(), Refused> {
        let others = self.fields.get(&self.group(flow));
        let fits = others.is_none_or(|(fields, _)| *fields == flow.fields());
        if fits || self.limits.field_sets == FieldSets::Free {
            return Ok(());
        }
        let driver = self.limits.driver;
        let reason = format!("rules of {driver} must have the same fields, and others came first");
        Err(Refused { kind: RefusedKind::Conflict, reason })
    }

    fn enter(&mut self, flow: &Flow) {
        let group = self.group(flow);
        self.fields.entry(group).or_insert((flow.fields(), 0)).1 += 1;
    }
}

#[cfg(test)]
mod tests;
