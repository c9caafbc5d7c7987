//! The path's clock, which is whatever its caller says.

/// Milliseconds since an arbitrary start; never goes back within one path.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Time(pub u64);

impl Time {
    /// The low 32 bits, which sessions store. They wrap after 49.7 days; ages are differences
    /// modulo 2³² and the sweep visits every session within seconds, so no age comes near that.
    #[inline(always)]
    pub const fn low(self) -> u32 {
        self.0 as u32
    }
}
