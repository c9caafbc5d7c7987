//! Networks as the command shows them, of the director in `command`.

use sluice_api::model::{Drops, Network, Networks};

use crate::command::{Place, drops};

/// Two networks, in one of which packets were dropped.
pub fn networks() -> Networks {
    let network = |name: &str| Network { name: name.to_owned(), ..Network::default() };
    Networks { networks: vec![network(Network::DEFAULT), network("blue")] }
}

pub fn drops_in(name: &str) -> Result<Drops, Vec<String>> {
    match networks().names().any(|known| known == name) {
        true => Ok(drops()),
        false => Err(networks().names().map(str::to_owned).collect()),
    }
}

/// What is asked for of one network, and a wrong name is told with those that there are.
#[test]
fn one_network_of_several() {
    let place = Place::new();
    let ran = place.run(&["networks"]);
    assert_eq!((ran.code, ran.stdout.lines().count()), (Some(0), 3), "{}", ran.stderr);
    let json: Networks =
        serde_json::from_str(&place.run(&["networks", "--json"]).stdout).expect("networks");
    assert_eq!(json, networks());
    for (args, lines) in [
        (&["drops", "--network", "blue"][..], 2),
        (&["services", "--network", "default"], 3),
        (&["sessions", "--network", "default"], 101),
    ] {
        let ran = place.run(args);
        assert_eq!((ran.code, ran.stdout.lines().count()), (Some(0), lines), "{}", ran.stderr);
    }
    for args in [
        &["drops", "--network", "bleu"][..],
        &["services", "--network", "bleu"],
        &["sessions", "kill", "--network", "bleu"],
    ] {
        let ran = place.run(args);
        assert!(
            ran.code == Some(1) && ran.stderr.contains("one of default, blue"),
            "{}",
            ran.stderr
        );
    }
    let both = place.run(&["drops", "--network", "blue", "--service", "web"]);
    assert_eq!(both.code, Some(2), "{}", both.stderr);
}
