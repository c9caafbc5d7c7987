//! Isolated networks: what a file may say of them, and that each has its addresses for itself.
//! What is refused is in `refused.txt`.

use proptest::prelude::*;
use sluice_config::{Announce, Config, Device, Ipip, IsolatedNetwork, NetworkId, document};

const WHOLE: &str = r#"
[[network]]
name = "blue"
table = 4294967295
cidr = ["10.0.0.0/9", "10.128.0.0/9", "2001:db8:b::/48"]
source_v4 = "10.0.0.64/28"
source_v6 = "2001:db8:b::64"
sessions = 1_073_741_824
probe_addresses = ["10.0.9.9"]
announce_interface = "sluice-blue"
announce_peer_interface = "sluice-blue-2"

[[network]]
name = "red"
vrf = "vrf-red"

[[port]]
name = "front"
device = "af_xdp:eth0"

[[port]]
name = "blue0"
device = "af_packet:eth0.100"
network = "blue"
queues = 1
mtu = 1500

[[port]]
name = "red0"
device = "vxlan:vxlan7"
network = "red"

[[route]]
prefix = "0.0.0.0/0"
port = "front"

[[route]]
prefix = "0.0.0.0/0"
port = "blue0"
"#;

/// Pool, service and rule of a network, the same for each.
fn content(network: &str) -> String {
    let (line, name) = match network {
        "" => (String::new(), "default"),
        name => (format!("network = {name:?}\n"), name),
    };
    format!(
        "\n[[pool]]\nname = \"{name}-lan\"\n{line}addresses = [\"10.127.255.250-10.128.0.9\", \
         \"2001:db8:b::a\"]\npeer_addresses = [\"10.0.9.1\"]\n\
         \n[[service]]\nname = \"{name}-web\"\n{line}protocol = \"tcp\"\nvip = \"10.0.0.1\"\n\
         port = 80\npool = \"{name}-lan\"\ncheck = \"web\"\n\
         \n[[service.real]]\naddress = \"10.0.1.1\"\n\
         \n[[service]]\nname = \"{name}-range\"\n{line}protocol = \"tcp\"\nvip = \"10.0.0.1\"\n\
         port = \"8000-8099\"\nmode = \"nat\"\n\
         \n[[service.real]]\naddress = \"10.0.1.1\"\n\
         \n[[snat]]\nname = \"{name}-out\"\n{line}sources = [\"0.0.0.0/0\"]\n\
         pool = \"{name}-lan\"\n"
    )
}

const CHECK: &str = "\n[[check]]\nname = \"web\"\nkind = \"tcp\"\ninterface = \"eth0.100\"\n";

fn whole() -> String {
    [WHOLE, CHECK, &content(""), &content("blue"), &content("red")].concat()
}

fn parse(text: &str) -> Config {
    Config::parse("sluice.toml", text).expect("a right configuration").config
}

fn warnings(text: &str) -> Vec<String> {
    let loaded = Config::parse("sluice.toml", text).expect("a right configuration");
    loaded.warnings.iter().map(|it| format!("{}: {}", it.key, it.message)).collect()
}

#[test]
fn the_same_addresses_are_in_use_in_each_network() {
    let config = parse(&whole());
    assert_eq!(warnings(&whole()), Vec::<String>::new());
    let networks = ["", "blue", "red"];
    assert!(config.pools.iter().map(|it| &it.network[..]).eq(networks));
    assert!(config.snat.iter().map(|it| &it.network[..]).eq(networks));
    assert!(config.ports.iter().map(|it| &it.network[..]).eq(networks));
    let of_services = config.services.iter().map(|it| &it.network[..]);
    assert!(of_services.eq(networks.into_iter().flat_map(|name| [name, name])));
    assert!(config.services.iter().all(|it| it.vip == config.services[0].vip));
}

#[test]
fn every_key_is_read_and_what_is_left_out_has_its_default() {
    let config = parse(&whole());
    let cidr = ["10.0.0.0/9", "10.128.0.0/9", "2001:db8:b::/48"];
    let blue = IsolatedNetwork {
        name: "blue".to_owned(),
        table: Some(u32::MAX),
        vrf: None,
        cidr: cidr.map(|it| it.parse().expect("a prefix")).to_vec(),
        tunnel: Ipip {
            source_v4: Some("10.0.0.64/28".parse().expect("a prefix")),
            source_v6: Some("2001:db8:b::64/128".parse().expect("a prefix")),
        },
        sessions: 1 << 30,
        probe_addresses: vec!["10.0.9.9".parse().expect("an address")],
        announce: Announce {
            interface: Some("sluice-blue".to_owned()),
            peer_interface: Some("sluice-blue-2".to_owned()),
        },
    };
    let red = IsolatedNetwork {
        name: "red".to_owned(),
        table: None,
        vrf: Some("vrf-red".to_owned()),
        cidr: Vec::new(),
        tunnel: Ipip::default(),
        sessions: 65_536,
        probe_addresses: Vec::new(),
        announce: Announce::default(),
    };
    assert_eq!(config.networks, [blue, red]);
    let id = |name| config.network_id(name);
    assert_eq!(id(""), Some(NetworkId::DEFAULT));
    assert_eq!((id("blue"), id("red")), (Some(NetworkId(1)), Some(NetworkId(2))));
    assert_eq!((id("green"), id("default")), (None, None));
    let vxlan = &config.ports[2].device;
    assert_eq!(*vxlan, Device::Vxlan { interface: "vxlan7".to_owned() });
    assert_eq!((vxlan.interface(), vxlan.may_have_twin()), (Some("vxlan7"), false));
    assert_eq!((vxlan.kind(), vxlan.to_string().as_str()), ("vxlan", "vxlan:vxlan7"));
    assert_eq!(Config::default().networks, []);
}

#[test]
fn the_spec_says_in_which_network_everything_is() {
    let spec = parse(&whole()).spec();
    assert_eq!(spec.networks, ["blue", "red"]);
    let sources = spec.network_tunnels.iter().map(|it| it.v4.map(|v4| v4.prefix));
    assert!(sources.eq([Some(28), None]));
    assert!(spec.pools.iter().map(|it| &it.network[..]).eq(["", "blue", "red"]));
    assert!(spec.snat.iter().map(|it| &it.network[..]).eq(["", "blue", "red"]));
    assert_eq!(
        (spec.services[1].network.as_str(), spec.services[2].network.as_str()),
        ("", "blue")
    );
}

#[test]
fn the_document_says_the_same() {
    let loaded = Config::parse("sluice.toml", &whole()).expect("right");
    assert_eq!(Config::read_document(&loaded.document).expect("right"), loaded.config);
    let written = document::to_toml(&loaded.document, &|_, _| None);
    let again = Config::parse("sluice.toml", &written).expect("right");
    assert_eq!((again.config, again.document), (loaded.config, loaded.document));
    let plain = whole().replace("sessions = 1_073_741_824", "sessions = 65536");
    let document = Config::parse("sluice.toml", &plain).expect("right").document;
    assert!(document["network"][0].get("sessions").is_none(), "that holds anyway");
}

#[test]
fn the_schema_knows_networks_and_who_names_one() {
    let schema = sluice_config::json_schema();
    let network = &schema["properties"]["network"]["items"];
    assert_eq!(network["required"], serde_json::json!(["name"]));
    assert_eq!(network["properties"]["table"]["maximum"], 4_294_967_295_u32);
    assert_eq!(network["properties"]["sessions"]["default"], 65_536);
    for section in ["port", "pool", "service", "snat"] {
        let key = &schema["properties"][section]["items"]["properties"]["network"];
        assert_eq!(key["type"], "string", "{section}");
    }
}

#[test]
fn what_is_questionable_is_told() {
    let idle = [WHOLE, "[[network]]\nname = \"green\"\ntable = 7\n", &content("")].concat();
    let idle = idle.replace("check = \"web\"\n", "");
    assert_eq!(warnings(&idle), ["network[2]: no port is in this network"]);
    let tunnel_alone = "[[network]]\nname = \"red\"\ntable = 7\n[[port]]\nname = \"red0\"\n\
                        device = \"vxlan:vxlan7\"\nnetwork = \"red\"\n";
    let told = warnings(&[tunnel_alone, &content("red").replace("check = \"web\"\n", "")].concat());
    let expected = "port[0].device: no port is in the default network, by which this port's \
                    packets come and go";
    assert_eq!(told, [expected]);
}

/// Each network has addresses for probes, which are somebody else's in another.
#[test]
fn probes_have_addresses_in_each_network() {
    let more = "[director]\nprobe_addresses = [\"10.0.5.5\"]\n[ipip]\nsource_v4 = \"192.0.2.1\"\n\
                [[service]]\nname = \"probed\"\nprotocol = \"tcp\"\nvip = \"203.0.113.1\"\n\
                port = 80\nmode = \"ipip\"\ncheck = \"through\"\n\
                [[service.real]]\naddress = \"203.0.113.2\"\n\
                [[service]]\nname = \"not-probed\"\nnetwork = \"red\"\nprotocol = \"tcp\"\n\
                vip = \"10.0.5.5\"\nport = 80\nmode = \"nat\"\n\
                [[service.real]]\naddress = \"10.0.5.6\"\n\
                [[service]]\nname = \"blue-probed\"\nnetwork = \"blue\"\nprotocol = \"tcp\"\n\
                vip = \"10.0.5.5\"\nport = 80\nmode = \"nat\"\ncheck = \"through\"\n\
                [[service.real]]\naddress = \"10.0.5.6\"\n\
                [[check]]\nname = \"through\"\nkind = \"tcp\"\nthrough = \"service\"\n";
    let text = [more, &whole()].concat();
    assert_eq!(warnings(&text), Vec::<String>::new());
    let spec = parse(&text).spec();
    let at = |text: &str| Some(text.parse().expect("an address"));
    assert_eq!(spec.probes_from, [at("10.0.5.5"), None]);
    assert_eq!(spec.network_probes, [[at("10.0.9.9"), None], [None, None]]);
}

/// A real server that is a virtual address is told of its own network only.
#[test]
fn a_real_server_is_no_virtual_address_of_another_network() {
    let service = |network: &str| {
        format!(
            "\n[[service]]\nname = \"loop\"\nnetwork = {network:?}\nprotocol = \"tcp\"\n\
             vip = \"10.0.7.7\"\nport = 80\nmode = \"nat\"\n[[service.real]]\n\
             address = \"10.0.7.8\"\n\n[[service]]\nname = \"other\"\nnetwork = \"red\"\n\
             protocol = \"tcp\"\nvip = \"10.0.7.8\"\nport = 80\nmode = \"nat\"\n[[service.real]]\n\
             address = \"10.0.7.9\"\n"
        )
    };
    assert_eq!(warnings(&[whole(), service("blue")].concat()), Vec::<String>::new());
    let told = warnings(&[whole(), service("red")].concat());
    let expected = "service[6].real[0].address: this real server is the virtual service \"other\"";
    assert_eq!(told, [expected]);
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    /// Whatever services there are: only those of one network can be in each other's way, and a
    /// VIP is outside a network's prefixes if it is in none of them.
    #[test]
    fn networks_are_apart(
        services in proptest::collection::vec((0..3_usize, 0..3_u8, 80..82_u16), 0..12),
        cidr in proptest::option::of(proptest::collection::hash_set(0..3_u8, 1..3)),
    ) {
        let names = ["", "blue", "red"];
        let mut text = "[[port]]\nname = \"p\"\ndevice = \"tap:t\"\n".to_owned();
        text += "[[network]]\nname = \"red\"\nvrf = \"r\"\n";
        text += "[[network]]\nname = \"blue\"\ntable = 1\n";
        if let Some(hosts) = &cidr {
            let listed: Vec<_> = hosts.iter().map(|it| format!("\"10.0.0.{it}/32\"")).collect();
            text += &format!("cidr = [{}, \"10.0.1.0/24\"]\n", listed.join(", "));
        }
        for (index, (network, host, port)) in services.iter().enumerate() {
            let line = match names[*network] {
                "" => String::new(),
                name => format!("network = {name:?}\n"),
            };
            text += &format!(
                "[[service]]\nname = \"s{index}\"\n{line}protocol = \"tcp\"\n\
                 vip = \"10.0.0.{host}\"\nport = {port}\nmode = \"nat\"\n\
                 [[service.real]]\naddress = \"10.0.1.1\"\n"
            );
        }
        let unique: std::collections::HashSet<_> = services.iter().collect();
        let inside = |&(network, host, _): &(usize, u8, u16)| {
            network != 1 || cidr.as_ref().is_none_or(|hosts| hosts.contains(&host))
        };
        let right = unique.len() == services.len() && services.iter().all(inside);
        let parsed = Config::parse("sluice.toml", &text);
        prop_assert_eq!(parsed.is_ok(), right, "{}\n{:?}", text, parsed.err());
    }
}
