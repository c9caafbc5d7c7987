//! `sluice config`, `service`, `pool` and `real`: command lines become requests.

use std::error::Error;
use std::fs;
use std::path::Path;
use std::process::ExitCode;

use serde_json::{Map, Value, json};
use sluice_api::{Change, Client, Endpoint, Resource, Verb};
use sluice_config::document::Document;
use sluice_config::{ConfigErrors, Diagnostic, Loaded};
use sluice_director::plan::{Plan, Retired};
use sluice_state::{FileContent, Key, Kind, View, file_changes};

use crate::cli::desired::{Changing, Config, NewService, Pool, Real, Service, ShowObjects, Which};
use crate::output::{self, Output};
use crate::show::{self, Shown};
use crate::{Socket, answer, now_unix_s};

type Done = Result<ExitCode, Box<dyn Error>>;

/// `sluice config`.
pub fn config(command: Config, socket: &Socket) -> Done {
    match command {
        Config::Check { file, json: true } => check_json(&file),
        Config::Check { file, json: false } => check(&file),
        Config::Show { asking, origin } => {
            let client = socket.client(&asking);
            let reached = socket.reached(asking.socket.as_deref());
            done(answer(&client, &asking, &Resource::Config, |client| {
                Ok(show::config(&client.config()?, origin, &reached))
            })?)
        }
        Config::Diff { asking, file } => diff(&socket.client(&asking), asking.json, &file),
        Config::Apply { changing, file } => {
            let body = fragment(&file)?;
            let change = Change::new(Verb::Post, &["apply"], Some(Value::Object(body)));
            make(change, &changing, socket)
        }
        Config::History { asking, limit, epoch } => {
            let client = socket.client(&asking);
            let shown = match epoch {
                Some(number) => answer(&client, &asking, &Resource::Epoch(number), |client| {
                    Ok(show::epoch(&client.epoch(number)?, now_unix_s()))
                }),
                None => answer(&client, &asking, &Resource::History(limit), |client| {
                    Ok(show::history(&client.history(limit)?, now_unix_s()))
                }),
            };
            done(shown?)
        }
        Config::Rollback { changing, epoch } => {
            let body = Some(json!({ "epoch": epoch }));
            make(Change::new(Verb::Post, &["rollback"], body), &changing, socket)
        }
        Config::Reload(changing) => {
            make(Change::new(Verb::Post, &["reload"], None), &changing, socket)
        }
    }
}

/// `sluice service`.
pub fn service(command: Service, socket: &Socket) -> Done {
    match command {
        Service::Add(new) => {
            let body = new_service(&new)?;
            let change = Change::new(Verb::Post, &["apply"], Some(json!({ "service": [body] })));
            make_new(change, &Key::new(Kind::Service, &new.name), &new.changing, socket)
        }
        Service::Delete { changing, name } => {
            make(Change::new(Verb::Delete, &["services", &name], None), &changing, socket)
        }
        Service::Show(which) => objects(Kind::Service, &which, socket),
    }
}

/// `sluice pool`.
pub fn pool(command: Pool, socket: &Socket) -> Done {
    match command {
        Pool::Add { changing, name, addresses, ports } => {
            let mut body = json!({ "name": name, "addresses": addresses });
            if let Some(ports) = ports {
                body["ports"] = ports.into();
            }
            let change = Change::new(Verb::Post, &["apply"], Some(json!({ "pool": [body] })));
            make_new(change, &Key::new(Kind::Pool, &name), &changing, socket)
        }
        Pool::Delete { changing, name } => {
            make(Change::new(Verb::Delete, &["pools", &name], None), &changing, socket)
        }
        Pool::Show(which) => objects(Kind::Pool, &which, socket),
    }
}

/// `sluice real`.
pub fn real(command: Real, socket: &Socket) -> Done {
    let (verb, which, body) = match command {
        Real::Show { asking, service } => {
            let client = socket.client(&asking);
            let view = client.config()?;
            let entry = only(&view, Kind::Service, &service)?;
            let known = client.services(&[])?;
            return done(match asking.json {
                true => show::reals_json(entry, &known)?,
                false => show::reals(entry, &known),
            });
        }
        Real::Add { which, weight, keys } => {
            let mut body = settings(&keys)?;
            body.extend(weight.map(|weight| ("weight".to_owned(), weight.into())));
            (Verb::Put, which, Some(Value::Object(body)))
        }
        Real::Delete(which) => (Verb::Delete, which, None),
        Real::Set { which, weight } => (Verb::Patch, which, Some(json!({ "weight": weight }))),
        Real::Drain(which) => (Verb::Patch, which, Some(json!({ "state": "drain" }))),
        Real::Disable(which) => (Verb::Patch, which, Some(json!({ "state": "down" }))),
        Real::Enable(which) => (Verb::Patch, which, Some(json!({ "state": "up" }))),
        Real::Reset(which) => (Verb::Patch, which, Some(json!({ "weight": null, "state": null }))),
    };
    let Which { changing, service, real } = which;
    let path = ["services", &service, "reals", &real.to_string()];
    make(Change::new(verb, &path, body), &changing, socket)
}

/// Has a change made, and says what it did.
fn make(change: Change, changing: &Changing, socket: &Socket) -> Done {
    let Changing { asking, dry_run, force, if_epoch } = changing;
    let (dry_run, force, if_epoch) = (*dry_run, *force, *if_epoch);
    let change = Change { dry_run, force, if_epoch, ..change };
    let changed = socket.client(asking).change(&change)?;
    if asking.json {
        return done(Shown::new(serde_json::to_string_pretty(&changed)? + "\n"));
    }
    done(show::changed(&changed))
}

/// As [`make`], of something that must not be there yet.
fn make_new(change: Change, key: &Key, changing: &Changing, socket: &Socket) -> Done {
    let view = socket.client(&changing.asking).config()?;
    if let Some(entry) = view.objects.iter().find(|entry| entry.key == *key) {
        let owner = &entry.owner;
        let reached = socket.reached(changing.asking.socket.as_deref());
        let command = reached.sluice("config apply FILE");
        let advice = format!("delete it first, or change it by `{command}`");
        return Err(format!("{key} is there already and belongs to {owner}: {advice}").into());
    }
    make(change, changing, socket)
}

fn done(shown: Shown) -> Done {
    Output::write(&shown)?;
    Ok(ExitCode::SUCCESS)
}

fn check(file: &Path) -> Done {
    let loaded = sluice_config::Config::load(file).map_err(Told::of)?;
    let (wrong, questionable): (Vec<_>, Vec<_>) =
        beyond_the_text(&loaded).into_iter().partition(Diagnostic::is_error);
    if !wrong.is_empty() {
        return Err(Told::of(ConfigErrors::Invalid { diagnostics: wrong, more: 0 }));
    }
    for warning in questionable {
        output::remark(&warning.to_string());
    }
    Plan::compile(&loaded.config.spec(), None, &Retired::default())?;
    done(Shown::new(format!("{}: right ({})\n", file.display(), loaded.config.summary())))
}

/// What is wrong or questionable about a file that can be read: its own warnings, what depends on
/// this machine, and the files that it names.
fn beyond_the_text(loaded: &Loaded) -> Vec<Diagnostic> {
    let cpus = std::thread::available_parallelism().map_or(1, usize::from);
    let mut found = loaded.warnings.clone();
    found.extend(loaded.check_live());
    found.extend(loaded.check_machine(cpus));
    found.extend(sluice_api::check_files(loaded));
    found
}

/// As [`check`], for programs: a list of what is wrong and what is questionable.
fn check_json(file: &Path) -> Done {
    let (right, diagnostics) = match sluice_config::Config::load(file) {
        Ok(loaded) => {
            let found = beyond_the_text(&loaded);
            let compiled = Plan::compile(&loaded.config.spec(), None, &Retired::default());
            (compiled.is_ok() && !found.iter().any(Diagnostic::is_error), found)
        }
        Err(wrong) if wrong.diagnostics().is_empty() => return Err(Told::of(wrong)),
        Err(wrong) => (false, wrong.diagnostics().to_vec()),
    };
    let one = |it: &sluice_config::Diagnostic| {
        let severity = match it.severity {
            sluice_config::Severity::Error => "error",
            sluice_config::Severity::Warning => "warning",
        };
        json!({
            "severity": severity, "line": it.line, "column": it.column, "subject": it.subject,
            "key": it.key, "message": it.message, "hint": it.hint,
        })
    };
    let diagnostics: Vec<Value> = diagnostics.iter().map(one).collect();
    let said = json!({ "file": file, "right": right, "diagnostics": diagnostics });
    Output::write(&Shown::new(serde_json::to_string_pretty(&said)? + "\n"))?;
    Ok(if right { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// A wrong file's messages, which need no introduction.
#[derive(Debug)]
struct Told(String);

impl Told {
    fn of(errors: sluice_config::ConfigErrors) -> Box<dyn Error> {
        Box::new(Self(format!("this file is wrong\n{errors}")))
    }
}

impl std::fmt::Display for Told {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        out.write_str(&self.0)
    }
}

impl Error for Told {}

fn diff(client: &Client, json: bool, file: &Path) -> Done {
    let loaded = sluice_config::Config::load(file).map_err(Told::of)?;
    let view = client.config()?;
    let changes = file_changes(&view.state(), &FileContent::of(&loaded.document))?;
    let shown = match json {
        true => Shown::new(serde_json::to_string_pretty(&changes)? + "\n"),
        false => show::diff(&changes),
    };
    Output::write(&shown)?;
    Ok(if changes.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// A file with some objects, as the API takes them.
fn fragment(file: &Path) -> Result<Document, Box<dyn Error>> {
    let name = file.display();
    let text = fs::read_to_string(file).map_err(|error| format!("{name}: {error}"))?;
    sluice_config::document::parse(&name.to_string(), &text).map_err(Told::of)
}

fn new_service(new: &NewService) -> Result<Value, Box<dyn Error>> {
    let mut body = Map::new();
    let mut put = |key: &str, value: Value| drop(body.insert(key.to_owned(), value));
    put("name", new.name.as_str().into());
    put("protocol", new.protocol.as_str().into());
    put("vip", new.vip.as_str().into());
    if let Some(port) = &new.port {
        put("port", port.parse::<i64>().map_or_else(|_| port.as_str().into(), Value::from));
    }
    for (key, value) in [("pool", &new.pool), ("mode", &new.mode), ("scheduler", &new.scheduler)] {
        if let Some(value) = value {
            put(key, value.as_str().into());
        }
    }
    let real = |real: &Endpoint| match real.port {
        Some(port) => json!({ "address": real.address.to_string(), "port": port }),
        None => json!({ "address": real.address.to_string() }),
    };
    if !new.reals.is_empty() {
        put("real", new.reals.iter().map(real).collect());
    }
    body.extend(settings(&new.keys)?);
    Ok(Value::Object(body))
}

/// `KEY=VALUE` as a file would have it; text may go without quotes.
fn settings(keys: &[String]) -> Result<Document, Box<dyn Error>> {
    let mut all = Document::new();
    for setting in keys {
        let Some((key, value)) = setting.split_once('=') else {
            return Err(format!("--set {setting}: write KEY=VALUE").into());
        };
        let line = format!("value = {value}");
        let read = sluice_config::document::parse("--set", &line);
        let value = read.ok().and_then(|mut read| read.remove("value"));
        let value = value.unwrap_or_else(|| setting[key.len() + 1..].into());
        all.insert(key.trim().to_owned(), value);
    }
    Ok(all)
}

fn objects(kind: Kind, which: &ShowObjects, socket: &Socket) -> Done {
    let mut view = socket.client(&which.asking).config()?;
    if let Some(name) = &which.name {
        only(&view, kind, name)?;
    }
    let wanted = |name: &String| which.name.as_ref().is_none_or(|it| it == name);
    view.objects.retain(|entry| entry.key.kind == kind && wanted(&entry.key.name));
    if which.asking.json {
        return done(Shown::new(serde_json::to_string_pretty(&view.objects)? + "\n"));
    }
    done(show::config(&view, true, &socket.reached(which.asking.socket.as_deref())))
}

fn only<'v>(
    view: &'v View,
    kind: Kind,
    name: &str,
) -> Result<&'v sluice_state::Entry, Box<dyn Error>> {
    let of_kind = || view.objects.iter().filter(|entry| entry.key.kind == kind);
    of_kind().find(|entry| entry.key.name == name).ok_or_else(|| {
        let known: Vec<_> = of_kind().map(|entry| entry.key.name.as_str()).take(20).collect();
        let known = if known.is_empty() { "none".to_owned() } else { known.join(", ") };
        format!("there is no {}; there is {known}", Key::new(kind, name)).into()
    })
}
