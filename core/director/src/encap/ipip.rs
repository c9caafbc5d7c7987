//! IP in IP: nothing between the two headers, and the outer one says what is inside (RFC 2003, RFC
//! 2473, RFC 4213).

use super::{Patch, Shim};
use sluice_wire::shim;

/// The shim: none.
pub(super) fn shim() -> Shim {
    Shim { bytes: [0; shim::MOST], length: 0, patch: Patch::default(), protocol: None }
}
