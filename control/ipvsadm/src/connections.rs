//! Connections, a row each.

use sluice_ipvs::Connection;

use crate::listing::place_name;
use crate::parse::Listing;
use crate::world::{Transport, World};

/// The two lines above them.
pub(crate) fn heading(listing: &Listing) -> String {
    let local = if listing.local { "local              " } else { "" };
    let engines = if listing.engines { "        pe name          pe_data" } else { "" };
    format!(
        "IPVS connection entries\n\
         pro expire state       source             virtual            {local}destination{engines}\n"
    )
}

/// One of them. Clients' ports have no names.
pub(crate) fn row(it: &Connection, listing: &Listing, world: &mut impl World) -> String {
    let (protocol, transport) = match it.protocol {
        0 => ("IP".to_owned(), None),
        1 => ("ICMP".to_owned(), None),
        6 => ("TCP".to_owned(), Some(Transport::Tcp)),
        17 => ("UDP".to_owned(), Some(Transport::Udp)),
        58 => ("ICMPv6".to_owned(), None),
        132 => ("SCTP".to_owned(), None),
        other => (other.to_string(), None),
    };
    let numeric = listing.numeric;
    let client = place_name(it.client, None, numeric, world);
    let virtual_ = place_name(it.virtual_, transport, numeric, world);
    let local = match (listing.local, it.local) {
        (false, _) => String::new(),
        (true, None) => format!("{:<18} ", "-"),
        (true, Some(local)) => format!("{:<18} ", place_name(local, None, numeric, world)),
    };
    let destination = place_name(it.destination, transport, numeric, world);
    let expires = format!("{:02}:{:02}", it.expires_s / 60, it.expires_s % 60);
    format!(
        "{protocol:<3} {expires:<6} {:<11} {client:<18} {virtual_:<18} {local}{destination}\n",
        it.state
    )
}
