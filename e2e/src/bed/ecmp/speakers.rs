//! The routing daemons of the directors and of the router, with their configurations.

use super::super::frr;
use super::{Ecmp, PORT, ROUTER_AS};
use crate::error::LabError;
use crate::family::{FAMILIES, Family};
use crate::lab::Netns;
use crate::page;
use crate::process::Running;

/// BIRD's configuration, as docs/high-availability.md has it: with this director's addresses and
/// AS number, a session for each family, and shorter pauses before a session is tried again.
pub(super) fn bird_text(index: usize) -> Result<String, LabError> {
    const SESSION: &str = "protocol bgp tor {";
    let own_as = (ROUTER_AS + 1 + index as u32).to_string();
    let block = page::block(page::HIGH_AVAILABILITY, "BIRD 2 on the director", "")?;
    let (common, session) = block
        .split_once(SESSION)
        .ok_or_else(|| LabError::Wrong(format!("no `{SESSION}` in the page's\n{block}")))?;
    let own_id = Ecmp::link(Family::V4, index)[1].clone();
    let of_this = [("router id 198.51.100.6;", format!("router id {own_id};\nlog stderr all;"))];
    let of_this = of_this.into_iter().chain([("\"eth0\"", format!("\"{PORT}\""))]);
    let common = page::replaced(common, of_this.chain([("65001", own_as.clone())]))?;
    let sessions = FAMILIES.map(|family| {
        let [router, own] = Ecmp::link(family, index);
        let channel = if family == Family::V4 { "ipv4 {" } else { "ipv6 {" };
        let pauses = "connect retry time 1;\n  connect delay time 1;\n  error wait time 1, 2;";
        let of_this = [
            ("198.51.100.6", own),
            ("65001", own_as.clone()),
            ("198.51.100.5", router),
            ("ipv4 {", channel.to_owned()),
            ("bfd on;", format!("bfd on;\n  {pauses}")),
        ];
        page::replaced(session, of_this)
            .map(|session| format!("protocol bgp tor{} {{{session}", family.bits()))
    });
    let [v4, v6] = sessions;
    Ok(common + &v4? + &v6?)
}

/// FRR's configuration of bgpd, as docs/high-availability.md has it, for both families: with this
/// director's addresses and AS number, BFD as quick as BIRD's, and a shorter pause before a session
/// is tried again.
pub(super) fn frr_text(index: usize) -> Result<String, LabError> {
    const FAMILY: [&str; 2] = [" address-family ipv4", "exit-address-family\n"];
    let own_as = (ROUTER_AS + 1 + index as u32).to_string();
    let block = page::block(page::HIGH_AVAILABILITY, "FRR instead (`bgpd`", "")?;
    let neighbour: String =
        block.split_inclusive('\n').filter(|line| line.starts_with(" neighbor ")).collect();
    let routes = block.split_once(FAMILY[0]).and_then(|(_, rest)| rest.split_once(FAMILY[1]));
    let (routes, _) = routes
        .ok_or_else(|| LabError::Wrong(format!("no `{}` in the page's\n{block}", FAMILY[0])))?;
    let routes = [FAMILY[0], routes, FAMILY[1]].concat();
    let (mut neighbours, mut families) = (String::new(), String::new());
    for family in FAMILIES {
        let ([router, _], name) = (Ecmp::link(family, index), family.to_string().to_lowercase());
        let quick = [("198.51.100.5", router.clone()), (" bfd\n", " bfd profile lb\n".to_owned())];
        neighbours += &page::replaced(&neighbour, quick)?;
        neighbours += &format!(" neighbor {router} timers connect 1\n");
        let active = format!("  neighbor {router} activate\n exit-address-family");
        families += &page::replaced(&routes, [("ipv4", name), (" exit-address-family", active)])?;
    }
    let own = Ecmp::link(Family::V4, index)[1].clone();
    let of_this = [
        (&*neighbour, neighbours),
        (&*routes, families),
        ("198.51.100.6", format!("{own}\n no bgp default ipv4-unicast")),
        ("65001", own_as),
    ];
    page::replaced(&block, of_this)
}

pub(super) fn start_bird(space: &Netns, text: &str) -> Result<Running, LabError> {
    let file = space.dir().join("bird.conf");
    std::fs::write(&file, text).map_err(LabError::file("BIRD's configuration"))?;
    let (file, socket) = (file.display().to_string(), space.dir().join("bird.ctl"));
    space.run("bird", &["-p", "-c", &file])?.ok()?;
    space.start("bird", "bird", &["-f", "-c", &file, "-s", &socket.display().to_string()])
}

/// Starts zebra, bfdd and bgpd with this configuration of bgpd's.
pub(super) fn start_frr(space: &Netns, name: &str, text: &str) -> Result<Vec<Running>, LabError> {
    let bfd = "bfd\n profile lb\n  receive-interval 100\n  transmit-interval 100\n exit\nexit\n";
    let control = frr::folder(space, name).join("bfdd.sock").display().to_string();
    let daemons = [
        // Else a member that flapped stays out of its group (FRR's issue 14481).
        ("zebra", "no zebra nexthop kernel enable\n", vec![]),
        ("bfdd", bfd, vec!["--bfdctl", &control]),
        ("bgpd", text, vec![]),
    ];
    let started = daemons.into_iter().map(|daemon| frr::start(space, name, daemon));
    started.collect()
}
