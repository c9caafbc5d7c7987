//! The smallest steps between two states. Each can be turned around exactly.

use std::net::SocketAddr;
use std::sync::Arc;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::object::{Key, Kind, Object, Override};

/// A step from one state to the next, with what was there before and what is there after it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(tag = "what", rename_all = "snake_case")]
pub enum Change {
    /// An object comes, goes, or becomes another.
    Object {
        /// Which.
        #[serde(flatten)]
        key: Key,
        /// What it was.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        before: Option<Arc<Object>>,
        /// What it becomes.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        after: Option<Arc<Object>>,
    },
    /// One real server of a service comes, goes, or becomes another.
    Real {
        /// The service.
        service: String,
        /// Which of its real servers.
        real: SocketAddr,
        /// Its place among them.
        at: usize,
        /// What it was.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        before: Option<Value>,
        /// What it becomes.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        after: Option<Value>,
    },
    /// What an operator says of a real server.
    Override {
        /// The service.
        service: String,
        /// Which of its real servers.
        real: SocketAddr,
        /// What was said.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        before: Option<Override>,
        /// What is said.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        after: Option<Override>,
    },
    /// Which file was read last.
    File {
        /// Digest of the one before.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        before: Option<String>,
        /// Digest of this one.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        after: Option<String>,
    },
}

impl Change {
    /// The step back.
    #[must_use]
    pub fn inverse(&self) -> Self {
        let mut inverse = self.clone();
        match &mut inverse {
            Self::Object { before, after, .. } => std::mem::swap(before, after),
            Self::Real { before, after, .. } => std::mem::swap(before, after),
            Self::Override { before, after, .. } => std::mem::swap(before, after),
            Self::File { before, after } => std::mem::swap(before, after),
        }
        inverse
    }

    /// The same without what was before, which whoever applies it knows.
    #[must_use]
    pub(crate) fn forward(&self) -> Self {
        let mut forward = self.clone();
        match &mut forward {
            Self::Object { before, .. } => *before = None,
            // That something was there says that it is replaced and not inserted; `null` would be
            // read as nothing.
            Self::Real { before, .. } => *before = before.take().map(|_| Value::Bool(true)),
            Self::Override { before, .. } => *before = None,
            Self::File { before, .. } => *before = None,
        }
        forward
    }

    /// The service that it is about, if it is about one.
    pub fn service(&self) -> Option<&str> {
        match self {
            Self::Object { key, .. } => (key.kind == Kind::Service).then_some(&key.name),
            Self::Real { service, .. } | Self::Override { service, .. } => Some(service),
            Self::File { .. } => None,
        }
    }
}
