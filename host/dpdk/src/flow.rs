//! Flow rules of a NIC (`rte_flow`): a [`Flow`] of the model becomes an entry of its table.
//!
//! The driver decides twice: `rte_flow_validate` says whether it could have the rule, and
//! `rte_flow_create` whether it has it now. What either refuses keeps the driver's own words.
//!
//! Invariant: DPDK's pointers to rules stay in here, under one lock, and a number stands for each
//! outside. So a number of a rule that is gone, or of another port, names nothing. Rules are
//! taken away before their device stops.

use std::collections::BTreeMap;
use std::ffi::{CStr, c_void};
use std::ptr::NonNull;
use std::sync::{Mutex, MutexGuard, PoisonError};

use sluice_dpdk_sys as sys;
use sluice_rules::{Addresses, Flow, FlowPort, Refused, RefusedKind, Target};
use tracing::{debug, warn};

use crate::error::Error;
use crate::ethdev::Ethdev;

/// The kinds of `rte_flow_error_type`, by their number.
const KINDS: [&str; 18] = [
    "no error",
    "unspecified",
    "handle",
    "group",
    "priority",
    "ingress",
    "egress",
    "transfer",
    "attributes",
    "number of items",
    "value of an item",
    "range of an item",
    "mask of an item",
    "item",
    "number of actions",
    "configuration of an action",
    "action",
    "state of the device",
];

/// A rule that was made, for as long as its port is open.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct FlowId(u64);

/// DPDK's pointer to a rule.
#[derive(Debug)]
struct Handle(NonNull<c_void>);

// SAFETY: the pointer is only given back to DPDK, by whoever holds the lock around it.
unsafe impl Send for Handle {}

/// The rules of a device.
#[derive(Debug, Default)]
pub(crate) struct Flows {
    made: Mutex<Made>,
}

#[derive(Debug, Default)]
struct Made {
    device: u16,
    next: u64,
    handles: BTreeMap<FlowId, Handle>,
}

impl Flows {
    fn lock(&self) -> MutexGuard<'_, Made> {
        // After a panic the map is whole: each change is one step.
        self.made.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes all rules away, if there are any. The device still runs.
    pub fn flush(&self) {
        let mut made = self.lock();
        if made.handles.is_empty() {
            return;
        }
        made.handles.clear();
        // SAFETY: the device is open, and no handle is left.
        let status = unsafe { sys::sluice_flow_flush(made.device) };
        if status < 0 {
            warn!(device = made.device, status, "flow rules may be left in the NIC");
        }
    }
}

/// The table of a port's NIC, for one thread at a time. Calls may wait for the device.
#[derive(Debug)]
pub struct FlowTable<'p> {
    device: u16,
    flows: &'p Flows,
}

impl<'p> FlowTable<'p> {
    pub(crate) fn of(ethdev: &'p Ethdev) -> Option<Self> {
        Some(Self { device: ethdev.flow_device()?, flows: &ethdev.flows })
    }
}

impl FlowPort for FlowTable<'_> {
    type Handle = FlowId;

    fn create(&mut self, flow: &Flow) -> Result<FlowId, Refused> {
        let mut made = self.flows.lock();
        let mut handle = std::ptr::null_mut();
        let mut said = nothing_said();
        // SAFETY: the port is open while it is borrowed, so its device is; the structures are whole
        // and the answers have the right size.
        let status =
            unsafe { sys::sluice_flow_create(self.device, &plain(flow), &mut handle, &mut said) };
        let Some(handle) = NonNull::new(handle).filter(|_| status >= 0) else {
            return Err(refused(status, &said));
        };
        (made.device, made.next) = (self.device, made.next + 1);
        let id = FlowId(made.next);
        made.handles.insert(id, Handle(handle));
        Ok(id)
    }

    fn destroy(&mut self, id: FlowId) -> Result<(), Refused> {
        let Some(Handle(handle)) = self.flows.lock().handles.remove(&id) else { return Ok(()) };
        let mut said = nothing_said();
        // SAFETY: the device is open, and the handle is one of its rules', used for the last time.
        let status = unsafe { sys::sluice_flow_destroy(self.device, handle.as_ptr(), &mut said) };
        if status < 0 {
            let refused = refused(status, &said);
            debug!(device = self.device, reason = refused.reason, "a flow rule stays");
            return Err(refused);
        }
        Ok(())
    }

    fn hits(&mut self, id: &FlowId) -> Option<u64> {
        let made = self.flows.lock();
        let Handle(handle) = made.handles.get(id)?;
        let mut hits = 0;
        // SAFETY: the device is open, and the handle is one of its rules'.
        let status = unsafe { sys::sluice_flow_hits(self.device, handle.as_ptr(), &mut hits) };
        (status >= 0).then_some(hits)
    }
}

const fn nothing_said() -> sys::FlowError {
    sys::FlowError { kind: 0, step: 0, text: [0; 120] }
}

fn plain(flow: &Flow) -> sys::Flow {
    let (target, queues) = match flow.target {
        Target::Queue(queue) => (sys::FLOW_QUEUE, queue),
        Target::Spread(queues) => (sys::FLOW_SPREAD, queues),
        Target::Unchanged(queues) => (sys::FLOW_UNCHANGED, queues),
    };
    sys::Flow {
        source: flow.source.address,
        source_mask: flow.source.address_mask,
        destination: flow.destination.address,
        destination_mask: flow.destination.address_mask,
        source_port: flow.source.port,
        source_port_mask: flow.source.port_mask,
        destination_port: flow.destination.port,
        destination_port_mask: flow.destination.port_mask,
        vni: flow.vni.unwrap_or(0),
        queues,
        protocol: flow.protocol,
        v6: u8::from(flow.addresses == Addresses::V6),
        has_vni: u8::from(flow.vni.is_some()),
        priority: flow.priority,
        count: u8::from(flow.count),
        target,
    }
}

/// The driver's refusal in words: its own, what they are about, and which call said so.
fn refused(status: i32, said: &sys::FlowError) -> Refused {
    let kind = match status.saturating_neg() {
        libc::ENOSPC | libc::ENOMEM | libc::ENOBUFS => RefusedKind::Full,
        // What the driver could have it has not got now: that may change with other rules.
        _ if said.step == sys::FLOW_CREATE => RefusedKind::Conflict,
        _ => RefusedKind::Unsupported,
    };
    // SAFETY: the shim ends the text with a NUL byte inside the field.
    let text = unsafe { CStr::from_ptr(said.text.as_ptr()) }.to_string_lossy().into_owned();
    let text = match Error::dpdk("", status) {
        Error::Dpdk { text: of_code, .. } if text.is_empty() => of_code,
        _ => text,
    };
    let about = usize::try_from(said.kind).ok().and_then(|kind| KINDS.get(kind));
    let about = about.copied().unwrap_or("unknown");
    let call = match said.step {
        sys::FLOW_VALIDATE => "rte_flow_validate",
        sys::FLOW_CREATE => "rte_flow_create",
        _ => return Refused { kind, reason: text },
    };
    Refused { kind, reason: format!("{call}: {text} ({about})") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn refusals_have_the_drivers_words() {
        let mut said = nothing_said();
        (said.kind, said.step) = (13, sys::FLOW_VALIDATE);
        for (at, byte) in b"item not supported".iter().enumerate() {
            said.text[at] = *byte as _;
        }
        let no = refused(-libc::ENOTSUP, &said);
        assert_eq!(no.reason, "rte_flow_validate: item not supported (item)");
        assert_eq!(no.kind, RefusedKind::Unsupported);
        said.step = sys::FLOW_CREATE;
        assert_eq!(refused(-libc::ENOSPC, &said).kind, RefusedKind::Full);
        assert_eq!(refused(-libc::EINVAL, &said).kind, RefusedKind::Conflict);
        // Without words there are those of the code.
        let silent = refused(-libc::ENOSPC, &nothing_said());
        assert_eq!(silent.reason, "No space left on device");
        // A kind of a later DPDK.
        said.kind = 99;
        assert!(refused(-libc::EINVAL, &said).reason.ends_with("(unknown)"));
    }
}
