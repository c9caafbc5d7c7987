//! What came out is held against the configuration's own checks; what these refuse goes, with a
//! note, so that the result is right whatever the file said.

use serde_json::{Value, json};
use sluice_config::{Config, Diagnostic, Document};

use crate::note::Report;
use crate::target::{Made, Target};

/// How often something may go until the rest is right: each round takes all that is named.
const ROUNDS: usize = 64;

/// Takes away what the configuration's checks refuse.
pub(crate) fn settle(target: &mut Target, report: &mut Report) {
    for _ in 0..ROUNDS {
        let Some(wrong) = wrong(&target.document()) else { return };
        let mut gone = false;
        for (section, made) in [
            ("service", &mut target.services),
            ("check", &mut target.checks),
            ("pool", &mut target.pools),
            ("snat", &mut target.rules),
        ] {
            gone |= remove(section, made, &wrong, report);
        }
        if !gone {
            break;
        }
    }
    // Nothing that is named could be taken away: nothing is better than something wrong.
    for made in target.services.drain(..).chain(target.rules.drain(..)) {
        let means = "what came of it cannot be used";
        report.lost(&made.place, made.name(), means, "write this section by hand");
    }
}

/// Everything that is wrong with a document behind a file with ports.
fn wrong(document: &Document) -> Option<Vec<Diagnostic>> {
    let mut whole = document.clone();
    whole.insert("port".to_owned(), json!([{ "name": "x", "device": "af_packet:x" }]));
    // The ports that rules name are in the director's file.
    let rules = whole.get_mut("snat").and_then(Value::as_array_mut).into_iter().flatten();
    rules.filter_map(Value::as_object_mut).for_each(|rule| drop(rule.remove("egress")));
    whole.insert(
        "ipip".to_owned(),
        json!({ "source_v4": "100.127.255.254", "source_v6": "100::1" }),
    );
    let errors = Config::read_document(&whole).and_then(|config| config.check().map(drop));
    errors.err().map(|errors| errors.diagnostics().to_vec())
}

/// Takes away the tables that messages name; those of `checks` and `pools` take what names them
/// along in the next round.
fn remove(section: &str, made: &mut Vec<Made>, wrong: &[Diagnostic], report: &mut Report) -> bool {
    let before = made.len();
    let mut index = 0;
    made.retain_mut(|it| {
        let own = format!("{section}[{index}]");
        index += 1;
        let mut keep = true;
        let mut reals = Vec::new();
        for diagnostic in wrong {
            let Some(rest) = diagnostic.key.strip_prefix(&own) else { continue };
            let real = rest.strip_prefix(".real[").and_then(|rest| rest.split_once(']'));
            match real.and_then(|(number, _)| number.parse::<usize>().ok()) {
                Some(number) => reals.push(number),
                None => keep &= drop_key(it, rest),
            }
            let key = rest.trim_start_matches('.');
            let word = format!("{} {}", it.name(), key);
            report.lost(&it.place, word.trim_end(), &diagnostic.message, &diagnostic.hint);
        }
        if keep && !reals.is_empty() {
            keep = drop_reals(it, &reals);
        }
        keep
    });
    made.len() != before || wrong.iter().any(|it| it.key.starts_with(&format!("{section}[")))
}

/// Takes a key away that a section can be without; `false` where it cannot.
fn drop_key(made: &mut Made, rest: &str) -> bool {
    const CAN_GO: [&str; 5] =
        ["one_packet", "client_address", "persistence_prefix", "persistence_s", "check"];
    let key = rest.trim_start_matches('.');
    CAN_GO.contains(&key) && made.table.remove(key).is_some()
}

/// Takes real servers away by their numbers; `false` where there are none to take.
fn drop_reals(made: &mut Made, numbers: &[usize]) -> bool {
    let Some(Value::Array(reals)) = made.table.get_mut("real") else { return false };
    let mut number = 0;
    reals.retain(|_| {
        number += 1;
        !numbers.contains(&(number - 1))
    });
    true
}
