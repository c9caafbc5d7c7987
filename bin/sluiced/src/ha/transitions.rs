//! What programs that move addresses (keepalived) say they have done.
//!
//! It is told on to operators and decides nothing: the kernel's addresses are what the director
//! goes by, so what is wrong, late or forged does no harm. Where the two disagree, that is said.

use sluice_api::model::{HaGroupKind, HaGroupState, HaNotify, HaTransition};

/// Groups that are remembered; of more, those with the oldest news are forgotten.
const MOST: usize = 16;

/// The last transition of each group, the latest last.
#[derive(Debug, Default)]
pub struct Transitions(Vec<HaTransition>);

impl Transitions {
    /// Goes on with those that another process had.
    pub fn begin(mut transitions: Vec<HaTransition>) -> Self {
        transitions.truncate(MOST);
        Self(transitions)
    }

    /// All of them.
    pub fn shown(&self) -> Vec<HaTransition> {
        self.0.clone()
    }

    /// Notes what was said at this time; what is news is given in words.
    pub fn note(&mut self, said: HaNotify, at_unix_s: u64) -> Option<String> {
        let is_it = |it: &HaTransition| {
            let HaNotify { program, kind, name, .. } = &it.last;
            (program, kind, name) == (&said.program, &said.kind, &said.name)
        };
        let before = self.0.iter().position(is_it);
        let gone = said.state == HaGroupState::Deleted;
        match before.map(|at| &mut self.0[at]) {
            Some(known) if known.last.state == said.state => {
                known.last = said;
                return None;
            }
            None if gone => return None,
            _ => {}
        }
        let reason = became(&said);
        let changes = before.map_or(0, |at| self.0.remove(at).changes) + 1;
        if !gone {
            if self.0.len() == MOST {
                self.0.remove(0);
            }
            self.0.push(HaTransition { last: said, at_unix_s, changes });
        }
        Some(reason)
    }

    /// How it disagrees with the kernel, that has so many of all virtual addresses.
    pub fn disagreement(&self, held: u32, all: u32) -> Option<String> {
        let said = |it: &&HaTransition| it.last.state == HaGroupState::Master;
        match self.0.iter().rfind(said) {
            Some(master) if held == 0 && all > 0 => {
                let HaNotify { program, name, .. } = &master.last;
                Some(format!(
                    "{program} says that {name} is MASTER, but this machine has no virtual address"
                ))
            }
            None if held > 0 => {
                let HaNotify { program, .. } = &self.0.last()?.last;
                Some(format!(
                    "{program} says that nothing is MASTER here, but this machine has {held} of \
                     {all} virtual addresses"
                ))
            }
            _ => None,
        }
    }
}

fn became(said: &HaNotify) -> String {
    let HaNotify { program, kind, name, state, priority } = said;
    match kind {
        HaGroupKind::Group => format!("group {name} became {} by {program}", state.name()),
        HaGroupKind::Instance => {
            format!("instance {name} became {} by {program} (priority {priority})", state.name())
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use HaGroupState::{Backup, Deleted, Fault, Master, Stop};

    fn said(name: &str, state: HaGroupState) -> HaNotify {
        let kind = HaGroupKind::Group;
        HaNotify { program: "keepalived".into(), kind, name: name.into(), state, priority: 0 }
    }

    #[test]
    fn each_transition_is_news_once() {
        let mut told = Transitions::default();
        let news = told.note(said("sluice", Backup), 10);
        assert_eq!(news.as_deref(), Some("group sluice became BACKUP by keepalived"));
        assert_eq!(told.note(said("sluice", Backup), 11), None);
        assert_eq!(told.shown()[0].at_unix_s, 10);
        assert!(told.note(said("other", Fault), 12).is_some());
        assert!(told.note(said("sluice", Master), 13).is_some());
        let last = told.shown().pop().expect("two");
        assert_eq!((&*last.last.name, last.changes, last.at_unix_s), ("sluice", 2, 13));
        assert!(told.note(said("other", Deleted), 14).is_some());
        assert_eq!(told.note(said("other", Deleted), 15), None);
        assert_eq!(told.shown().len(), 1);
    }

    #[test]
    fn names_that_do_not_end_take_no_memory() {
        let mut told = Transitions::default();
        for number in 0..1000 {
            assert!(told.note(said(&format!("forged-{number}"), Master), number).is_some());
        }
        assert_eq!(told.shown().len(), MOST);
        assert_eq!(told.shown()[MOST - 1].last.name, "forged-999");
        assert_eq!(Transitions::begin(vec![told.shown()[0].clone(); 40]).shown().len(), MOST);
    }

    #[test]
    fn what_disagrees_with_the_kernel_is_said() {
        let mut told = Transitions::default();
        assert_eq!(told.disagreement(2, 2), None, "nobody has said anything");
        told.note(said("sluice", Master), 1);
        assert_eq!((told.disagreement(2, 2), told.disagreement(1, 2)), (None, None));
        assert_eq!(told.disagreement(0, 0), None);
        assert!(told.disagreement(0, 2).expect("none is here").contains("no virtual address"));
        for state in [Backup, Fault, Stop] {
            told.note(said("sluice", state), 2);
            assert_eq!(told.disagreement(0, 2), None);
            assert!(told.disagreement(1, 2).expect("one is here").contains("1 of 2"));
        }
        told.note(said("second", Master), 3);
        assert_eq!(told.disagreement(1, 2), None, "each director has some");
    }
}
