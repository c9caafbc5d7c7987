//! About how much memory an epoch keeps from being given back.
//!
//! Objects are shared: what an epoch's change made is in the state, or is what the next one
//! replaced. So what only the history keeps are the objects before each change. Counted are the
//! allocations of a value's tree, each with what an allocator adds.

use std::mem::size_of;

use serde_json::Value;

use crate::change::Change;
use crate::history::Epoch;
use crate::object::Object;

/// What an allocation takes besides what was asked for.
const ALLOCATION: usize = 16;
/// An entry of a map besides its key's text and its value: the key, its hash, its place twice.
const ENTRY: usize = size_of::<String>() + 32;

/// The bytes of an epoch.
pub(crate) fn of(epoch: &Epoch) -> usize {
    let changes = epoch.changes.iter().map(of_change).sum::<usize>();
    size_of::<Epoch>() + epoch.summary.len() + ALLOCATION + changes
}

fn of_change(change: &Change) -> usize {
    let own = match change {
        Change::Object { key, before, .. } => {
            let before = before.as_deref().map_or(0, of_object);
            key.name.len() + ALLOCATION + before
        }
        Change::Real { service, before, after, .. } => {
            let values = before.iter().chain(after).map(of_value).sum::<usize>();
            service.len() + ALLOCATION + values
        }
        Change::Override { service, .. } => service.len() + ALLOCATION,
        Change::File { .. } => 4 * ALLOCATION,
    };
    size_of::<Change>() + own
}

fn of_object(object: &Object) -> usize {
    size_of::<Object>() + size_of::<Value>() + 2 * ALLOCATION + of_value(&object.value)
}

/// What a value has allocated.
fn of_value(value: &Value) -> usize {
    match value {
        Value::Null | Value::Bool(_) | Value::Number(_) => 0,
        Value::String(text) => text.len() + ALLOCATION,
        Value::Array(items) => {
            let each = items.iter().map(|item| size_of::<Value>() + of_value(item));
            ALLOCATION + each.sum::<usize>()
        }
        Value::Object(table) => {
            let each = table.iter().map(|(key, value)| {
                ENTRY + key.len() + ALLOCATION + size_of::<Value>() + of_value(value)
            });
            2 * ALLOCATION + each.sum::<usize>()
        }
    }
}
