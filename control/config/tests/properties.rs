//! Whatever the text, parsing ends in a configuration or in messages, never in a panic; and what
//! is displayed parses to the same value.

use std::fs;
use std::net::IpAddr;
use std::path::Path;

use proptest::prelude::*;
use sluice_config::{
    AddressRange, Config, Device, Dma, Mac, Memif, MemifMode, MemifRole, PciAddress, Prefix,
    XdpDriver,
};

use crate::refused::cases;

/// Parses, and looks at everything that comes of it.
fn try_parse(text: &str) -> Result<(), TestCaseError> {
    match Config::parse("sluice.toml", text) {
        Ok(loaded) => {
            let _ = (loaded.check_live(), loaded.check_machine(2));
            let _ = loaded.config.spec();
        }
        Err(refused) => {
            prop_assert!(!refused.diagnostics().is_empty());
            prop_assert!(refused.to_string().starts_with("error: sluice.toml:"));
        }
    }
    Ok(())
}

/// Every example and every wrong file: something for mutations to start from.
fn corpus() -> Vec<String> {
    let examples = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples");
    let mut files = Vec::new();
    for entry in fs::read_dir(&examples).expect("a folder of configurations") {
        let path = entry.expect("an entry").path();
        if path.extension().is_some_and(|extension| extension == "toml") {
            files.push(path);
        }
    }
    files.sort();
    let examples = files.iter().map(|file| fs::read_to_string(file).expect("a readable file"));
    cases().into_iter().map(|case| case.file).chain(examples).collect()
}

/// A cut of one file followed by a cut of another, with some text between.
fn spliced() -> impl Strategy<Value = String> {
    let corpus = corpus();
    let pick = prop::sample::select(corpus);
    let part = (pick, any::<prop::sample::Index>(), any::<prop::sample::Index>());
    let cut = part.prop_map(|(text, from, to)| {
        let (from, to) = (from.index(text.len() + 1), to.index(text.len() + 1));
        let (from, to) = (text.floor_char_boundary(from), text.floor_char_boundary(to));
        text[from.min(to)..from.max(to)].to_owned()
    });
    (cut.clone(), "\\PC{0,8}|[\\[\\]{}=\"'.,#\n\r\t 0-9-]{0,8}", cut)
        .prop_map(|(first, between, second)| first + &between + &second)
}

fn file_name() -> impl Strategy<Value = String> {
    "[a-zA-Z0-9/_.:= -]{1,40}".prop_map(|name| format!("./{name}"))
}

fn memif() -> impl Strategy<Value = Device> {
    let role = prop_oneof![Just(MemifRole::Client), Just(MemifRole::Server)];
    let socket = "(/[a-zA-Z0-9/_.:= -]{0,80}[a-z]|@[a-z/.-]{1,30})";
    let file = proptest::option::of("/[a-z/.-]{0,30}[a-z]");
    let buffer = proptest::option::of((4_u16..=256).prop_map(|lines| lines * 64));
    let mode = prop_oneof![Just(MemifMode::Ethernet), Just(MemifMode::Ip)];
    let dma = proptest::option::of(
        ("[a-z0-9:._]{1,20}", 1_u32..=65_535).prop_map(|(device, from)| Dma { device, from }),
    );
    (socket, any::<u32>(), (role, mode), file, 8_u16..=14, (buffer, dma)).prop_map(
        |(socket, id, (role, mode), secret_file, log2, (buffer, dma))| {
            let dma = dma.filter(|_| mode == MemifMode::Ethernet);
            let ring = 1 << log2;
            Device::Memif(Memif { socket, id, role, mode, secret_file, ring, buffer, dma })
        },
    )
}

fn xdp_driver() -> impl Strategy<Value = XdpDriver> {
    let budget = proptest::option::of(1_u16..=1024);
    prop_oneof![budget.prop_map(|busy_poll| XdpDriver::Own { busy_poll }), Just(XdpDriver::Dpdk)]
}

fn device() -> impl Strategy<Value = Device> {
    let interface = "[a-z][a-zA-Z0-9._@+-]{0,14}";
    let pci = (any::<u32>(), any::<u8>(), 0..32_u8, 0..8_u8);
    let files = (proptest::option::of(file_name()), proptest::option::of(file_name()));
    prop_oneof![
        (interface, xdp_driver())
            .prop_map(|(interface, driver)| Device::AfXdp { interface, driver }),
        interface.prop_map(|interface| Device::AfPacket { interface }),
        interface.prop_map(|interface| Device::Vxlan { interface }),
        interface.prop_map(|name| Device::Tap { name }),
        pci.prop_map(|(domain, bus, device, function)| Device::Pci {
            address: PciAddress { domain, bus, device, function }
        }),
        memif(),
        files
            .prop_filter("one at least, and two different ones", |(rx, tx)| rx != tx)
            .prop_map(|(rx, tx)| Device::Pcap { rx, tx }),
        "[a-zA-Z0-9_:,=./-]{1,100}".prop_map(|devargs| Device::Dpdk { devargs }),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn arbitrary_text_never_panics(text in any::<String>()) {
        try_parse(&text)?;
    }

    #[test]
    fn text_like_toml_never_panics(
        text in "([a-z_]{1,9}|[\\[\\]{}=\"'.,#:\n\r\t 0-9-]|\\PC){0,200}",
    ) {
        try_parse(&text)?;
    }

    #[test]
    fn pieces_of_configurations_never_panic(text in spliced()) {
        try_parse(&text)?;
    }

    #[test]
    fn devices_display_as_they_parse(device in device()) {
        prop_assert_eq!(device.to_string().parse(), Ok(device));
    }

    #[test]
    fn arbitrary_devices_parse_or_say_why(
        text in "(af_xdp|af_packet|vxlan|pci|memif|tap|pcap|dpdk|\\PC{0,6}):?\\PC{0,30}",
    ) {
        match text.parse::<Device>() {
            Ok(device) => prop_assert_eq!(device.to_string().parse(), Ok(device)),
            Err(fault) => prop_assert!(!fault.message.is_empty() && !fault.hint.is_empty()),
        }
    }

    #[test]
    fn macs_display_as_they_parse(bytes in any::<[u8; 6]>()) {
        match Mac::new(bytes) {
            Some(mac) => prop_assert_eq!(mac.to_string().parse(), Ok(mac)),
            None => prop_assert!(bytes[0] & 1 == 1 || bytes == [0; 6]),
        }
    }

    #[test]
    fn prefixes_display_as_they_parse(address in any::<IpAddr>(), length in 0..=128_u8) {
        match Prefix::new(address, length) {
            Some(prefix) => {
                prop_assert_eq!(prefix.to_string().parse(), Ok(prefix));
                prop_assert!(prefix.range().contains(address));
                prop_assert_eq!(prefix.range().first(), prefix.address());
            }
            None => prop_assert!(address.is_ipv4() && length > 32),
        }
    }

    #[test]
    fn ranges_display_as_they_parse(first in any::<IpAddr>(), last in any::<IpAddr>()) {
        match AddressRange::new(first, last) {
            Some(range) => {
                prop_assert_eq!(range.to_string().parse(), Ok(range));
                prop_assert!(range.contains(first) && range.contains(last));
            }
            None => prop_assert!(first.is_ipv4() != last.is_ipv4() || first > last),
        }
    }

    #[test]
    fn ranges_give_each_address_once(first in any::<u32>(), count in 1..1000_u32) {
        let last = first.saturating_add(count - 1);
        let address = |bits: u32| IpAddr::V4(bits.into());
        let range = AddressRange::new(address(first), address(last)).expect("in order");
        let expected: Vec<IpAddr> = (first..=last).map(address).collect();
        prop_assert_eq!(range.count(), expected.len() as u128);
        prop_assert_eq!(range.iter().collect::<Vec<_>>(), expected);
    }
}
