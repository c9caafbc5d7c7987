//! Which offloads of an interface are on: `ethtool -k`, asked over generic netlink (Linux 5.6).
//!
//! Only what is on is listed: a name that is not there is off, or unknown to the kernel.

use std::collections::BTreeSet;

use netlink_sys::protocols::NETLINK_GENERIC;

use crate::attributes::{Attributes, Request, attributes_after, text};
use crate::error::Error;
use crate::queues::{GENERIC_HEADER_LEN, ethtool_family};
use crate::request::Requester;
use crate::state::Link;
use crate::uapi;

/// The kernel's names of the features that are on: `rx-gro`, `rx-lro`, `tx-checksum-ip-generic`.
///
/// # Errors
/// When the kernel cannot be asked, or the link is gone ([`Error::Refused`] with `ENODEV`).
pub fn active_features(link: &Link) -> Result<BTreeSet<String>, Error> {
    let mut requester = Requester::open(NETLINK_GENERIC)?;
    let action = format!("tell the features of link {}", link.index);
    let Some(family) = ethtool_family(&mut requester)? else {
        return Err(Error::NoAnswer { action });
    };
    let command = [uapi::ETHTOOL_MSG_FEATURES_GET, 1, 0, 0];
    let request = Request::new(family, libc::NLM_F_ACK, &command).with_nested(
        uapi::ETHTOOL_A_FEATURES_HEADER,
        uapi::ETHTOOL_A_HEADER_DEV_INDEX,
        &link.index.to_ne_bytes(),
    );
    let mut names = BTreeSet::new();
    requester.ask(request, &action, |message| {
        for (kind, set) in attributes_after(message.body, GENERIC_HEADER_LEN) {
            if kind == uapi::ETHTOOL_A_FEATURES_ACTIVE {
                names.extend(names_of(set));
            }
        }
    })?;
    Ok(names)
}

/// The names in a bit set that comes as a list of set bits (`ETHTOOL_A_BITSET_NOMASK`).
fn names_of(set: &[u8]) -> Vec<String> {
    let inside = |bytes, wanted| Attributes(bytes).filter(move |&(kind, _)| kind == wanted);
    inside(set, uapi::ETHTOOL_A_BITSET_BITS)
        .flat_map(|(_, bits)| inside(bits, uapi::ETHTOOL_A_BITSET_BITS_BIT))
        .flat_map(|(_, bit)| inside(bit, uapi::ETHTOOL_A_BITSET_BIT_NAME))
        .filter_map(|(_, name)| text(name))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::state::Kernel;

    fn attribute(kind: u16, value: &[u8]) -> Vec<u8> {
        // `Request` writes attributes behind its header of 16 bytes.
        Request::new(0, 0, &[]).with(kind, value).finish(0)[16..].to_vec()
    }

    #[test]
    fn set_bits_are_listed_by_name() {
        let bit = |name: &[u8]| {
            let inner = [attribute(1, &7_u32.to_ne_bytes()), attribute(2, name)].concat();
            attribute(uapi::ETHTOOL_A_BITSET_BITS_BIT, &inner)
        };
        let bits = [bit(b"rx-gro\0"), bit(b"tx-udp-segmentation\0")].concat();
        let set = [attribute(1, &[]), attribute(uapi::ETHTOOL_A_BITSET_BITS, &bits)].concat();
        assert_eq!(names_of(&set), ["rx-gro", "tx-udp-segmentation"]);
        assert!(names_of(&set[..set.len() - 9]).len() <= 1, "a torn answer is no panic");
        assert!(names_of(&[]).is_empty());
    }

    /// What the kernel says of the loopback interface, which every machine has.
    #[test]
    fn the_loopback_interface_has_features() {
        let Ok(mirror) = crate::Mirror::open() else { return };
        let kernel: &Kernel = mirror.state();
        let lo = kernel.links().find(|link| link.loopback).expect("lo");
        let features = active_features(lo).expect("an answer");
        // NETIF_F_LOOPBACK is set on it and fixed (drivers/net/loopback.c).
        assert!(features.contains("loopback"), "{features:?}");
    }
}
