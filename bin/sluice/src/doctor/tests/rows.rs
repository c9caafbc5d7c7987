//! What may be wrong, one thing a row: how it is broken, and what is to be found then.

use super::*;

/// What is broken, the finding's word and mark, and part of its fix or of its advice.
pub(super) type Row = (Break, &'static str, Mark, &'static str);

/// Both directors of a pair have all virtual addresses.
fn rivals(facts: &mut Facts) {
    let standing = HaStanding { role: HaRole::Active, addresses: 1, draining: false, sessions: 9 };
    pair(facts).peers[0].standing = Some(standing);
    let ha = facts.director.as_mut().and_then(|it| it.ha.as_mut());
    ha.expect("a director").role = HaRole::Active;
}

/// All of them.
pub(super) fn rows() -> Vec<Row> {
    [
        machine_rows(),
        port_rows(),
        tunnel_rows(),
        engine_rows(),
        address_rows(),
        core_rows(),
        real_rows(),
        director_rows(),
        sync_rows(),
        peer_rows(),
    ]
    .concat()
}

fn tunnel_rows() -> Vec<Row> {
    use Mark::{Fail, Warn};
    fn tunnel(it: &mut Facts, mtu: u32, overhead: u32) {
        let port = wanted(it).ports.get_mut(1);
        port.expect("a port").device = "vxlan:eth1".parse().expect("a device");
        back(it).mtu = mtu;
        back(it).underlay = Some(Underlay { interface: "eth0".to_owned(), mtu: 1500, overhead });
    }
    vec![
        (
            |it| {
                tunnel(it, 1450, 50);
                shown(it).state = PortState::Down;
                shown(it).trouble = Some("eth1 is set down".to_owned());
            },
            "port_state",
            Fail,
            "ip -d link show eth1",
        ),
        (|it| tunnel(it, 1500, 50), "vxlan_mtu", Warn, "ip link set eth1 mtu 1450"),
        (|it| tunnel(it, 1431, 70), "vxlan_mtu", Warn, "ip link set eth1 mtu 1430"),
        (|it| tunnel(it, 1451, 50), "vxlan_mtu", Warn, "1501 bytes"),
    ]
}

fn engine_rows() -> Vec<Row> {
    use Mark::Fail;
    fn engine(it: &mut Facts, queue: Option<[&str; 4]>) {
        const MEMIF: &str = "memif:/run/m,id=0,role=client,copy=dma,dma_device=wq1.3";
        let port = wanted(it).ports.get_mut(1);
        port.expect("a port").device = MEMIF.parse().expect("a device");
        let queue = queue.map(|words| {
            let [state, kind, mode, name] = words.map(str::to_owned);
            WorkQueue { state, kind, mode, name }
        });
        it.work_queues.insert("wq1.3".to_owned(), queue);
    }
    vec![
        (|it| engine(it, None), "dma_absent", Fail, "accel-config list"),
        (
            |it| engine(it, Some(["disabled", "user", "dedicated", "dpdk_1"])),
            "dma_queue",
            Fail,
            "accel-config enable-wq dsa1/wq1.3",
        ),
        (
            |it| engine(it, Some(["enabled", "kernel", "shared", "net"])),
            "dma_queue",
            Fail,
            "config-wq dsa1/wq1.3 --mode=dedicated --type=user --name=dpdk_wq1.3",
        ),
    ]
}

fn director_rows() -> Vec<Row> {
    use Mark::{Fail, Unseen, Warn};
    vec![
        (|it| it.wanted = None, "config", Unseen, "--config FILE"),
        (|it| status(it).differs_from_file = true, "differs", Warn, "sluice config reload"),
        (|it| status(it).durable = false, "durable", Warn, "state_dir"),
        (|it| status(it).sessions.live = 95, "sessions", Fail, "raise `sessions`"),
        (
            |it| {
                status(it).last_reload =
                    Some(Reload { at_unix_s: 0, ok: false, error: Some("no".to_owned()) });
            },
            "reload",
            Fail,
            "sluice config check /etc/sluice/sluice.toml",
        ),
        (
            |it| it.director.as_mut().expect("one").elsewhere = true,
            "namespace",
            Warn,
            "nsenter -t 12 -n sluice doctor",
        ),
        (|it| it.director.as_mut().expect("one").process = None, "rights", Unseen, "as root"),
        (|it| process(it).capabilities = !(1 << 12), "capabilities", Fail, "CAP_NET_ADMIN"),
        (
            |it| {
                *process(it) = Process {
                    locked_bytes: Some(1 << 16),
                    capabilities: !(1 << 14),
                    filtered: false,
                }
            },
            "memlock",
            Warn,
            "LimitMEMLOCK=infinity",
        ),
        (|it| it.kernel = "5.4.0-generic".to_owned(), "kernel", Warn, "6.1"),
        (
            |it| it.state_dir.as_mut().expect("one").exists = false,
            "state_dir",
            Warn,
            "install -d -m 750 /var/lib/sluice",
        ),
        (|it| it.state_dir.as_mut().expect("one").read_only = true, "state_dir", Fail, "mount"),
        (|it| it.state_dir.as_mut().expect("one").free_bytes = Some(1), "state_dir", Fail, "room"),
        (
            |it| it.state_dir.as_mut().expect("one").kind = "tmpfs".to_owned(),
            "state_dir",
            Warn,
            "on a disk",
        ),
    ]
}

fn machine_rows() -> Vec<Row> {
    use Mark::{Fail, Unseen, Warn};
    vec![
        (|it| status(it).huge_pages = false, "huge_pages", Warn, "sysctl -w vm.nr_hugepages="),
        (
            |it| {
                it.director = None;
                it.huge_pages.clear();
                wanted(it).director.huge_pages = Wish::Required;
            },
            "huge_pages",
            Fail,
            "sysctl -w vm.nr_hugepages=56",
        ),
        (
            |it| {
                it.director = None;
                it.cpus.by_number.get_mut(&3).expect("core 3").node = 1;
            },
            "huge_pages_node",
            Warn,
            "/sys/devices/system/node/node1/hugepages/hugepages-2048kB/nr_hugepages",
        ),
        (
            |it| {
                it.director = None;
                wanted(it).limits.sessions = 1 << 28;
            },
            "memory",
            Fail,
            "lower `sessions`",
        ),
        (
            |it| {
                it.director = None;
                it.memory = None;
            },
            "memory",
            Unseen,
            "",
        ),
    ]
}

fn core_rows() -> Vec<Row> {
    use Mark::{Fail, Unseen, Warn};
    vec![
        (|it| drop(it.cpus.by_number.remove(&3)), "cores", Fail, "use some of 0, 1, 2"),
        (|it| it.cpus.by_number.clear(), "cores", Unseen, ""),
        (
            |it| it.cpus.by_number.get_mut(&2).expect("core 2").siblings = vec![2, 3],
            "smt",
            Warn,
            "a core of its own",
        ),
        (
            |it| {
                let cpu = it.cpus.by_number.get_mut(&2).expect("core 2");
                cpu.governor = Some("powersave".to_owned());
            },
            "governor",
            Warn,
            "echo performance > /sys/devices/system/cpu/cpu2/cpufreq/scaling_governor",
        ),
        (|it| wanted(it).director.idle = Idle::Busy, "isolation", Warn, "isolcpus=2,3 "),
        (|it| front(it).node = Some(1), "numa", Warn, "cores of that node"),
        (
            |it| {
                it.clock.as_mut().expect("one").current = "hpet".to_owned();
            },
            "clock",
            Warn,
            "echo tsc > /sys/devices/system/clocksource/clocksource0/current_clocksource",
        ),
        (|it| it.clock = None, "clock", Unseen, ""),
        (|it| it.time_keepers.clear(), "time", Warn, "chrony"),
    ]
}

fn port_rows() -> Vec<Row> {
    use Mark::{Fail, Unseen, Warn};
    vec![
        (|it| it.network_seen = false, "port", Unseen, ""),
        (|it| drop(it.interfaces.remove("eth0")), "port_absent", Fail, "(eth1)"),
        (|it| front(it).up = false, "port_down", Fail, "ip link set eth0 up"),
        (|it| front(it).carrier = false, "port_carrier", Fail, "cable"),
        (|it| wanted(it).ports[0].mtu = Some(9000), "port_mtu", Fail, "ip link set eth0 mtu 9000"),
        (|it| front(it).queues = Some(4), "queues", Fail, "ethtool -L eth0 combined 2"),
        (|it| front(it).queues = Some(1), "queues_few", Warn, "ethtool -L eth0 combined 2"),
        (
            |it| front(it).offloads = Some(["rx-lro".to_owned()].into()),
            "lro",
            Fail,
            "ethtool -K eth0 lro off",
        ),
        (
            |it| {
                front(it).kind = Some("veth".to_owned());
                front(it).offloads = Some(["tx-checksum-ip-generic".to_owned()].into());
            },
            "checksums",
            Warn,
            "ethtool -K eth0 tx off",
        ),
        (|it| front(it).mtu = 9000, "xdp_mtu", Fail, "ip link set eth0 mtu "),
        (
            |it| back(it).rp_filter = Some(1),
            "rp_filter",
            Warn,
            "sysctl -w net/ipv4/conf/eth1/rp_filter=2",
        ),
        (|it| steering(it).mode = SteeringMode::Generic, "xdp_generic", Warn, "native XDP"),
        (|it| steering(it).unowned = 7, "unowned", Warn, "ethtool -L eth0 combined 2"),
        (|it| shown(it).state = PortState::Down, "port_state", Fail, "ip link set eth1 up"),
        (
            |it| {
                shown(it).state = PortState::Down;
                shown(it).trouble = Some("cannot connect to /run/m.sock".to_owned());
            },
            "port_state",
            Fail,
            "start the peer",
        ),
        (|it| shown(it).state = PortState::Gone, "port_state", Fail, "bring the device back"),
        (
            |it| {
                wanted(it).ports[0].device = "pci:0000:3b:00.0".parse().expect("a device");
                it.pci.insert("0000:3b:00.0".to_owned(), Some(Some("ice".to_owned())));
            },
            "pci_driver",
            Fail,
            "dpdk-devbind.py -b vfio-pci 0000:3b:00.0",
        ),
        (
            |it| wanted(it).ports[0].device = "pci:0000:3b:00.0".parse().expect("a device"),
            "pci_absent",
            Fail,
            "lspci -D",
        ),
    ]
}

fn address_rows() -> Vec<Row> {
    use Mark::{Fail, Unseen, Warn};
    vec![
        (
            |it| front(it).addresses.truncate(1),
            "vip_absent",
            Fail,
            "ip address add 198.51.100.200/32 dev eth0",
        ),
        (
            |it| front(it).addresses.clear(),
            "vip_absent",
            Warn,
            "ip address add 198.51.100.200/32 dev eth0",
        ),
        (
            |it| back(it).addresses.push((ip("198.51.100.200"), 32, false)),
            "vip_twice",
            Warn,
            "ip address del 198.51.100.200/32 dev eth1",
        ),
        (
            |it| back(it).addresses.truncate(1),
            "pool_absent",
            Fail,
            "ip address add 192.0.2.10/32 dev eth1",
        ),
        (
            |it| {
                let mac = "02:00:00:00:00:99".to_owned();
                it.duplicates.push((ip("198.51.100.200"), "eth0".to_owned(), mac));
            },
            "duplicate",
            Fail,
            "take 198.51.100.200 away",
        ),
        (|it| it.probed = false, "duplicate", Unseen, ""),
        (
            |it| front(it).addresses[1].2 = true,
            "tentative",
            Warn,
            "ip address replace 198.51.100.200/32 dev eth0 nodad",
        ),
        (
            |it| {
                wanted(it).services[0].mode = sluice_config::Mode::Nat;
            },
            "forwarding",
            Warn,
            "sysctl -w net.ipv4.ip_forward=1",
        ),
        (
            |it| it.tracking = Some((90, 100)),
            "conntrack",
            Warn,
            "sysctl -w net.netfilter.nf_conntrack_max=400",
        ),
        (
            |it| it.keepalived = Some("virtual_ipaddress {\n 198.51.100.200/32\n}".to_owned()),
            "keepalived",
            Fail,
            "systemctl restart keepalived",
        ),
    ]
}

fn real_rows() -> Vec<Row> {
    use Mark::{Fail, Warn};
    vec![
        (|it| way(it, Way::Local), "real_local", Fail, "another address"),
        (|it| way(it, Way::Forbidden), "real_forbidden", Fail, "ip route get 192.0.2.11"),
        (|it| way(it, Way::Foreign), "real_foreign", Fail, "plain route"),
        (|it| way(it, Way::None), "real_route", Fail, "ip route add 192.0.2.11/32 dev eth1"),
        (|it| way(it, hop("eth9", "192.0.2.11")), "real_port", Fail, "eth0, eth1"),
        (
            |it| {
                let Some(Way::Hops(hops)) = it.ways.get_mut(&ip("192.0.2.11")) else { return };
                hops[0].answers = Some(false);
            },
            "real_silent",
            Fail,
            "VLAN",
        ),
        (|it| back(it).mtu = 1400, "mtu", Warn, "ip link set eth1 mtu 1500"),
        (
            |it| wanted(it).services[0].mode = sluice_config::Mode::Ipip,
            "mtu",
            Warn,
            "ip link set eth1 mtu 1520",
        ),
    ]
}

fn sync_rows() -> Vec<Row> {
    use Mark::{Fail, Unseen, Warn};
    vec![
        (
            |it| {
                pair(it);
                it.director.as_mut().expect("one").ha = Some(Ha::default());
            },
            "sync_restart",
            Warn,
            "systemctl restart sluiced",
        ),
        (
            |it| {
                pair(it);
                it.director.as_mut().expect("one").ha = None;
            },
            "sync",
            Unseen,
            "",
        ),
        (
            |it| {
                pair(it);
                back(it).addresses = vec![(ip("192.0.2.10"), 24, false)];
            },
            "sync_listen",
            Fail,
            "ip address add 192.0.2.1/32 dev eth1",
        ),
        (
            |it| {
                pair(it);
                wanted(it).sync.listen = Some(([198, 51, 100, 200], 8848).into());
            },
            "sync_listen",
            Warn,
            "stays with this machine",
        ),
        (
            |it| {
                pair(it);
                wanted(it).sync.datagram = 1473;
            },
            "sync_mtu",
            Warn,
            "set `datagram` to 1472 and restart the director ip link set eth1 mtu 1501",
        ),
        (|it| pair(it).synchronised = false, "sync_pending", Warn, "sluice ha"),
        (|it| pair(it).reports_received.unknown = 3, "sync_unknown", Warn, "config diff FILE"),
        (
            |it| pair(it).reports_received.refused = 3,
            "sync_refused",
            Warn,
            "`sessions` in [limits]",
        ),
        (
            |it| pair(it).datagrams.forged = 3,
            "sync_forged",
            Warn,
            "`sha256sum /etc/sluice/sync.key`",
        ),
    ]
}

fn peer_rows() -> Vec<Row> {
    use Mark::{Fail, Warn};
    fn silent(it: &mut Facts, way: Option<Way>) {
        pair(it).peers[0].up = false;
        it.ways.extend(way.map(|way| (ip("192.0.2.2"), way)));
    }
    vec![
        (|it| silent(it, None), "sync_peer", Fail, "tcpdump -ni any udp port 8848"),
        (|it| silent(it, None), "sync_peer", Fail, "its `peers` must name 192.0.2.1:8848"),
        (|it| silent(it, Some(Way::None)), "sync_peer", Fail, "ip route get 192.0.2.2"),
        (|it| silent(it, Some(Way::Local)), "sync_peer", Fail, "an address of this machine"),
        (
            |it| {
                let (interface, neighbour) = ("eth1".to_owned(), ip("192.0.2.2"));
                silent(
                    it,
                    Some(Way::Hops(vec![Hop { interface, neighbour, answers: Some(false) }])),
                );
            },
            "sync_peer",
            Fail,
            "VLAN",
        ),
        (|it| pair(it).peers[0].differs = true, "sync_differs", Warn, "config show"),
        (|it| pair(it).peers[0].behind = true, "sync_behind", Warn, "UdpRcvbufErrors"),
        (rivals, "sync_rival", Fail, "journalctl -u keepalived"),
    ]
}
