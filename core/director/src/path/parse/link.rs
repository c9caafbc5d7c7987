//! Whose frame it is.

use super::Refused;
use crate::frame::Frame;
use crate::path::{Shared, Verdict};
use crate::reason::Reason;

/// What is to another receiver of the link goes no further.
#[inline(always)]
pub(super) fn is_for_us<B: Frame>(frame: &B, shared: &Shared) -> Result<(), Refused> {
    if shared.scratch.macs.refuse(frame.bytes()) {
        return Err(Verdict::Drop(Reason::OtherMac).into());
    }
    Ok(())
}
