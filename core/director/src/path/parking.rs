//! Later fragments that came before their datagram's first: bounded, and not for long.
//!
//! The path keeps no frames, so its caller does, here. A frame is parked under the number that
//! [`super::Verdict::Park`] gives; when [`super::Path::joined`] names that number, the frame is
//! turned again as if it came only now. Whoever parks it again gives it the moment at which it
//! first came, so that nothing waits longer for having been tried.

use crate::fib::PortId;
use crate::reason::Reason;
use crate::time::Time;
use std::collections::VecDeque;

/// How long a frame may wait. What reorders the fragments of a datagram on its way makes a
/// difference of milliseconds.
const PATIENCE_MS: u64 = 1000;
/// The most frames that wait for one first fragment, so that one datagram cannot take all places.
/// More than any datagram has on Ethernet.
const PER_DATAGRAM: usize = 64;

/// A frame that waits for its datagram's first fragment.
#[derive(Clone, Debug)]
pub struct Parked<F> {
    /// It, as it came.
    pub frame: F,
    /// The port that received it.
    pub port: PortId,
    /// The number of its datagram.
    pub datagram: u32,
    /// When it came.
    pub since: Time,
}

/// The frames that wait, the longest-waiting first.
#[derive(Clone, Debug)]
pub struct Parking<F> {
    frames: VecDeque<Parked<F>>,
}

impl<F> Default for Parking<F> {
    fn default() -> Self {
        Self::new()
    }
}

impl<F> Parking<F> {
    /// The most frames that wait.
    pub const PLACES: usize = 256;

    /// Nobody waits.
    pub fn new() -> Self {
        Self { frames: VecDeque::with_capacity(Self::PLACES) }
    }

    /// Frames that wait.
    pub fn len(&self) -> usize {
        self.frames.len()
    }

    /// Whether none waits.
    pub fn is_empty(&self) -> bool {
        self.frames.is_empty()
    }

    /// Keeps a frame.
    ///
    /// # Errors
    /// Gives the reason to count it under when there is no place.
    pub fn park(&mut self, new: Parked<F>) -> Result<(), Reason> {
        let same = self.frames.iter().filter(|frame| frame.datagram == new.datagram).count();
        if self.frames.len() >= Self::PLACES || same >= PER_DATAGRAM {
            return Err(Reason::FragmentsFull);
        }
        let at = self.frames.partition_point(|frame| frame.since <= new.since);
        self.frames.insert(at, new);
        Ok(())
    }

    /// Takes out the next frame of one of these datagrams that `port` received; of any port when
    /// that is `None`.
    pub fn take(&mut self, joined: &[u32], port: Option<PortId>) -> Option<Parked<F>> {
        // Most that wait are of other datagrams: a address filter of the numbers' low bits tells.
        let bit = |datagram: u32| 1u64 << (datagram % 64);
        let address_filter =
            joined.iter().fold(0, |address_filter, datagram| address_filter | bit(*datagram));
        let fits = |frame: &Parked<F>| {
            address_filter & bit(frame.datagram) != 0
                && joined.contains(&frame.datagram)
                && port.is_none_or(|port| port == frame.port)
        };
        let at = self.frames.iter().position(fits)?;
        self.frames.remove(at)
    }

    /// Takes out a frame that has waited too long, to be counted under [`Reason::FragmentOrphan`].
    pub fn give_up(&mut self, now: Time) -> Option<Parked<F>> {
        let first = self.frames.front()?;
        let over = now.0.saturating_sub(first.since.0) >= PATIENCE_MS;
        if over { self.frames.pop_front() } else { None }
    }

    /// Drops all frames that a port received, or all there are. Gives how many.
    pub fn clear(&mut self, port: Option<PortId>) -> usize {
        let before = self.frames.len();
        self.frames.retain(|frame| port.is_some_and(|port| port != frame.port));
        before - self.frames.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parked(datagram: u32, port: u16, since: u64) -> Parked<u64> {
        Parked { frame: since, port: PortId(port), datagram, since: Time(since) }
    }

    #[test]
    fn places_are_bounded_for_all_and_for_each() {
        let mut parking = Parking::new();
        let fill = |parking: &mut Parking<u64>, datagram| {
            (0..100).filter(|_| parking.park(parked(datagram, 0, 1)).is_ok()).count()
        };
        for datagram in 0..4 {
            assert_eq!(fill(&mut parking, datagram), PER_DATAGRAM);
        }
        assert_eq!(parking.park(parked(9, 0, 1)), Err(Reason::FragmentsFull));
        assert_eq!(parking.clear(None), Parking::<u64>::PLACES);
    }

    #[test]
    fn who_came_first_goes_first_also_when_parked_again() {
        let mut parking = Parking::new();
        for (datagram, port, since) in [(1, 0, 10), (2, 0, 20), (1, 1, 30), (1, 0, 40)] {
            parking.park(parked(datagram, port, since)).unwrap();
        }
        let again = parking.take(&[1, 7], None).unwrap();
        assert_eq!(again.frame, 10);
        parking.park(again).unwrap();
        let mut taken = |port| parking.take(&[1, 7], port).map(|parked| parked.frame);
        assert_eq!(taken(Some(PortId(1))), Some(30));
        assert_eq!((taken(None), taken(None), taken(None)), (Some(10), Some(40), None));
        assert_eq!(parking.len(), 1);
    }

    #[test]
    fn nobody_waits_for_ever() {
        let mut parking = Parking::new();
        for (port, since) in [(0, 100), (1, 100), (1, 600)] {
            parking.park(parked(5, port, since)).unwrap();
        }
        assert_eq!(parking.clear(Some(PortId(0))), 1);
        assert!(parking.give_up(Time(1099)).is_none());
        assert_eq!(parking.give_up(Time(1100)).map(|parked| parked.since), Some(Time(100)));
        assert!(parking.give_up(Time(1100)).is_none());
        assert!(parking.give_up(Time(1600)).is_some() && parking.is_empty());
    }
}
