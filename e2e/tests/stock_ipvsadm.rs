//! Stock `ipvsadm` 1.31 drives the director: every kind of command through both interfaces of the
//! kernel, traffic through what it made, a round trip of hundreds of services, valgrind as a judge.

use std::fmt::Write;
use std::fs;

use sluice_e2e::error::expect;
use sluice_e2e::load::curl;
use sluice_e2e::web::LINES_PORT;
use sluice_e2e::{Bed, Family, LabError, wait_until};

use crate::fixture::{Fixture, SOON, Setup, here, on};
use crate::stock::{DOORS, Row, ipvsadm, on_empty, real, rows, run};

const HEADER: &str = "IP Virtual Server version 1.2.1 (size=4096)
Prot LocalAddress:Port Scheduler Flags
  -> RemoteAddress:Port           Forward Weight ActiveConn InActConn
";

/// What both interfaces do.
const IPV4: &[Row] = &[
    ("-C", 0, ""),
    ("-Ln", 0, HEADER),
    ("-A -t 203.0.113.10:80 -s wrr -p 300 -M 255.255.255.0", 0, ""),
    ("-A -t 203.0.113.10:80", 255, "Service already exists\n"),
    ("-A -u 203.0.113.10:53 -s mh -b mh-port -o", 0, ""),
    ("-A -t 203.0.113.11:80 -s nosuch", 255, "Scheduler or persistence engine not found"),
    ("-a -t 203.0.113.10:80 -r 192.0.2.11:80 -m -w 100 -x 50 -y 40", 0, ""),
    ("-a -t 203.0.113.10:80 -r 192.0.2.12:80 -g", 0, ""),
    ("-a -t 203.0.113.10:80 -r 192.0.2.13:80 -i -w 0", 0, ""),
    ("-a -t 203.0.113.10:80 -r 192.0.2.13:80 -i", 255, "Destination already exists\n"),
    ("-a -t 203.0.113.77:80 -r 192.0.2.13:80 -m", 255, "Service not defined\n"),
    ("-Ln -t 203.0.113.10:80", 0, "TCP  203.0.113.10:80 wrr persistent 300 mask 255.255.255.0\n"),
    ("-Ln", 0, "UDP  203.0.113.10:53 mh (mh-port) ops\n"),
    ("-Ln", 0, "  -> 192.0.2.11:80                Masq    100    0          0         \n"),
    ("-Ln", 0, "  -> 192.0.2.12:80                Route   1      0          0         \n"),
    ("-Ln", 0, "  -> 192.0.2.13:80                Tunnel  0      0          0         \n"),
    ("-Ln --thresholds", 0, "  -> 192.0.2.11:80                50         40  "),
    ("-e -t 203.0.113.10:80 -r 192.0.2.11:80 -m -w 7", 0, ""),
    ("-Ln --thresholds", 0, "  -> 192.0.2.11:80                0          0  "),
    ("-e -t 203.0.113.10:80 -r 192.0.2.99:80 -m", 255, "No such destination\n"),
    ("-E -t 203.0.113.10:80 -s rr", 0, ""),
    ("-Ln", 0, "TCP  203.0.113.10:80 rr\n"),
    ("-Sn", 0, "-A -t 203.0.113.10:80 -s rr\n-a -t 203.0.113.10:80 -r 192.0.2.11:80 -m -w 7\n"),
    ("-d -t 203.0.113.10:80 -r 192.0.2.12:80", 0, ""),
    ("-d -t 203.0.113.10:80 -r 192.0.2.12:80", 255, "No such destination\n"),
    ("-Z", 0, ""),
    ("-Z -t 203.0.113.10:80", 0, ""),
    ("-D -t 203.0.113.99:80", 255, "No such service\n"),
    ("-D -u 203.0.113.10:53", 0, ""),
    ("-Ln --stats", 0, "TCP  203.0.113.10:80                     0        0        0        0  "),
    ("-Ln --rate", 0, "Prot LocalAddress:Port                 CPS    InPPS   OutPPS"),
    ("-Lcn", 0, "IPVS connection entries\npro expire state       source "),
    ("-C", 0, ""),
    ("-Sn", 0, ""),
];

/// What only netlink can say.
const NETLINK: &[Row] = &[
    ("-C", 0, ""),
    ("-A -t [2001:db8:9::10]:80 -s wlc -p 60 -M 64", 0, ""),
    ("-a -t [2001:db8:9::10]:80 -r [2001:db8:2::11]:80 -m -w 2", 0, ""),
    ("-a -t [2001:db8:9::10]:80 -r 192.0.2.11:80 -i --tun-type ipip", 0, ""),
    ("-Ln", 0, "TCP  [2001:db8:9::10]:80 wlc persistent 60 mask 64\n"),
    ("-Ln", 0, "  -> [2001:db8:2::11]:80          Masq    2      0          0         \n"),
    ("-Ln --tun-info", 0, "  -> 192.0.2.11:80                Tunnel  ipip          1      0   "),
    ("-Z -t [2001:db8:9::10]:80", 0, ""),
    ("-d -t [2001:db8:9::10]:80 -r 192.0.2.11:80", 0, ""),
    ("-D -t [2001:db8:9::10]:80", 0, ""),
    ("-D -t [2001:db8:9::10]:80", 255, "No such service\n"),
    ("-A -f 7 -6 -s rr", 0, ""),
    ("-Ln", 0, "FWM  7 IPv6 rr\n"),
    ("-D -f 7 -6", 0, ""),
    ("-A -t 203.0.113.10:80", 0, ""),
    ("-a -t 203.0.113.10:80 -r 192.0.2.11:80 -i --tun-type gue --tun-port 6080", 0, ""),
    ("-a -t 203.0.113.10:80 -r 192.0.2.12:80 -i --tun-type gre --tun-csum", 0, ""),
    ("-Ln --tun-info", 0, "  -> 192.0.2.11:80                Tunnel  gue:6080:-c"),
    ("-Ln --tun-info", 0, "  -> 192.0.2.12:80                Tunnel  gre:+c"),
    // The director does none; it is said as the kernel would say it.
    (
        "-a -t 203.0.113.10:80 -r 192.0.2.13:80 -i --tun-type gue --tun-port 6080 --tun-remcsum",
        255,
        "Invalid operation.",
    ),
    ("-C", 0, ""),
];

#[test]
fn commands_of_every_kind() {
    on_empty(here!(commands_of_every_kind), |fixture| {
        for interface in DOORS {
            rows(fixture, interface, IPV4)?;
        }
        rows(fixture, "netlink", NETLINK)?;
        let events = fixture.director.sluice(&["events"])?;
        expect(events.contains("refused: ") && events.contains("remote checksum offload"), || {
            events.clone()
        })?;
        let six = "-A -t [2001:db8:9::10]:80";
        let message = "Operation not supported with specified address family";
        rows(fixture, "sockopt", &[(six, 255, message)])
    });
}

#[test]
fn timeouts_and_daemons() {
    on_empty(here!(timeouts_and_daemons), |fixture| {
        for interface in DOORS {
            rows(
                fixture,
                interface,
                &[
                    ("--set 1000 100 200", 0, ""),
                    ("-L --timeout", 0, "Timeout (tcp tcpfin udp): 1000 100 200\n"),
                    ("--set 0 0 201", 0, ""),
                    ("-L --timeout", 0, "Timeout (tcp tcpfin udp): 1000 100 201\n"),
                    ("--start-daemon master --mcast-interface back --syncid 5", 0, ""),
                    ("--start-daemon master --mcast-interface back", 255, "Daemon has already run"),
                    ("-L --daemon", 0, "master sync daemon (mcast=back, syncid=5"),
                    ("--stop-daemon master", 0, ""),
                    ("--stop-daemon master", 255, "No daemon is running"),
                ],
            )?;
        }
        Ok(())
    });
}

#[test]
fn curl_is_served_by_a_service_it_made() {
    on_empty(here!(curl_is_served_by_a_service_it_made), |fixture| {
        let (four, six) = (fixture.bed.vip_of(Family::V4), fixture.bed.vip_of(Family::V6));
        for (vip, family) in [(four.to_owned(), Family::V4), (format!("[{six}]"), Family::V6)] {
            ipvsadm(fixture, &format!("-A -t {vip}:80 -s rr"))?;
            for index in 0..3 {
                let real = match family {
                    Family::V4 => real(index),
                    Family::V6 => format!("[{}]:80", Bed::real_of(family, index)),
                };
                ipvsadm(fixture, &format!("-a -t {vip}:80 -r {real} -m"))?;
            }
            let url = format!("http://{vip}/");
            let mut seen = (0..3)
                .map(|_| curl(&fixture.bed.client, &url))
                .collect::<Result<Vec<_>, LabError>>()?;
            seen.sort();
            let all = ["Real Server 01", "Real Server 02", "Real Server 03"];
            expect(seen == all, || format!("{vip}: {seen:?}"))?;
            let row = wait_until("the connections to be counted", SOON, || {
                let shown = ipvsadm(fixture, &format!("-Ln --stats -t {vip}:80"))?;
                let row = shown.lines().find(|line| line.starts_with("TCP")).unwrap_or_default();
                let conns = row.split_whitespace().nth(2).unwrap_or_default();
                Ok((conns == "3").then(|| row.to_owned()))
            })?;
            let counts: Vec<&str> = row.split_whitespace().skip(3).collect();
            expect(counts.len() == 4 && !counts.contains(&"0"), || row.clone())?;
        }
        entry_of_an_open_connection(fixture)?;
        ipvsadm(fixture, &format!("-D -t {four}:80"))?;
        let url = format!("http://{four}/");
        let ran = fixture.bed.client.run("curl", &["-sS", "--max-time", "1", &url])?;
        expect(!ran.status.success(), || "it still answers".to_owned())
    });
}

/// A connection that is open is in `-Lcn`, and the files below `/proc` are what it is read from.
fn entry_of_an_open_connection(fixture: &Fixture) -> Result<(), LabError> {
    let lines = fixture.server(LINES_PORT);
    let real = format!("{}:{LINES_PORT}", Bed::real_address(0));
    ipvsadm(fixture, &format!("-A -t {lines}"))?;
    ipvsadm(fixture, &format!("-a -t {lines} -r {real} -m"))?;
    let mut held = fixture.hold(&lines, 3)?;
    let entries = ipvsadm(fixture, "-Lcn")?;
    let client = format!(" {}:", fixture.bed.client_address());
    let entry = entries.lines().find(|line| line.contains(&client)).unwrap_or_default();
    let words: Vec<&str> = entry.split_whitespace().collect();
    let fits = matches!(words[..], ["TCP", left, "ESTABLISHED", _, to, at]
        if to == lines && at == real && left.len() >= 5);
    expect(fits, || entries.clone())?;
    held.wait(SOON).map(drop)
}

#[test]
fn hundreds_of_services_are_saved_and_restored() {
    go_around(here!(hundreds_of_services_are_saved_and_restored), 250);
}

/// For `make test-all`: the stock program has each change published by itself, and each costs by
/// how many services there are.
mod faults {
    use crate::fixture::here;

    #[test]
    fn a_thousand_services_are_saved_and_restored() {
        super::go_around(here!(a_thousand_services_are_saved_and_restored), 1000);
    }
}

fn go_around(name: &str, services: usize) {
    on_empty(name, |fixture| {
        let mut rules = String::new();
        for number in 0..services {
            let vip = format!("203.0.113.{}:{}", number % 250 + 1, 1000 + number / 250);
            let scheduler = ["rr", "wrr", "wlc", "sh"][number % 4];
            // Writing to a string does not fail.
            let _ = writeln!(rules, "-A -t {vip} -s {scheduler}");
            let _ = writeln!(rules, "-a -t {vip} -r 192.0.2.11:80 -m -w {}", number % 90 + 1);
        }
        let dir = fixture.bed.lab.dir().to_path_buf();
        let file = |name: &str| dir.join(name).display().to_string();
        let put = |name: &str, text: &str| fs::write(dir.join(name), text);
        put("rules", &rules).map_err(LabError::file("writing the rules"))?;
        let sorted = |text: &str| {
            let mut lines: Vec<String> = text.lines().map(str::to_owned).collect();
            lines.sort();
            lines
        };
        for name in ["rules", "saved"] {
            let restore = format!("exec \"$0\" \"$@\" < {}", file(name));
            piped(fixture, &restore, "/usr/sbin/ipvsadm-restore", &[])?;
            let saved = piped(fixture, "exec \"$0\" \"$@\"", "/usr/sbin/ipvsadm-save", &["-n"])?;
            expect(sorted(&saved) == sorted(&rules), || {
                format!("{} lines, not {}", saved.lines().count(), rules.lines().count())
            })?;
            put("saved", &saved).map_err(LabError::file("writing what was saved"))?;
        }
        // Ours asks for many changes at once.
        let sluice = sluice_e2e::director::program("sluice")?.display().to_string();
        let socket = fixture.director.socket().display().to_string();
        let shell = format!("\"$0\" \"$@\" -C && exec \"$0\" \"$@\" -R < {}", file("saved"));
        let ours = ["-c", &shell, &sluice, "--socket", &socket, "ipvsadm"];
        let ran = fixture.bed.director.run("sh", &ours)?.ok()?;
        expect(ran.stderr.is_empty(), || ran.stderr.clone())?;
        let saved = ipvsadm(fixture, "-Sn")?;
        expect(sorted(&saved) == sorted(&rules), || format!("{} lines", saved.lines().count()))
    });
}

/// One of the stock scripts, its input as a shell gives it.
fn piped(fixture: &Fixture, shell: &str, script: &str, args: &[&str]) -> Result<String, LabError> {
    let sluice = sluice_e2e::director::program("sluice")?.display().to_string();
    let socket = fixture.director.socket().display().to_string();
    let own = ["-c", shell, &sluice, "--socket", &socket, "run-ipvsadm", "--program", script, "--"];
    let all = [&own[..], args].concat();
    let ran = fixture.bed.director.run("sh", &all)?.ok()?;
    expect(ran.stderr.is_empty(), || format!("{script}: {}", ran.stderr))?;
    Ok(ran.stdout)
}

#[test]
fn without_a_director_it_is_as_without_the_kernels_module() {
    on_empty(here!(without_a_director_it_is_as_without_the_kernels_module), |fixture| {
        fixture.director.stop()?;
        for interface in DOORS {
            let ran = run(fixture, &["--interface", interface], &["-Ln"])?;
            let message = "Can't initialize ipvs: Protocol not available\n\
                           Are you sure that IP Virtual Server is built in the kernel \
                           or as module?";
            let fits = ran.status.code() == Some(2)
                && ran.stderr.trim_end() == message
                && ran.stdout.is_empty();
            expect(fits, || format!("{ran:?}"))?;
        }
        Ok(())
    });
}

#[test]
fn what_is_the_files_is_listed_and_stays() {
    on(here!(what_is_the_files_is_listed_and_stays), Setup::usual(), |fixture| {
        let vip = fixture.bed.vip().to_owned();
        let shown = ipvsadm(fixture, "-Ln")?;
        expect(shown.contains(&format!("TCP  {vip}:80 ")), || shown.clone())?;
        let ran = run(fixture, &[], &["-D", "-t", &format!("{vip}:80")])?;
        // The owner, then what the stock program makes of EPERM.
        let told = ran.stderr.contains("\"web\"") && ran.stderr.contains("belongs to file");
        let stock = ran.stderr.ends_with("Permission denied (you must be root)\n");
        let code = ran.status.code() == Some(255);
        expect(told && stock && code, || format!("{ran:?}"))?;
        fixture.answers(3).map(drop)
    });
}

#[test]
fn no_other_socket_is_touched() {
    on_empty(here!(no_other_socket_is_touched), |fixture| {
        // `genl` asks netlink for all families, `ip` speaks another protocol of netlink, `curl`
        // none: with the library each says what it says without.
        let library = sluice_e2e::director::program("libsluice_preload.so")?;
        let preload = format!("LD_PRELOAD={}", library.display());
        let socket = format!("SLUICE_SOCKET={}", fixture.director.socket().display());
        let url = format!("http://{}/", Bed::real_address(0));
        let commands: [&[&str]; 4] = [
            &["ip", "-o", "addr"],
            &["curl", "-sS", "--fail", &url],
            &["cat", "/proc/net/dev_mcast"],
            &["genl", "ctrl", "list"],
        ];
        for command in commands {
            let plain = fixture.bed.director.run(command[0], &command[1..])?.ok()?;
            let args = [&[&preload[..], &socket], command].concat();
            let with = fixture.bed.director.run("env", &args)?.ok()?;
            match with.stdout.strip_suffix(&*plain.stdout) {
                Some("") => {}
                Some(more) if command[0] == "genl" && more.contains("Name: IPVS") => {}
                _ => return Err(LabError::Wrong(format!("{plain:?}\n{with:?}"))),
            }
        }
        let args = [&preload, &socket, "cat", "/proc/net/ip_vs"];
        let table = fixture.bed.director.run("env", &args)?.ok()?.stdout;
        expect(table.starts_with("IP Virtual Server version 1.2.1"), || table.clone())
    });
}

/// Commands that reach every part of the library.
const WATCHED: [&str; 12] = [
    "-C",
    "-A -t 203.0.113.10:80 -s wrr -p 300",
    "-A -t 203.0.113.10:80",
    "-a -t 203.0.113.10:80 -r 192.0.2.11:80 -m -w 3",
    "-a -t 203.0.113.10:80 -r 192.0.2.12:80 -m -x 9",
    "-Ln --stats",
    "-Ln -t 203.0.113.10:80",
    "-Lcn",
    "-L --timeout",
    "-L --daemon",
    "-D -t 203.0.113.99:80",
    "-C",
];

#[test]
fn valgrind_finds_nothing_in_the_library() {
    on_empty(here!(valgrind_finds_nothing_in_the_library), |fixture| {
        for interface in DOORS {
            for line in WATCHED {
                watched(fixture, interface, line)?;
            }
        }
        fixture.director.stop()?;
        DOORS.iter().try_for_each(|interface| watched(fixture, interface, "-Ln"))
    });
}

fn watched(fixture: &Fixture, interface: &str, line: &str) -> Result<(), LabError> {
    let options = ["--program", "/usr/bin/valgrind", "--interface", interface];
    let judge = ["--leak-check=full", "--errors-for-leak-kinds=none", "--error-exitcode=99"];
    let command: Vec<&str> = line.split_whitespace().collect();
    let args = [&judge[..], &["/usr/sbin/ipvsadm"], &command].concat();
    let ran = run(fixture, &options, &args)?;
    // Leaks of the stock program are its own; its frames never have ours below them.
    let clean = ran.status.code() != Some(99)
        && ran.stderr.contains("ERROR SUMMARY: 0 errors")
        && !ran.stderr.contains("sluice");
    expect(clean, || format!("{interface}: {line}: {}", ran.stderr))
}
