//! Every section and key of the configuration file, described once: a file for each section.

pub(crate) mod announce;
pub(crate) mod api;
pub(crate) mod check;
pub(crate) mod director;
pub(crate) mod elephants;
pub(crate) mod icmp;
pub(crate) mod ipip;
pub(crate) mod ipvs;
pub(crate) mod limits;
pub(crate) mod metrics;
pub(crate) mod neighbour;
pub(crate) mod network;
pub(crate) mod pool;
pub(crate) mod port;
pub(crate) mod real;
pub(crate) mod route;
pub(crate) mod service;
pub(crate) mod snat;
pub(crate) mod sync;
pub(crate) mod tcp;
pub(crate) mod timeouts;

use super::Kind::{Boolean, Integer, Integers, Labels, PortOrRange, Text, Texts, Word, Words};
use super::{Key, Section, Without};
use crate::path::Place;
use crate::words::words_of;

const A_NAME: &str = "a name of 1 to 64 letters, digits, `.`, `_` and `-`";
const AN_INTERFACE: &str = "an interface name of 1 to 15 characters";
const AN_ADDRESS: &str = "an IPv4 or IPv6 address";
const A_DESTINATION: &str = "`ADDRESS:PORT MODE WEIGHT [UPPER LOWER]`";
const A_PREFIX: &str = "an IPv4 or IPv6 prefix";
const A_MAC: &str = "a MAC address";
const A_POOL: &str = "the name of a [[pool]]";
const A_CHECK: &str = "the name of a [[check]]";
const A_PORT: &str = "the name of a [[port]]";
const A_NETWORK: &str = "the name of a [[network]]";

/// The file itself.
pub(crate) static FILE: Section = Section {
    place: Place::File,
    name: "",
    heading: "",
    about: "",
    keys: &[],
    sections: &[
        &director::SECTION,
        &api::SECTION,
        &limits::SECTION,
        &timeouts::SECTION,
        &tcp::SECTION,
        &icmp::SECTION,
        &elephants::SECTION,
        &ipip::SECTION,
        &metrics::SECTION,
        &sync::SECTION,
        &announce::SECTION,
        &ipvs::SECTION,
        &network::SECTION,
        &port::SECTION,
        &pool::SECTION,
        &service::SECTION,
        &check::SECTION,
        &snat::SECTION,
        &route::SECTION,
        &neighbour::SECTION,
    ],
};
