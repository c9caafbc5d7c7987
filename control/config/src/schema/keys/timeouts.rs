//! `[timeouts]`

use super::*;

/// The section.
pub(crate) static SECTION: Section = Section {
    place: Place::Timeouts,
    name: "timeouts",
    heading: "[timeouts]",
    about: "Idle timeouts of sessions by state, in seconds. May be left out; the defaults are \
            those of IPVS where it has them.",
    keys: &[
        &SYN_RECV,
        &ESTABLISHED,
        &FIN_WAIT,
        &CLOSE_WAIT,
        &LAST_ACK,
        &TIME_WAIT,
        &CLOSE,
        &UDP,
        &ONE_PACKET,
        &SCTP,
        &ICMP,
        &OTHER,
    ],
    sections: &[],
};

const fn seconds(name: &'static str, min: i64, default: i64, about: &'static str) -> Key {
    let kind = Integer { min, max: 86_400 };
    Key { name, kind, without: Without::Integer(default), example: "60", about }
}

pub(crate) static SYN_RECV: Key =
    seconds("tcp_syn_recv_s", 1, 60, "A SYN was seen, the handshake is not complete.");
pub(crate) static ESTABLISHED: Key =
    seconds("tcp_established_s", 1, 900, "The handshake is complete.");
pub(crate) static FIN_WAIT: Key =
    seconds("tcp_fin_wait_s", 1, 120, "The client closed its side first.");
pub(crate) static CLOSE_WAIT: Key =
    seconds("tcp_close_wait_s", 1, 60, "The real server closed its side first.");
pub(crate) static LAST_ACK: Key =
    seconds("tcp_last_ack_s", 1, 30, "Both sides closed, the last acknowledgement is missing.");
pub(crate) static TIME_WAIT: Key = seconds(
    "tcp_time_wait_s",
    0,
    0,
    "After the four-way close. With 0 the session is over, and its port free, with the last \
     acknowledgement; retransmissions still pass for one second unless another session needs its \
     resources (docs/sessions.md).",
);
pub(crate) static CLOSE: Key =
    seconds("tcp_close_s", 0, 0, "After a reset. 0 deletes the session with the reset.");
pub(crate) static UDP: Key = seconds("udp_s", 1, 300, "UDP.");
pub(crate) static ONE_PACKET: Key = seconds(
    "one_packet_s",
    1,
    10,
    "UDP of a service with `one_packet`: how long the director waits for an answer.",
);
pub(crate) static SCTP: Key = seconds("sctp_s", 1, 900, "SCTP.");
pub(crate) static ICMP: Key = seconds("icmp_s", 1, 30, "ICMP echo through source NAT.");
pub(crate) static OTHER: Key =
    seconds("other_s", 1, 300, "Any other protocol, of a service with `protocol = \"any\"`.");
