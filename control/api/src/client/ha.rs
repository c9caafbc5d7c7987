//! High availability: what the director holds, and who is to take over.

use hyper::Request;

use super::{Client, Resource};
use crate::error::ApiError;
use crate::model::{Ha, HaDrain, HaNotify};

impl Client {
    /// Which virtual addresses the machine has.
    ///
    /// # Errors
    /// See [`Self::text`].
    pub fn ha(&self) -> Result<Ha, ApiError> {
        self.get(&Resource::Ha)
    }

    /// Has another director take over, or takes that back.
    ///
    /// # Errors
    /// See [`Self::text`].
    pub fn drain(&self, draining: bool) -> Result<Ha, ApiError> {
        let body = serde_json::to_string(&HaDrain { draining }).unwrap_or_default();
        let text = self.make(Request::post("/v1/ha/drain"), body)?;
        serde_json::from_str(&text).map_err(|error| self.strange(error))
    }

    /// Says what a group of addresses has become.
    ///
    /// # Errors
    /// See [`Self::text`].
    pub fn notify(&self, said: &HaNotify) -> Result<Ha, ApiError> {
        let body = serde_json::to_string(said).unwrap_or_default();
        let text = self.make(Request::post("/v1/ha/notify"), body)?;
        serde_json::from_str(&text).map_err(|error| self.strange(error))
    }

    /// Has a new process of the director take over, or stand in for the one that the service
    /// manager is about to start. Answered when it is being started.
    ///
    /// # Errors
    /// See [`Self::text`].
    pub fn upgrade(&self, stand_in: bool) -> Result<Ha, ApiError> {
        let path = if stand_in { "/v1/ha/upgrade?stand_in=true" } else { "/v1/ha/upgrade" };
        let text = self.make(Request::post(path), String::new())?;
        serde_json::from_str(&text).map_err(|error| self.strange(error))
    }
}
