//! Packets that a trace or a capture looks at: one at a time through the same path, with what was
//! decided about each told from what is different afterwards.

use super::Worker;
use crate::capture_point::{CAPTURE_POINTS, Came, CapturePoint, Catch, Kept};
use crate::queue::{Burst, Queue};
use arrayvec::ArrayVec;
use sluice_director::counters::Counters;
use sluice_director::fib::PortId;
use sluice_director::path::{Headers, Round, Unprobed, Verdict, View};
use sluice_director::{Frame, Reason, Time};
use sluice_wire::ethernet;
use std::time::Instant;

/// A worker's capture points.
#[derive(Debug, Default)]
pub(super) struct CapturePoints {
    all: ArrayVec<Box<CapturePoint>, CAPTURE_POINTS>,
}

/// What of the counters tells what a packet did.
struct Counted {
    reasons: [u64; Reason::COUNT],
    opened: u64,
    ended: u64,
}

impl Counted {
    fn of(counters: &Counters) -> Self {
        Self {
            reasons: counters.reasons,
            opened: counters.created,
            ended: counters.closed + counters.expired,
        }
    }

    /// A reason that was counted since.
    fn since(&self, before: &Self) -> Option<Reason> {
        let more =
            |reason: &&Reason| self.reasons[**reason as usize] > before.reasons[**reason as usize];
        Reason::ALL.iter().find(more).copied()
    }
}

impl<Q: Queue> Worker<Q> {
    /// Begins a capture point.
    ///
    /// # Errors
    /// Gives it back when there are [`CAPTURE_POINTS`] already.
    pub fn look_out(&mut self, capture_point: Box<CapturePoint>) -> Result<(), Box<CapturePoint>> {
        let capture_points = self.capture_points.get_or_insert_default();
        capture_points.all.try_push(capture_point).map_err(arrayvec::CapacityError::element)
    }

    /// Ends a capture point, and gives it to whoever frees it.
    pub fn look_away(&mut self, number: u64) -> Option<Box<CapturePoint>> {
        let holders = self.capture_points.iter_mut().chain(&mut self.retired);
        let found = holders.filter_map(|capture_points| {
            let at = capture_points
                .all
                .iter()
                .position(|capture_point| capture_point.number() == number)?;
            Some(capture_points.all.swap_remove(at))
        });
        let found = found.last();
        let is_empty = |held: &mut Box<CapturePoints>| held.all.is_empty();
        let _ = self.capture_points.take_if(is_empty);
        let _ = self.retired.take_if(is_empty);
        found
    }

    /// [`Worker::process_since`] while somebody looks.
    #[cold]
    #[inline(never)]
    pub(super) fn process_watched(
        &mut self,
        now: Time,
        port: PortId,
        (burst, rounds): (&mut Burst<Q::Frame>, &[Round]),
        since: &[Time],
    ) {
        self.retire_capture_points();
        let frames = || burst.iter().map(Frame::bytes);
        let capture_points =
            self.capture_points.take_if(|all| all.all.iter().all(|l| l.is_idle(frames())));
        if capture_points.is_some() {
            self.process_since(now, port, (burst, rounds), since, &mut Unprobed);
            self.capture_points = capture_points;
            return;
        }
        let own = burst.len() - rounds.len();
        for (lane, frame) in burst.drain(..).enumerate() {
            let one = |all: usize| if all > lane { lane..lane + 1 } else { 0..0 };
            let round = match lane.checked_sub(own) {
                Some(at) => &rounds[at..=at],
                None => &[],
            };
            let waited = &since[one(since.len())];
            self.watch(now, port, frame, (round, waited));
            // Who is run for this reason already does so again by itself.
            if since.is_empty()
                && !self.net.parking.is_empty()
                && !self.net.path.joined().is_empty()
            {
                self.process_parked(now);
            }
        }
    }

    /// Puts capture points that are over aside, so that bursts go the usual way again whether or
    /// not anybody takes them back.
    fn retire_capture_points(&mut self) {
        let Some(capture_points) = &mut self.capture_points else { return };
        let now = Instant::now();
        let mut at = 0;
        while let Some(capture_point) = capture_points.all.get(at) {
            if !capture_point.is_over(now) {
                at += 1;
                continue;
            }
            let over = capture_points.all.swap_remove(at);
            let retired = self.retired.get_or_insert_default();
            // Whoever was put aside longest is not waited for any more.
            if retired.all.is_full() {
                retired.all.remove(0);
            }
            retired.all.push(over);
        }
        let _ = self.capture_points.take_if(|capture_points| capture_points.all.is_empty());
    }

    /// One packet, from the look at it to where it goes.
    fn watch(
        &mut self,
        now: Time,
        port: PortId,
        frame: Q::Frame,
        (round, since): (&[Round], &[Time]),
    ) {
        let Some(mut capture_points) = self.capture_points.take() else {
            let mut one = Burst::new();
            one.push(frame);
            return self.process_since(now, port, (&mut one, round), since, &mut Unprobed);
        };
        let may = capture_points.all.iter_mut().fold(false, |may, l| l.look(frame.bytes()) | may);
        let came = match (round.first(), since.first()) {
            (Some(round), _) => Came::Handed(round.home()),
            (_, Some(since)) => Came::Parked(now.0.saturating_sub(since.0) as u32),
            _ => Came::Line,
        };
        let mut catch = Catch::new(self.number, came, port);
        catch.received = Some(Kept { length: frame.bytes().len() as u32, bytes: 0 });
        let snapshot = self.net.snapshot.clone();
        let view = View { plan: &snapshot.plan, fib: &snapshot.fib };
        if may {
            catch.view = self.net.path.view_packet(view.plan, now, frame.bytes());
        }
        let before = Counted::of(self.net.path.counters());
        let mut one = Burst::new();
        one.push(frame);
        let mut verdicts = [Verdict::Wait];
        let burst = (&mut one[..], round);
        self.net.path.turn_probed(view, now, port, burst, (&mut verdicts, &mut Unprobed));
        let decided = Counted::of(self.net.path.counters());
        catch.verdict = Some(verdicts[0]);
        let verdict = self.routed(view, port, verdicts[0], &mut one[0]);
        let frame = one[0].bytes();
        let caught = may && self.told(view, now, (&mut catch, verdict), frame, &mut capture_points);
        (catch.opened, catch.ended) =
            (decided.opened > before.opened, (decided.ended - before.ended) as u32);
        // What was there before goes first, so that what a full queue drops is this packet.
        if caught {
            self.flush();
        }
        let settled = Counted::of(self.net.path.counters());
        self.part(now, port, &mut one, (&[verdict], since));
        if caught {
            self.flush();
            let lost = Counted::of(self.net.path.counters()).since(&settled);
            catch.lost = catch.lost.or(lost);
            capture_points.all.iter_mut().filter(|l| l.is_caught()).for_each(|l| l.catch(&catch));
        }
        self.capture_points = Some(capture_points);
    }

    /// The verdict on a frame that is the kernel's where it cannot get there: what
    /// [`Worker::pass_to_kernel`] would come to.
    fn routed(
        &mut self,
        view: View<'_>,
        port: PortId,
        verdict: Verdict,
        frame: &mut Q::Frame,
    ) -> Verdict {
        let attached = self.ports.get(usize::from(port.0));
        let no_twin = attached.is_some_and(|at| !at.lines.is_empty() && at.twins.is_empty());
        if !matches!(verdict, Verdict::Kernel(_)) || !no_twin {
            return verdict;
        }
        let routed = self.net.path.as_gateway(view, frame);
        if let Verdict::Drop(reason) = routed {
            self.net.path.count(reason);
        }
        routed
    }

    /// Fills in what is known after the verdict. Gives whether any capture point wants the packet,
    /// but for its reason.
    fn told(
        &self,
        view: View<'_>,
        now: Time,
        (catch, verdict): (&mut Catch, Verdict),
        frame: &[u8],
        capture_points: &mut CapturePoints,
    ) -> bool {
        let mut sent = None;
        match verdict {
            Verdict::Tx(to) | Verdict::Answer(to, _) | Verdict::Fragment(to, _) => {
                catch.gateway = matches!(catch.verdict, Some(Verdict::Kernel(_)));
                leaves(catch, to, frame);
                sent = Some(frame);
            }
            Verdict::Wait => {
                catch.waits = self.net.path.waiting().first().map(|w| (w.link, w.next));
                catch.sent_headers = Headers::of_frame(frame);
            }
            Verdict::Drop(reason) if catch.verdict != Some(verdict) => catch.lost = Some(reason),
            _ => {}
        }
        let came = catch.view.map(|view| view.headers.tuple);
        let left = catch.sent_headers.map(|headers| headers.tuple);
        let mut session = |tuple| self.net.path.session_of(view.plan, now, &tuple);
        catch.session = came.and_then(&mut session).or_else(|| left.and_then(session));
        capture_points.all.iter_mut().fold(false, |any, l| l.look_again(catch, sent) | any)
    }

    /// Frames that the kernel sends by a port.
    #[cold]
    pub(super) fn watch_kernels(&mut self, port: PortId, burst: &Burst<Q::Frame>) {
        self.retire_capture_points();
        for frame in burst {
            self.watch_alone(Came::Kernel, Some(port), frame, None);
        }
    }

    /// A frame that leaves by a port, or does not for a reason, long after its turn.
    #[cold]
    pub(super) fn watch_alone(
        &mut self,
        came: Came,
        to: Option<PortId>,
        frame: &Q::Frame,
        lost: Option<Reason>,
    ) {
        let Some(capture_points) = &mut self.capture_points else { return };
        let mut catch = Catch::new(self.number, came, to.unwrap_or_default());
        if let (Some(port), None) = (to, lost) {
            leaves(&mut catch, port, frame.bytes());
        } else {
            catch.received = Some(Kept { length: frame.bytes().len() as u32, bytes: 0 });
        }
        catch.lost = lost;
        for capture_point in &mut capture_points.all {
            let sent = catch.sent_by.map(|_| frame.bytes());
            match sent {
                Some(_) => capture_point.look_at_none(),
                None => _ = capture_point.look(frame.bytes()),
            }
            if capture_point.look_again(&catch, sent) {
                capture_point.catch(&catch);
            }
        }
    }
}

/// Notes what a frame leaves as.
fn leaves(catch: &mut Catch, port: PortId, frame: &[u8]) {
    catch.sent_by = Some(port);
    catch.sent_headers = Headers::of_frame(frame);
    catch.sent = Some(Kept { length: frame.len() as u32, bytes: 0 });
    let tag = |at: usize| frame.get(at..at + 2).map_or(0, |b| u16::from_be_bytes([b[0], b[1]]));
    let vlan = if tag(12) == ethernet::VLAN { tag(14) & 0xfff } else { 0 };
    catch.sent_to = frame.first_chunk().map(|mac| (*mac, vlan));
}
