//! Health checks in the configuration: every key is read, and what makes no sense is refused.

use sluice_config::{
    AllDown, Check, CheckAt, CheckKind, Config, Initial, Method, Orphans, Question, Through,
};

const SERVICE: &str = r#"
[[port]]
name = "front"
device = "tap:t"

[[service]]
name = "web"
protocol = "tcp"
vip = "198.51.100.200"
port = 80
mode = "nat"
all_down = "fail_open"
check = "page"

[[service.real]]
address = "192.0.2.11"
check_address = "192.0.2.99"
check_port = 8081

[[service.real]]
address = "192.0.2.12"
fallback = true
"#;

const PAGE: &str = r#"
[[check]]
name = "page"
kind = "https"
interval_ms = 1000
fast_interval_ms = 100
timeout_ms = 500
rise = 4
fall = 5
dead_after_ms = 8000
jitter_percent = 0
initial = "down"
port = 8443
method = "HEAD"
path = "/health?a=%20"
host = "www.example.com"
status = ["200", "300-399"]
expect_regex = "^ok"
tls_name = "www.example.net"
tls_verify = false
tls_authorities = "/etc/ca.pem"
tls_expiry_days = 30
passive_failures = 4
passive_hold_s = 60
source = "192.0.2.1"
mark = 7
interface = "back"
"#;

const OTHERS: &str = r#"
[[check]]
name = "names"
kind = "dns"
dns_name = "example.com"
dns_type = "AAAA"
dns_code = 3
dns_address = "2001:db8::1"

[[check]]
name = "program"
kind = "script"
command = ["/bin/true", "x"]

[[check]]
name = "echo"
kind = "udp"
send = "ping\n"
expect = "pong"

[[check]]
name = "rpc"
kind = "grpc"
grpc_service = "shop.Cart"
"#;

fn parse(text: &str) -> Config {
    Config::parse("sluice.toml", text).expect("a right configuration").config
}

#[test]
fn every_key_is_read() {
    let config = parse(&[SERVICE, PAGE, OTHERS].concat());
    let expected = Check {
        name: "page".to_owned(),
        kind: CheckKind::Https,
        interval_ms: 1000,
        fast_interval_ms: Some(100),
        timeout_ms: 500,
        rise: 4,
        fall: 5,
        dead_after_ms: Some(8000),
        jitter_percent: 0,
        initial: Initial::Down,
        port: Some(8443),
        method: Method::Head,
        path: "/health?a=%20".to_owned(),
        host: Some("www.example.com".to_owned()),
        status: vec![200..=200, 300..=399],
        expect: None,
        expect_regex: Some("^ok".to_owned()),
        send: String::new(),
        dns_name: String::new(),
        dns_type: Question::A,
        dns_code: 0,
        dns_address: None,
        grpc_service: String::new(),
        tls_name: Some("www.example.net".to_owned()),
        tls_verify: false,
        tls_authorities: Some("/etc/ca.pem".into()),
        tls_expiry_days: 30,
        passive_failures: 4,
        passive_hold_s: 60,
        through: Through::Direct,
        command: Vec::new(),
        source: "192.0.2.1".parse().ok(),
        mark: 7,
        interface: Some("back".to_owned()),
    };
    assert_eq!(config.checks[0], expected);
    let [_, names, program, echo, rpc] = &config.checks[..] else { panic!() };
    assert_eq!((names.dns_name.as_str(), names.dns_type), ("example.com", Question::Aaaa));
    assert_eq!((names.dns_code, names.dns_address), (3, "2001:db8::1".parse().ok()));
    assert_eq!(program.command, ["/bin/true", "x"]);
    assert_eq!((echo.send.as_str(), echo.expect.as_deref()), ("ping\n", Some("pong")));
    assert_eq!(rpc.grpc_service, "shop.Cart");
    let service = &config.services[0];
    assert_eq!((service.check.as_str(), service.all_down), ("page", AllDown::FailOpen));
    assert_eq!(service.on_down, Orphans::Reschedule);
    let at = CheckAt { address: "192.0.2.99".parse().ok(), port: Some(8081) };
    assert_eq!((service.reals[0].check, service.reals[1].fallback), (at, true));
}

#[test]
fn what_is_left_out_has_its_default() {
    let config = parse(&[SERVICE, "[[check]]\nname = \"page\"\nkind = \"http\"\n"].concat());
    let check = &config.checks[0];
    assert_eq!((check.interval_ms, check.timeout_ms), (2000, 1000));
    assert_eq!((check.rise, check.fall, check.jitter_percent), (2, 3, 10));
    assert_eq!((check.path.as_str(), &check.status[..]), ("/", &[200..=299][..]));
    assert!(check.tls_verify && check.initial == Initial::Up && check.method == Method::Get);
}

/// What is said about a check that is wrong in one line.
fn refused(line: &str, kind: &str) -> String {
    let check = format!("[[check]]\nname = \"page\"\nkind = \"{kind}\"\n{line}\n");
    let refused = Config::parse("sluice.toml", &[SERVICE, &check].concat());
    refused.expect_err(line).to_string()
}

#[test]
fn what_makes_no_sense_is_refused() {
    for (kind, line, message) in [
        ("htp", "", "did you mean \"http\"?"),
        ("http", "path = \"health\"", "\"health\" is no path"),
        ("http", "path = \"/a b\"", "is no path"),
        ("http", "path = \"/a\\r\\nX: y\"", "is no path"),
        ("http", "host = \"a b\"", "is no name of a host"),
        ("http", "status = [\"600\"]", "is no HTTP status"),
        ("http", "status = [\"299-200\"]", "begin with the lower one: \"200-299\""),
        ("http", "status = []", "the list is empty"),
        ("http", "expect_regex = \"(\"", "is no regular expression"),
        ("http", "expect = \"a\"\nexpect_regex = \"b\"", "use one of the two"),
        ("http", "send = \"x\"", "a check of kind http makes nothing of it"),
        ("tcp", "tls_verify = false", "leave it out: it is for tls, https and grpcs"),
        ("ping", "port = 80", "it is for checks of a port"),
        ("dns", "", "add a line such as dns_name"),
        ("dns", "dns_name = \"a..b\"", "no name in the DNS"),
        ("script", "", "there is no program"),
        ("passive", "", "add a line such as passive_failures = 5"),
        ("passive", "passive_failures = 5\nport = 80", "it is for checks of a port"),
        ("script", "command = [\"true\"]", "programs are not looked for"),
        ("tls", "tls_authorities = \"ca.pem\"", "is no absolute path"),
        ("tcp", "interval_ms = 0", "use an integer from 100 to 3600000"),
        ("tcp", "[[check]]\nname = \"page\"\nkind = \"tcp\"", "page"),
    ] {
        let said = refused(line, kind);
        assert!(said.contains(message), "{kind}, {line}: {said}");
    }
}

#[test]
fn services_name_checks_that_are_there_and_know_where_to_go() {
    let other = "[[check]]\nname = \"pages\"\nkind = \"tcp\"\n";
    let said = Config::parse("f", &[SERVICE, other].concat()).expect_err("no check").to_string();
    assert!(said.contains("did you mean") && said.contains("pages"), "{said}");
    let ports = SERVICE.replace("port = 80\n", "port = \"80-90\"\n");
    let check = "[[check]]\nname = \"page\"\nkind = \"tcp\"\n";
    let said = Config::parse("f", &[&ports, check].concat()).expect_err("no port").to_string();
    assert!(said.contains("does not know to which port to go"), "{said}");
    let with_port = format!("{check}port = 80\n");
    assert!(Config::parse("f", &[&ports, &with_port[..]].concat()).is_ok());
    let ping = "[[check]]\nname = \"page\"\nkind = \"ping\"\n";
    assert!(Config::parse("f", &[&ports, ping].concat()).is_ok());
}

#[test]
fn a_check_through_the_data_path_comes_from_somewhere_and_goes_where_clients_go() {
    let own_ways = |line: &&str| !line.starts_with("check_");
    let plain = SERVICE.lines().filter(own_ways).collect::<Vec<_>>().join("\n") + "\n";
    let from = |addresses: &str| format!("[director]\nprobe_addresses = [{addresses}]\n");
    let check = "[[check]]\nname = \"page\"\nkind = \"http\"\nthrough = \"service\"\n";
    let with = |before: &str, service: &str, more: &str| {
        Config::parse("f", &[before, service, check, more].concat())
    };
    let said = |before: &str, service: &str, more: &str| {
        with(before, service, more).expect_err("a mistake").to_string()
    };
    let own = from("\"198.51.100.9\", \"2001:db8:1::9\"");
    assert!(with(&own, &plain, "").is_ok());
    let nowhere = said("", &plain, "");
    assert!(nowhere.contains("add an IPv4 address to probe_addresses"), "{nowhere}");
    let other = said(&from("\"2001:db8:1::9\""), &plain, "");
    assert!(other.contains("add an IPv4 address to probe_addresses"), "{other}");
    let two = said(&from("\"198.51.100.9\", \"198.51.100.8\""), &plain, "");
    assert!(two.contains("an address of this family already"), "{two}");
    let vip = said(&from("\"198.51.100.200\""), &plain, "");
    assert!(vip.contains("service \"web\" has 198.51.100.200"), "{vip}");
    for key in ["source = \"192.0.2.1\"\n", "mark = 7\n", "interface = \"back\"\n"] {
        let said = said(&own, &plain, key);
        assert!(said.contains("goes as clients' packets do"), "{key}: {said}");
    }
    for key in ["check_address = \"192.0.2.9\"", "check_port = 81"] {
        let service = plain.replace("address = ", &format!("{key}\naddress = "));
        let said = said(&own, &service, "");
        assert!(said.contains("goes where clients go"), "{key}: {said}");
    }
}

#[test]
fn only_handshakes_can_be_watched() {
    let check = "[[check]]\nname = \"page\"\nkind = \"passive\"\npassive_failures = 5\n";
    assert!(Config::parse("f", &[SERVICE, check].concat()).is_ok());
    let udp = SERVICE.replace("\"tcp\"", "\"udp\"");
    let said = Config::parse("f", &[&udp, check].concat()).expect_err("no TCP").to_string();
    assert!(said.contains("only TCP has handshakes"), "{said}");
}

#[test]
fn a_check_that_nobody_uses_is_remarked_on() {
    let text = [SERVICE, PAGE, "[[check]]\nname = \"idle\"\nkind = \"tcp\"\n"].concat();
    let loaded = Config::parse("sluice.toml", &text).expect("a right configuration");
    let told: Vec<_> = loaded.warnings.iter().map(ToString::to_string).collect();
    assert!(told.iter().any(|told| told.contains("nothing uses this check")), "{told:?}");
}
