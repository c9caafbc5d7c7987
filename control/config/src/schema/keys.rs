//! Every section and key of the configuration file, described once.

use sluice_director::blueprint::{Mode, NoSession, Protocol, Scheduling};

use super::Kind::{Boolean, Integer, Integers, Text, Texts, Word};
use super::{Key, Section, Without};
use crate::path::Place;
use crate::words::words_of;
use crate::{HugePages, Idle, LogLevel};

const NAME: &str = "a name of 1 to 64 letters, digits, `.`, `_` and `-`";
const INTERFACE: &str = "an interface name of 1 to 15 characters";
const ADDRESS: &str = "an IPv4 address";
const MAC: &str = "a MAC address";

/// The file itself.
pub(crate) static FILE: Section = Section {
    place: Place::File,
    name: "",
    heading: "",
    about: "",
    keys: &[],
    sections: &[&DIRECTOR, &LIMITS, &TIMEOUTS, &TCP, &PORT, &POOL, &SERVICE, &ROUTE, &NEIGHBOUR],
};

/// `[director]`
pub(crate) static DIRECTOR: Section = Section {
    place: Place::Director,
    name: "director",
    heading: "[director]",
    about: "The process as a whole. May be left out.",
    keys: &[
        &director::CORES,
        &director::IDLE,
        &director::HUGE_PAGES,
        &director::LOG_LEVEL,
        &director::CONTROL_SOCKET,
    ],
    sections: &[],
};

pub(crate) mod director {
    use super::*;

    pub(crate) static CORES: Key = Key {
        name: "cores",
        kind: Integers { min: 0, max: 1023 },
        without: Without::Unset("one worker, on the last core that the process may use"),
        example: "[1, 2]",
        about: "One worker runs on each of these cores, by the kernel's CPU numbers (`lscpu -e`). \
                At most 64, each once. Leave at least one core to everything else.",
    };
    pub(crate) static IDLE: Key = Key {
        name: "idle",
        kind: Word(words_of::<Idle>),
        without: Without::Text("adaptive"),
        example: "\"busy\"",
        about: "What a worker does when there is nothing to do. `adaptive`: it sleeps and wakes \
                on traffic. `busy`: it goes on polling, which costs a whole core and gives the \
                least latency.",
    };
    pub(crate) static HUGE_PAGES: Key = Key {
        name: "huge_pages",
        kind: Word(words_of::<HugePages>),
        without: Without::Text("auto"),
        example: "\"required\"",
        about: "`auto`: memory comes from huge pages when the machine has any, otherwise from \
                ordinary ones, slower. `required`: the director does not start without. `off`: \
                ordinary pages.",
    };
    pub(crate) static LOG_LEVEL: Key = Key {
        name: "log_level",
        kind: Word(words_of::<LogLevel>),
        without: Without::Text("info"),
        example: "\"debug\"",
        about: "The least important messages that are logged.",
    };
    pub(crate) static CONTROL_SOCKET: Key = Key {
        name: "control_socket",
        kind: Text("an absolute path of at most 107 bytes"),
        without: Without::Text("/run/sluice/sluice.sock"),
        example: "\"/run/sluice/blue.sock\"",
        about: "The Unix socket on which the `sluice` command talks to the director. Two \
                directors on one machine need two.",
    };
}

/// `[limits]`
pub(crate) static LIMITS: Section = Section {
    place: Place::Limits,
    name: "limits",
    heading: "[limits]",
    about: "What memory is set aside for when the director starts. May be left out.",
    keys: &[&limits::SESSIONS, &limits::HELD_FRAMES],
    sections: &[],
};

pub(crate) mod limits {
    use super::*;

    pub(crate) static SESSIONS: Key = Key {
        name: "sessions",
        kind: Integer { min: 1, max: 1 << 30 },
        without: Without::Integer(1_000_000),
        example: "10_000_000",
        about: "Sessions of the whole director, split evenly between the workers: at least one \
                for each. When a worker's share is used up, new sessions are refused and counted.",
    };
    pub(crate) static HELD_FRAMES: Key = Key {
        name: "held_frames",
        kind: Integer { min: 0, max: 65_536 },
        without: Without::Integer(512),
        example: "1024",
        about: "Frames that one worker may hold while the MAC address of a neighbour is being \
                resolved; more are dropped and counted. 0 holds none.",
    };
}

/// `[timeouts]`
pub(crate) static TIMEOUTS: Section = Section {
    place: Place::Timeouts,
    name: "timeouts",
    heading: "[timeouts]",
    about: "How long a session lives after its last packet, in seconds. May be left out; the \
            defaults are those of IPVS where it has them.",
    keys: &[
        &timeouts::SYN_RECV,
        &timeouts::ESTABLISHED,
        &timeouts::FIN_WAIT,
        &timeouts::CLOSE_WAIT,
        &timeouts::LAST_ACK,
        &timeouts::TIME_WAIT,
        &timeouts::CLOSE,
        &timeouts::UDP,
    ],
    sections: &[],
};

pub(crate) mod timeouts {
    use super::*;

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
        "After the four-way close. 0 deletes the session with the last acknowledgement.",
    );
    pub(crate) static CLOSE: Key =
        seconds("tcp_close_s", 0, 0, "After a reset. 0 deletes the session with the reset.");
    pub(crate) static UDP: Key = seconds("udp_s", 1, 300, "UDP.");
}

/// `[tcp]`
pub(crate) static TCP: Section = Section {
    place: Place::Tcp,
    name: "tcp",
    heading: "[tcp]",
    about: "What happens to TCP packets that belong to no session. May be left out.",
    keys: &[&tcp::NO_SESSION, &tcp::ACCEPT_MID_STREAM],
    sections: &[],
};

pub(crate) mod tcp {
    use super::*;

    pub(crate) static NO_SESSION: Key = Key {
        name: "no_session",
        kind: Word(words_of::<NoSession>),
        without: Without::Text("drop"),
        example: "\"reset\"",
        about: "The answer to a TCP packet that belongs to no session and may not open one: \
                nothing, or a reset. Both are counted.",
    };
    pub(crate) static ACCEPT_MID_STREAM: Key = Key {
        name: "accept_mid_stream",
        kind: Boolean,
        without: Without::Boolean(false),
        example: "true",
        about: "Whether any TCP packet may open a session, not only a SYN. Connections of a \
                director that was restarted then go on, to a real server chosen anew (which \
                will most likely reset them).",
    };
}

/// `[[port]]`
pub(crate) static PORT: Section = Section {
    place: Place::Port,
    name: "port",
    heading: "[[port]]",
    about: "A network device and how it is driven. At least one, at most 32. One port is enough \
            for the one-arm layout.",
    keys: &[&port::NAME, &port::DEVICE, &port::QUEUES, &port::TWIN, &port::MAC, &port::MTU],
    sections: &[],
};

pub(crate) mod port {
    use super::*;

    pub(crate) static NAME: Key = Key {
        name: "name",
        kind: Text(super::NAME),
        without: Without::Required,
        example: "\"front\"",
        about: "What the port is called everywhere else; unique.",
    };
    pub(crate) static DEVICE: Key = Key {
        name: "device",
        kind: Text("KIND:WHAT, such as \"af_xdp:eth0\""),
        without: Without::Required,
        example: "\"af_xdp:eth0\"",
        about: "The device, see [Devices](#devices). A device belongs to one port only.",
    };
    pub(crate) static QUEUES: Key = Key {
        name: "queues",
        kind: Integer { min: 1, max: 64 },
        without: Without::Unset(
            "as many as there are workers; for `af_xdp` as many as the interface has",
        ),
        example: "2",
        about: "Pairs of receive and transmit queues; they go round the workers.",
    };
    pub(crate) static TWIN: Key = Key {
        name: "twin",
        kind: Text(super::INTERFACE),
        without: Without::Unset("no twin: what the director does not take is dropped"),
        example: "\"sluice0\"",
        about: "Name of a TAP interface that the director makes for the port. What is not load \
                balanced goes to the kernel through it, and the kernel's own packets leave by \
                it: give it the port's addresses. For `af_packet`, `pci`, `memif` and `dpdk`; \
                with `af_xdp` the kernel still has the interface itself.",
    };
    pub(crate) static MAC: Key = Key {
        name: "mac",
        kind: Text(super::MAC),
        without: Without::Unset("the device's own; in `sluice replay` 02:00:00:00:00:NN"),
        example: "\"02:00:00:00:00:01\"",
        about: "The port's MAC address.",
    };
    pub(crate) static MTU: Key = Key {
        name: "mtu",
        kind: Integer { min: 576, max: 9216 },
        without: Without::Unset("the device's own; in `sluice replay` 1500"),
        example: "9000",
        about: "The largest IP packet that the port sends, in bytes.",
    };
}

/// `[[pool]]`
pub(crate) static POOL: Section = Section {
    place: Place::Pool,
    name: "pool",
    heading: "[[pool]]",
    about: "A local pool: the source addresses and ports that Full NAT gives to packets towards \
            the real servers. Each (address, port) carries one session to one endpoint of a \
            real server at a time. The addresses must be routed to the director (in AF_XDP mode: \
            be addresses of its interfaces).",
    keys: &[&pool::NAME, &pool::ADDRESSES, &pool::PORTS],
    sections: &[],
};

pub(crate) mod pool {
    use super::*;

    pub(crate) static NAME: Key = Key {
        name: "name",
        kind: Text(super::NAME),
        without: Without::Required,
        example: "\"lan\"",
        about: "What services call it; unique.",
    };
    pub(crate) static ADDRESSES: Key = Key {
        name: "addresses",
        kind: Texts("an address, a range or a prefix"),
        without: Without::Required,
        example: "[\"192.0.2.10\", \"192.0.2.32-192.0.2.39\", \"192.0.2.64/29\"]",
        about: "Its addresses, at least one, in all pools together at most 65535. A prefix \
                stands for all its addresses, the first and the last too. An address is in one \
                pool only and is no VIP.",
    };
    pub(crate) static PORTS: Key = Key {
        name: "ports",
        kind: Text("FIRST-LAST, such as \"1024-65535\""),
        without: Without::Text("1024-65535"),
        example: "\"10000-59999\"",
        about: "Its ports, the same for each address. Packets to them are the director's: keep \
                the ports of programs on this machine out.",
    };
}

/// `[[service]]`
pub(crate) static SERVICE: Section = Section {
    place: Place::Service,
    name: "service",
    heading: "[[service]]",
    about: "A virtual service: what clients connect to. At most 65535.",
    keys: &[
        &service::NAME,
        &service::PROTOCOL,
        &service::VIP,
        &service::PORT,
        &service::MODE,
        &service::SCHEDULER,
        &service::POOL,
    ],
    sections: &[&REAL],
};

pub(crate) mod service {
    use super::*;

    pub(crate) static NAME: Key = Key {
        name: "name",
        kind: Text(super::NAME),
        without: Without::Required,
        example: "\"web\"",
        about: "What it is called in output and counters; unique.",
    };
    pub(crate) static PROTOCOL: Key = Key {
        name: "protocol",
        kind: Word(words_of::<Protocol>),
        without: Without::Required,
        example: "\"tcp\"",
        about: "The IP protocol.",
    };
    pub(crate) static VIP: Key = Key {
        name: "vip",
        kind: Text(super::ADDRESS),
        without: Without::Required,
        example: "\"198.51.100.200\"",
        about: "The virtual address. One address may carry several services; (protocol, vip, \
                port) is unique.",
    };
    pub(crate) static PORT: Key = Key {
        name: "port",
        kind: Integer { min: 1, max: 65_535 },
        without: Without::Required,
        example: "80",
        about: "The virtual port.",
    };
    pub(crate) static MODE: Key = Key {
        name: "mode",
        kind: Word(words_of::<Mode>),
        without: Without::Text("fnat"),
        example: "\"fnat\"",
        about: "How packets reach the real servers. `fnat` (Full NAT): the real servers see a \
                local address as the source, so answers come back through the director whatever \
                their routes are.",
    };
    pub(crate) static SCHEDULER: Key = Key {
        name: "scheduler",
        kind: Word(words_of::<Scheduling>),
        without: Without::Text("rr"),
        example: "\"rr\"",
        about: "How a real server is chosen for a new session, by IPVS's names. `rr`: in turn, \
                each alike.",
    };
    pub(crate) static POOL: Key = Key {
        name: "pool",
        kind: Text("the name of a [[pool]]"),
        without: Without::Required,
        example: "\"lan\"",
        about: "The local pool that its sessions take their source address and port from.",
    };
}

/// `[[service.real]]`
pub(crate) static REAL: Section = Section {
    place: Place::Real,
    name: "real",
    heading: "[[service.real]]",
    about: "A real server of the service above it. At most 16777216 in all services together. A \
            service without any refuses its clients.",
    keys: &[&real::ADDRESS, &real::PORT, &real::WEIGHT],
    sections: &[],
};

pub(crate) mod real {
    use super::*;

    pub(crate) static ADDRESS: Key = Key {
        name: "address",
        kind: Text(super::ADDRESS),
        without: Without::Required,
        example: "\"192.0.2.11\"",
        about: "Its address.",
    };
    pub(crate) static PORT: Key = Key {
        name: "port",
        kind: Integer { min: 1, max: 65_535 },
        without: Without::Unset("the service's port"),
        example: "8080",
        about: "Its port. (address, port) is unique within a service.",
    };
    pub(crate) static WEIGHT: Key = Key {
        name: "weight",
        kind: Integer { min: 0, max: 65_535 },
        without: Without::Integer(1),
        example: "2",
        about: "Its share of new sessions, for schedulers that weigh (`rr` does not). 0 drains it \
                with every scheduler: live sessions stay, new ones go elsewhere.",
    };
}

/// `[[route]]`
pub(crate) static ROUTE: Section = Section {
    place: Place::Route,
    name: "route",
    heading: "[[route]]",
    about: "A static route, for `sluice replay` only: a running director follows the kernel's \
            routes and ignores these.",
    keys: &[&route::PREFIX, &route::VIA, &route::PORT],
    sections: &[],
};

pub(crate) mod route {
    use super::*;

    pub(crate) static PREFIX: Key = Key {
        name: "prefix",
        kind: Text("an IPv4 prefix"),
        without: Without::Required,
        example: "\"0.0.0.0/0\"",
        about: "The destinations; unique.",
    };
    pub(crate) static VIA: Key = Key {
        name: "via",
        kind: Text(super::ADDRESS),
        without: Without::Unset("the destinations are on the link"),
        example: "\"198.51.100.1\"",
        about: "The next hop.",
    };
    pub(crate) static PORT: Key = Key {
        name: "port",
        kind: Text("the name of a [[port]]"),
        without: Without::Required,
        example: "\"front\"",
        about: "The port that leads there.",
    };
}

/// `[[neighbour]]`
pub(crate) static NEIGHBOUR: Section = Section {
    place: Place::Neighbour,
    name: "neighbour",
    heading: "[[neighbour]]",
    about: "A static neighbour, for `sluice replay` only: a running director follows the kernel's \
            neighbours and ignores these.",
    keys: &[&neighbour::ADDRESS, &neighbour::MAC, &neighbour::PORT, &neighbour::VLAN],
    sections: &[],
};

pub(crate) mod neighbour {
    use super::*;

    pub(crate) static ADDRESS: Key = Key {
        name: "address",
        kind: Text(super::ADDRESS),
        without: Without::Required,
        example: "\"192.0.2.11\"",
        about: "Its address; unique for each port.",
    };
    pub(crate) static MAC: Key = Key {
        name: "mac",
        kind: Text(super::MAC),
        without: Without::Required,
        example: "\"02:00:00:00:01:11\"",
        about: "Its MAC address.",
    };
    pub(crate) static PORT: Key = Key {
        name: "port",
        kind: Text("the name of a [[port]]"),
        without: Without::Required,
        example: "\"back\"",
        about: "The port it is reached by.",
    };
    pub(crate) static VLAN: Key = Key {
        name: "vlan",
        kind: Integer { min: 1, max: 4094 },
        without: Without::Unset("untagged"),
        example: "10",
        about: "The 802.1Q VLAN that it is in.",
    };
}
