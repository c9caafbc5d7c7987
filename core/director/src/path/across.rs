//! Full NAT from one IP version to the other (RFC 7915).

use super::burst::Lane;
use crate::family::Family;
use crate::frame::Frame;
use crate::reason::Reason;

/// Turns a packet into one of the other IP version.
#[cold]
pub(super) fn translate<F: Family, B: Frame>(
    _frame: &mut B,
    _lane: &Lane<F::Addr>,
) -> Option<Reason> {
    Some(Reason::NoRoute)
}
