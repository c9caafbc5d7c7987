//! Golden texts, and what is refused.

use clap::Parser;

use super::*;
use crate::cli::ha::{Config as HaConfig, Doing};
use crate::cli::{Cli, Command};

const PORT: &str = "[[port]]\nname = \"front\"\ndevice = \"af_xdp:front\"\n\n";

fn pool(name: &str, addresses: &str) -> String {
    format!("[[pool]]\nname = \"{name}\"\naddresses = [{addresses}]\n\n")
}

fn service(name: &str, vip: &str, pool: &str, real: &str) -> String {
    format!(
        "[[service]]\nname = \"{name}\"\nprotocol = \"tcp\"\nvip = \"{vip}\"\nport = 80\n\
         mode = \"fnat\"\npool = \"{pool}\"\n\n[[service.real]]\naddress = \"{real}\"\n\n"
    )
}

fn v4_only() -> String {
    [PORT, &pool("lan", "\"192.0.2.10\""), &service("web", "198.51.100.200", "lan", "192.0.2.11")]
        .concat()
}

/// Both families, a pool of source NAT, more addresses than an advert has.
fn everything() -> String {
    let snat = "[[snat]]\nname = \"out\"\nsources = [\"192.0.2.0/24\"]\npool = \"outside\"\n\n";
    let pools = [
        pool("lan", "\"192.0.2.32-192.0.2.52\", \"2001:db8:2::10\""),
        pool("outside", "\"203.0.113.1\""),
    ];
    let services = [
        service("web", "198.51.100.200", "lan", "192.0.2.11"),
        service("web6", "2001:db8:1::200", "lan", "2001:db8:2::11"),
        service("mail", "198.51.100.201", "lan", "192.0.2.11"),
        service("again", "198.51.100.200", "lan", "192.0.2.12").replace("= 80", "= 443"),
    ];
    [PORT, &pools.concat(), &services.concat(), snat].concat()
}

/// The options of a command line, and the text for a file.
fn text_of(line: &str, file: &str) -> Result<String, String> {
    let words = format!("sluice ha config keepalived {line}");
    let cli = Cli::try_parse_from(words.split_whitespace()).map_err(|wrong| wrong.to_string())?;
    let Command::Ha { doing: Some(Doing::Config(HaConfig::Keepalived(asked))), .. } = cli.command
    else {
        panic!("{cli:?}")
    };
    let config = Config::parse("sluice.toml", file).expect("a configuration").config;
    let called = Called::by(Path::new("/usr/bin/sluice"), Path::new(DEFAULT_SOCKET))?;
    text(&asked, &config, "sluice.toml", &called)
}

#[test]
fn one_arm_one_family() {
    let text = text_of("--interface eth0 --role primary", &v4_only()).expect("a text");
    insta::assert_snapshot!("one_arm", text);
}

#[test]
fn two_arms_two_families_unicast() {
    let line = "--interface front --local-interface back --role secondary --advert-ms 300 \
                --virtual-router-id 7 --source 198.51.100.2 --source 2001:db8:1::2 \
                --peer 198.51.100.1 2001:db8:1::1 --address 192.0.2.254";
    insta::assert_snapshot!("two_arms", text_of(line, &everything()).expect("a text"));
}

/// A pair whose directors are both active, and whose files fit together.
#[test]
fn two_groups() {
    let pools = pool("lan", "OWN").replace("[OWN]", "[OWN]\npeer_addresses = [PEER]");
    let own = ["\"192.0.2.10\", \"2001:db8:2::10\"", "\"192.0.2.20\", \"2001:db8:2::20\""];
    let services = [
        service("web", "198.51.100.200", "lan", "192.0.2.11"),
        service("web6", "2001:db8:1::200", "lan", "2001:db8:2::11"),
        service("mail", "198.51.100.201", "lan", "192.0.2.11"),
    ];
    let of = |role: &str, own: &str, peer: &str| {
        let pools = pools.replace("[OWN]", &format!("[{own}]"));
        let pools = pools.replace("[PEER]", &format!("[{peer}]"));
        let line = format!("--interface eth0 --role {role} --secondary-vip 198.51.100.201");
        text_of(&line, &[PORT, &pools, &services.concat()].concat()).expect("a text")
    };
    let (primary, secondary) = (of("primary", own[0], own[1]), of("secondary", own[1], own[0]));
    insta::assert_snapshot!("two_groups", primary);
    // The same but for who is who.
    let swapped = secondary.replace("priority 240", "priority x").replace("250", "240");
    let swapped = swapped.replace("priority x", "priority 250").replace("secondary", "primary");
    assert_eq!(swapped, primary);
}

#[test]
fn what_cannot_be_is_refused() {
    let plain = "--interface eth0 --role primary";
    let long = "--interface an-interface-too-long --role primary";
    for (line, file, expected) in [
        (plain, PORT, "sluice.toml has no service with a VIP"),
        (long, PORT, "an interface has 1 to 15 letters"),
        ("--interface eth/0 --role primary", PORT, "an interface has 1 to 15 letters"),
        ("--interface eth0 --role third", PORT, "primary, secondary"),
        ("--interface eth0", PORT, "--role <ROLE>"),
        ("--interface eth0 --role primary --advert-ms 5", PORT, "a multiple of 10"),
        ("--interface eth0 --role primary --virtual-router-id 0", PORT, "1..=255"),
        ("--interface eth0 --role primary --source 192.0.2.1", PORT, "--peer <ADDRESS>"),
        (
            "--interface eth0 --role primary --source 192.0.2.1 --peer 192.0.2.2",
            &everything(),
            "IPv6 addresses move: unicast takes an IPv6 --source",
        ),
        (
            "--interface eth0 --role primary --secondary-vip 198.51.100.9",
            &everything(),
            "--secondary-vip 198.51.100.9: no service has this VIP",
        ),
        (
            "--interface eth0 --role primary --secondary-vip 198.51.100.201",
            &everything(),
            "pool \"lan\" has no `peer_addresses`",
        ),
        (
            "--interface eth0 --role primary --secondary-vip 198.51.100.200 \
             --virtual-router-id 255",
            &v4_only().replace("\"]", "\"]\npeer_addresses = [\"192.0.2.20\"]"),
            "use at most 254",
        ),
    ] {
        let said = text_of(line, file).expect_err(line);
        assert!(said.contains(expected), "{line}: {said}");
    }
}

#[test]
fn the_command_is_one_that_keepalived_can_call() {
    let usual = command(Path::new("/usr/bin/sluice"), Path::new(DEFAULT_SOCKET));
    assert_eq!(usual.as_deref(), Ok("/usr/bin/sluice"));
    let blue = command(Path::new("/usr/bin/sluice"), Path::new("/run/blue.sock"));
    assert_eq!(blue.as_deref(), Ok("/usr/bin/sluice --socket /run/blue.sock"));
    let odd = command(Path::new("/home/it's me/sluice"), Path::new(DEFAULT_SOCKET));
    assert!(odd.is_err_and(|said| said.contains("keepalived cannot call this path")));
}
