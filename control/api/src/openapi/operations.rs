//! The table of operations.

use schemars::JsonSchema;
use schemars::SchemaGenerator;
use serde_json::{Value, json};
use sluice_state::{Entry, Epoch, View};

use super::{Look, Operation, Parameter};
use crate::model::{
    Alive, Changed, Drops, Elephants, EventKind, Events, FlowPin, Ha, HaDrain, HaNotify, Health,
    HistoryLine, HistoryPage, Killed, LookKind, LookRequest, Networks, Ports, PortsRules, Protocol,
    Rates, RatesQuery, Services, SessionState, Sessions, SpreadFlows, Stages, Status, WhoAmI,
};
use crate::query::SessionQuery;

fn of<T: JsonSchema>(generator: &mut SchemaGenerator) -> Value {
    generator.subschema_for::<T>().to_value()
}

/// A section of the configuration file, as an object of the API: the path has the name.
fn section(name: &str) -> Value {
    let mut found = sluice_config::json_schema()["properties"][name]["items"].clone();
    if let Some(required) = found["required"].as_array_mut() {
        required.retain(|key| key != "name");
    }
    found
}

const fn parameter(
    (name, place): (&'static str, &'static str),
    about: &'static str,
    schema: fn() -> Value,
) -> Parameter {
    Parameter { name, place, about, schema }
}

fn text() -> Value {
    json!({ "type": "string" })
}

fn yes_or_no() -> Value {
    json!({ "type": "boolean" })
}

fn endpoint() -> Value {
    json!({ "type": "string", "examples": ["192.0.2.11", "192.0.2.11:80"] })
}

fn up_to(most: u32) -> Value {
    json!({ "type": "integer", "minimum": 1, "maximum": most })
}

const NAME: Parameter = parameter(
    ("name", "path"),
    "Its name.",
    || json!({ "type": "string", "pattern": "^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$" }),
);
const REAL: Parameter = parameter(
    ("real", "path"),
    "Address and port of the real server, or the address alone where there is one with it.",
    || json!({ "type": "string", "minLength": 1, "examples": ["192.0.2.11:80"] }),
);
const EPOCH: Parameter = parameter(
    ("epoch", "path"),
    "Its number.",
    || json!({ "type": "integer", "minimum": 0, "maximum": u32::MAX }),
);
const DRY_RUN: Parameter = parameter(("dry_run", "query"), "Only check the change.", yes_or_no);
const FORCE: Parameter = parameter(
    ("force", "query"),
    "Allow services on ports on which the director's machine itself listens.",
    yes_or_no,
);
const STAND_IN: Parameter = parameter(
    ("stand_in", "query"),
    "Have it stand in only until the service manager has started another: during a restart.",
    yes_or_no,
);
const KEY: Parameter = parameter(
    ("Idempotency-Key", "header"),
    "Chosen by the client for this request: a repetition with it gets the first answer.",
    || json!({ "type": "string", "pattern": "^[!-~]{1,128}$" }),
);
const IF_MATCH: Parameter = parameter(
    ("If-Match", "header"),
    "The epoch that must be in force, in quotes, or `*`.",
    || json!({ "type": "string", "pattern": "^(\\*|\"[0-9]{1,9}\")$" }),
);
const SERVICE: Parameter = parameter(("service", "query"), "Of this service.", text);
const NETWORK: Parameter = parameter(
    ("network", "query"),
    "In the network with this name; `default` for the default one.",
    text,
);
const CLIENT: Parameter =
    parameter(("client", "query"), "From this client: address, or address and port.", endpoint);
const TO_REAL: Parameter =
    parameter(("real", "query"), "To this real server: address, or address and port.", endpoint);
const STATE: Parameter = parameter(
    ("state", "query"),
    "In this state; capitals or not, `-` or `_`.",
    || json!({ "type": "string", "examples": SessionState::ALL.map(SessionState::name) }),
);
const PROTOCOL: Parameter = parameter(
    ("protocol", "query"),
    "Of this protocol; capitals or not.",
    || json!({ "type": "string", "examples": Protocol::ALL.map(Protocol::name) }),
);
const CURSOR: Parameter = parameter(
    ("cursor", "query"),
    "The `next` of the page before.",
    || json!({ "type": "string", "pattern": "^[0-9]{1,4}\\.[0-9]{1,15}$" }),
);
const KIND: Parameter = parameter(("kind", "query"), "Only of these kinds.", || {
    let kinds = EventKind::ALL.map(EventKind::name);
    json!({ "type": "array", "items": { "type": "string", "enum": kinds } })
});
const AFTER: Parameter = parameter(
    ("after", "query"),
    "After the event with this number; of a stream 0 gives all that are kept first.",
    || json!({ "type": "integer", "minimum": 0, "maximum": u64::MAX }),
);
const NAMES: Parameter = parameter(
    ("name", "query"),
    "Only those with these names.",
    || json!({ "type": "array", "items": { "type": "string" } }),
);
const ALL: Parameter = parameter(
    ("all", "query"),
    "All sessions: true without a filter, left out with one.",
    yes_or_no,
);
const SINCE: Parameter = parameter(
    ("since", "query"),
    "Only what ended later than this, in seconds since 1970-01-01 UTC.",
    || json!({ "type": "number", "minimum": 0, "maximum": 1e11 }),
);
const STEP: Parameter =
    parameter(("step", "query"), "Seconds from one place to the next, at least.", || {
        up_to(RatesQuery::MAX_STEP_S)
    });
const SESSIONS: Parameter =
    parameter(("limit", "query"), "At most this many.", || up_to(SessionQuery::MAX_LIMIT));
const ELEPHANTS: Parameter =
    parameter(("limit", "query"), "At most this many.", || up_to(Elephants::MAX_LIMIT));
const EPOCHS: Parameter =
    parameter(("limit", "query"), "At most this many.", || up_to(HistoryLine::MAX_LIMIT));

const fn read(
    path: &'static str,
    id: &'static str,
    about: &'static str,
    answer: Look,
) -> Operation {
    Operation {
        method: "get",
        path,
        id,
        about,
        role: "read",
        parameters: &[],
        body: None,
        answer,
        media: None,
        streams: false,
        tagged: false,
    }
}

fn change(
    (method, path): (&'static str, &'static str),
    id: &'static str,
    about: &'static str,
    body: Option<Look>,
) -> Operation {
    let parameters: &[Parameter] = match (path.contains("{name}"), path.contains("{real}")) {
        (_, true) => &[NAME, REAL, DRY_RUN, FORCE, IF_MATCH, KEY],
        (true, false) => &[NAME, DRY_RUN, FORCE, IF_MATCH, KEY],
        (false, false) => &[DRY_RUN, FORCE, IF_MATCH, KEY],
    };
    let changed = read(path, id, about, of::<Changed>);
    Operation { method, role: "admin", parameters, body, tagged: true, ..changed }
}

/// Every operation.
pub(super) fn all() -> Vec<Operation> {
    [shown(), measured(), sessions(), looks(), ipvs(), objects(), reals(), whole()]
        .into_iter()
        .flatten()
        .collect()
}

fn shown() -> Vec<Operation> {
    let anything: Look = |_| json!({ "type": "object" });
    vec![
        Operation { role: "", ..read("/healthz", "alive", "Whether the API answers", of::<Alive>) },
        read("/v1/openapi.json", "openapi", "This description", anything),
        read("/v1/status", "status", "The director as a whole", of::<Status>),
        Operation {
            parameters: &[NAMES, NETWORK],
            ..read("/v1/services", "services", "Services with their counters", of::<Services>)
        },
        read("/v1/ports", "ports", "Ports", of::<Ports>),
        read("/v1/ports/rules", "ports_rules", "Steering rules of ports", of::<PortsRules>),
        read("/v1/networks", "networks", "Networks, the default one first", of::<Networks>),
        Operation {
            parameters: &[SERVICE, NETWORK],
            ..read("/v1/drops", "drops", "Why packets were dropped", of::<Drops>)
        },
        read("/v1/stages", "stages", "The workers' time by stage", of::<Stages>),
        Operation {
            parameters: &[ELEPHANTS],
            ..read(
                "/v1/elephants",
                "elephants",
                "The sessions with the most traffic",
                of::<Elephants>,
            )
        },
        pinned("/v1/elephants/pin", "pin_flow", "Spreads a flow over several workers"),
        pinned("/v1/elephants/unpin", "unpin_flow", "Spreads a flow no more"),
        read("/v1/health", "health", "Health checks", of::<Health>),
        read("/v1/ha", "ha", "Virtual addresses and other directors", of::<Ha>),
        Operation {
            method: "post",
            role: "operate",
            parameters: &[KEY],
            body: Some(of::<HaDrain>),
            ..read("/v1/ha/drain", "drain", "Has another director take over", of::<Ha>)
        },
        Operation {
            method: "post",
            role: "operate",
            parameters: &[KEY],
            body: Some(of::<HaNotify>),
            ..read("/v1/ha/notify", "notify", "Says what a group has become", of::<Ha>)
        },
        Operation {
            method: "post",
            role: "operate",
            parameters: &[STAND_IN, KEY],
            ..read("/v1/ha/upgrade", "upgrade", "Has a new process take over", of::<Ha>)
        },
        Operation {
            parameters: &[KIND, SERVICE, AFTER],
            streams: true,
            ..read("/v1/events", "events", "Events, as a list or a stream", of::<Events>)
        },
    ]
}

fn pinned(path: &'static str, id: &'static str, about: &'static str) -> Operation {
    Operation {
        method: "post",
        role: "operate",
        parameters: &[KEY],
        body: Some(of::<FlowPin>),
        ..read(path, id, about, of::<SpreadFlows>)
    }
}

fn measured() -> Vec<Operation> {
    vec![
        read("/v1/whoami", "whoami", "The caller's name and role", of::<WhoAmI>),
        Operation {
            parameters: &[SERVICE, SINCE, STEP],
            ..read("/v1/rates", "rates", "The last hour", of::<Rates>)
        },
        Operation {
            media: Some("text/plain"),
            ..read("/metrics", "metrics", "Metrics for Prometheus", |_| text())
        },
    ]
}

/// Traces and captures: answers that go on until what was asked for is there.
fn looks() -> Vec<Operation> {
    let look = |kind: LookKind, id, about| Operation {
        method: "post",
        role: "admin",
        body: Some(of::<LookRequest>),
        media: Some(kind.media_type()),
        ..read(kind.path(), id, about, |_| text())
    };
    vec![
        look(LookKind::Trace, "trace", "Follows packets, decision by decision"),
        look(LookKind::Capture, "capture", "Captures packets with their outcome, as pcapng"),
    ]
}

/// What programs that know IPVS ask.
fn ipvs() -> Vec<Operation> {
    let about = "A request of an IPVS program; the errno is in the answer";
    vec![Operation {
        method: "post",
        body: Some(of::<sluice_ipvs::Request>),
        ..read("/v1/ipvs", "ipvs", about, of::<sluice_ipvs::Answer>)
    }]
}

fn sessions() -> Vec<Operation> {
    vec![
        Operation {
            parameters: &[SERVICE, NETWORK, CLIENT, TO_REAL, STATE, PROTOCOL, SESSIONS, CURSOR],
            ..read("/v1/sessions", "sessions", "Open sessions, page by page", of::<Sessions>)
        },
        Operation {
            method: "delete",
            role: "operate",
            parameters: &[SERVICE, NETWORK, CLIENT, TO_REAL, STATE, PROTOCOL, ALL, DRY_RUN, KEY],
            ..read("/v1/sessions", "kill_sessions", "Ends sessions", of::<Killed>)
        },
    ]
}

fn objects() -> Vec<Operation> {
    let kinds: [(&'static str, [&'static str; 3], Look); 4] = [
        ("/v1/config/services/{name}", ["service", "put_service", "delete_service"], |_| {
            section("service")
        }),
        ("/v1/config/checks/{name}", ["check", "put_check", "delete_check"], |_| section("check")),
        ("/v1/config/pools/{name}", ["pool", "put_pool", "delete_pool"], |_| section("pool")),
        ("/v1/config/snat/{name}", ["snat", "put_snat", "delete_snat"], |_| section("snat")),
    ];
    let operations = kinds.into_iter().flat_map(|(path, [get, put, delete], body)| {
        let shown = read(path, get, "One object and its owner", of::<Entry>);
        [
            Operation { parameters: &[NAME], tagged: true, ..shown },
            change(("put", path), put, "Creates or replaces it", Some(body)),
            change(("delete", path), delete, "Deletes it", None),
        ]
    });
    operations.collect()
}

fn reals() -> Vec<Operation> {
    let path = "/v1/config/services/{name}/reals/{real}";
    let body: Look = |_| {
        let mut real = section("service")["properties"]["real"]["items"].clone();
        // The path has address and port.
        if let Some(required) = real["required"].as_array_mut() {
            required.retain(|key| key != "address");
        }
        real
    };
    let patch: Look = |_| {
        json!({
            "type": "object",
            "additionalProperties": false,
            "properties": {
                "weight": { "type": ["integer", "null"], "minimum": 0, "maximum": 65535 },
                "state": { "enum": ["up", "drain", "down", null] },
            },
        })
    };
    let about = "Sets weight or state of a real server of any owner; null removes the override";
    let weighed = change(("patch", path), "override_real", about, Some(patch));
    vec![
        change(("put", path), "put_real", "Creates or replaces a real server", Some(body)),
        change(("delete", path), "delete_real", "Deletes a real server", None),
        Operation { role: "operate", ..weighed },
    ]
}

fn whole() -> Vec<Operation> {
    let apply: Look = |_| {
        let each = |name: &str| {
            let mut object = section(name);
            if let Some(required) = object["required"].as_array_mut() {
                required.push(json!("name"));
            }
            json!({ "type": "array", "items": object })
        };
        let names = json!({ "type": "array", "items": { "type": "string" } });
        let [service, check, pool, snat] = ["service", "check", "pool", "snat"].map(each);
        json!({
            "type": "object",
            "additionalProperties": false,
            "properties": {
                "service": service,
                "check": check,
                "pool": pool,
                "snat": snat,
                "delete": {
                    "type": "object",
                    "additionalProperties": false,
                    "properties": {
                        "service": names, "check": names, "pool": names, "snat": names,
                    },
                },
            },
        })
    };
    let epoch: Look = |_| {
        json!({
            "type": "object",
            "additionalProperties": false,
            "required": ["epoch"],
            "properties": { "epoch": { "type": "integer", "minimum": 0, "maximum": u32::MAX } },
        })
    };
    let history = "/v1/config/history";
    let reload = change(("post", "/v1/config/reload"), "reload", "Rereads the file", None);
    let all_or_none = "Creates, replaces and deletes several objects, all or none";
    let back = "Restores the state of an epoch";
    vec![
        Operation { tagged: true, ..read("/v1/config", "config", "The desired state", of::<View>) },
        change(("post", "/v1/config/apply"), "apply", all_or_none, Some(apply)),
        Operation { role: "operate", ..reload },
        change(("post", "/v1/config/rollback"), "rollback", back, Some(epoch)),
        Operation {
            parameters: &[EPOCHS],
            tagged: true,
            ..read(history, "history", "The last epochs", of::<HistoryPage>)
        },
        Operation {
            parameters: &[EPOCH],
            tagged: true,
            ..read("/v1/config/history/{epoch}", "epoch", "One epoch", of::<Epoch>)
        },
    ]
}
