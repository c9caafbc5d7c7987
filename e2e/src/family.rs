//! IPv4 and IPv6, as the programs in a lab write them.

use std::fmt;

/// An IP version.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Family {
    /// IPv4.
    V4,
    /// IPv6.
    V6,
}

/// Both.
pub const FAMILIES: [Family; 2] = [Family::V4, Family::V6];

impl Family {
    /// What `ip`, `ping` and `curl` call it.
    pub fn flag(self) -> &'static str {
        match self {
            Self::V4 => "-4",
            Self::V6 => "-6",
        }
    }

    /// The family of an address in text.
    pub fn of(address: &str) -> Self {
        if address.contains(':') { Self::V6 } else { Self::V4 }
    }

    /// The bits of an address, for a prefix that is one address.
    pub fn bits(self) -> u32 {
        match self {
            Self::V4 => 32,
            Self::V6 => 128,
        }
    }

    /// The other one.
    pub fn other(self) -> Self {
        match self {
            Self::V4 => Self::V6,
            Self::V6 => Self::V4,
        }
    }
}

impl fmt::Display for Family {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(match self {
            Self::V4 => "IPv4",
            Self::V6 => "IPv6",
        })
    }
}

/// `address:port`, with brackets where the address has colons.
pub fn endpoint(address: &str, port: u16) -> String {
    match Family::of(address) {
        Family::V4 => format!("{address}:{port}"),
        Family::V6 => format!("[{address}]:{port}"),
    }
}

/// `http://address:port`.
pub fn url(address: &str, port: u16) -> String {
    format!("http://{}", endpoint(address, port))
}
