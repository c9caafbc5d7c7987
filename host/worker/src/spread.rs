//! What the control side and workers tell each other about spread flows.

use sluice_director::path::FlowName;
use sluice_director::spec::NetworkId;
use std::sync::mpsc::Sender;

pub use sluice_director::dealing::{Ended, MOST, Refused, SpreadOrder, Spreading};

/// What a worker is asked about spread flows.
#[derive(Debug)]
pub enum SpreadRequest {
    /// Spread a flow over several workers. Answered with the worker and whether it does.
    Begin(SpreadOrder, Sender<(u16, Result<(), Refused>)>),
    /// Spread a flow of a network no more. Answered with whether it was spread.
    End(NetworkId, FlowName, Sender<bool>),
    /// Say which flows are spread. Answered with the worker and these.
    List(Sender<(u16, Vec<Spreading>)>),
}
