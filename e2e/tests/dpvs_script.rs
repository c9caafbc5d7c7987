//! The script by which operators of DPVS set up two-arm full NAT, with `dpip` and `ipvsadm` as
//! they are called there: names of this program in PATH. Only its addresses are others.

use std::fs;
use std::os::unix::fs::symlink;

use sluice_e2e::director::program;
use sluice_e2e::error::expect;
use sluice_e2e::load::curl;
use sluice_e2e::{Director, LabError};

use crate::arena::bare;
use crate::field::{Field, Setup, here, on_bed};

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
fn on_dpvs(name: &str, test: impl FnOnce(&mut Field) -> Result<(), LabError>) {
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
    on_dpvs(here!(it_runs_as_written_and_curl_is_answered_by_all_three), |field| {
        let dir = field.bed.lab.dir().join("bin");
        fs::create_dir_all(&dir).map_err(LabError::file("a folder for names"))?;
        for name in ["dpip", "ipvsadm", "ipvsadm-save", "ipvsadm-restore"] {
            symlink(program("sluice")?, dir.join(name)).map_err(LabError::file("a name"))?;
        }
        let socket = field.director.socket().display().to_string();
        let shell = |script: &str| {
            let path = format!("{}:{}", dir.display(), std::env::var("PATH").unwrap_or_default());
            let script = format!("export PATH='{path}' SLUICE_SOCKET='{socket}'\n{script}");
            field.bed.director.run("sh", &["-c", &script])?.ok()
        };
        let printed = shell(SCRIPT)?.stdout;
        expect(printed == PRINTED, || printed.clone())?;
        three_answer(field)?;
        // What was saved brings it all back, local address and all.
        let saved = shell("ipvsadm-save -n")?.stdout;
        expect(saved.contains("-P -t 198.51.100.200:80 -z 192.0.2.10\n"), || saved.clone())?;
        let rules = field.bed.lab.dir().join("rules");
        fs::write(&rules, &saved).map_err(LabError::file("the rules"))?;
        shell(&format!("ipvsadm -C; ipvsadm-restore < '{}'", rules.display()))?;
        let again = shell("ipvsadm-save -n")?.stdout;
        expect(again == saved, || format!("{saved}---\n{again}"))?;
        three_answer(field)
    });
}

/// Real Server 01, 02, 03, each once.
fn three_answer(field: &Field) -> Result<(), LabError> {
    let url = "http://198.51.100.200/";
    let mut seen =
        (0..3).map(|_| curl(&field.bed.client, url)).collect::<Result<Vec<_>, LabError>>()?;
    seen.sort();
    let all = ["Real Server 01", "Real Server 02", "Real Server 03"];
    expect(seen == all, || format!("{seen:?}"))
}
