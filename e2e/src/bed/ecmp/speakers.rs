//! The routing daemons of the directors and of the router, with their configurations.

use super::super::frr;
use super::{ANNOUNCED, Ecmp, PORT, ROUTER_AS};
use crate::error::LabError;
use crate::family::{FAMILIES, Family};
use crate::lab::Netns;
use crate::process::Running;

/// BIRD's configuration, as docs/high-availability.md has it.
pub(super) fn bird_text(index: usize) -> String {
    let own_as = ROUTER_AS + 1 + index as u32;
    let sessions = FAMILIES.map(|family| {
        let ([router, own], name) = (Ecmp::link(family, index), family.bits());
        let channel = if family == Family::V4 { "ipv4" } else { "ipv6" };
        format!(
            "protocol bgp tor{name} from tor {{\n  local {own} as {own_as};\n  neighbor {router} \
             as {ROUTER_AS};\n  {channel} {{ import none; export filter announced; next hop self; \
             }};\n}}\n"
        )
    });
    format!(
        "router id {};\nlog stderr all;\n\
         protocol device {{ scan time 1; }}\n\
         protocol bfd {{ interface \"{PORT}\" {{ interval 100 ms; multiplier 3; }}; }}\n\
         protocol direct own {{ ipv4; ipv6; interface \"{}\"; }}\n\
         protocol direct peers {{ ipv4; ipv6; interface \"{}\"; }}\n\
         filter announced {{\n  if net.len != 32 && net.len != 128 then reject;\n  \
         if proto = \"own\" then accept;\n  \
         if proto = \"peers\" then {{ bgp_path.prepend({own_as}); bgp_path.prepend({own_as}); \
         accept; }}\n  reject;\n}}\n\
         template bgp tor {{\n  hold time 3;\n  keepalive time 1;\n  connect retry time 1;\n  \
         connect delay time 1;\n  error wait time 1, 2;\n  bfd on;\n}}\n{}",
        Ecmp::link(Family::V4, index)[1],
        ANNOUNCED[0],
        ANNOUNCED[1],
        sessions.concat()
    )
}

pub(super) fn frr_text(index: usize) -> String {
    let own_as = ROUTER_AS + 1 + index as u32;
    let [[v4, own], [v6, _]] = FAMILIES.map(|family| Ecmp::link(family, index));
    let neighbours: String = [&v4, &v6]
        .iter()
        .map(|router| {
            format!(
                " neighbor {router} remote-as {ROUTER_AS}\n neighbor {router} bfd profile lb\n \
                 neighbor {router} timers connect 1\n neighbor {router} advertisement-interval 0\n"
            )
        })
        .collect();
    let family = |name: &str, router: &str| {
        format!(
            " address-family {name} unicast\n  redistribute connected route-map ANNOUNCED\n  \
             neighbor {router} activate\n exit-address-family\n"
        )
    };
    let [own_interface, peer_interface] = ANNOUNCED;
    format!(
        "router bgp {own_as}\n bgp router-id {own}\n no bgp ebgp-requires-policy\n no bgp default \
         ipv4-unicast\n timers bgp 1 3\n{neighbours}{}{}exit\n\
         route-map ANNOUNCED permit 10\n match interface {own_interface}\n set origin igp\nexit\n\
         route-map ANNOUNCED permit 20\n match interface {peer_interface}\n set origin igp\n \
         set as-path prepend {own_as} {own_as}\nexit\n",
        family("ipv4", &v4),
        family("ipv6", &v6)
    )
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
