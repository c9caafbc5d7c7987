//! Upgrade and rollback by the commands of docs/operations.md, as they stand there, on a machine
//! whose `/usr`, `/etc` and `/var` are folders of the test, and whose systemd is two functions.
//!
//! The newer version is the same program with other bytes. What one might have changed is changed
//! for it when it ends: the format of the journal, the layout of kept sessions.

use std::fs;
use std::path::{Path, PathBuf};

use sluice_e2e::director::program;
use sluice_e2e::error::expect;
use sluice_e2e::web::LINES_PORT;
use sluice_e2e::{Bed, Director, LabError, wait_until};

use crate::fixture::{Fixture, SOON, Setup, here, on_bed};
use crate::handover::end;

const DOCUMENT: &str = include_str!("../../docs/operations.md");
/// A real server that a change at run time drains, and the one of a change by the newer version.
const DRAINED: [&str; 2] = ["192.0.2.12", "192.0.2.13"];

/// The commands that follow some words of the document.
fn commands(words: &str) -> Result<String, LabError> {
    let after = DOCUMENT.split_once(words).map(|(_, after)| after);
    let block = after.and_then(|after| after.split_once("```sh\n")?.1.split_once("```"));
    let (block, _) = block.ok_or_else(|| LabError::Wrong(format!("no commands after {words}")))?;
    Ok(block.to_owned())
}

/// The machine's folders, by what the document calls them.
fn folders(dir: &Path) -> [(&'static str, PathBuf); 5] {
    [
        ("/usr/bin", dir.join("bin")),
        ("/usr/lib/sluice", dir.join("lib")),
        ("/etc/sluice", dir.to_owned()),
        ("/var/lib/sluice", dir.join("state")),
        ("/var/backups/sluice", dir.join("backups")),
    ]
}

/// Installs the programs, as `make install` does; a newer version has a byte more.
fn install(dir: &Path, newer: bool) -> Result<(), LabError> {
    for (name, folder, from) in [
        ("sluiced", "bin", "sluiced"),
        ("sluice", "bin", "sluice"),
        ("libsluice-ipvs.so", "lib", "libsluice_preload.so"),
    ] {
        let (folder, wrong) = (dir.join(folder), || LabError::file(format!("installing {name}")));
        fs::create_dir_all(&folder).map_err(wrong())?;
        let new = folder.join(format!("{name}.new"));
        fs::copy(program(from)?, &new).map_err(wrong())?;
        if newer {
            let mut bytes = fs::read(&new).map_err(wrong())?;
            bytes.push(b'\n');
            fs::write(&new, bytes).map_err(wrong())?;
        }
        fs::rename(new, folder.join(name)).map_err(wrong())?;
    }
    Ok(())
}

/// What stands for the rest of the machine: programs by their names, `systemctl`, `make`. When the
/// director is stopped, `on_stop` does what its version might have done otherwise.
const MACHINE: &str = r#"
set -e
sluice() { [ "$1" = doctor ] || "$DIR/bin/sluice" --socket "$DIR/sluice.sock" "$@"; }
sluiced() { "$DIR/bin/sluiced" "$@"; }
make() { [ "$1" != install ] || cp -r --remove-destination "$DIR/built/." "$DIR/"; }
systemctl() {
    case $1 in
    daemon-reload) ;;
    stop)
        pid=$(sluice status --json | sed -n 's/.*"pid": *\([0-9]*\).*/\1/p' | head -n 1)
        kill "$pid"
        while [ -d "/proc/$pid" ] && ! grep -q '^State:.*Z' "/proc/$pid/status"; do sleep 0.05; done
        on_stop
        ;;
    start)
        setsid "$DIR/bin/sluiced" --config "$DIR/sluice.toml" \
            < /dev/null >> "$DIR/sluiced.log" 2>&1 &
        for _ in $(seq 300); do
            sluice status > /dev/null 2>&1 && return
            sleep 0.1
        done
        return 1
        ;;
    esac
}
"#;

/// Gives the journal the format of a version to come.
const NEWER_JOURNAL: &str = r#"python3 - "$DIR/state/journal" <<'END'
import struct, sys
def crc(data):
    it = 0xffffffff
    for byte in data:
        it ^= byte
        for _ in range(8):
            it = it >> 1 ^ (0x82f63b78 if it & 1 else 0)
    return it ^ 0xffffffff
data = open(sys.argv[1], "rb").read()
length = struct.unpack_from("<I", data, 16)[0]
text, rest = data[24:24 + length], data[24 + length:]
text = text.replace(b'"format":1', b'"format":9', 1)
assert b'"format":9' in text
size = struct.pack("<I", len(text))
record = size + struct.pack("<I", crc(size + text)) + text
open(sys.argv[1], "wb").write(data[:16] + record + rest)
END"#;

/// Gives the head of kept sessions, in `$KEPT`, the layout of a version to come.
pub const NEWER_LAYOUT: &str = r#"python3 - "$KEPT" <<'END'
import glob, sys
def crc(data):
    it = 0xffffffff
    for byte in data:
        it ^= byte
        for _ in range(8):
            it = it >> 1 ^ (0x82f63b78 if it & 1 else 0)
    return it ^ 0xffffffff
names = glob.glob(sys.argv[1] + "*/names")
assert names
for name in names:
    line, head = open(name, "rb").read().split(b"\n", 1)
    begin = b"layout 1 length %d " % len(head)
    assert line == begin + b"crc32c %08x" % crc(begin + head), line
    begin = begin.replace(b"layout 1", b"layout 7")
    open(name, "wb").write(begin + b"crc32c %08x\n" % crc(begin + head) + head)
END"#;

/// Runs commands of the document.
fn run(fixture: &Fixture, commands: &str, on_stop: &str) -> Result<String, LabError> {
    let dir = fixture.bed.director.dir();
    let found = folders(dir).into_iter().fold(commands.to_owned(), |text, (name, folder)| {
        text.replace(name, &folder.display().to_string())
    });
    let (dir, kept) = (dir.display(), Director::kept_in(dir));
    let text = format!(
        "DIR='{dir}'\nKEPT='{}'\non_stop() {{ :\n{on_stop}\n}}\n{MACHINE}\n{found}",
        kept.display()
    );
    Ok(fixture.bed.director.run("bash", &["-c", &text])?.ok()?.stdout)
}

/// The process that runs, and whether its program is the newer version.
fn running(fixture: &Fixture) -> Result<(u64, bool), LabError> {
    let pid = fixture.director.ask("status")?["pid"].as_u64().unwrap_or(0);
    let wrong = || LabError::file("looking at programs");
    let length = fs::metadata(format!("/proc/{pid}/exe")).map_err(wrong())?.len();
    let old = fs::metadata(program("sluiced")?).map_err(wrong())?.len();
    expect(length == old || length == old + 1, || format!("{length} bytes, {old}"))?;
    Ok((pid, length != old))
}

/// Whether a real server drains.
fn drains(fixture: &Fixture, real: &str) -> Result<bool, LabError> {
    let shown = fixture.director.sluice(&["real", "show", "web"])?;
    let line = shown.lines().find(|line| line.starts_with(real)).unwrap_or_default();
    Ok(line.contains("drain"))
}

/// The end of the director that runs last, whoever started it.
struct Ends<'d>(&'d Director);

impl Drop for Ends<'_> {
    fn drop(&mut self) {
        let status = self.0.ask("status").unwrap_or_default();
        status["pid"].as_u64().into_iter().for_each(end);
    }
}

fn begin(bed: &Bed, text: &str) -> Result<Director, LabError> {
    let dir = bed.director.dir();
    install(dir, false)?;
    install(&dir.join("built"), true)?;
    let mut director =
        Director::launch_program(&bed.director, &dir.join("bin/sluiced"), text, &[])?;
    director.wait_ready()?;
    Ok(director)
}

#[test]
fn the_document_leads_back_to_the_version_before() {
    let name = here!(the_document_leads_back_to_the_version_before);
    on_bed(
        name,
        Setup::usual(),
        |bed, recipe| Ok((begin(bed, &recipe.text(bed))?, recipe)),
        there_and_back,
    );
}

fn there_and_back(fixture: &mut Fixture) -> Result<(), LabError> {
    let fixture = &*fixture;
    let _ends = Ends(&fixture.director);
    let save = commands("Save what a rollback needs first")?;
    let upgrade = commands("### One director")?;
    let back = commands("For the program:")?;
    // One director has nobody to drain to.
    let drained = back.lines().find(|line| line.starts_with("sluice ha drain"));
    let alone = drained.and_then(|line| Some((line, line.split_once("# one director: ")?.1)));
    let (drained, alone) = alone.ok_or_else(|| LabError::Wrong(format!("no drain in {back}")))?;
    let back = back.replace(drained, alone);

    fixture.director.sluice(&["real", "drain", "web", DRAINED[0]])?;
    let mut held = fixture.hold(&fixture.server(LINES_PORT), 60)?;
    run(fixture, &save, "")?;
    let (first, _) = running(fixture)?;
    run(fixture, &upgrade, "")?;
    let (second, newer) = running(fixture)?;
    expect(newer && second != first, || format!("process {first}, now {second}"))?;
    fixture.director.sluice(&["real", "drain", "web", DRAINED[1]])?;

    // A journal that only the newer version can read is set aside, and sessions go on.
    run(fixture, &back, NEWER_JOURNAL)?;
    let (third, newer) = running(fixture)?;
    expect(!newer && third != second, || format!("process {second}, now {third}"))?;
    let log = fixture.director.log();
    expect(log.contains("a newer version of sluiced wrote it"), || log.clone())?;
    expect(log.contains("sessions go on from before"), || log.clone())?;
    let drained = (drains(fixture, DRAINED[0])?, drains(fixture, DRAINED[1])?);
    expect(drained == (false, false), || format!("they drain: {drained:?}"))?;
    let aside = fixture.bed.director.dir().join("state/journal.newer");
    expect(aside.exists(), || "no journal was set aside".to_owned())?;

    // With the saved journal what was changed before the upgrade is back.
    let restore = "systemctl stop sluiced\ncp /var/backups/sluice/journal /var/lib/sluice/\n\
                   systemctl start sluiced";
    run(fixture, restore, "")?;
    let drained = (drains(fixture, DRAINED[0])?, drains(fixture, DRAINED[1])?);
    expect(drained == (true, false), || format!("they drain: {drained:?}"))?;
    expect(held.ended()?.is_none(), || format!("the connection broke: {}", held.log_tail(3)))?;
    held.kill()?;

    // Sessions of another layout are not believed, and the log says so.
    run(fixture, &upgrade, "")?;
    expect(running(fixture)?.1, || "the newer version does not run".to_owned())?;
    run(fixture, &back, NEWER_LAYOUT)?;
    expect(!running(fixture)?.1, || "the newer version runs".to_owned())?;
    let log = fixture.director.log();
    expect(log.contains("its sessions have layout 7"), || log.clone())?;
    wait_until("clients to be served", SOON, || Ok(fixture.answers(1).ok()))?;
    fixture.answers(3).map(drop)
}
