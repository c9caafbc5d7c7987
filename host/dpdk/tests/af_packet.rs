//! AF_PACKET ports with a TAP twin: the port owns the wire, the kernel lives on the twin. Needs
//! root.

mod bed;

use bed::{Bed, Echo, PORT_ADDRESS, ethernet_address, ip, wait_until};

const DEVICE: [&str; 4] = ["--device", "af_packet:port0", "--twin", "twin0"];

/// The kernel's address moves to the twin.
fn with_twin(queues: &[&str]) -> (Bed, Echo) {
    let bed = Bed::new(1);
    ip(&["-n", &bed.here, "addr", "flush", "dev", "port0"]);
    let echo = Echo::start(&bed, &[&DEVICE[..], queues].concat());
    ip(&["-n", &bed.here, "addr", "add", &format!("{PORT_ADDRESS}/24"), "dev", "twin0"]);
    (bed, echo)
}

#[test]
fn the_kernel_lives_behind_the_twin() {
    needs_root!();
    let (bed, mut echo) = with_twin(&[]);
    let twin = ip(&["-n", &bed.here, "link", "show", "twin0"]);
    let same = ethernet_address(&twin) == ethernet_address(&bed.link());
    assert!(same, "the twin has the port's address");
    // Both the twin and, unsealed, the interface below would answer.
    assert_eq!(bed.ping(5), (5, 0), "each request is answered once");
    assert_eq!(bed.exchange(7, "to the port\n"), "to the port\n");
    assert_eq!(echo.count("echoed"), 1);
    assert!(echo.count("to_twin") >= 5 && echo.count("from_twin") >= 5);
    // On a busy machine some come before it sleeps again, and need not wake it.
    assert!(echo.count("wakes") > 0, "frames woke the sleeping program");
    assert_eq!(bed.exchange(9, "nobody\n"), "", "a closed port of the kernel's");
    echo.quit();
    let links = ip(&["-n", &bed.here, "link"]);
    assert!(!links.contains("twin0"), "{links}");
    // The seal is gone: the kernel has the interface back.
    ip(&["-n", &bed.here, "addr", "add", &format!("{PORT_ADDRESS}/24"), "dev", "port0"]);
    assert_eq!(bed.ping(2), (2, 0));
}

#[test]
fn the_port_does_not_hear_what_the_kernel_sends() {
    needs_root!();
    let bed = Bed::new(1);
    bed.introduce();
    let mut echo = Echo::start(&bed, &DEVICE[..2]);
    let before = echo.count("rx");
    // Forty broadcasts leave through the interface below.
    let pings = ["netns", "exec", &bed.here, "ping", "-b", "-c", "40", "-i", "0.02", "192.0.2.255"];
    let _ = std::process::Command::new("ip").args(pings).output().unwrap();
    assert_eq!(bed.exchange(7, "marker\n"), "marker\n");
    let heard = echo.count("rx") - before;
    // The datagram and its ARP request; multicast of the peer's may come between.
    assert!(heard < 20, "{heard} frames");
    echo.quit();
}

#[test]
fn several_queues_share_the_flows() {
    needs_root!();
    let (bed, mut echo) = with_twin(&["--queues", "2"]);
    for n in 0..32 {
        assert_eq!(bed.exchange(7, &format!("flow {n}\n")), format!("flow {n}\n"));
    }
    assert_eq!(echo.count("echoed"), 32);
    assert_eq!(echo.count("queues_used"), 2, "both queues had frames");
    echo.quit();
}

#[test]
fn an_interface_may_vanish_and_return_again_and_again() {
    needs_root!();
    let bed = Bed::new(1);
    let mut echo = Echo::start(&bed, &DEVICE[..2]);
    let descriptors = echo.open_descriptors();
    for round in 0..5 {
        bed.introduce();
        let text = format!("round {round}\n");
        assert_eq!(bed.exchange(7, &text), text);
        bed.cut_wire();
        echo.wait_for("gone");
        wait_until("all buffers are back", || echo.count("free_frames") == 16_384);
        bed.lay_wire();
        echo.wait_for("ready");
    }
    bed.introduce();
    assert_eq!(bed.exchange(7, "and on\n"), "and on\n");
    echo.wait_descriptors(descriptors);
    assert!(echo.log().lines().count() < 100, "it was told once:\n{}", echo.log());
    echo.quit();
}

#[test]
fn segments_are_joined_while_the_port_is_open() {
    needs_root!();
    let bed = Bed::new(1);
    let gro = || {
        let query = ["netns", "exec", &bed.here, "ethtool", "-k", "port0"];
        let all = ip(&query);
        let line = all.lines().find(|line| line.starts_with("generic-receive-offload"));
        line.expect("ethtool tells").ends_with(": on")
    };
    ip(&["netns", "exec", &bed.here, "ethtool", "-K", "port0", "gro", "off"]);
    assert!(!gro());
    let echo = Echo::start(&bed, &DEVICE[..2]);
    assert!(gro(), "segments are joined");
    echo.quit();
    assert!(!gro(), "as it was before");
}

#[test]
fn the_interfaces_mtu_is_set() {
    needs_root!();
    let bed = Bed::new(1);
    let echo = Echo::start(&bed, &[&DEVICE[..2], &["--mtu", "3000"]].concat());
    assert!(bed.link().contains("mtu 3000"), "{}", bed.link());
    echo.quit();
}
