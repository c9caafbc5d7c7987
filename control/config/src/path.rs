//! Where in a configuration something is: a section, an index, a key, an item of a list.
//!
//! A path is a small plain value, so that each value's place in the file can be kept beside the
//! configuration (in a map) instead of inside its types.

use std::fmt;

/// A section of the configuration file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Place {
    /// The file itself.
    File,
    /// `[director]`
    Director,
    /// `[api]`
    Api,
    /// `[limits]`
    Limits,
    /// `[timeouts]`
    Timeouts,
    /// `[tcp]`
    Tcp,
    /// `[elephants]`
    Elephants,
    /// `[icmp]`
    Icmp,
    /// `[ipip]`
    Ipip,
    /// `[metrics]`
    Metrics,
    /// `[sync]`
    Sync,
    /// `[announce]`
    Announce,
    /// `[ipvs]`
    Ipvs,
    /// `[[ipvs.mark]]`
    Mark,
    /// `[[ipvs.daemon]]`
    Daemon,
    /// `[[network]]`
    Network,
    /// `[[port]]`
    Port,
    /// `[[pool]]`
    Pool,
    /// `[[service]]`
    Service,
    /// `[[service.real]]`
    Real,
    /// `[[check]]`
    Check,
    /// `[[snat]]`
    Snat,
    /// `[[route]]`
    Route,
    /// `[[neighbour]]`
    Neighbour,
}

/// Where in a configuration something is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Path {
    /// The section.
    pub place: Place,
    /// Which of the section's tables; for a real server, which service. 0 in single sections.
    pub index: usize,
    /// Which real server of the service; 0 elsewhere.
    pub real: usize,
    /// The key; `None` for the table itself.
    pub key: Option<&'static str>,
    /// Which item of the key's list.
    pub item: Option<usize>,
}

impl Path {
    /// The file itself.
    pub const FILE: Self = Self::table(Place::File, 0);

    /// A table of a section.
    pub const fn table(place: Place, index: usize) -> Self {
        Self { place, index, real: 0, key: None, item: None }
    }

    /// A real server of a service.
    pub const fn real(service: usize, real: usize) -> Self {
        Self { place: Place::Real, index: service, real, key: None, item: None }
    }

    /// A key of this table.
    pub const fn key(self, key: &'static str) -> Self {
        Self { key: Some(key), item: None, ..self }
    }

    /// An item of this key's list.
    pub const fn item(self, item: usize) -> Self {
        Self { item: Some(item), ..self }
    }

    /// What this is part of: an item's key, a key's table, a table's surroundings.
    pub fn parent(self) -> Option<Self> {
        if self.item.is_some() {
            return Some(Self { item: None, ..self });
        }
        if self.key.is_some() {
            return Some(Self { key: None, ..self });
        }
        match self.place {
            Place::File => None,
            Place::Real => Some(Self::table(Place::Service, self.index)),
            _ => Some(Self::FILE),
        }
    }
}

impl fmt::Display for Path {
    /// As in `service[2].real[0].port`; nothing at all for the file itself.
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let index = self.index;
        match self.place {
            Place::File => {}
            Place::Director => write!(out, "director")?,
            Place::Api => write!(out, "api")?,
            Place::Limits => write!(out, "limits")?,
            Place::Timeouts => write!(out, "timeouts")?,
            Place::Tcp => write!(out, "tcp")?,
            Place::Elephants => write!(out, "elephants")?,
            Place::Icmp => write!(out, "icmp")?,
            Place::Ipip => write!(out, "ipip")?,
            Place::Metrics => write!(out, "metrics")?,
            Place::Sync => write!(out, "sync")?,
            Place::Announce => write!(out, "announce")?,
            Place::Ipvs => write!(out, "ipvs")?,
            Place::Mark => write!(out, "ipvs.mark[{index}]")?,
            Place::Daemon => write!(out, "ipvs.daemon[{index}]")?,
            Place::Network => write!(out, "network[{index}]")?,
            Place::Port => write!(out, "port[{index}]")?,
            Place::Pool => write!(out, "pool[{index}]")?,
            Place::Service => write!(out, "service[{index}]")?,
            Place::Real => write!(out, "service[{index}].real[{}]", self.real)?,
            Place::Check => write!(out, "check[{index}]")?,
            Place::Snat => write!(out, "snat[{index}]")?,
            Place::Route => write!(out, "route[{index}]")?,
            Place::Neighbour => write!(out, "neighbour[{index}]")?,
        }
        if let Some(key) = self.key {
            let dot = if self.place == Place::File { "" } else { "." };
            write!(out, "{dot}{key}")?;
        }
        self.item.map_or(Ok(()), |item| write!(out, "[{item}]"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn displays_as_an_operator_would_write_it() {
        assert_eq!(Path::FILE.to_string(), "");
        assert_eq!(Path::FILE.key("port").to_string(), "port");
        assert_eq!(Path::real(2, 0).key("port").to_string(), "service[2].real[0].port");
        let cores = Path::table(Place::Director, 0).key("cores").item(1);
        assert_eq!(cores.to_string(), "director.cores[1]");
        assert_eq!(
            cores.parent().and_then(Path::parent).map(|p| p.to_string()).unwrap(),
            "director"
        );
    }
}
