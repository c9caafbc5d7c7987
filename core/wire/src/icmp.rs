//! ICMP (RFC 792).

/// Whether an ICMP type reports an error about another packet, which it then quotes: destination
/// unreachable, source quench, redirect, time exceeded, parameter problem.
pub const fn is_error(kind: u8) -> bool {
    matches!(kind, 3 | 4 | 5 | 11 | 12)
}
