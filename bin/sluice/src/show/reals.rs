//! `sluice real show`: the real servers of a service, as text and as JSON.
//!
//! What is in force is the director's word (`GET /v1/services`): weight and state with overrides
//! and health in them. What is configured is the desired state's (`GET /v1/config`). A real server
//! that the director does not have yet is shown as it will be.

use std::net::SocketAddr;

use serde::Serialize;
use serde_json::Value;
use sluice_api::model::{Balanced, RealState, Services};
use sluice_state::{self as state, Entry, Override, real_key};

use super::balance::{endpoint, real_port, state_of};
use super::desired::said;
use super::figures::count;
use super::table::{Align, Cell, Table};
use super::{NOTE, Shown};

/// What stands for nothing.
const NONE: &str = "-";

/// A real server.
#[derive(Debug, Serialize)]
struct Row {
    /// Its address and port.
    real: Option<SocketAddr>,
    /// The weight that is in force.
    weight: u64,
    configured_weight: u64,
    state: RealState,
    #[serde(skip_serializing_if = "Option::is_none")]
    r#override: Option<Override>,
    /// Sessions, packets and bytes; absent while the director does not have it.
    #[serde(flatten)]
    counted: Option<Balanced>,
    /// State and weight as `sluice services` words the state.
    #[serde(skip)]
    worded: Cell,
}

/// As text.
pub fn reals(entry: &Entry, known: &Services) -> Shown {
    use Align::{Left, Right};
    let mut table = Table::new([
        ("REAL SERVER", Left),
        ("WEIGHT", Right),
        ("CONFIGURED", Right),
        ("STATE", Left),
        ("OVERRIDE", Left),
        ("ACTIVE", Right),
        ("ESTABLISHED", Right),
        ("CLOSING", Right),
        ("BOUND", Right),
    ]);
    for row in rows(entry, known) {
        let gauge = |of: fn(&Balanced) -> u64| {
            row.counted.as_ref().map_or_else(|| NONE.to_owned(), |counted| count(of(counted)))
        };
        let over = row.r#override.as_ref().map(said);
        table.row([
            row.real
                .map_or_else(|| NONE.to_owned(), |it| endpoint(it.ip(), real_port(it.port())))
                .into(),
            row.weight.to_string().into(),
            row.configured_weight.to_string().into(),
            row.worded,
            Cell::from(over.clone().unwrap_or_else(|| NONE.to_owned()))
                .style_if(over.is_some(), NOTE),
            gauge(|of| of.sessions_active).into(),
            gauge(|of| of.sessions_established).into(),
            gauge(|of| of.sessions_closing).into(),
            gauge(|of| of.clients_bound).into(),
        ]);
    }
    Shown::new(table.text())
}

/// As JSON: the service's object, and `reals` with what the table has and more.
///
/// # Errors
/// Never, as far as known: all of it is plain data.
pub fn reals_json(entry: &Entry, known: &Services) -> serde_json::Result<Shown> {
    let mut value = serde_json::to_value(entry)?;
    value["reals"] = serde_json::to_value(rows(entry, known))?;
    Ok(Shown::new(serde_json::to_string_pretty(&value)? + "\n"))
}

fn rows(entry: &Entry, known: &Services) -> Vec<Row> {
    let service = known.services.iter().find(|service| service.name == entry.key.name);
    let live = service.map_or(&[][..], |service| &service.reals);
    let row = |configured: &Value| {
        let real = real_key(&entry.value, configured);
        let over = entry.overrides.iter().find(|placed| Some(placed.real) == real);
        let over = over.map(|placed| placed.over);
        let configured_weight = configured.get("weight").and_then(Value::as_u64).unwrap_or(1);
        let live = live.iter().find(|it| real == Some(SocketAddr::new(it.address, it.port)));
        let (weight, state) = live.map_or_else(
            || to_be(configured, configured_weight, over.unwrap_or_default()),
            |live| (live.weight.into(), live.state),
        );
        let (full_at, lower) = live.map_or((&[][..], 0), |it| (&it.full_at, it.lower_sessions));
        Row {
            real,
            weight,
            configured_weight,
            state,
            r#override: over,
            counted: live.map(|live| live.counted),
            worded: state_of(state, full_at, lower),
        }
    };
    let list = entry.value.get("real").and_then(Value::as_array);
    list.into_iter().flatten().map(row).collect()
}

/// Weight and state of a real server that the director does not have yet.
fn to_be(configured: &Value, weight: u64, over: Override) -> (u64, RealState) {
    let down = configured.get("down").and_then(Value::as_bool).unwrap_or(false);
    let weight = match over.state {
        Some(state::RealState::Drain) => 0,
        _ => over.weight.map_or(weight, u64::from),
    };
    let state = match over.state {
        Some(state::RealState::Down) => RealState::Down,
        None | Some(state::RealState::Drain) if down => RealState::Down,
        _ if weight == 0 => RealState::Draining,
        _ => RealState::Up,
    };
    (weight, state)
}
