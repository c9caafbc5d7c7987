//! Debian's `ipvsadm` under the preloaded library and ours, side by side: the same command lines,
//! the same bytes, the same exit codes, and the same director behind them afterwards.
//!
//! Both are run under the name `ipvsadm`. What changes something is run on two directors, one of
//! which the stock program drives and the other ours, and after each line the two hold the same;
//! what only shows something is shown by both on the first one, too.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::time::Instant;

use serde_json::{Value, json};
use sluice_e2e::director::program;
use sluice_e2e::error::expect;
use sluice_e2e::load::curl;
use sluice_e2e::{LabError, Ran, wait_until};

use crate::fixture::{Fixture, SOON, here};
use crate::stock::{on_empty, real};

/// The command lines.
const LINES: &str = include_str!("differential/lines.txt");
/// Runs the program that `$3` names under the name `ipvsadm`, on what `$4` makes its input.
const UNDER_ITS_NAME: &str = "
[ -z \"$1\" ] || export LD_PRELOAD=\"$1\"
export SLUICE_SOCKET=\"$2\"
program=\"$3\"
input=\"$4\"
shift 4
printf '%b' \"$input\" | exec -a ipvsadm \"$program\" \"$@\"";

/// What may differ.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Mark {
    /// Nothing.
    None,
    /// Ours prints more behind what the stock program prints.
    More,
    /// Ours saves thresholds, too.
    Limits,
}

/// A command line of the file.
#[derive(Debug)]
struct Line<'a> {
    text: &'a str,
    args: Vec<&'a str>,
    input: &'a str,
    mark: Mark,
}

impl<'a> Line<'a> {
    fn read(text: &'a str) -> Self {
        let marks = [("+more ", Mark::More), ("+limits ", Mark::Limits)];
        let marked = marks.iter().find_map(|(name, mark)| Some((*mark, text.strip_prefix(name)?)));
        let (mark, rest) = marked.unwrap_or((Mark::None, text));
        let (words, input) = rest.split_once("<<<").unwrap_or((rest, ""));
        let word = |word: &'a str| if word == "''" { "" } else { word };
        let args = words.split_whitespace().map(word).collect();
        Self { text, args, input: input.trim_start(), mark }
    }

    fn all() -> Vec<Line<'static>> {
        let lines = LINES.lines().filter(|line| !line.is_empty() && !line.starts_with('#'));
        lines.map(Line::read).collect()
    }

    /// Whether it shows something, or nothing, but never changes what is there.
    fn only_shows(&self) -> bool {
        let first = self.args.first().copied().unwrap_or_default();
        ["-L", "-l", "-S", "-h", "-v", "--help", "--version"]
            .iter()
            .any(|shows| first.starts_with(shows))
    }

    /// Whether what ours did is what the stock program did.
    fn same(&self, stock: &Ran, ours: &Ran) -> bool {
        let (out, err) = match self.mark {
            Mark::None => (stock.stdout == ours.stdout, stock.stderr == ours.stderr),
            Mark::Limits => {
                let without = |line: &str| line.split(" -x ").next().unwrap_or(line).to_owned();
                let without: Vec<String> = ours.stdout.lines().map(without).collect();
                let differs = ours.stdout.contains(" -x ");
                (differs && stock.stdout.lines().eq(without), stock.stderr == ours.stderr)
            }
            Mark::More => (ours.stdout.starts_with(&stock.stdout), stock.stderr == ours.stderr),
        };
        out && err && stock.status.code() == ours.status.code()
    }
}

/// The stock program, the library before it.
fn stock(field: &Fixture, args: &[&str], input: &str) -> Result<Ran, LabError> {
    let library = program("libsluice_preload.so")?;
    under_its_name(field, &library, Path::new("/usr/sbin/ipvsadm"), args, input)
}

/// Ours.
fn ours(field: &Fixture, args: &[&str], input: &str) -> Result<Ran, LabError> {
    under_its_name(field, Path::new(""), &program("sluice")?, args, input)
}

fn under_its_name(
    field: &Fixture,
    library: &Path,
    program: &Path,
    args: &[&str],
    input: &str,
) -> Result<Ran, LabError> {
    let [library, program, socket] =
        [library, program, field.director.socket()].map(|path| path.display().to_string());
    let own = ["-c", UNDER_ITS_NAME, "bash", &library, &socket, &program, input];
    field.bed.director.run("bash", &[&own[..], args].concat())
}

/// What the director holds, by its own account and by neither program's.
fn held(field: &Fixture) -> Result<Value, LabError> {
    let socket = field.director.socket().display().to_string();
    let ask = |question: &str| {
        let body = format!("\"{question}\"");
        let header = "content-type: application/json";
        let url = "http://director/v1/ipvs";
        let args = ["-sS", "--fail", "--unix-socket", &socket, "-H", header, "--data", &body, url];
        let text = field.bed.director.run("curl", &args)?.ok()?.stdout;
        serde_json::from_str::<Value>(&text)
            .map_err(|_| LabError::Unreadable { what: question.to_owned(), text })
    };
    Ok(json!([ask("services")?, ask("timeouts")?, ask("daemons")?]))
}

/// A line that the stock program was given, what it did, and what the director held then.
type Done = (Line<'static>, Ran, Value);

#[test]
fn every_line_is_answered_alike() {
    let mut done: Vec<Done> = Vec::new();
    let mut compared = 0;
    on_empty(here!(every_line_is_answered_alike), |field| {
        let mut wrong = Vec::new();
        for line in Line::all() {
            let ran = stock(field, &line.args, line.input)?;
            if line.only_shows() {
                let ours = ours(field, &line.args, line.input)?;
                compared += 1;
                if !line.same(&ran, &ours) {
                    wrong.push(format!("{}:\nstock {ran:?}\nours  {ours:?}", line.text));
                }
            }
            let held = held(field)?;
            done.push((line, ran, held));
        }
        expect(wrong.is_empty(), || wrong.join("\n\n"))
    });
    if done.is_empty() {
        return;
    }
    on_empty(here!(every_line_is_answered_alike), |field| {
        let mut wrong = Vec::new();
        for (line, stock, state) in &done {
            let ran = ours(field, &line.args, line.input)?;
            compared += 1;
            if !line.same(stock, &ran) {
                wrong.push(format!("{}:\nstock {stock:?}\nours  {ran:?}", line.text));
            }
            let held = held(field)?;
            if held != *state {
                wrong.push(format!("{}:\nafter stock {state}\nafter ours  {held}", line.text));
                break;
            }
        }
        expect(wrong.is_empty(), || wrong.join("\n\n"))
    });
    println!("{} command lines, {compared} comparisons: the same bytes and exit codes", done.len());
    assert!(done.len() >= 150);
}

/// Lists of what traffic makes: each must come out the same once nothing moves any more.
const LISTS: [&str; 10] = [
    "-Ln",
    "-L",
    "-Ln --stats",
    "-Ln --stats --exact",
    "-Ln --rate",
    "-Ln --rate --exact",
    "-Ln --persistent-conn",
    "-Lnc",
    "-Lc",
    "-Lnc --persistent-conn",
];

#[test]
fn what_traffic_makes_is_shown_alike() {
    on_empty(here!(what_traffic_makes_is_shown_alike), |field| {
        let vip = field.bed.vip().to_owned();
        let mut rules = format!("-A -t {vip}:80 -s rr -p 60\n");
        for index in 0..3 {
            rules += &format!("-a -t {vip}:80 -r {} -m -w {}\n", real(index), index + 1);
        }
        ours(field, &["-R"], &rules)?.ok()?;
        for _ in 0..5 {
            curl(&field.bed.client, &format!("http://{vip}/"))?;
        }
        // One stays open, so that there is a connection to list.
        let hold = format!("exec 3<>/dev/tcp/{vip}/80; sleep 60");
        let _held = field.bed.client.start("held", "bash", &["-c", &hold])?;
        let client = field.bed.client_address();
        wait_until("the open connection to be listed", SOON, || {
            let shown = ours(field, &["-Lnc"], "")?.ok()?.stdout;
            Ok(shown.lines().any(|line| line.contains(client)).then_some(()))
        })?;
        for list in LISTS {
            let args: Vec<&str> = list.split_whitespace().collect();
            // Seconds pass between the two, and sessions end.
            wait_until(&format!("`ipvsadm {list}` to be the same"), SOON, || {
                let (stock, ours) = (stock(field, &args, "")?, ours(field, &args, "")?);
                let same = stock.stdout == ours.stdout && stock.stderr == ours.stderr;
                Ok((same && stock.status == ours.status).then_some(()))
            })?;
        }
        let shown = ours(field, &["-Ln", "--stats"], "")?.ok()?.stdout;
        let row = shown.lines().find(|line| line.starts_with("TCP")).unwrap_or_default();
        expect(row.split_whitespace().nth(2) == Some("6"), || shown.clone())
    });
}

/// Hundreds of services of many kinds, as commands.
fn hundreds() -> String {
    let mut rules = String::new();
    for number in 0..300 {
        let (host, port) = (number % 250 + 1, 1000 + number / 250);
        let service = match number % 5 {
            0..=2 => format!("-t 203.0.113.{host}:{port}"),
            3 => format!("-u 203.0.113.{host}:{port}"),
            _ => format!("-t [2001:db8:9::{host:x}]:{port}"),
        };
        let options =
            ["rr", "wrr -p 300 -M 255.255.255.0", "wlc", "mh -b mh-port", "rr -p 60 -M 64"]
                [number % 5];
        rules += &format!("-A {service} -s {options}\n");
        for index in 0..number % 3 {
            let server = match number % 5 {
                4 => format!("[2001:db8:2::{:x}]:80", 17 + index),
                _ => format!("192.0.2.{}:80", 11 + index),
            };
            rules += &format!("-a {service} -r {server} -m -w {}\n", number % 90 + 1);
        }
    }
    rules
}

fn sorted(text: &str) -> Vec<&str> {
    let mut lines: Vec<&str> = text.lines().collect();
    lines.sort_unstable();
    lines
}

/// This program under another of its names, in a directory of the lab's.
fn named(field: &Fixture, name: &str) -> Result<PathBuf, LabError> {
    let dir = field.bed.lab.dir().join("bin");
    fs::create_dir_all(&dir).map_err(LabError::file("a folder for names"))?;
    let path = dir.join(name);
    if !path.exists() {
        symlink(program("sluice")?, &path).map_err(LabError::file("a name"))?;
    }
    Ok(path)
}

#[test]
fn hundreds_of_services_go_from_one_to_the_other() {
    on_empty(here!(hundreds_of_services_go_from_one_to_the_other), |field| {
        let rules = hundreds();
        let file = field.bed.lab.dir().join("rules");
        let socket = field.director.socket().display().to_string();
        let run = |program: &Path, text: &str| -> Result<String, LabError> {
            fs::write(&file, text).map_err(LabError::file("the rules"))?;
            let shell = "export SLUICE_SOCKET=\"$1\"; exec \"$2\" -n < \"$3\"";
            let (program, file) = (program.display().to_string(), file.display().to_string());
            let args = ["-c", shell, "sh", &socket, &program, &file];
            Ok(field.bed.director.run("sh", &args)?.ok()?.stdout)
        };
        let [save, restore] = [named(field, "ipvsadm-save")?, named(field, "ipvsadm-restore")?];
        let begun = Instant::now();
        run(&restore, &rules)?;
        let took = begun.elapsed();
        let saved = run(&save, "")?;
        expect(sorted(&saved) == sorted(&rules), || format!("{rules}\n---\n{saved}"))?;
        // What ours made the stock program saves to the byte, and what that saves ours makes.
        let by_stock = stock(field, &["-S", "-n"], "")?.ok()?.stdout;
        expect(by_stock == saved, || format!("{by_stock}\n---\n{saved}"))?;
        ours(field, &["-C"], "")?.ok()?;
        stock(field, &["-R"], &saved)?.ok()?;
        expect(run(&save, "")? == saved, || "stock's from ours".to_owned())?;
        println!("{} commands restored in {took:?}", rules.lines().count());
        Ok(())
    });
}

#[test]
fn without_a_director_it_says_so_and_what_to_do() {
    on_empty(here!(without_a_director_it_says_so_and_what_to_do), |field| {
        field.director.stop()?;
        for args in [&["-Ln"][..], &[], &["-h"], &["-R"]] {
            let (stock, ours) = (stock(field, args, "")?, ours(field, args, "")?);
            let rest = ours.stderr.strip_prefix(
                "Can't initialize ipvs: Protocol not available\n\
                 Are you sure that IP Virtual Server is built in the kernel or as module?\n",
            );
            let advice = rest.is_some_and(|rest| rest.starts_with("sluice: "));
            // The stock program has the kernel's module looked for.
            let same = stock.status == ours.status && stock.stdout == ours.stdout;
            expect(advice && same && ours.status.code() == Some(2), || format!("{ours:?}"))?;
        }
        Ok(())
    });
}
