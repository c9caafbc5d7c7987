//! The scripts by which operators of DPVS set up two-arm full NAT and source NAT, with `dpip` and
//! `ipvsadm` as they are called there: names of this program in PATH. Only addresses are others.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::PathBuf;

use sluice_e2e::director::program;
use sluice_e2e::error::expect;
use sluice_e2e::load::{curl, ping};
use sluice_e2e::{Director, LabError};

use crate::dual_stack::bare;
use crate::fixture::{Fixture, SOON, Setup, here, on_bed};

/// The script. `dpdk0` is the servers' side, `dpdk1` the clients'.
const SCRIPT: &str = "set -e
dpip link set dpdk0 link up
dpip link set dpdk1 link up
dpip addr add 198.51.100.200/32 dev dpdk1
dpip addr add 192.0.2.10/32 dev dpdk0 sapool
dpip route add 203.0.113.0/24 via 192.0.2.1 dev dpdk0
ipvsadm -A -t 198.51.100.200:80 -s rr
ipvsadm -a -t 198.51.100.200:80 -r 192.0.2.11 -b
ipvsadm -a -t 198.51.100.200:80 -r 192.0.2.12 -b
ipvsadm -a -t 198.51.100.200:80 -r 192.0.2.13 -b
ipvsadm --add-laddr -z 192.0.2.10 -t 198.51.100.200:80 -F dpdk0
ipvsadm -G
ipvsadm -ln
";

/// What its last two lines print.
const PRINTED: &str = "VIP:VPORT            TOTAL    SNAT_IP              CONFLICTS  CONNS     
198.51.100.200:80    1        
                              192.0.2.10           0          0         
IP Virtual Server version 1.2.1 (size=4096)
Prot LocalAddress:Port Scheduler Flags
  -> RemoteAddress:Port           Forward Weight ActiveConn InActConn
TCP  198.51.100.200:80 rr
  -> 192.0.2.11:80                FullNat 1      0          0         
  -> 192.0.2.12:80                FullNat 1      0          0         
  -> 192.0.2.13:80                FullNat 1      0          0         
";

/// A director with two ports by DPVS's names and nothing else, on interfaces without the addresses
/// that the script gives them.
fn on_dpvs(name: &str, test: impl FnOnce(&mut Fixture) -> Result<(), LabError>) {
    on_bed(
        name,
        Setup { recipe: bare(), ..Setup::usual() },
        |bed, recipe| {
            for (device, address) in [("front", "198.51.100.200/32"), ("back", "192.0.2.10/32")] {
                bed.director.ip(&["address", "del", address, "dev", device])?;
            }
            let text = recipe.text(bed);
            let ports = text.split("[[pool]]").next().unwrap_or_default();
            let ports = ports.replace("name = \"front\"", "name = \"dpdk1\"");
            let ports = ports.replace("name = \"back\"", "name = \"dpdk0\"");
            let director = Director::start(bed, &ports)?;
            Ok((director, recipe))
        },
        test,
    );
}

#[test]
fn it_runs_as_written_and_curl_is_answered_by_all_three() {
    on_dpvs(here!(it_runs_as_written_and_curl_is_answered_by_all_three), |fixture| {
        make_names(fixture)?;
        let shell = |script: &str| run_script(fixture, script);
        let printed = shell(SCRIPT)?;
        expect(printed == PRINTED, || printed.clone())?;
        three_answer(fixture)?;
        // What was saved brings it all back, local address and all.
        let saved = shell("ipvsadm-save -n")?;
        expect(saved.contains("-P -t 198.51.100.200:80 -z 192.0.2.10\n"), || saved.clone())?;
        let rules = fixture.bed.lab.dir().join("rules");
        fs::write(&rules, &saved).map_err(LabError::file("the rules"))?;
        shell(&format!("ipvsadm -C; ipvsadm-restore < '{}'", rules.display()))?;
        let again = shell("ipvsadm-save -n")?;
        expect(again == saved, || format!("{saved}---\n{again}"))?;
        three_answer(fixture)
    });
}

fn folder(fixture: &Fixture) -> PathBuf {
    fixture.bed.lab.dir().join("bin")
}

/// The programs' names in a folder of their own.
fn make_names(fixture: &Fixture) -> Result<(), LabError> {
    let dir = folder(fixture);
    fs::create_dir_all(&dir).map_err(LabError::file("a folder for names"))?;
    for name in ["dpip", "ipvsadm", "ipvsadm-save", "ipvsadm-restore"] {
        symlink(program("sluice")?, dir.join(name)).map_err(LabError::file("a name"))?;
    }
    Ok(())
}

/// Runs a script with these names beside the director, and gives what it printed.
fn run_script(fixture: &Fixture, script: &str) -> Result<String, LabError> {
    let socket = fixture.director.socket().display();
    let path =
        format!("{}:{}", folder(fixture).display(), std::env::var("PATH").unwrap_or_default());
    let script = format!("export PATH='{path}' SLUICE_SOCKET='{socket}'\n{script}");
    Ok(fixture.bed.director.run("sh", &["-c", &script])?.ok()?.stdout)
}

/// Real Server 01, 02, 03, each once.
fn three_answer(fixture: &Fixture) -> Result<(), LabError> {
    let url = "http://198.51.100.200/";
    let mut seen =
        (0..3).map(|_| curl(&fixture.bed.client, url)).collect::<Result<Vec<_>, LabError>>()?;
    seen.sort();
    let all = ["Real Server 01", "Real Server 02", "Real Server 03"];
    expect(seen == all, || format!("{seen:?}"))
}

/// Source NAT: the machines behind the director go out by two addresses, TCP by the first alone.
const OUTWARD: &str = "set -e
dpip addr add 198.51.100.10/32 dev dpdk1 sapool
dpip addr add 198.51.100.11/32 dev dpdk1 sapool
for proto in tcp icmp; do
    ipvsadm -A -s rr -H proto=$proto,src-range=192.0.2.0-192.0.2.254,oif=dpdk1
done
ipvsadm -a -H proto=tcp,src-range=192.0.2.0-192.0.2.254,oif=dpdk1 -r 198.51.100.10:0 -w 100 -J
ipvsadm -a -H proto=icmp,src-range=192.0.2.0-192.0.2.254,oif=dpdk1 -r 198.51.100.11:0 -w 100 -J
ipvsadm -L -n
ipvsadm -S -n
";

/// What its last two lines print.
const OUTWARD_PRINTED: &str = "IP Virtual Server version 1.2.1 (size=4096)
Prot LocalAddress:Port Scheduler Flags
  -> RemoteAddress:Port           Forward Weight ActiveConn InActConn
MATCH tcp,from=192.0.2.0-192.0.2.254:0-0,oif=dpdk1 rr
  -> 198.51.100.10:0              SNAT    100    0          0         
MATCH icmp,from=192.0.2.0-192.0.2.254:0-0,oif=dpdk1 rr
  -> 198.51.100.11:0              SNAT    100    0          0         
-A -H proto=tcp,src-range=192.0.2.0-192.0.2.254,oif=dpdk1 -s rr
-a -H proto=tcp,src-range=192.0.2.0-192.0.2.254,oif=dpdk1 -r 198.51.100.10:0 -J -w 100
-A -H proto=icmp,src-range=192.0.2.0-192.0.2.254,oif=dpdk1 -s rr
-a -H proto=icmp,src-range=192.0.2.0-192.0.2.254,oif=dpdk1 -r 198.51.100.11:0 -J -w 100
";

/// Where the host outside reflects.
const OUTSIDE: &str = "198.51.100.48:3478";

#[test]
fn machines_behind_the_director_go_out_by_services_by_match() {
    on_dpvs(here!(machines_behind_the_director_go_out_by_services_by_match), |fixture| {
        make_names(fixture)?;
        let peer = program("sluice-peer")?;
        let host = fixture.bed.client_address();
        expect(OUTSIDE.starts_with(&format!("{host}:")), || format!("the client is {host}"))?;
        let peer = peer.to_string_lossy();
        let mut reflect = fixture.bed.client.start("reflect", &peer, &["reflect", OUTSIDE])?;
        reflect.wait_for_words("listening", SOON)?;
        fixture.bed.peers.push(reflect);

        let printed = run_script(fixture, OUTWARD)?;
        expect(printed == OUTWARD_PRINTED, || printed.clone())?;
        goes_out(fixture, "198.51.100.10")?;
        expect(ping(&fixture.bed.reals[1], host, 2)?, || format!("no answer to pings of {host}"))?;
        // A stock program knows no such services, and is told of none.
        let stock = crate::stock::ipvsadm(fixture, "-Ln")?;
        let heading = OUTWARD_PRINTED.split("MATCH").next().unwrap_or_default();
        expect(stock == heading, || stock.clone())?;
        // What went through it is counted, and the files' syntax has it.
        let stats = run_script(fixture, "ipvsadm -L -n --stats")?;
        let row = "MATCH tcp,from=192.0.2.0-192.0.2.254:0-0,oif=dpdk1        3 ";
        expect(stats.contains(row), || stats.clone())?;
        let shown = fixture.director.sluice(&["config", "show", "--origin"])?;
        for line in ["name = \"match-tcp-192.0.2.0-192.0.2.254-dpdk1\"", "egress = \"dpdk1\""] {
            expect(shown.contains(line), || format!("no {line}: {shown}"))?;
        }
        // It is there after a restart, and what was saved brings it back.
        let config = fs::read_to_string(fixture.director.config())
            .map_err(LabError::file("the configuration"))?;
        fixture.director.stop()?;
        fixture.director = Director::start(&fixture.bed, &config)?;
        goes_out(fixture, "198.51.100.10")?;
        let saved = run_script(fixture, "ipvsadm-save -n")?;
        let rules = fixture.bed.lab.dir().join("rules");
        fs::write(&rules, &saved).map_err(LabError::file("the rules"))?;
        run_script(fixture, "ipvsadm -C")?;
        stays(fixture)?;
        run_script(fixture, &format!("ipvsadm-restore < '{}'", rules.display()))?;
        let again = run_script(fixture, "ipvsadm-save -n")?;
        expect(again == saved, || format!("{saved}---\n{again}"))?;
        goes_out(fixture, "198.51.100.10")?;
        // Another address in its place, then none, and then the service has gone.
        let list = "proto=tcp,src-range=192.0.2.0-192.0.2.254,oif=dpdk1";
        run_script(fixture, &format!("ipvsadm -a -H {list} -r 198.51.100.11:0 -J"))?;
        run_script(fixture, &format!("ipvsadm -e -H {list} -r 198.51.100.10:0 -w 0 -J"))?;
        goes_out(fixture, "198.51.100.11")?;
        run_script(fixture, &format!("ipvsadm -d -H {list} -r 198.51.100.11:0"))?;
        stays(fixture)?;
        let left = run_script(fixture, &format!("ipvsadm -L -n -H {list}; ipvsadm -D -H {list}"))?;
        expect(left.contains("-> 198.51.100.10:0              SNAT    0 "), || left.clone())?;
        let gone = run_script(fixture, &format!("ipvsadm -D -H {list} 2>&1 || true"))?;
        expect(gone == "No such service\n", || gone.clone())
    });
}

/// The host outside sees the address that sources become.
fn goes_out(fixture: &Fixture, by: &str) -> Result<(), LabError> {
    for real in &fixture.bed.reals {
        let seen = curl(real, &format!("http://{OUTSIDE}/"))?;
        expect(seen.starts_with(&format!("{by}:")), || format!("{OUTSIDE} saw {seen}, not {by}"))?;
    }
    Ok(())
}

/// The kernel of the director forwards nothing here.
fn stays(fixture: &Fixture) -> Result<(), LabError> {
    let answer = curl(&fixture.bed.reals[0], &format!("http://{OUTSIDE}/"));
    expect(answer.is_err(), || format!("it went out: {answer:?}"))
}
