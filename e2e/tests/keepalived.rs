//! Debian's keepalived, unmodified: its virtual servers are the director's services, its checks
//! take real servers in and out under traffic, VRRP goes on beside it.

use std::fs;
use std::path::Path;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use sluice_e2e::director::program;
use sluice_e2e::error::expect;
use sluice_e2e::load::{curl, download_sha256, wrk};
use sluice_e2e::web::{self, ECHO_PORT, make_blob_of, start_nginx, start_script};
use sluice_e2e::{Bed, Director, LabError, Netns, Running, wait_until};

use crate::dns::start_nsd;
use crate::fixture::{Fixture, SOON, here};
use crate::health::{nginx, signal_all};
use crate::stock::{ipvsadm, on_empty};

/// How long keepalived's checks of these tests may take: a probe a second, a second for each, and
/// a busy machine.
const CHECKED: Duration = Duration::from_secs(15);

/// Options that keep one keepalived out of another's way.
fn options(dir: &Path, name: &str) -> Vec<String> {
    let file = |suffix: &str| dir.join(format!("{name}{suffix}")).display().to_string();
    ["--dont-fork", "--log-console", "--log-detail", "--use-file"]
        .map(str::to_owned)
        .into_iter()
        .chain([file(".conf")])
        .chain(["--pid".to_owned(), file(".pid"), "--vrrp_pid".to_owned(), file("-v.pid")])
        .chain(["--checkers_pid".to_owned(), file("-c.pid")])
        .collect()
}

fn configured(dir: &Path, name: &str, text: &str) -> Result<(), LabError> {
    let global = "global_defs {\n  script_user root\n  dynamic_interfaces\n}\n";
    fs::write(dir.join(format!("{name}.conf")), [global, text].concat())
        .map_err(LabError::file("keepalived's configuration"))
}

/// keepalived beside the director, as `sluice run-keepalived` starts it.
fn start(fixture: &Fixture, text: &str) -> Result<Running, LabError> {
    let dir = fixture.bed.lab.dir();
    configured(dir, "keepalived", text)?;
    let socket = fixture.director.socket().display().to_string();
    let mut args =
        vec!["--socket".to_owned(), socket, "run-keepalived".to_owned(), "--".to_owned()];
    args.extend(options(dir, "keepalived"));
    let args: Vec<&str> = args.iter().map(String::as_str).collect();
    let mut running =
        fixture.bed.director.start("keepalived", &program("sluice")?.to_string_lossy(), &args)?;
    running.wait_for_words("Startup complete", SOON)?;
    Ok(running)
}

/// Real servers of a service and their weights, as stock `ipvsadm` lists them.
fn reals(fixture: &Fixture, service: &str) -> Result<Vec<(String, u32)>, LabError> {
    let shown = ipvsadm(fixture, &format!("-Ln -t {service}"))?;
    let rows = shown.lines().filter_map(|line| {
        let mut words = line.strip_prefix("  -> ")?.split_whitespace();
        let at = words.next()?.to_owned();
        Some((at, words.nth(1)?.parse().ok()?))
    });
    Ok(rows.collect())
}

/// Waits until a service has these real servers with these weights; says when that was seen.
fn wait_for(fixture: &Fixture, service: &str, wanted: &[(&str, u32)]) -> Result<f64, LabError> {
    let mut wanted: Vec<_> =
        wanted.iter().map(|(at, weight)| ((*at).to_owned(), *weight)).collect();
    wanted.sort();
    let mut last = Vec::new();
    let came = wait_until(&format!("{service} to have {wanted:?}"), CHECKED, || {
        last = reals(fixture, service)?;
        last.sort();
        Ok((last == wanted).then(now_s))
    });
    came.map_err(|error| LabError::Wrong(format!("{error}: it has {last:?}")))
}

fn now_s() -> f64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs_f64()
}

/// Runs the rest of a test; what keepalived said goes with what went wrong.
fn judged(
    keepalived: &mut Running,
    test: impl FnOnce(&mut Running) -> Result<(), LabError>,
) -> Result<(), LabError> {
    test(keepalived).map_err(|error| {
        LabError::Wrong(format!("{error}\n--- keepalived said:\n{}", keepalived.log_tail(60)))
    })
}

const FIRST: &str = "192.0.2.11:80";
const SECOND: &str = "192.0.2.12:80";
const SORRY: &str = "192.0.2.13:80";

/// Two virtual servers on one address: by HTTP with a sorry server, by TCP with the rest.
fn two_servers(bed: &Bed) -> String {
    let (vip, dir) = (bed.vip(), bed.lab.dir().display());
    let note = |what: &str| format!("\"/bin/sh -c 'echo {what} >> {dir}/notes'\"");
    let http = |real: &str, name: &str, more: &str| {
        format!(
            "  real_server {real} 80 {{\n    weight 1\n    {more}\n    notify_up {up}\n    \
             notify_down {down}\n    HTTP_GET {{\n      url {{\n        path /\n        \
             status_code 200\n      }}\n      connect_timeout 1\n      retry 0\n    }}\n  }}\n",
            up = note(&format!("{name}-up")),
            down = note(&format!("{name}-down")),
        )
    };
    let tcp = |real: &str, weight: u32| {
        format!(
            "  real_server {real} 80 {{\n    weight {weight}\n    TCP_CHECK {{\n      \
             connect_timeout 1\n      retry 0\n    }}\n  }}\n"
        )
    };
    format!(
        "virtual_server {vip} 80 {{\n  delay_loop 1\n  lb_algo rr\n  lb_kind NAT\n  \
         protocol TCP\n  \
         alpha\n  quorum 1\n  quorum_up {quorum_up}\n  quorum_down {quorum_down}\n  \
         sorry_server 192.0.2.13 80\n{first}{second}}}\n\
         virtual_server {vip} 81 {{\n  delay_loop 1\n  lb_algo wrr\n  lb_kind NAT\n  \
         protocol TCP\n  \
         persistence_timeout 50\n{heavy}{light}}}\n",
        quorum_up = note("quorum-up"),
        quorum_down = note("quorum-down"),
        first = http("192.0.2.11", "first", ""),
        second = http("192.0.2.12", "second", ""),
        heavy = tcp("192.0.2.11", 3),
        light =
            tcp("192.0.2.12", 1).replace("    weight 1", "    inhibit_on_failure\n    weight 1"),
    )
}

#[test]
fn checks_take_servers_in_and_out_under_traffic() {
    on_empty(here!(checks_take_servers_in_and_out_under_traffic), |fixture| {
        let text = two_servers(&fixture.bed);
        let mut keepalived = start(fixture, &text)?;
        judged(&mut keepalived, |keepalived| under_traffic(fixture, keepalived))
    });
}

fn under_traffic(fixture: &mut Fixture, keepalived: &mut Running) -> Result<(), LabError> {
    let web = fixture.server(80);
    let other = fixture.server(81);
    // By `alpha` none is in before its check has passed.
    wait_for(fixture, &web, &[(FIRST, 1), (SECOND, 1)])?;
    wait_for(fixture, &other, &[(FIRST, 3), (SECOND, 1)])?;
    let shown = ipvsadm(fixture, "-Ln")?;
    expect(shown.contains(&format!("TCP  {other} wrr persistent 50\n")), || shown.clone())?;
    let (first, second) = ("Real Server 01", "Real Server 02");
    expect(answers(fixture, 4)? == [first, second], || "not both answer".to_owned())?;
    killed(fixture, &web, &other)?;
    back(fixture, &web, &other)?;
    hung(fixture, &web)?;
    let notes = fs::read_to_string(fixture.bed.lab.dir().join("notes"))
        .map_err(LabError::file("reading what keepalived's scripts wrote"))?;
    let told: Vec<&str> = notes.lines().collect();
    for note in ["first-up", "first-down", "second-down", "second-up", "quorum-up", "quorum-down"] {
        expect(told.contains(&note), || format!("no {note} in {told:?}"))?;
    }
    keepalived.stop()?;
    let left = ipvsadm(fixture, "-Sn")?;
    expect(left.is_empty(), || format!("it left {left}"))
}

/// Who answers `count` new connections, each once.
fn answers(fixture: &Fixture, count: usize) -> Result<Vec<String>, LabError> {
    let mut all = fixture.answers(count)?;
    all.sort();
    all.dedup();
    Ok(all)
}

/// What `knock.py` saw: when each connection began, how it went, who answered.
fn knocks(log: &str) -> Vec<(f64, String, String)> {
    let read = |line: &str| {
        let mut words = line.splitn(3, ' ');
        let at = words.next()?.parse().ok()?;
        Some((at, words.next()?.to_owned(), words.next().unwrap_or_default().to_owned()))
    };
    log.lines().filter_map(read).collect()
}

/// New connections at the client, one after the other, for so many seconds.
fn knocking(fixture: &Fixture, seconds: u32) -> Result<Running, LabError> {
    let (vip, seconds) = (fixture.bed.vip(), seconds.to_string());
    let knocking =
        start_script(&fixture.bed.client, "knock", "knock.py", &[vip, "80", &seconds, "10"])?;
    wait_until("traffic", SOON, || {
        let good = knocks(&knocking.log()).iter().filter(|knock| knock.1 == "ok").count();
        Ok((good > 10).then_some(()))
    })?;
    Ok(knocking)
}

/// The first is killed while `wrk`, new connections and a download from the second go on.
fn killed(fixture: &mut Fixture, web: &str, other: &str) -> Result<(), LabError> {
    let sum = make_blob_of(&fixture.bed.reals[1], 12_000_000)?;
    let (client, blob) = (fixture.bed.client.clone(), format!("{}/blob", fixture.url()));
    while curl(&fixture.bed.client, &fixture.url())? != "Real Server 01" {}
    let download = std::thread::spawn(move || download_sha256(&client, &blob, "1M"));
    let from = "sport = :80 and dst 198.51.100.48";
    wait_until("the download to run from the second", SOON, || {
        let filter = ["-tnH", "state", "established", from];
        Ok((!fixture.bed.reals[1].run("ss", &filter)?.stdout.is_empty()).then_some(()))
    })?;
    let (client, url) = (fixture.bed.client.clone(), fixture.url());
    let load = std::thread::spawn(move || wrk(&client, &url, 8, 10));
    let mut traffic = knocking(fixture, 10)?;
    signal_all(nginx(fixture, 0), "-KILL")?;
    let died = now_s();
    let gone = wait_for(fixture, web, &[(SECOND, 1)])?;
    wait_for(fixture, other, &[(SECOND, 1)])?;
    traffic.wait(CHECKED)?;
    let seen = knocks(&traffic.log());
    let late: Vec<_> = seen.iter().filter(|k| k.0 > gone && k.1 != "ok").collect();
    let lost = seen.iter().filter(|k| k.1 != "ok").count();
    eprintln!("out after {:.1} s, {lost} of {} connections lost", gone - died, seen.len());
    expect(late.is_empty(), || format!("after it was out: {late:?}"))?;
    let served = seen.iter().filter(|k| k.0 > gone && k.2 == "Real Server 02").count();
    expect(served > 50, || format!("the second served {served}"))?;
    let wrong = |_| LabError::Wrong("it panicked".into());
    let mixed = load.join().map_err(wrong)??;
    expect(mixed.requests > 100 && mixed.bad_answers == 0, || format!("{mixed:?}"))?;
    let got = download.join().map_err(wrong)??;
    expect(got == sum, || "the download from the other one broke".to_owned())?;
    let after = wrk(&fixture.bed.client, &fixture.url(), 8, 2)?;
    expect(after.socket_errors == 0 && after.requests > 100, || format!("{after:?}"))
}

/// The first comes back while `wrk` runs: nothing breaks.
fn back(fixture: &mut Fixture, web: &str, other: &str) -> Result<(), LabError> {
    let (client, url) = (fixture.bed.client.clone(), fixture.url());
    let load = std::thread::spawn(move || wrk(&client, &url, 8, 6));
    *nginx(fixture, 0) = start_nginx(&fixture.bed.reals[0], 1)?;
    wait_for(fixture, web, &[(FIRST, 1), (SECOND, 1)])?;
    wait_for(fixture, other, &[(FIRST, 3), (SECOND, 1)])?;
    expect(answers(fixture, 4)?.len() == 2, || "it gets nothing".to_owned())?;
    let seen = load.join().map_err(|_| LabError::Wrong("it panicked".into()))??;
    expect(seen.socket_errors == 0 && seen.bad_answers == 0, || format!("{seen:?}"))
}

/// Both hang, and the sorry server serves until they go on.
fn hung(fixture: &mut Fixture, web: &str) -> Result<(), LabError> {
    for index in [0, 1] {
        signal_all(nginx(fixture, index), "-STOP")?;
    }
    wait_for(fixture, web, &[(SORRY, 1)])?;
    expect(answers(fixture, 4)? == ["Real Server 03"], || "the others answer".to_owned())?;
    for index in [0, 1] {
        signal_all(nginx(fixture, index), "-CONT")?;
    }
    wait_for(fixture, web, &[(FIRST, 1), (SECOND, 1)])?;
    expect(answers(fixture, 4)?.len() == 2, || "they do not both answer".to_owned())
}

#[test]
fn a_server_that_fails_is_weighed_to_nothing_where_the_file_says_so() {
    let name = here!(a_server_that_fails_is_weighed_to_nothing_where_the_file_says_so);
    on_empty(name, |fixture| {
        let text = two_servers(&fixture.bed);
        let mut keepalived = start(fixture, &text)?;
        judged(&mut keepalived, |_| {
            let other = fixture.server(81);
            wait_for(fixture, &other, &[(FIRST, 3), (SECOND, 1)])?;
            signal_all(nginx(fixture, 1), "-KILL")?;
            wait_for(fixture, &other, &[(FIRST, 3), (SECOND, 0)])?;
            *nginx(fixture, 1) = start_nginx(&fixture.bed.reals[1], 2)?;
            wait_for(fixture, &other, &[(FIRST, 3), (SECOND, 1)]).map(drop)
        })
    });
}

/// The director is away for a while: what keepalived has to say then is not lost.
#[test]
fn the_director_comes_back_and_keepalived_goes_on() {
    on_empty(here!(the_director_comes_back_and_keepalived_goes_on), |fixture| {
        let text = two_servers(&fixture.bed);
        let mut keepalived = start(fixture, &text)?;
        judged(&mut keepalived, |keepalived| {
            let web = fixture.server(80);
            wait_for(fixture, &web, &[(FIRST, 1), (SECOND, 1)])?;
            fixture.director.stop()?;
            signal_all(nginx(fixture, 0), "-KILL")?;
            keepalived.wait_for_words("IPVS cmd", CHECKED)?;
            expect(keepalived.ended()?.is_none(), || "it ended".to_owned())?;
            fixture.director = Director::start(&fixture.bed, &fixture.recipe.text(&fixture.bed))?;
            wait_for(fixture, &web, &[(SECOND, 1)])?;
            expect(answers(fixture, 4)? == ["Real Server 02"], || {
                "the dead one is asked".to_owned()
            })?;
            // The other way: it comes back while the director is away.
            fixture.director.stop()?;
            *nginx(fixture, 0) = start_nginx(&fixture.bed.reals[0], 1)?;
            keepalived.wait_for_words("IPVS cmd IP_VS_SO_SET_ADDDEST", CHECKED)?;
            fixture.director = Director::start(&fixture.bed, &fixture.recipe.text(&fixture.bed))?;
            wait_for(fixture, &web, &[(FIRST, 1), (SECOND, 1)]).map(drop)
        })
    });
}

#[test]
fn without_a_director_it_ends_as_without_the_kernels_module() {
    let name = here!(without_a_director_it_ends_as_without_the_kernels_module);
    on_empty(name, |fixture| {
        fixture.director.stop()?;
        let text = two_servers(&fixture.bed);
        if start(fixture, &text).is_ok() {
            return Err(LabError::Wrong("it started".to_owned()));
        }
        let log = fs::read_to_string(fixture.bed.lab.dir().join("keepalived.log"));
        let log = log.map_err(LabError::file("reading keepalived's log"))?;
        // The same program on this kernel, without the library.
        let args = options(fixture.bed.lab.dir(), "keepalived");
        let args: Vec<&str> = args.iter().map(String::as_str).collect();
        let plain = fixture.bed.director.run("keepalived", &args)?;
        let complaint = |said: &str| {
            let line = said.lines().find(|line| line.contains("IPVS: "));
            line.and_then(|line| line.split_once("IPVS: ")).map(|(_, rest)| rest.to_owned())
        };
        let (ours, theirs) = (complaint(&log), complaint(&plain.stderr));
        let theirs = theirs.or_else(|| complaint(&plain.stdout));
        expect(ours.is_some() && ours == theirs, || format!("{ours:?}, not {theirs:?}: {log}"))?;
        expect(!log.contains("modprobe"), || log.clone())
    });
}

const VRRP_VIP: &str = "198.51.100.201";

/// An instance of VRRP on a device, with `priority` of 255.
fn vrrp(device: &str, state: &str, priority: u8) -> String {
    format!(
        "vrrp_instance one {{\n  state {state}\n  interface {device}\n  virtual_router_id 51\n  \
         priority {priority}\n  advert_int 1\n  virtual_ipaddress {{\n    {VRRP_VIP}/32\n  }}\n}}\n"
    )
}

fn holds(space: &Netns, address: &str) -> Result<bool, LabError> {
    Ok(space.ip(&["-o", "addr"])?.stdout.contains(&format!("inet {address}/")))
}

#[test]
fn vrrp_in_the_same_file_moves_the_address() {
    on_empty(here!(vrrp_in_the_same_file_moves_the_address), |fixture| {
        let checked = two_servers(&fixture.bed).replace(fixture.bed.vip(), VRRP_VIP);
        let text = vrrp("front", "BACKUP", 150) + &checked;
        let mut keepalived = start(fixture, &text)?;
        judged(&mut keepalived, |keepalived| {
            // Another one at the client's end of the wire, stock in everything.
            let dir = fixture.bed.lab.dir();
            configured(dir, "rival", &vrrp("eth0", "BACKUP", 50))?;
            let args = options(dir, "rival");
            let args: Vec<&str> = args.iter().map(String::as_str).collect();
            let mut rival = fixture.bed.client.start("rival", "keepalived", &args)?;
            let arrives = |space: &Netns| {
                wait_until("the address to arrive", CHECKED, || {
                    Ok(holds(space, VRRP_VIP)?.then_some(()))
                })
            };
            arrives(&fixture.bed.director)?;
            wait_for(fixture, &format!("{VRRP_VIP}:80"), &[(FIRST, 1), (SECOND, 1)])?;
            let url = format!("http://{VRRP_VIP}/");
            let body = curl(&fixture.bed.client, &url)?;
            expect(body.starts_with("Real Server 0"), || body.clone())?;
            let rivals = holds(&fixture.bed.client, VRRP_VIP)?;
            expect(!rivals, || "both hold it".to_owned())?;
            keepalived.stop()?;
            arrives(&fixture.bed.client)?;
            expect(!holds(&fixture.bed.director, VRRP_VIP)?, || "it kept the address".to_owned())?;
            rival.stop().map(drop)
        })
    });
}

/// One virtual server for each of the other kinds of check, each with the first real server.
fn kinds(bed: &Bed) -> String {
    let (vip, dir) = (bed.vip(), bed.lab.dir().display());
    let server = |port: u16, protocol: &str, real: u16, check: &str| {
        format!(
            "virtual_server {vip} {port} {{\n  delay_loop 1\n  lb_algo rr\n  lb_kind NAT\n  \
             protocol {protocol}\n  alpha\n  real_server 192.0.2.11 {real} {{\n    weight 1\n    \
             {check}\n  }}\n}}\n"
        )
    };
    [
        server(
            443,
            "TCP",
            TLS_PORT,
            "SSL_GET {\n url {\n path /\n status_code 200\n }\n connect_timeout 2\n retry 0\n }",
        ),
        server(
            7,
            "UDP",
            ECHO_PORT,
            "UDP_CHECK {\n payload 61626364\n require_reply 61626364\n connect_timeout 1\n \
             retry 0\n }",
        ),
        server(
            53,
            "UDP",
            53,
            "DNS_CHECK {\n type A\n name www.example.test\n connect_timeout 1\n retry 0\n }",
        ),
        server(
            82,
            "TCP",
            80,
            &format!(
                "MISC_CHECK {{\n misc_path \"/usr/bin/test -e {dir}/well\"\n \
                 misc_timeout 2\n }}"
            ),
        ),
    ]
    .concat()
}

const TLS_PORT: u16 = 8443;

/// A web server with TLS.
fn start_tls(bed: &Bed) -> Result<Running, LabError> {
    let dir = bed.lab.dir().display();
    let make = format!(
        "openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -days 5 \
         -subj /CN=www.example.com -keyout {dir}/key.pem -out {dir}/cert.pem"
    );
    bed.reals[0].run("sh", &["-c", &make])?.ok()?;
    let (port, key, cert) =
        (TLS_PORT.to_string(), format!("{dir}/key.pem"), format!("{dir}/cert.pem"));
    let args = ["s_server", "-www", "-accept", &port, "-key", &key, "-cert", &cert];
    let mut tls = bed.reals[0].start("tls", "openssl", &args)?;
    tls.wait_for_words("ACCEPT", SOON)?;
    Ok(tls)
}

/// Waits until so many real servers are listed, of all services.
fn listed(fixture: &Fixture, count: usize) -> Result<(), LabError> {
    let mut shown = String::new();
    let came = wait_until(&format!("{count} real servers"), CHECKED, || {
        shown = ipvsadm(fixture, "-Ln")?;
        Ok((shown.matches("  -> 192.0.2.11:").count() == count).then_some(()))
    });
    came.map_err(|error| LabError::Wrong(format!("{error}: {shown}")))
}

#[test]
fn every_other_kind_of_check() {
    on_empty(here!(every_other_kind_of_check), |fixture| {
        let well = fixture.bed.lab.dir().join("well");
        fs::write(&well, "").map_err(LabError::file("making a file"))?;
        let mut tls = start_tls(&fixture.bed)?;
        let mut names = start_nsd(&fixture.bed.reals[0], "nsd", &[Bed::real_address(0)])?;
        let text = kinds(&fixture.bed);
        let mut keepalived = start(fixture, &text)?;
        judged(&mut keepalived, |_| {
            listed(fixture, 4)?;
            fs::remove_file(&well).map_err(LabError::file("removing a file"))?;
            listed(fixture, 3)?;
            tls.kill()?;
            listed(fixture, 2)?;
            names.kill()?;
            listed(fixture, 1)?;
            // The echo is the second of the first real server's peers.
            fixture.bed.peers[1].kill()?;
            listed(fixture, 0)?;
            fixture.bed.peers[1] = web::start_echo(&fixture.bed.reals[0], "echo1")?;
            fs::write(&well, "").map_err(LabError::file("making a file"))?;
            listed(fixture, 2)
        })
    });
}
