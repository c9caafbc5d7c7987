//! The dashboard and the alerts ask for metrics and labels that there are, and promtool finds
//! nothing wrong with the alerts.

use crate::{page, sample, samples};
use regex_lite::Regex;
use serde_json::Value;
use sluice_api::Exposition;
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::process::Command;

fn packaging(file: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../packaging").join(file)
}

/// Metrics of a page, with the labels that their series have.
fn known() -> BTreeMap<String, BTreeSet<String>> {
    let mut known: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    for (name, labels, _) in samples(&page(sample(), Exposition::Text)) {
        known.entry(name).or_default().extend(labels.into_keys());
    }
    // What Prometheus itself says of a scrape.
    known.insert("up".to_owned(), BTreeSet::new());
    known
}

/// What an expression asks for that there is not: metrics, and labels of theirs.
fn missing(expression: &str, known: &BTreeMap<String, BTreeSet<String>>) -> Vec<String> {
    let strings = Regex::new(r#""[^"]*""#).expect("a pattern");
    let plain = strings.replace_all(expression, "\"\"").into_owned();
    let grouping =
        Regex::new(r"\b(by|on|without|ignoring|group_left|group_right)\s*\([^)]*\)|\[[^\]]*\]");
    let plain = grouping.expect("a pattern").replace_all(&plain, " ").into_owned();
    let selector = Regex::new(r"\b([a-zA-Z_:][\w:]*)\s*(\(|\{([^}]*)\})?").expect("a pattern");
    let label = Regex::new(r"(\w+)\s*(=|!)").expect("a pattern");
    let words = ["and", "or", "unless", "offset", "bool", "h", "m", "s"];
    let mut missing = Vec::new();
    for found in selector.captures_iter(&plain) {
        let name = &found[1];
        let is_function = found.get(2).is_some_and(|behind| behind.as_str() == "(");
        if is_function || words.contains(&name) {
            continue;
        }
        let Some(labels) = known.get(name) else {
            missing.push(name.to_owned());
            continue;
        };
        let asked = found.get(3).map_or("", |labels| labels.as_str());
        for asked in label.captures_iter(asked) {
            if !labels.contains(&asked[1]) && !["instance", "job"].contains(&&asked[1]) {
                missing.push(format!("{name}{{{}}}", &asked[1]));
            }
        }
    }
    missing
}

#[test]
fn what_is_missing_is_found() {
    let known = known();
    let of = |expression: &str| missing(expression, &known);
    let right =
        "sum by (service) (rate(sluice_service_sessions_opened_total{service=~\"a{b\"}[5m]))";
    assert!(of(right).is_empty());
    assert_eq!(of("rate(sluice_sesions[5m] offset 5m)"), ["sluice_sesions"]);
    assert_eq!(of("a / on (x) up{job=\"sluice\"}"), ["a"]);
    assert_eq!(of("sluice_sessions{worker=\"0\"}"), ["sluice_sessions{worker}"]);
}

#[test]
fn the_alerts_ask_for_what_there_is() {
    let text = std::fs::read_to_string(packaging("prometheus/sluice.rules.yml")).expect("rules");
    let known = known();
    // An expression is the rest of its line, or what is indented more below it.
    let lines: Vec<&str> = text.lines().collect();
    let mut expressions = Vec::new();
    for (at, line) in lines.iter().enumerate() {
        let Some(rest) = line.trim_start().strip_prefix("expr: ") else { continue };
        let below = lines[at + 1..].iter().take_while(|line| line.starts_with("          "));
        expressions.push(match rest {
            ">-" => below.copied().collect::<Vec<_>>().join(" "),
            rest => rest.to_owned(),
        });
    }
    assert_eq!(expressions.len(), text.matches("- alert: ").count());
    for expression in expressions {
        assert!(missing(&expression, &known).is_empty(), "{expression}");
    }
    assert_eq!(text.matches("runbook: ").count(), text.matches("- alert: ").count());
}

#[test]
fn the_dashboard_asks_for_what_there_is() {
    let text = std::fs::read_to_string(packaging("grafana/sluice.json")).expect("a dashboard");
    let dashboard: Value = serde_json::from_str(&text).expect("JSON");
    let known = known();
    let panels = dashboard["panels"].as_array().expect("panels");
    let targets = panels.iter().flat_map(|panel| panel["targets"].as_array().into_iter().flatten());
    let expressions: Vec<&str> = targets.map(|t| t["expr"].as_str().expect("a query")).collect();
    assert!(expressions.len() > 40, "{}", expressions.len());
    for expression in &expressions {
        let missing = missing(expression, &known);
        assert!(missing.is_empty(), "{expression}: {missing:?}");
    }
    let ids: BTreeSet<_> = panels.iter().map(|panel| panel["id"].as_u64()).collect();
    assert_eq!(ids.len(), panels.len(), "panels have a number of their own");
    // As Prometheus reads them: with Grafana's variables as it fills them in.
    let rules = expressions.iter().enumerate().map(|(at, expression)| {
        let filled = expression.replace("$__rate_interval", "1m").replace('\'', "''");
        format!("      - {{ record: 'panel:{at}', expr: '{filled}' }}\n")
    });
    let file = "groups:\n  - name: panels\n    rules:\n".to_owned() + &rules.collect::<String>();
    let path = std::env::temp_dir().join(format!("sluice-panels-{}.yml", std::process::id()));
    std::fs::write(&path, file).expect("a file");
    let said = promtool(&["check", "rules", &path.to_string_lossy()]);
    std::fs::remove_file(&path).expect("it is there");
    assert!(said.contains("SUCCESS"), "{said}");
}

fn promtool(arguments: &[&str]) -> String {
    let said = Command::new("promtool")
        .args(arguments)
        .output()
        .expect("promtool, of Debian's package prometheus: run `make setup`");
    let text = [said.stdout, said.stderr].map(|text| String::from_utf8_lossy(&text).into_owned());
    assert!(said.status.success(), "promtool {arguments:?}: {}", text.concat());
    text.concat()
}

#[test]
fn promtool_agrees_with_the_alerts() {
    let of = |file: &str| packaging(file).to_string_lossy().into_owned();
    promtool(&["check", "rules", &of("prometheus/sluice.rules.yml")]);
    promtool(&["test", "rules", &of("prometheus/sluice.rules.test.yml")]);
}

/// As it is, and with the files that it names in their places: promtool reads them. Without https
/// and a token no director answers a scrape over the network.
#[test]
fn the_example_scrapes_a_director_over_the_network() {
    let file = packaging("prometheus/prometheus-example.yml");
    promtool(&["check", "config", "--syntax-only", &file.to_string_lossy()]);
    let text = std::fs::read_to_string(&file).expect("the example");
    for needed in ["scheme: https", "authorization:", "credentials_file: ", "ca_file: "] {
        assert!(text.lines().any(|line| line.trim_start().starts_with(needed)), "{needed}");
    }
    let folder = std::env::temp_dir().join(format!("sluice-prometheus-{}", std::process::id()));
    std::fs::create_dir_all(&folder).expect("a folder");
    for name in ["sluice.token", "sluice-ca.pem"] {
        std::fs::write(folder.join(name), "").expect("written");
    }
    let rules = packaging("prometheus/sluice.rules.yml");
    std::fs::copy(rules, folder.join("sluice.rules.yml")).expect("copied");
    let filled = text.replace("/etc/prometheus", &folder.to_string_lossy());
    let example = folder.join("example.yml");
    std::fs::write(&example, filled).expect("written");
    let said = promtool(&["check", "config", &example.to_string_lossy()]);
    std::fs::remove_dir_all(&folder).expect("removed");
    assert!(said.contains("SUCCESS"), "{said}");
}
