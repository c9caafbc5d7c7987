//! What the control side and workers tell each other about spread flows.

use sluice_director::path::FlowName;
use sluice_director::spec::NetworkId;
use std::sync::mpsc::Sender;

pub use sluice_director::dealing::{Ended, FenceOrder, MOST, Refused, SpreadOrder, Spreading, Way};

/// What a worker is asked about spread flows.
#[derive(Debug)]
pub enum SpreadRequest {
    /// Spread a flow over several workers. Answered with the worker and whether it does.
    Begin(SpreadOrder, Sender<(u16, Result<(), Refused>)>),
    /// Spread a flow of a network no more. Answered with whether it was spread.
    End(NetworkId, FlowName, Sender<bool>),
    /// Say which flows are spread. Answered with the worker and these.
    List(Sender<(u16, Vec<Spreading>)>),
    /// The way of a flow of the worker's is about to change. Answered with whether there is a
    /// fence.
    Fence(FenceOrder, Sender<bool>),
    /// The way of a fence's flow has changed: give its owner, which may be the worker itself, a
    /// mark behind what is left of the old one.
    Mark {
        /// The fence.
        fence: u32,
        /// The owner.
        owner: u16,
    },
    /// The way of a fence's flow does not change after all.
    TakeDown(u32),
}
