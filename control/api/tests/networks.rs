//! Networks, and what of other resources is in one of them, of the director in `api`.

use sluice_api::model::{Drops, Network, Networks};
use sluice_api::{ApiError, SessionQuery};
use sluice_director::Reason;

use crate::api::Place;

pub fn networks() -> Networks {
    let blue = Network {
        name: "blue".to_owned(),
        table: Some(1001),
        cidr: vec!["192.0.2.0/24".to_owned()],
        ports: vec!["inside".to_owned()],
        pressed: true,
        ..Network::default()
    };
    let default = Network { name: Network::DEFAULT.to_owned(), ..Network::default() };
    Networks { networks: vec![default, blue] }
}

/// Packets were dropped in every network.
pub fn drops_in(name: &str) -> Result<Drops, Vec<String>> {
    let known: Vec<String> = networks().names().map(str::to_owned).collect();
    let mut counts = [0; Reason::COUNT];
    counts[Reason::TooBig as usize] = 7;
    if known.iter().any(|it| it == name) { Ok(Drops::from_counts(&counts)) } else { Err(known) }
}

/// Services and sessions are the default network's here.
#[test]
fn what_is_in_a_network_is_found_by_its_name() {
    let place = Place::new();
    let _server = place.serve();
    let client = place.client();
    assert_eq!(client.networks().expect("networks"), networks());
    let services = |network: &str| client.services_in(network, &[]).expect("services").services;
    assert_eq!(services("default").len(), 2);
    assert!(services("blue").is_empty());
    let sessions = |network: &str| {
        let network = Some(network.to_owned());
        let query = SessionQuery { network, ..SessionQuery::default() };
        client.sessions(&query).map(|found| found.sessions.len())
    };
    assert_eq!(sessions("default").expect("sessions"), 3);
    assert_eq!(sessions("blue").expect("sessions"), 0);
    let drops = client.drops_in("blue").expect("drops").drops;
    assert_eq!(drops.iter().map(|drop| drop.packets).sum::<u64>(), 7);
    let wrong = [
        sessions("bleu").map(drop),
        client.services_in("bleu", &[]).map(drop),
        client.drops_in("bleu").map(drop),
    ];
    for found in wrong {
        let Err(ApiError::Refused(problem)) = found else { panic!("{found:?}") };
        let blame = problem.blame.as_ref().expect("a parameter is to blame");
        assert_eq!((&*blame.parameter, &*blame.expected), ("network", "one of default, blue"));
    }
    let (head, body) = place.get("/v1/drops?network=blue&service=web");
    assert!(head.starts_with("HTTP/1.1 400 "), "{head}");
    assert!(body["detail"].as_str().is_some_and(|text| text.contains("left out")), "{body}");
}
