//! Networks, and what is in one of them.

use super::{Client, Resource};
use crate::error::ApiError;
use crate::model::{Drops, Networks, Services};

impl Client {
    /// All networks.
    ///
    /// # Errors
    /// See [`Self::text`].
    pub fn networks(&self) -> Result<Networks, ApiError> {
        self.get(&Resource::Networks)
    }

    /// The virtual services of a network with these names; all of it when none is named.
    ///
    /// # Errors
    /// See [`Self::text`].
    pub fn services_in(&self, network: &str, names: &[String]) -> Result<Services, ApiError> {
        let network = Some(network.to_owned());
        self.get(&Resource::Services { names: names.to_owned(), network })
    }

    /// Reasons for which packets of one network were dropped.
    ///
    /// # Errors
    /// See [`Self::text`].
    pub fn drops_in(&self, network: &str) -> Result<Drops, ApiError> {
        self.get(&Resource::Drops { service: None, network: Some(network.to_owned()) })
    }
}
