//! `make install`: what is put where, and that it works from there: as packages are made (into
//! DESTDIR), and on a machine, which here is a mount namespace whose `/usr` and `/etc` can be
//! written without this machine's being changed. systemd's own checker, man and bash judge.

use std::collections::BTreeMap;
use std::fs;
use std::hash::{DefaultHasher, Hasher};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use sluice_e2e::director::program;
use sluice_e2e::error::expect;
use sluice_e2e::process::run;
use sluice_e2e::{Driver, LabError, Ran, Running, wait_until};

use crate::fixture::{Fixture, SOON, Setup, here, on};

/// The sources' root.
const ROOT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/..");
const DOCUMENT: &str = include_str!("../../docs/stock-tools.md");
const LIBRARY: &str = "lib/sluice/libsluice-ipvs.so";
const DROP_IN: &str = "share/sluice/keepalived.service.d/sluice.conf";
/// Where keepalived's drop-in comes to be.
const COPY: &str = "/etc/systemd/system/keepalived.service.d/sluice.conf";

/// What a machine without one gets.
const CONFIGURATION: &str = "/etc/sluice/sluice.toml";

/// Files by their paths: permissions, and what stands in them.
type Tree = BTreeMap<String, (u32, u64)>;

fn tree(root: &Path) -> Result<Tree, LabError> {
    let mut found = Tree::new();
    let mut folders = vec![root.to_owned()];
    while let Some(folder) = folders.pop() {
        let wrong = || LabError::file(folder.display().to_string());
        for entry in fs::read_dir(&folder).map_err(wrong())? {
            let path = entry.map_err(wrong())?.path();
            let about = path.symlink_metadata().map_err(wrong())?;
            let name = path.strip_prefix(root).unwrap_or(&path).display().to_string();
            if about.is_dir() {
                let open = about.permissions().mode() & 0o777 == 0o755;
                expect(open, || format!("{name}/ is {:o}", about.permissions().mode()))?;
                folders.push(path);
            } else {
                let mut sum = DefaultHasher::new();
                sum.write(&fs::read(&path).map_err(wrong())?);
                found.insert(name, (about.permissions().mode() & 0o7777, sum.finish()));
            }
        }
    }
    Ok(found)
}

/// The unit's place: systemd looks there, wherever the programs are.
fn unit(prefix: &str) -> &'static str {
    match prefix {
        "/usr" => "/usr/lib/systemd/system/sluiced.service",
        _ => "/usr/local/lib/systemd/system/sluiced.service",
    }
}

/// Where systemd-sysusers looks.
fn sysusers(prefix: &str) -> &'static str {
    match prefix {
        "/usr" => "/usr/lib/sysusers.d/sluice.conf",
        _ => "/usr/local/lib/sysusers.d/sluice.conf",
    }
}

/// All that is installed, and with what permissions.
fn wanted(prefix: &str) -> Result<BTreeMap<String, u32>, LabError> {
    let below = |name: &str| format!("{}/{name}", &prefix[1..]);
    let mut all: BTreeMap<String, u32> = [
        ("bin/sluice", 0o755),
        ("bin/sluiced", 0o755),
        (LIBRARY, 0o644),
        (DROP_IN, 0o644),
        ("share/bash-completion/completions/sluice", 0o644),
        ("share/zsh/site-functions/_sluice", 0o644),
        ("share/fish/vendor_completions.d/sluice.fish", 0o644),
    ]
    .map(|(name, mode)| (below(name), mode))
    .into();
    all.insert(unit(prefix)[1..].to_owned(), 0o644);
    all.insert(sysusers(prefix)[1..].to_owned(), 0o644);
    all.insert(CONFIGURATION[1..].to_owned(), 0o644);
    for name in [
        "sluice.schema.json",
        "prometheus/sluice.rules.yml",
        "prometheus/prometheus-example.yml",
        "grafana/sluice.json",
    ] {
        all.insert(below(&format!("share/sluice/{name}")), 0o644);
    }
    for name in tree(&Path::new(ROOT).join("examples"))?.keys() {
        all.insert(below(&format!("share/sluice/examples/{name}")), 0o644);
    }
    let place = scratch("pages")?;
    run(Command::new(program("sluice")?).arg("man").arg(&place))?.ok()?;
    for name in tree(&place)?.keys() {
        let section = &name[name.len() - 1..];
        all.insert(below(&format!("share/man/man{section}/{name}")), 0o644);
    }
    for name in ["man1/sluice.1", "man1/sluice-doctor.1", "man5/sluice.toml.5", "man8/sluiced.8"] {
        expect(all.contains_key(&below(&format!("share/man/{name}"))), || format!("no {name}"))?;
    }
    Ok(all)
}

/// An empty folder of the tests' own.
fn scratch(name: &str) -> Result<PathBuf, LabError> {
    let place = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("install-{name}"));
    let _ = fs::remove_dir_all(&place);
    fs::create_dir_all(&place).map_err(LabError::file(place.display().to_string()))?;
    Ok(place)
}

/// `make TARGET` as somebody types it whose files are usually nobody else's to read.
fn make(target: &str, dest: &Path, prefix: &str) -> Result<Ran, LabError> {
    let line = "umask 077; exec make --no-print-directory -C \"$0\" \"$@\"";
    let mut shell = Command::new("sh");
    shell.args(["-c", line, ROOT, target, &format!("PREFIX={prefix}")]);
    run(shell.arg(format!("DESTDIR={}", dest.display())))
}

#[test]
fn a_tree_for_a_package_is_whole_and_removed_again() -> Result<(), LabError> {
    for prefix in ["/usr", "/usr/local", "/opt/sluice"] {
        let dest = scratch("package")?;
        make("install", &dest, prefix)?.ok()?;
        let once = tree(&dest)?;
        let modes: BTreeMap<_, _> =
            once.iter().map(|(name, (mode, _))| (name.clone(), *mode)).collect();
        let wanted = wanted(prefix)?;
        expect(modes == wanted, || format!("{prefix}: {modes:?} and not {wanted:?}"))?;
        for file in [unit(prefix), &format!("{prefix}/{DROP_IN}")] {
            let text = fs::read_to_string(dest.join(&file[1..])).map_err(LabError::file(file))?;
            let own = text.contains(&format!("ExecStart={prefix}/bin/sluice"));
            let other = prefix != "/usr" && text.contains("/usr/bin/");
            expect(own && !other, || format!("{file} of {prefix}:\n{text}"))?;
        }

        // A configuration to begin with, and examples, which are right and name their schema.
        let sluiced = program("sluiced")?;
        let schema = format!("#:schema {prefix}/share/sluice/sluice.schema.json\n");
        let examples = format!("{}/share/sluice/examples/", &prefix[1..]);
        let files = once.keys().filter(|name| name.ends_with(".toml"));
        for name in files {
            let file = dest.join(name);
            let text = fs::read_to_string(&file).map_err(LabError::file(name))?;
            expect(text.starts_with(&schema), || format!("{name} begins {:.60}", text))?;
            expect(name.starts_with(&examples) || **name == CONFIGURATION[1..], || name.clone())?;
            run(Command::new(&sluiced).arg("--check").arg(&file))?.ok()?;
        }
        // What is the administrator's stays, whatever is done beside it.
        let own = ["etc/sluice/sluice.toml".to_owned(), format!("{}/bin/other", &prefix[1..])];
        for name in &own {
            fs::write(dest.join(name), "mine").map_err(LabError::file(name))?;
        }
        make("install", &dest, prefix)?.ok()?;
        let (mut once, mut twice) = (once, tree(&dest)?);
        once.remove(&own[0]);
        let kept = own.iter().filter_map(|name| twice.remove(name)).collect::<Vec<_>>();
        expect(kept.len() == 2 && twice == once, || format!("{prefix}: {twice:?}"))?;
        for _ in 0..2 {
            make("uninstall", &dest, prefix)?.ok()?;
            let left = tree(&dest)?;
            let names = own.iter().collect::<Vec<_>>();
            expect(left.keys().collect::<Vec<_>>() == names, || format!("{prefix}: {left:?}"))?;
            expect(left.into_values().eq(kept.iter().copied()), || "changed".to_owned())?;
        }
        fs::remove_dir_all(&dest).map_err(LabError::file("the package's tree"))?;
    }
    Ok(())
}

#[test]
fn a_prefix_that_units_could_not_name_is_refused() -> Result<(), LabError> {
    let dest = scratch("refused")?;
    for prefix in ["usr", "/opt/my sluice", "/opt/a|b", "/"] {
        let ran = make("install", &dest, prefix)?;
        let refused = !ran.status.success() && ran.stderr.contains(&format!("PREFIX={prefix}:"));
        expect(refused, || format!("{ran:?}"))?;
    }
    let made = tree(&dest)?;
    expect(made.is_empty(), || format!("{made:?}"))
}

/// A machine to install on: beside the director's, with its own `/usr` and `/etc`.
struct Machine<'f> {
    fixture: &'f Fixture,
    /// Holds the mount namespace.
    holder: Running,
    /// What was written to `/usr` and `/etc`.
    written: String,
}

/// Layers lie in memory: where the root is an overlay itself (a container) they could not be on it.
const MACHINE: &str = "set -e
mount --make-rprivate /
mkdir \"$1\"
mount -t tmpfs -o mode=755 layers \"$1\"
for dir in usr etc; do
    mkdir \"$1/$dir\" \"$1/$dir.work\"
    mount -t overlay -o \"lowerdir=/$dir,upperdir=$1/$dir,workdir=$1/$dir.work\" overlay /$dir
done
echo it is there
exec sleep infinity
";

impl<'f> Machine<'f> {
    fn new(fixture: &'f Fixture, name: &str) -> Result<Self, LabError> {
        let written = fixture.bed.lab.dir().join(name).display().to_string();
        let args = ["--mount", "sh", "-c", MACHINE, "sh", &written];
        let mut holder = fixture.bed.director.start(name, "unshare", &args)?;
        holder.wait_for_words("it is there", SOON)?;
        Ok(Self { fixture, holder, written })
    }

    /// Runs a line of shell there, whatever comes of it.
    fn sh(&self, line: &str) -> Result<Ran, LabError> {
        let (pid, root) = (self.holder.pid().to_string(), ROOT);
        let socket = self.fixture.director.socket().display().to_string();
        let before = format!("export SLUICE_SOCKET='{socket}' LC_ALL=C.UTF-8; cd '{root}'; {line}");
        self.fixture.bed.director.run("nsenter", &["-t", &pid, "-m", "bash", "-c", &before])
    }

    /// A line that succeeds without any complaint; gives what it printed.
    fn quietly(&self, line: &str) -> Result<String, LabError> {
        let ran = self.sh(line)?.ok()?;
        expect(ran.stderr.is_empty(), || format!("{line}: {}", ran.stderr))?;
        Ok(ran.stdout)
    }
}

/// On a machine with a director: installed there, used, removed.
fn on_a_machine(name: &str, test: impl Fn(&Machine, &str) -> Result<(), LabError>) {
    on(name, Setup::usual(), |fixture| {
        for prefix in ["/usr", "/usr/local"] {
            let machine = Machine::new(fixture, &prefix.replace('/', "-"))?;
            machine.quietly(&format!("make -s install PREFIX={prefix}"))?;
            test(&machine, prefix)?;
        }
        Ok(())
    });
}

#[test]
fn the_installed_command_runs_stock_programs() {
    on_a_machine(here!(the_installed_command_runs_stock_programs), |machine, prefix| {
        let place = machine.quietly("command -v sluice")?;
        expect(place == format!("{prefix}/bin/sluice\n"), || place.clone())?;
        let list = machine.quietly("sluice run-ipvsadm -- -L -n")?;
        let vip = format!("TCP  {}:80 rr\n", machine.fixture.bed.vip());
        expect(list.contains(&vip), || format!("no {vip} in {list}"))?;
        // The installed library it is, and no other.
        let library = format!("{prefix}/{LIBRARY}");
        let loaded = machine.sh("LD_DEBUG=files sluice run-ipvsadm -- -L -n")?.ok()?.stderr;
        expect(loaded.contains(&format!("file={library} ")), || loaded.clone())?;
        let without = machine.sh(&format!("rm {library}; sluice run-ipvsadm -- -L -n"))?;
        let said = !without.status.success() && without.stderr.contains("libsluice-ipvs.so");
        expect(said && without.stdout.is_empty(), || format!("{without:?}"))
    });
}

#[test]
fn systemd_accepts_the_unit_and_the_drop_in_as_documented() {
    on_a_machine(
        here!(systemd_accepts_the_unit_and_the_drop_in_as_documented),
        |machine, prefix| {
            machine.quietly(&format!("systemd-analyze verify {}", unit(prefix)))?;
            machine.quietly("getent group sluice")?;
            let after = DOCUMENT.split("install -D -m 644").nth(1).unwrap_or_default();
            let arguments = after.split("\nsystemctl").next().unwrap_or_default();
            expect(arguments.contains(COPY), || format!("the document says: {arguments}"))?;
            let arguments = arguments.replace("/usr/share", &format!("{prefix}/share"));
            machine.quietly(&format!("install -D -m 644 {arguments}"))?;
            let verify = "systemd-analyze verify keepalived.service";
            machine.quietly(verify)?;

            // Its own command starts keepalived, with the library before it.
            let text = machine.quietly(&format!("cat {COPY}"))?;
            let starts =
                text.lines().filter_map(|line| line.strip_prefix("ExecStart=")).next_back();
            let start =
                starts.and_then(|line| line.strip_suffix("$DAEMON_ARGS")).unwrap_or_default();
            let said = machine.sh(&format!("LD_DEBUG=files {start} --version"))?.ok()?.stderr;
            let library = format!("file={prefix}/{LIBRARY} ");
            let both = said.contains("Keepalived v") && said.contains(&library);
            expect(both, || format!("{start} says {said}"))?;

            // Removed, what is left of it is told; and systemd does miss the command.
            let removed = machine.sh(&format!("make -s uninstall PREFIX={prefix}"))?.ok()?;
            expect(removed.stderr.contains(COPY), || format!("{removed:?}"))?;
            let missed = machine.sh(verify)?;
            let told =
                missed.stderr.contains(&format!("Command {prefix}/bin/sluice is not executable"));
            expect(told, || format!("{missed:?}"))?;
            // The configuration stays, and so does the group.
            let left = machine.quietly(&format!(
                "find '{}'/{{usr,etc}} -type f ! -name '*group*' ! -name 'gshadow*' \
                 ! -name .pwd.lock | sort",
                machine.written
            ))?;
            let kept = ["/etc/sluice/sluice.toml", COPY];
            let kept = kept.map(|file| format!("{}{file}", machine.written));
            expect(left.lines().eq(kept.iter()), || left.clone())
        },
    );
}

#[test]
fn pages_and_completions_are_found_where_they_are() {
    on_a_machine(here!(pages_and_completions_are_found_where_they_are), |machine, prefix| {
        let pages =
            machine.quietly(&format!("cd '{}{prefix}/share/man'; ls *", machine.written))?;
        let pages: Vec<_> = pages
            .lines()
            .filter_map(|line| line.rsplit_once('.'))
            .filter(|it| it.1.len() == 1)
            .collect();
        expect(pages.len() > 40, || format!("{pages:?}"))?;
        for (page, section) in pages {
            let text = machine.quietly(&format!("man --warnings=w {section} {page}"))?;
            expect(text.contains("\nDESCRIPTION\n"), || format!("{page}: {text}"))?;
        }
        let script = format!("{prefix}/share/bash-completion/completions/sluice");
        let bash = format!("bash -n {script} && source {script} && complete -p sluice");
        let registered = machine.quietly(&bash)?;
        let function = registered.split(" -F ").nth(1).and_then(|rest| rest.split(' ').next());
        let function = function.unwrap_or("nothing");
        machine.quietly(&format!("source {script}; declare -F {function}")).map(drop)
    });
}

/// What systemd makes of the unit, as far as the kernel alone can: its capabilities and no others,
/// and nothing to write to but folders of its own.
const CONFINED: &str = "set -e
mkdir \"$1/runtime\"
mount --bind \"$1\" \"$1\"
for place in / /usr /etc; do mount -o remount,bind,ro $place; done
export RUNTIME_DIRECTORY=\"$1/runtime\"
exec setpriv --no-new-privs --inh-caps=-all --bounding-set \"$2\" $3
";

#[test]
fn the_unit_lets_the_director_do_its_work() {
    let name = here!(the_unit_lets_the_director_do_its_work);
    for driver in [Driver::AfXdp, Driver::AfPacket] {
        on(name, Setup::new(driver, 1), |fixture| {
            fixture.director.stop()?;
            let machine = Machine::new(fixture, "machine")?;
            machine.quietly("make -s install")?;
            let config = fixture.director.config().display();
            machine.quietly(&format!("cp '{config}' /etc/sluice/sluice.toml"))?;
            let text = machine.quietly(&format!("cat {}", unit("/usr")))?;
            let key = |key: &str| text.lines().find_map(|line| line.strip_prefix(key));
            let start = key("ExecStart=").unwrap_or_default();
            let allowed = key("CapabilityBoundingSet=").unwrap_or_default().to_lowercase();
            let allowed = format!("-all,{}", allowed.replace("cap_", "+").replace(' ', ","));

            let pid = machine.holder.pid().to_string();
            let dir = fixture.bed.lab.dir().display().to_string();
            let confined = ["-t", &pid, "-m", "unshare", "--mount", "sh", "-c", CONFINED, "sh"];
            let args = [&confined[..], &[&dir, &allowed, start]].concat();
            let mut running = fixture.bed.director.start("unit", "nsenter", &args)?;
            let ready = wait_until("the unit's director", SOON, || {
                let ended = running.ended()?;
                expect(ended.is_none(), || "it ended".to_owned())?;
                Ok(fixture.director.ask("status").ok())
            });
            let settled = ready.and_then(|_| fixture.bed.settle_twins());
            let served = settled.and_then(|()| fixture.answers(3));
            let log = running.log();
            running.stop()?;
            let worked = served.map(drop);
            worked.map_err(|error| LabError::Wrong(format!("{error}; the unit's said:\n{log}")))
        });
    }
}
