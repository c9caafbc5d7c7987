//! An AF_XDP port: `af_xdp:IF[,driver=own|dpdk][,busy_poll=N]`.

use std::fmt;

use super::{Device, options, parse_interface};
use crate::Fault;
use crate::errors::quoted;
use crate::suggest::did_you_mean;

/// Fewest and most packets of a round of busy polling.
const BUDGETS: std::ops::RangeInclusive<u16> = 1..=1024;

/// Whose AF_XDP sockets a port has. What the default is is decided here and nowhere else.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum XdpDriver {
    /// The director's own.
    Own {
        /// Packets of a round of preferred busy polling; `None`: interrupts deliver.
        busy_poll: Option<u16>,
    },
    /// DPDK's net_af_xdp.
    Dpdk,
}

impl Default for XdpDriver {
    fn default() -> Self {
        Self::Own { busy_poll: None }
    }
}

impl fmt::Display for XdpDriver {
    /// The options that say so; nothing for the default.
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        if *self == Self::default() {
            return Ok(());
        }
        match self {
            Self::Own { busy_poll } => {
                if !matches!(Self::default(), Self::Own { .. }) {
                    write!(out, ",driver=own")?;
                }
                busy_poll.map_or(Ok(()), |budget| write!(out, ",busy_poll={budget}"))
            }
            Self::Dpdk => write!(out, ",driver=dpdk"),
        }
    }
}

impl XdpDriver {
    /// Reads what stands behind `af_xdp:`.
    pub(super) fn parse(text: &str) -> Result<Device, Fault> {
        let (name, rest) = text.split_once(',').map_or((text, None), |(a, b)| (a, Some(b)));
        let interface = parse_interface(name)?;
        let (mut named, mut busy_poll) = (None, None);
        for option in rest.iter().flat_map(|rest| options(rest, &["driver", "busy_poll"])) {
            let (key, value) = option?;
            match key {
                "driver" => named = Some(parse_driver(value)?),
                _ => busy_poll = Some(parse_budget(value)?),
            }
        }
        let driver = match (named.unwrap_or_default(), busy_poll) {
            (Self::Own { .. }, busy_poll) => Self::Own { busy_poll },
            (Self::Dpdk, None) => Self::Dpdk,
            (Self::Dpdk, Some(_)) => {
                let found = "DPDK's AF_XDP driver is not told to poll busily";
                return Err(Fault::new(found, "write driver=own beside busy_poll"));
            }
        };
        Ok(Device::AfXdp { interface, driver })
    }
}

fn parse_driver(value: &str) -> Result<XdpDriver, Fault> {
    match value {
        "own" => Ok(XdpDriver::Own { busy_poll: None }),
        "dpdk" => Ok(XdpDriver::Dpdk),
        _ => Err(Fault::new(
            format!("{} is not a driver of AF_XDP", quoted(value)),
            format!("use driver=own or driver=dpdk{}", did_you_mean(value, ["own", "dpdk"])),
        )),
    }
}

fn parse_budget(value: &str) -> Result<u16, Fault> {
    value.parse().ok().filter(|budget| BUDGETS.contains(budget)).ok_or_else(|| {
        let (least, most) = (BUDGETS.start(), BUDGETS.end());
        Fault::new(
            format!("{} is not a number of packets to poll for", quoted(value)),
            format!("use a whole number from {least} to {most}, such as busy_poll=64"),
        )
    })
}
