//! Sessions that go from one director to the next by addresses, where they cannot go by slots: the
//! two programs have other layouts of these.
//!
//! The one that knows the slots reads them ([`Former::tell_changes`]), as they were and as they are
//! now; the other one makes batches of what it is told ([`Importer::restores`]), which
//! [`super::Path::restore`] takes up as if they had come from slots. So what is told replaces what
//! is there, whatever is newer: the director that tells is the one that forwards.

use super::changes::{Change, Portable, change, portable};
use super::import::Importer;
use super::owners::Owners;
use super::restore::{Batch, Former, Restored, home_of, is_ahead};
use crate::family::{Family, Ipv4, Ipv6};
use crate::plan::RealId;
use crate::session::SessionOf;
use crate::time::Time;

impl Former<'_> {
    /// Tells what has become of the sessions of a worker's two tables, as [`Self::sort_changes`]
    /// finds it: half-open sessions are told as well. `now` is when they were read, by the clock of
    /// what is in the slots. Gives what is left out.
    ///
    /// One that reads its own sessions has the names of its own plan, and a shift of 0.
    pub fn tell_changes(
        &self,
        [narrow, extended]: [(&[u8], &[u8]); 2],
        (slack_ms, now): (u32, Time),
        mut tell: impl FnMut(Change),
    ) -> Restored {
        let mut left = Restored::default();
        self.changes::<Ipv4>(narrow, slack_ms, &mut left, |session, gone| {
            self.told::<Ipv4>(now, &session, gone).into_iter().for_each(&mut tell);
        });
        self.changes::<Ipv6>(extended, slack_ms, &mut left, |session, gone| {
            self.told::<Ipv6>(now, &session, gone).into_iter().for_each(&mut tell);
        });
        left
    }

    fn told<F: Family>(&self, now: Time, session: &SessionOf<F>, gone: bool) -> Option<Change> {
        let mut told = portable::<F>(self.plan(), now, session)?;
        if is_ahead(told.idle_ms) {
            told.idle_ms = 0;
        }
        Some(change(session, gone, told))
    }
}

impl Importer<'_> {
    /// Puts a session of a director that hands over, or its end, into the batch of the worker whose
    /// it is. It was told at `now`, by the clock of the workers here; `was` is the worker that had
    /// it, if there are as many here. `false` when it can be nobody's.
    pub fn restores(
        &self,
        change: &Change,
        (was, now): (Option<u16>, Time),
        to: &mut [Batch],
    ) -> bool {
        let Change { real, ended, session } = change;
        let Some(service) = self.service_of(*real) else { return false };
        let done = if service.extended {
            self.one::<Ipv6>(*real, session, *ended, now).map(|session| {
                let home = self.home::<Ipv6>(&session, was);
                to.get_mut(home).map(|batch| batch.add_extended(session, *ended))
            })
        } else {
            self.one::<Ipv4>(*real, session, *ended, now).map(|session| {
                let home = self.home::<Ipv4>(&session, was);
                to.get_mut(home).map(|batch| batch.add_narrow(session, *ended))
            })
        };
        done.flatten().is_some()
    }

    fn one<F: Family>(
        &self,
        real: RealId,
        told: &Portable,
        ended: bool,
        now: Time,
    ) -> Option<SessionOf<F>> {
        let mut session = self.session::<F>(real, told, ended)?;
        session.seen_ms = now.low().wrapping_sub(told.idle_ms);
        Some(session)
    }

    fn home<F: Family>(&self, session: &SessionOf<F>, was: Option<u16>) -> usize {
        let (plan, owners): (_, Owners) = self.view();
        let any = |client, port| was.unwrap_or_else(|| owners.of(client, port));
        usize::from(home_of::<F>((plan, owners), session, any))
    }
}
