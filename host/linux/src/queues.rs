//! How many receive queues an interface has in use.
//!
//! Asked from ethtool over generic netlink (Linux 5.7), because `/sys/class/net` may show another
//! network namespace, and the link's own attribute counts queues that are allocated, used or not.

use netlink_sys::protocols::NETLINK_GENERIC;

use crate::attributes::{Request, attributes_after, u16_at, u32_at};
use crate::error::Error;
use crate::request::Requester;
use crate::state::Link;
use crate::uapi;

/// Bytes of `genlmsghdr`.
pub(crate) const GENERIC_HEADER_LEN: usize = 4;

/// The number of receive queues a link has in use, at least 1: what ethtool calls its receive and
/// combined channels, or, for drivers that do not tell, the number of queues allocated.
///
/// # Errors
/// When the kernel cannot be asked, or the link is gone ([`Error::Refused`] with `ENODEV`).
pub fn rx_queue_count(link: &Link) -> Result<u32, Error> {
    let mut requester = Requester::open(NETLINK_GENERIC)?;
    let counted = match ethtool_family(&mut requester) {
        Ok(Some(family)) => channels(&mut requester, family, link.index),
        Ok(None) => Ok(None),
        Err(error) => Err(error),
    };
    match counted {
        Ok(count) => Ok(count.or(link.num_rx_queues).unwrap_or(1).max(1)),
        // No such family in this kernel, or the driver does not tell.
        Err(error) if matches!(error.errno(), Some(libc::ENOENT | libc::EOPNOTSUPP)) => {
            Ok(link.num_rx_queues.unwrap_or(1).max(1))
        }
        Err(error) => Err(error),
    }
}

pub(crate) fn ethtool_family(requester: &mut Requester) -> Result<Option<u16>, Error> {
    let controller = u16::try_from(libc::GENL_ID_CTRL).unwrap_or_default();
    let request = Request::new(controller, libc::NLM_F_ACK, &[uapi::CTRL_CMD_GETFAMILY, 1, 0, 0])
        .with(uapi::CTRL_ATTR_FAMILY_NAME, b"ethtool\0");
    let mut family = None;
    requester.ask(request, "find the ethtool family", |message| {
        for (kind, value) in attributes_after(message.body, GENERIC_HEADER_LEN) {
            if kind == uapi::CTRL_ATTR_FAMILY_ID {
                family = u16_at(value, 0);
            }
        }
    })?;
    Ok(family)
}

fn channels(requester: &mut Requester, family: u16, ifindex: u32) -> Result<Option<u32>, Error> {
    let command = [uapi::ETHTOOL_MSG_CHANNELS_GET, 1, 0, 0];
    let request = Request::new(family, libc::NLM_F_ACK, &command).with_nested(
        uapi::ETHTOOL_A_CHANNELS_HEADER,
        uapi::ETHTOOL_A_HEADER_DEV_INDEX,
        &ifindex.to_ne_bytes(),
    );
    let mut count = None;
    requester.ask(request, &format!("tell the channels of link {ifindex}"), |message| {
        for (kind, value) in attributes_after(message.body, GENERIC_HEADER_LEN) {
            if matches!(
                kind,
                uapi::ETHTOOL_A_CHANNELS_RX_COUNT | uapi::ETHTOOL_A_CHANNELS_COMBINED_COUNT
            ) {
                count = Some(count.unwrap_or(0) + u32_at(value, 0).unwrap_or(0));
            }
        }
    })?;
    Ok(count.filter(|&count| count > 0))
}
