//! `sluice dpip` in a network namespace of the test's own, judged by `ip -j`. Needs root.

use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use serde_json::Value;
use sluice_api::model::{Port, PortState, Ports, Received, Sent};
use sluice_api::{Call, Server};
use tempfile::TempDir;

/// A network namespace without a name: it is gone with the last program in it.
struct Space {
    keeper: std::process::Child,
    folder: TempDir,
}

impl Space {
    /// With two veth pairs, whose near ends are `back0` and `front0`.
    fn new() -> Self {
        assert!(rustix::process::geteuid().is_root(), "network namespaces need root");
        let folder = tempfile::Builder::new().prefix("sluice-dpip-").tempdir().expect("made");
        let mut keeper = Command::new("unshare");
        keeper.args(["--net", "sh", "-c", "echo ready; exec cat"]);
        let keeper = keeper.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn();
        let mut keeper = keeper.expect("unshare runs");
        let mut ready = [0; 6];
        let out = keeper.stdout.as_mut().expect("piped");
        std::io::Read::read_exact(out, &mut ready).expect("the namespace is there");
        let space = Self { keeper, folder };
        space.ip("link set lo up");
        for name in ["back", "front"] {
            space.ip(&format!("link add {name}0 type veth peer name {name}1"));
            space.ip(&format!("link set {name}1 up"));
        }
        space
    }

    fn run(&self, program: &str, arguments: &str, socket: Option<&Path>) -> Output {
        let pid = self.keeper.id().to_string();
        let mut command = Command::new("nsenter");
        command.args(["--net", "--target", &pid, program]);
        command.args(arguments.split_whitespace());
        let nobody = self.folder.path().join("nobody.sock");
        command.env("SLUICE_SOCKET", socket.unwrap_or(&nobody)).output().expect("nsenter runs")
    }

    fn ip(&self, arguments: &str) {
        let output = self.run("ip", arguments, None);
        assert!(output.status.success(), "ip {arguments}: {output:?}");
    }

    /// What `ip -j` says.
    fn judge(&self, arguments: &str) -> Vec<Value> {
        let output = self.run("ip", &format!("-j {arguments}"), None);
        assert!(output.status.success(), "ip -j {arguments}: {output:?}");
        match output.stdout.iter().all(u8::is_ascii_whitespace) {
            true => Vec::new(),
            false => serde_json::from_slice(&output.stdout).expect("JSON"),
        }
    }

    /// Runs dpip: exit code, output, errors.
    fn dpip(&self, arguments: &str, socket: Option<&Path>) -> (i32, String, String) {
        let program = env!("CARGO_BIN_EXE_sluice");
        let output = self.run(program, &format!("dpip {arguments}"), socket);
        let text = |bytes: Vec<u8>| String::from_utf8(bytes).expect("text");
        (output.status.code().unwrap_or(-1), text(output.stdout), text(output.stderr))
    }

    #[track_caller]
    fn done(&self, arguments: &str, socket: Option<&Path>) -> String {
        let (code, out, err) = self.dpip(arguments, socket);
        assert_eq!(code, 0, "dpip {arguments}: {out}{err}");
        out
    }

    #[track_caller]
    fn refused(&self, arguments: &str, text: &str) -> String {
        let (code, out, err) = self.dpip(arguments, None);
        assert_eq!((code, out.as_str()), (1, ""), "dpip {arguments}: {err}");
        assert_eq!(err.lines().next(), Some(&*format!("dpip: {text}")), "dpip {arguments}");
        err
    }
}

impl Drop for Space {
    fn drop(&mut self) {
        let _ = self.keeper.kill();
        let _ = self.keeper.wait();
    }
}

fn port(name: &str, interface: Option<&str>) -> Port {
    Port {
        name: name.to_owned(),
        device: interface.map_or("pci:0000:3b:00.0".to_owned(), |it| format!("af_packet:{it}")),
        network: None,
        driver: String::new(),
        interface: interface.map(str::to_owned),
        mac: None,
        mtu: Some(1500),
        state: PortState::Up,
        trouble: None,
        queues: 2,
        twin: None,
        rx: Received { packets: 11, bytes: 2222, missed: 3, errors: 4 },
        tx: Sent { packets: 55, bytes: 6666, errors: 7 },
        steering: None,
        copies: None,
    }
}

/// A director whose ports are `dpdk0` over `back0`, `dpdk1` over `front0`, and one of its own.
fn director(folder: &Path) -> (Server, PathBuf) {
    let socket = folder.join("sluice.sock");
    let answer = |call: Call| match call {
        Call::Ports(reply) => {
            let ports = vec![
                port("dpdk0", Some("back0")),
                port("dpdk1", Some("front0")),
                port("own", None),
            ];
            drop(reply.send(Ports { ports }));
        }
        other => panic!("{other:?}"),
    };
    (Server::start(&socket, Box::new(answer)).expect("a server"), socket)
}

#[test]
fn the_two_arm_script_of_dpvs_runs_as_it_is_written() {
    let space = Space::new();
    let (_server, socket) = director(space.folder.path());
    for line in [
        "link set dpdk0 up",
        "link set dpdk1 link up",
        "addr add 192.0.2.10/32 dev dpdk0 sapool",
        "addr add 198.51.100.200/32 dev dpdk1",
        "route add 192.0.2.0/24 dev dpdk0",
        "route add 198.51.100.0/24 dev dpdk1",
        "route add default via 198.51.100.1 dev dpdk1",
        "link set own up",
    ] {
        space.done(line, Some(&socket));
    }
    let links = space.judge("link show");
    for name in ["back0", "front0"] {
        let link = links.iter().find(|link| link["ifname"] == name).expect(name);
        assert!(link["flags"].as_array().expect("flags").contains(&"UP".into()), "{link}");
    }
    let back = space.judge("-4 addr show dev back0");
    assert_eq!(back[0]["addr_info"][0]["local"], "192.0.2.10");
    assert_eq!(back[0]["addr_info"][0]["prefixlen"], 32);
    let routes = space.judge("-4 route show");
    let to = |dst: &str| routes.iter().find(|route| route["dst"] == dst).expect(dst);
    assert_eq!(
        (&to("192.0.2.0/24")["dev"], &to("192.0.2.0/24")["scope"]),
        (&"back0".into(), &"link".into())
    );
    assert_eq!(to("default")["gateway"], "198.51.100.1");

    let shown = space.done("addr show dev dpdk0 -4", Some(&socket));
    assert!(shown.starts_with("inet 192.0.2.10/32 scope global dpdk0\n     valid_lft forever"));
    let shown = space.done("route show", Some(&socket));
    let line = "inet 192.0.2.0/24 via 0.0.0.0 src 0.0.0.0 dev dpdk0 mtu 1500 tos 0 scope link \
                metric 0 proto static ";
    assert!(shown.lines().any(|it| it == line), "{shown}");
    let (_, _, remark) = space.dpip("addr set 192.0.2.10/32 dev dpdk0 sapool", Some(&socket));
    assert!(remark.contains("--add-laddr -z 192.0.2.10"), "{remark}");
    let (code, _, told) = space.dpip("addr add 192.0.2.1/32 dev own", Some(&socket));
    assert!(
        code == 1 && told.starts_with("dpip: not support\n") && told.contains("twin"),
        "{told}"
    );
    let shown = space.done("-s link show dpdk1", Some(&socket));
    assert!(shown.contains(": dpdk1: socket 0 mtu 1500 rx-queue 2 tx-queue 2\n    UP "), "{shown}");
    let values: Vec<_> = shown.lines().nth(4).expect("values").split_whitespace().collect();
    assert_eq!(values, ["11", "55", "2222", "6666"], "the port's own counts: {shown}");
}

#[test]
fn addresses_routes_and_neighbours_come_and_go_as_linux_sees_them() {
    let space = Space::new();
    space.done("link set back0 up", None);
    space.done("addr add 192.0.2.1/24 dev back0 broadcast 192.0.2.255 valid_lft 500", None);
    space.done("addr add 2001:db8::1/64 dev back0", None);
    let info = space.judge("addr show dev back0")[0]["addr_info"].clone();
    let info = info.as_array().expect("a list");
    let of = |ip: &str| info.iter().find(|it| it["local"] == ip).expect(ip);
    assert_eq!(of("192.0.2.1")["broadcast"], "192.0.2.255");
    let life = of("192.0.2.1")["valid_life_time"].as_u64().expect("a number");
    assert!((400..=500).contains(&life), "{life}");
    assert_eq!(of("2001:db8::1")["prefixlen"], 64);

    space.refused("addr add 192.0.2.1/24 dev back0", "already exist");
    space.refused("addr del 192.0.2.9/24 dev back0", "not exist");
    let told = space.refused("addr add 192.0.2.1/24 dev dpdk9", "no such device");
    assert!(told.contains("back0") && told.contains("does not answer"), "{told}");

    space.done("route add 198.51.100.0/24 via 192.0.2.7 src 192.0.2.1 mtu 1400 metric 5", None);
    let route = space.judge("route show 198.51.100.0/24")[0].clone();
    assert_eq!((&route["gateway"], &route["prefsrc"]), (&"192.0.2.7".into(), &"192.0.2.1".into()));
    assert_eq!((&route["metric"], &route["metrics"][0]["mtu"]), (&5.into(), &1400.into()));
    space.refused("route add 198.51.100.0/24 via 192.0.2.7 metric 5", "already exist");
    space.done("route set 198.51.100.0/24 via 192.0.2.8 metric 5", None);
    assert_eq!(space.judge("route show 198.51.100.0/24")[0]["gateway"], "192.0.2.8");
    space.done("route add default via 2001:db8::7 dev back0", None);
    assert_eq!(space.judge("-6 route show default")[0]["gateway"], "2001:db8::7");
    let six = space.done("-6 route show", None);
    assert!(six.contains("inet6 default via 2001:db8::7 dev back0"), "{six}");
    space.done("route del 198.51.100.0/24", None);
    assert!(space.judge("route show 198.51.100.0/24").is_empty());
    space.refused("route del 198.51.100.0/24", "not exist");
    space.refused("route add 198.51.100.0/24", "invalid parameter");

    space.done("neigh add 192.0.2.7 lladdr 02:00:00:00:00:07 dev back0", None);
    let neighbour = space.judge("neigh show 192.0.2.7")[0].clone();
    assert_eq!(
        (&neighbour["lladdr"], &neighbour["state"][0]),
        (&"02:00:00:00:00:07".into(), &"PERMANENT".into())
    );
    let shown = space.done("neigh show dev back0", None);
    assert!(shown.contains("mac: 02:00:00:00:00:07   state: REACHABLE     dev: back0"), "{shown}");
    assert!(shown.trim_end().ends_with("[static]"), "{shown}");
    space.refused("neigh add 192.0.2.7 lladdr 02:00:00:00:00:08 dev back0", "already exist");
    space.done("neigh del 192.0.2.7 dev back0", None);
    space.refused("neigh del 192.0.2.7 dev back0", "not exist");

    space.done("addr flush dev back0 -4", None);
    assert!(space.judge("-4 addr show dev back0").is_empty());
}

#[test]
fn links_and_vlans_are_set_as_linux_sees_them() {
    let space = Space::new();
    let link = |name: &str| space.judge(&format!("-d link show {name}"))[0].clone();
    space.done("link set back0 up", None);
    space.done("link set back0 promisc on", None);
    space.done("link set back0 allmulticast on", None);
    space.done("link set back0 addr 02:00:00:00:00:42", None);
    let flags = link("back0")["flags"].as_array().expect("flags").clone();
    assert!(flags.contains(&"PROMISC".into()) && flags.contains(&"ALLMULTI".into()), "{flags:?}");
    assert_eq!(link("back0")["address"], "02:00:00:00:00:42");
    let shown = space.done("link show back0", None);
    assert!(shown.contains(" promisc allmulticast \n    addr 02:00:00:00:00:42 \n"), "{shown}");
    space.done("link set back0 promisc off", None);
    assert!(!link("back0")["flags"].as_array().expect("flags").contains(&"PROMISC".into()));
    space.done("link set back0 link down", None);
    assert!(!link("back0")["flags"].as_array().expect("flags").contains(&"UP".into()));
    assert!(space.refused("link set back0 bond-mode 4", "not support").contains("type bond"));

    let (code, _, told) = space.dpip("vlan add link back0 id 100", None);
    if told.contains("Unknown device type") {
        // The kernel lacks 802.1Q: what is sent to it is judged in host/linux.
        assert!(code == 1 && told.starts_with("dpip: not support\n"), "{told}");
        return;
    }
    assert_eq!(code, 0, "{told}");
    space.done("vlan add tagged link back0 proto 802.1ad id 7", None);
    assert_eq!(link("back0.100")["linkinfo"]["info_data"]["id"], 100);
    assert_eq!(link("tagged")["linkinfo"]["info_data"]["protocol"], "802.1ad");
    let shown = space.done("vlan show", None);
    assert!(shown.contains("back0.100 link back0 proto 802.1q id 100\n"), "{shown}");
    assert!(shown.contains("tagged link back0 proto 802.1ad id 7\n"), "{shown}");
    space.refused("vlan add link back0 id 100", "already exist");
    space.done("vlan del tagged", None);
    space.refused("vlan del tagged", "no such device");
    space.refused("vlan del back0", "invalid parameter");
}

/// Its words for a tunnel that Linux has.
const KEYED: &str = "mode gre local 198.51.100.1 remote 203.0.113.2 dev back0 ttl 64 key 7 icsum";

#[test]
fn tunnels_come_and_go_as_linux_sees_them() {
    let space = Space::new();
    space.done("link set back0 up", None);
    let told = space.refused("tunnel add ipip1 local 198.51.100.1", "invalid parameter");
    assert!(told.contains("say mode ipip or mode gre"), "{told}");
    let told = space.refused("tunnel add ipip1 mode ipip key 7", "invalid parameter");
    assert!(told.contains("of mode gre only"), "{told}");
    space.refused("tunnel del back0", "invalid parameter");
    space.refused("tunnel del nothing", "no such device");
    space.refused("tunnel del", "invalid parameter");
    space.refused("tunnel flush", "invalid parameter");

    let plain = "tunnel add mode ipip ipip1 local 198.51.100.1 remote 203.0.113.1";
    for (line, module) in [(plain, "`ipip`"), (&*format!("tunnel add gre1 {KEYED}"), "`ip_gre`")] {
        let (code, _, told) = space.dpip(line, None);
        if told.contains("Unknown device type") {
            // The kernel lacks tunnels: what is sent to it is judged in host/linux.
            assert!(code == 1 && told.starts_with("dpip: not support\n"), "{told}");
            assert!(told.contains(module), "{told}");
            assert_eq!(space.done("tunnel show", None), "");
            return;
        }
        assert_eq!(code, 0, "{told}");
    }
    let link = |name: &str| space.judge(&format!("-d link show {name}"))[0].clone();
    for (name, remote) in [("ipip1", "203.0.113.1"), ("gre1", "203.0.113.2")] {
        let link = link(name);
        assert!(link["flags"].as_array().expect("flags").contains(&"UP".into()), "{link}");
        let data = &link["linkinfo"]["info_data"];
        assert_eq!((&data["local"], &data["remote"]), (&"198.51.100.1".into(), &remote.into()));
    }
    assert_eq!(link("gre1")["linkinfo"]["info_data"]["ttl"], 64);
    assert_eq!(link("gre1")["linkinfo"]["info_data"]["ikey"], "0.0.0.7");
    let shown = space.done("tunnel show gre1", None);
    let line = "gre1:  gre remote 203.0.113.2 local 198.51.100.1 dev back0 ttl 64 i_flags 0x5 \
                o_flags 0x4 i_key 0x7 o_key 0x7 \n";
    assert_eq!(shown, line);
    space.refused(plain, "already exist");
    space.done("tunnel change ipip1 local 198.51.100.1 remote 203.0.113.9 tos 8", None);
    let shown = space.done("tunnel list ipip1", None);
    let line = "ipip1: ipip remote 203.0.113.9 local 198.51.100.1 ttl inherit tos 0x8 \n";
    assert_eq!(shown, line);
    space.refused("tunnel change ipip1 mode gre", "invalid parameter");
    assert_eq!(space.done("tunnel show mode ipip dev back0", None), "");
    space.done("tunnel del ipip1", None);
    space.refused("tunnel del ipip1", "no such device");
}

#[test]
fn what_there_is_nothing_like_is_refused_with_what_to_use() {
    let space = Space::new();
    for (line, instead) in [
        ("qsch show", "tc"),
        ("cls add dev back0", "tc"),
        ("ipset show", "ipset"),
        ("flow show type kni dev back0", "steering"),
        ("iftraf show", "elephants"),
        ("eal-mem show", "sluice status"),
        ("lldp show local dev back0", "lldpd"),
    ] {
        assert!(space.refused(line, "not support").contains(instead), "{line}");
    }
    space.refused("nothing show", "invalid parameter");
    let help = space.done("help", None);
    assert!(help.contains("addr   { add | set | del }"), "{help}");
}

#[test]
fn the_program_may_be_called_dpip() {
    let folder = tempfile::Builder::new().prefix("sluice-dpip-").tempdir().expect("made");
    let mut command = Command::new(env!("CARGO_BIN_EXE_sluice"));
    command.arg0("/usr/sbin/dpip").args(["addr", "add", "192.0.2.1/32"]);
    command.env("SLUICE_SOCKET", folder.path().join("nobody.sock"));
    let output = command.output().expect("runs");
    assert_eq!(output.status.code(), Some(1));
    let told = String::from_utf8(output.stderr).expect("text");
    assert!(told.starts_with("dpip: invalid parameter\n      say which device"), "{told}");
}
