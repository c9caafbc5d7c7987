//! Open sessions: listed page by page, and ended.

use axum::extract::{RawQuery, State};
use axum::{Extension, Json};

use super::{Answer, Asked, Desk, has_service, networks, no_such_service, pairs};
use crate::access::Caller;
use crate::call::Call;
use crate::model::{Killed, Sessions};
use crate::problem::Problem;
use crate::query::{SessionQuery, WrongValue};

/// The parameters of both; the last two are those of ending.
const PARAMETERS: [&str; 10] = [
    "service", "network", "client", "real", "state", "protocol", "limit", "cursor", "all",
    "dry_run",
];

/// What is asked for.
#[derive(Debug)]
struct Asking {
    query: SessionQuery,
    all: bool,
    dry_run: bool,
    /// Names of the parameters that there are.
    given: Vec<String>,
}

impl Asking {
    /// Refuses parameters that mean nothing here.
    fn refuse(&self, strangers: &[&str]) -> Result<(), Problem> {
        let found = strangers.iter().find(|name| self.given.iter().any(|given| given == *name));
        let Some(found) = found else { return Ok(()) };
        let known: Vec<_> =
            PARAMETERS.into_iter().filter(|name| !strangers.contains(name)).collect();
        Err(Problem::unknown_parameter(found, &known))
    }
}

/// Some sessions. That there is no such service or network is only looked into when nothing was
/// found.
pub(super) async fn list(State(desk): Asked, RawQuery(query): RawQuery) -> Answer<Sessions> {
    let asking = read(query.as_deref())?;
    asking.refuse(&["all", "dry_run"])?;
    let SessionQuery { service, network, .. } = asking.query.clone();
    let found = desk.ask(|reply| Call::Sessions(asking.query, reply)).await?;
    if found.sessions.is_empty() {
        know(&desk, service.as_deref(), network.as_deref()).await?;
    }
    Ok(Json(found))
}

/// Ends sessions: those of a filter, or all, if that is said.
pub(super) async fn kill(
    State(desk): Asked,
    Extension(caller): Extension<Caller>,
    RawQuery(query): RawQuery,
) -> Answer<Killed> {
    let asking = read(query.as_deref())?;
    asking.refuse(&["limit", "cursor"])?;
    let Asking { query, all, dry_run, .. } = asking;
    if query.is_all() != all {
        let expected = match all {
            true => "left out where there is a filter",
            false => "true, or a filter (service, network, client, real, state, protocol) be there",
        };
        return Err(Problem::wrong_value("all", WrongValue::new(&all.to_string(), expected)));
    }
    know(&desk, query.service.as_deref(), query.network.as_deref()).await?;
    let by = caller.author;
    let killed = desk.ask(|reply| Call::Kill { query, dry_run, by, reply }).await?;
    killed.map(Json).ok_or_else(Problem::internal)
}

/// Refuses a service or a network that there is not.
async fn know(desk: &Desk, service: Option<&str>, network: Option<&str>) -> Result<(), Problem> {
    if let Some(name) = service {
        let services = desk.ask(Call::Services).await?;
        if !has_service(&services, name) {
            return Err(Problem::wrong_value("service", no_such_service(name, &services)));
        }
    }
    match network {
        Some(name) => networks::know(desk, name).await,
        None => Ok(()),
    }
}

fn read(text: Option<&str>) -> Result<Asking, Problem> {
    let (mut query, mut all, mut dry_run) = (SessionQuery::default(), false, false);
    let mut given: Vec<String> = Vec::new();
    for (parameter, value) in pairs(text) {
        if given.iter().any(|given| *given == parameter) {
            let wrong = WrongValue::new(&value, "given once");
            return Err(Problem::wrong_value(&parameter, wrong));
        }
        let set = match &*parameter {
            "service" => {
                query.service = Some(value.into_owned());
                Ok(())
            }
            "network" => {
                query.network = Some(value.into_owned());
                Ok(())
            }
            "client" => value.parse().map(|client| query.client = Some(client)),
            "real" => value.parse().map(|real| query.real = Some(real)),
            "state" => value.parse().map(|state| query.state = Some(state)),
            "protocol" => value.parse().map(|protocol| query.protocol = Some(protocol)),
            "limit" => SessionQuery::parse_limit(&value).map(|limit| query.limit = limit),
            "cursor" => value.parse().map(|cursor| query.cursor = Some(cursor)),
            "all" => yes_or_no(&value).map(|yes| all = yes),
            "dry_run" => yes_or_no(&value).map(|yes| dry_run = yes),
            other => return Err(Problem::unknown_parameter(other, &PARAMETERS)),
        };
        set.map_err(|wrong| Problem::wrong_value(&parameter, wrong))?;
        given.push(parameter.into_owned());
    }
    Ok(Asking { query, all, dry_run, given })
}

fn yes_or_no(text: &str) -> Result<bool, WrongValue> {
    text.parse().map_err(|_| WrongValue::one_of(text, &["true", "false"]))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::{Protocol, SessionState};

    const PARAMETERS: &str =
        "one of service, network, client, real, state, protocol, limit, cursor, all, dry_run";

    #[test]
    fn a_query_is_read_as_the_client_writes_it() {
        let query = SessionQuery {
            service: Some("web & more".to_owned()),
            network: Some("blue".to_owned()),
            client: Some("198.51.100.48:40000".parse().expect("an endpoint")),
            real: Some("2001:db8::11".parse().expect("an endpoint")),
            state: Some(SessionState::FinWait),
            protocol: Some(Protocol::Tcp),
            limit: 7,
            cursor: "3.4096".parse().ok(),
        };
        let text =
            form_urlencoded::Serializer::new(String::new()).extend_pairs(query.pairs()).finish();
        assert_eq!(read(Some(&text)).map(|asked| asked.query), Ok(query));
        assert_eq!(read(None).map(|asked| asked.query), Ok(SessionQuery::default()));
    }

    const STATES: &str = "one of SYN_RECV, ESTABLISHED, FIN_WAIT, CLOSE_WAIT, LAST_ACK, \
                          TIME_WAIT, CLOSE, UDP, ONE_PACKET, SCTP, ICMP, OTHER";
    const ENDPOINT: &str = "an address, or an address and a port: 192.0.2.11, 192.0.2.11:80";

    #[test]
    fn each_wrong_parameter_is_named_with_what_would_be_right() {
        for (text, parameter, expected) in [
            ("limit=0", "limit", "a number from 1 to 100000"),
            ("state=OPEN", "state", STATES),
            ("protocol=gre", "protocol", "one of tcp, udp, sctp, icmp, any"),
            ("client=here", "client", ENDPOINT),
            ("real=192.0.2.300", "real", ENDPOINT),
            ("limit=1&limit=2", "limit", "given once"),
            ("cursor=4096", "cursor", "the `next` of the page before"),
            ("all=yes", "all", "one of true, false"),
            ("reel=192.0.2.11", "reel", PARAMETERS),
        ] {
            let problem = read(Some(text)).map(drop).expect_err(text);
            assert_eq!(problem.status, 400);
            let blame = problem.blame.expect(text);
            assert_eq!((&*blame.parameter, &*blame.expected), (parameter, expected));
            assert!(problem.detail.contains(parameter) && problem.detail.contains(expected));
        }
    }
}
