//! One look at a director: what `top` shows is made of two of them.

use std::time::Instant;

use sluice_api::model::{Drops, Elephants, Ports, Services, Stages, Status};
use sluice_api::{ApiError, Client};

/// Most elephants that are shown.
const ELEPHANTS: u32 = 100;

/// What a director said at one time.
#[derive(Clone, Debug)]
pub struct Sample {
    /// When.
    pub at: Instant,
    /// The director as a whole.
    pub status: Status,
    /// Services.
    pub services: Services,
    /// Ports.
    pub ports: Ports,
    /// Reasons.
    pub drops: Drops,
    /// Stages.
    pub stages: Stages,
    /// The sessions with the most traffic.
    pub elephants: Elephants,
}

/// Asks for all of it.
///
/// # Errors
/// The first that comes.
pub fn take(client: &Client) -> Result<Sample, ApiError> {
    Ok(Sample {
        status: client.status()?,
        services: client.services(&[])?,
        ports: client.ports()?,
        drops: client.drops()?,
        stages: client.stages()?,
        elephants: client.elephants(ELEPHANTS)?,
        at: Instant::now(),
    })
}
