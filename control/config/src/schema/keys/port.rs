//! `[[port]]`

use super::*;

/// The section.
pub(crate) static SECTION: Section = Section {
    place: Place::Port,
    name: "port",
    heading: "[[port]]",
    about: "A network device and its driver. At least one, at most 32. One port is enough for the \
            one-arm layout.",
    keys: &[&NAME, &DEVICE, &NETWORK, &QUEUES, &TWIN, &MAC, &MTU, &FLOW_RULES],
    sections: &[],
};

pub(crate) static NAME: Key = Key {
    name: "name",
    kind: Text(A_NAME),
    without: Without::Required,
    example: "\"front\"",
    about: "The name by which all else refers to the port; unique.",
};
pub(crate) static DEVICE: Key = Key {
    name: "device",
    kind: Text("KIND:WHAT, such as \"af_xdp:eth0\""),
    without: Without::Required,
    example: "\"af_xdp:eth0\"",
    about: "The device, see [Devices](#devices). A device belongs to one port only.",
};
pub(crate) static NETWORK: Key =
    super::network::named_by("The network that its packets are of. A `vxlan` port needs one.");
pub(crate) static QUEUES: Key = Key {
    name: "queues",
    kind: Integer { min: 1, max: 64 },
    without: Without::Unset(
        "as many as there are workers; for `af_xdp` as many as the interface has",
    ),
    example: "2",
    about: "Pairs of receive and transmit queues, assigned to the workers in turn. Not for \
            `vxlan`, whose packets travel by the ports of the default network.",
};
pub(crate) static TWIN: Key = Key {
    name: "twin",
    kind: Text(AN_INTERFACE),
    without: Without::Unset("no twin: what the director does not take is dropped"),
    example: "\"sluice0\"",
    about: "Name of a TAP interface that the director creates for the port. Traffic that is not \
            load balanced goes to the kernel through it, and the kernel's own packets leave by it: \
            give it the port's addresses. For `af_packet`, `pci`, `memif` and `dpdk`; with \
            `af_xdp` the kernel keeps the interface itself, and with `vxlan` it has it.",
};
pub(crate) static MAC: Key = Key {
    name: "mac",
    kind: Text(A_MAC),
    without: Without::Unset("the device's own; in `sluice replay` 02:00:00:00:00:NN"),
    example: "\"02:00:00:00:00:01\"",
    about: "The port's MAC address. Not for `vxlan`: the kernel's device has one.",
};
pub(crate) static MTU: Key = Key {
    name: "mtu",
    kind: Integer { min: 576, max: 9216 },
    without: Without::Unset("the device's own; in `sluice replay` 1500"),
    example: "9000",
    about: "The largest IP packet that the port sends, in bytes; for a super-packet (see \
            [Devices](#devices)), its largest segment. Beside `af_xdp` ports with `driver=dpdk`, \
            whose frames fit one page, only `af_packet` ports may have 9000. Not for `vxlan`: the \
            kernel's device has one.",
};
pub(crate) static FLOW_RULES: Key = Key {
    name: "flow_rules",
    kind: Boolean,
    without: Without::Boolean(true),
    example: "false",
    about: "Whether the NIC of a `pci` or `dpdk` port gets flow rules (`rte_flow`) for services, \
            local addresses and the like, as far as its driver has them: see \
            [ports.md](ports.md#steering-rules). Without them all is looked up in software. Other \
            devices have none.",
};
