//! Every metric there is: its name, type, labels and meaning. The page is written by this list, and
//! `docs/metrics.md` is made from it.
//!
//! Names follow Prometheus' rules: base units, `_total` for counters; words are those that IPVS'
//! and HAProxy's exporters have used for years where they fit.

use std::fmt::Write;

/// The type of a metric.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Only grows; its name ends in `_total`.
    Counter,
    /// Goes up and down.
    Gauge,
    /// Always 1; what it says is in its labels. Its name ends in `_info`.
    Info,
}

/// A metric.
#[derive(Debug, PartialEq, Eq)]
pub struct Family {
    /// Its name without `_total` or `_info`.
    pub name: &'static str,
    /// Its type.
    pub kind: Kind,
    /// Its labels, in order.
    pub labels: &'static [&'static str],
    /// What it tells, in a sentence.
    pub help: &'static str,
}

impl Family {
    /// What the names of its samples end in.
    pub const fn suffix(&self) -> &'static str {
        match self.kind {
            Kind::Counter => "_total",
            Kind::Gauge => "",
            Kind::Info => "_info",
        }
    }
}

macro_rules! families {
    ($($heading:literal: {
        $($id:ident, $name:literal, $kind:ident, [$($label:literal)*], $help:literal;)*
    })*) => {
        $($(
            #[doc = $help]
            pub static $id: Family = Family {
                name: $name,
                kind: Kind::$kind,
                labels: &[$($label),*],
                help: $help,
            };
        )*)*
        /// All, by heading, in the order of the page.
        pub static ALL: &[(&str, &[&Family])] = &[$(($heading, &[$(&$id),*])),*];
    };
}

families! {
"The director": {
    BUILD, "sluice_build", Info, ["version"], "The program's version.";
    SAMPLED, "sluice_sample_timestamp_seconds", Gauge, [],
        "Unix time of the last sample: about one second ago at most, unless the control loop \
         hangs.";
    CONFIG_EPOCH, "sluice_config_epoch", Gauge, [],
        "Epoch of the last applied change of the desired state.";
    PLAN_EPOCH, "sluice_plan_epoch", Gauge, [],
        "Number of the plan that workers run; increases with each compiled plan.";
    DURABLE, "sluice_config_durable", Gauge, [],
        "1 if changes made at run time survive a restart, 0 if the state directory cannot be \
         written.";
    DIFFERS, "sluice_config_differs_from_file", Gauge, [],
        "1 if the running state differs from the configuration file, because the director was \
         rolled back to an earlier epoch.";
    RELOAD_OK, "sluice_config_last_reload_successful", Gauge, [],
        "1 if the last reload of the configuration file was accepted, or none was made yet.";
    RELOAD_AT, "sluice_config_last_reload_success_timestamp_seconds", Gauge, [],
        "Unix time at which the configuration file was last accepted.";
    HUGE_PAGES, "sluice_huge_pages", Gauge, [], "1 if packet memory is in huge pages.";
    CHECK_RESTARTS, "sluice_check_thread_restarts", Counter, [],
        "How often the health checks' thread was replaced because it ended or hung.";
    HISTORY_BYTES, "sluice_history_bytes", Gauge, [],
        "Memory used by the services' history of one hour.";
}
"Sessions and packets": {
    SESSIONS, "sluice_sessions", Gauge, [], "Open sessions.";
    SESSIONS_LIMIT, "sluice_sessions_limit", Gauge, [], "Maximum number of sessions.";
    SESSIONS_OPENED, "sluice_sessions_opened", Counter, [], "Sessions opened.";
    SESSIONS_CLOSED, "sluice_sessions_closed", Counter, [],
        "Sessions that ended by themselves, with a four-way close or a reset.";
    SESSIONS_EXPIRED, "sluice_sessions_expired", Counter, [], "Sessions that timed out.";
    SESSIONS_KILLED, "sluice_sessions_killed", Counter, [],
        "Sessions ended by an operator.";
    SESSIONS_EVICTED, "sluice_sessions_evicted", Counter, [],
        "Sessions evicted for new ones: half-open sessions, and sessions of services above \
         their share.";
    SESSIONS_HALF_OPEN, "sluice_sessions_half_open", Gauge, [],
        "TCP sessions whose handshake is not complete, and UDP sessions without an answer.";
    PRESSED, "sluice_workers_pressed", Gauge, [],
        "Workers under pressure from half-open sessions, which then expire after three seconds.";
    ENDS_IGNORED, "sluice_session_ends_ignored", Counter, [],
        "Resets and FINs that were forwarded but ended no session, since their numbers do not fit.";
    TABLE_BYTES, "sluice_session_table_bytes", Gauge, [], "Address space of the session tables.";
    DROPPED, "sluice_packets_dropped", Counter, ["reason"],
        "Packets dropped, by reason (docs/reasons.md).";
    TO_KERNEL, "sluice_packets_to_kernel", Counter, ["reason"],
        "Packets given to the kernel, by reason (docs/reasons.md).";
}
"Networks (only with `[[network]]`)": {
    NETWORK_SESSIONS, "sluice_network_sessions", Gauge, ["network"],
        "Open sessions in a network; `default` is the default one.";
    NETWORK_LIMIT, "sluice_network_session_capacity", Gauge, ["network"],
        "Maximum number of sessions in a network.";
    NETWORK_DROPPED, "sluice_network_packets_dropped", Counter, ["network" "reason"],
        "Packets dropped in a network, by reason (docs/reasons.md).";
}
"Virtual services": {
    SERVICE, "sluice_service", Info, ["service" "protocol" "vip" "port" "mode" "scheduler"],
        "Properties of a virtual service; join by its name.";
    SERVICE_SESSIONS, "sluice_service_sessions", Gauge, ["service"], "Open sessions.";
    SERVICE_ESTABLISHED, "sluice_service_sessions_established", Gauge, ["service"],
        "TCP sessions whose handshake is complete and that neither side has closed.";
    SERVICE_CLOSING, "sluice_service_sessions_closing", Gauge, ["service"],
        "Sessions that one side has closed, or that a reset has ended.";
    SERVICE_BOUND, "sluice_service_clients_bound", Gauge, ["service"],
        "Clients with persistence to the service.";
    SERVICE_OPENED, "sluice_service_sessions_opened", Counter, ["service"], "Sessions opened.";
    SERVICE_IN_PACKETS, "sluice_service_incoming_packets", Counter, ["service"],
        "Packets forwarded to real servers.";
    SERVICE_OUT_PACKETS, "sluice_service_outgoing_packets", Counter, ["service"],
        "Packets forwarded to clients.";
    SERVICE_IN_BYTES, "sluice_service_incoming_bytes", Counter, ["service"],
        "Bytes of IP packets forwarded to real servers.";
    SERVICE_OUT_BYTES, "sluice_service_outgoing_bytes", Counter, ["service"],
        "Bytes of IP packets forwarded to clients.";
    SERVICE_DROPPED, "sluice_service_packets_dropped", Counter, ["service" "reason"],
        "Packets to the service that opened no session, or whose session was ended, by reason; \
         only reasons that have occurred.";
    SERVICE_REALS, "sluice_service_real_servers", Gauge, ["service" "state"],
        "Real servers in each state: up, full, standby, draining, down.";
}
"Real servers (unless `real_servers = false`)": {
    REAL_UP, "sluice_real_up", Gauge, ["service" "real"],
        "0 if the real server is down, by configuration or health checks.";
    REAL_STATE, "sluice_real_state", Gauge, ["service" "real" "state"],
        "1 for its current state: up, full, standby, draining, down; other states have no \
         series.";
    REAL_WEIGHT, "sluice_real_weight", Gauge, ["service" "real"],
        "The weight in force; 0 while draining.";
    REAL_SESSIONS, "sluice_real_sessions", Gauge, ["service" "real"], "Open sessions.";
    REAL_ESTABLISHED, "sluice_real_sessions_established", Gauge, ["service" "real"],
        "TCP sessions whose handshake is complete and that neither side has closed.";
    REAL_CLOSING, "sluice_real_sessions_closing", Gauge, ["service" "real"],
        "Sessions that one side has closed, or that a reset has ended.";
    REAL_BOUND, "sluice_real_clients_bound", Gauge, ["service" "real"],
        "Clients with persistence to it.";
    REAL_OPENED, "sluice_real_sessions_opened", Counter, ["service" "real"], "Sessions opened.";
    REAL_IN_PACKETS, "sluice_real_incoming_packets", Counter, ["service" "real"],
        "Packets forwarded to it.";
    REAL_OUT_PACKETS, "sluice_real_outgoing_packets", Counter, ["service" "real"],
        "Packets forwarded from it.";
    REAL_IN_BYTES, "sluice_real_incoming_bytes", Counter, ["service" "real"],
        "Bytes of IP packets forwarded to it.";
    REAL_OUT_BYTES, "sluice_real_outgoing_bytes", Counter, ["service" "real"],
        "Bytes of IP packets forwarded from it.";
}
"Health checks (unless `real_servers = false`)": {
    CHECK_UP, "sluice_check_up", Gauge, ["service" "real" "check"],
        "1 if the check finds the real server up, 0 if down; no series before the first result.";
    CHECK_PASSED, "sluice_check_last_probe_successful", Gauge, ["service" "real" "check"],
        "1 if the last probe passed, 0 if it failed; no series if it had no result.";
    CHECK_SECONDS, "sluice_check_last_probe_duration_seconds", Gauge, ["service" "real" "check"],
        "Duration of the last probe.";
    CHECK_PROBES, "sluice_check_probes", Counter, ["service" "real" "check"], "Probes made.";
}
"Source NAT": {
    SNAT_SESSIONS, "sluice_snat_sessions", Gauge, ["rule"], "Open sessions.";
    SNAT_OPENED, "sluice_snat_sessions_opened", Counter, ["rule"], "Sessions opened.";
    SNAT_IN_PACKETS, "sluice_snat_incoming_packets", Counter, ["rule"],
        "Packets forwarded from inside to outside.";
    SNAT_OUT_PACKETS, "sluice_snat_outgoing_packets", Counter, ["rule"],
        "Packets forwarded from outside to inside.";
    SNAT_IN_BYTES, "sluice_snat_incoming_bytes", Counter, ["rule"],
        "Bytes of IP packets forwarded from inside to outside.";
    SNAT_OUT_BYTES, "sluice_snat_outgoing_bytes", Counter, ["rule"],
        "Bytes of IP packets forwarded from outside to inside.";
}
"Workers": {
    WORKER, "sluice_worker", Info, ["worker" "core"], "The core that a worker runs on.";
    WORKER_UP, "sluice_worker_up", Gauge, ["worker"],
        "0 if it did not answer the control loop within two seconds. Counters then keep their \
         values.";
    WORKER_SECONDS, "sluice_worker_seconds", Counter, ["worker" "mode"],
        "Time spent in turns with work (busy) and without (idle).";
    WORKER_PACKETS, "sluice_worker_received_packets", Counter, ["worker"], "Packets received.";
    WORKER_BURSTS, "sluice_worker_bursts", Counter, ["worker"],
        "Bursts received, of at most 256 packets; packets per burst is the burst fill.";
    WORKER_TURNS, "sluice_worker_turns", Counter, ["worker"], "Turns of its loop.";
    WORKER_EMPTY, "sluice_worker_empty_turns", Counter, ["worker"],
        "Turns without work.";
    WORKER_SLEEPS, "sluice_worker_sleeps", Counter, ["worker"], "How often it went to sleep.";
    WORKER_HANDED, "sluice_worker_handed_off_packets", Counter, ["worker"],
        "Packets handed off to the owner worker of their session.";
    WORKER_SPREAD_FLOWS, "sluice_worker_spread_flows", Gauge, ["worker"],
        "Flows of this worker that other workers help to process (docs/elephants.md).";
    WORKER_SPREAD, "sluice_worker_spread_packets", Counter, ["worker"],
        "Packets of such flows that it has dealt to other workers.";
    WORKER_HELD, "sluice_worker_held_packets", Gauge, ["worker"],
        "Packets that wait for a neighbour's MAC address.";
    WORKER_SESSIONS, "sluice_worker_sessions", Gauge, ["worker"], "Open sessions.";
    WORKER_LIMIT, "sluice_worker_sessions_limit", Gauge, ["worker"],
        "Maximum number of sessions of the worker.";
    WORKER_TIMED, "sluice_worker_timed_bursts", Counter, ["worker"],
        "Bursts timed by stage, about one in 32.";
    WORKER_TIMED_PACKETS, "sluice_worker_timed_packets", Counter, ["worker"],
        "Packets in the timed bursts.";
    WORKER_STAGES, "sluice_worker_timed_stage_seconds", Counter, ["worker" "stage"],
        "Time of the timed bursts, and of as many sweeps, by stage; divide by the bursts' packets.";
    WORKER_LOOKUPS, "sluice_worker_timed_lookups", Counter, ["worker"],
        "Session lookups in the timed bursts.";
    WORKER_HITS, "sluice_worker_timed_lookup_hits", Counter, ["worker"],
        "Lookups that found a candidate at once, nearly always packets of open sessions.";
}
"Ports": {
    PORT, "sluice_port", Info, ["port" "device" "driver" "interface"], "Properties of a port.";
    PORT_UP, "sluice_port_up", Gauge, ["port"],
        "1 if the port can carry frames, 0 if its link is down or the device is gone.";
    PORT_QUEUES, "sluice_port_queues", Gauge, ["port"], "Queue pairs.";
    PORT_MTU, "sluice_port_mtu_bytes", Gauge, ["port"], "Largest IP packet.";
    PORT_RX_PACKETS, "sluice_port_receive_packets", Counter, ["port"], "Frames received.";
    PORT_RX_BYTES, "sluice_port_receive_bytes", Counter, ["port"], "Bytes received.";
    PORT_RX_MISSED, "sluice_port_receive_missed", Counter, ["port"],
        "Frames lost at a full queue because workers were too slow.";
    PORT_RX_ERRORS, "sluice_port_receive_errors", Counter, ["port"], "Frames received in error.";
    PORT_TX_PACKETS, "sluice_port_transmit_packets", Counter, ["port"], "Frames sent.";
    PORT_TX_BYTES, "sluice_port_transmit_bytes", Counter, ["port"], "Bytes sent.";
    PORT_TX_ERRORS, "sluice_port_transmit_errors", Counter, ["port"],
        "Frames that could not be sent.";
    PORT_STEERED, "sluice_port_steered_packets", Counter, ["port" "verdict"],
        "Frames that the XDP program gave to the director (taken), left to the kernel \
         (passed), or could not give to the director for want of a queue (unowned).";
    PORT_COPIES, "sluice_port_dma_copies", Counter, ["port" "outcome"],
        "Copies of a memif port with a copy engine (copy=dma): given to the engine (offloaded), \
         or done by the processor because the engine had no room (full) or failed (failed; these \
         are among the offloaded).";
}
"High availability": {
    VIP_HELD, "sluice_vip_held", Gauge, ["vip"],
        "1 if an interface of this machine has the virtual address. With VRRP the sum over all \
         directors is 1.";
    VIP_CHANGES, "sluice_vip_changes", Counter, ["vip"], "How often the address came or left.";
    DRAINING, "sluice_draining", Gauge, [], "1 while another director is to take over.";
    GROUP_STATE, "sluice_vrrp_state", Gauge, ["program" "kind" "name" "state"],
        "1 for what keepalived said last of a group or an instance: master, backup, fault, stop \
         (only with `sluice ha notify`).";
    GROUP_CHANGES, "sluice_vrrp_transitions", Counter, ["program" "kind" "name"],
        "How often the group or instance became something else (only with `sluice ha notify`).";
    DISAGREES, "sluice_vrrp_disagrees", Gauge, [],
        "1 while what keepalived said and the kernel's addresses disagree.";
    ANNOUNCED, "sluice_announced_addresses", Gauge, ["kind"],
        "Addresses that routing daemons are to announce: vip, pool (only with `[announce]`).";
    UNSERVED, "sluice_unserved_vips", Gauge, [],
        "Virtual addresses that are not announced since no real server of theirs gets new \
         sessions (only with `[announce]`).";
}
"Session synchronisation (only with `[sync]`)": {
    SYNCHRONISED, "sluice_sync_synchronised", Gauge, [],
        "1 if the director has the sessions that its peers had when it started, or found no peer \
         to ask. Until then it should not take over.";
    SYNC_PEER_UP, "sluice_sync_peer_up", Gauge, ["peer"],
        "1 if the peer is heard, and hears this director.";
    SYNC_PEER_SYNCHRONISED, "sluice_sync_peer_synchronised", Gauge, ["peer"],
        "1 if the peer reported, when last heard, that it is synchronised.";
    SYNC_PEER_DIFFERS, "sluice_sync_peer_differs", Gauge, ["peer"],
        "1 if its services, real servers, source NAT or local addresses are not those here: \
         connections of these break at a failover.";
    SYNC_PEER_BEHIND, "sluice_sync_peer_behind", Gauge, ["peer"],
        "1 if the peer acknowledged nothing for two seconds and is not waited for.";
    SYNC_PEER_LAG, "sluice_sync_peer_lag_seconds", Gauge, ["peer"],
        "Age of the oldest report that the peer has not acknowledged; 0 when it has all.";
    SYNC_PEER_UNACKNOWLEDGED, "sluice_sync_peer_unacknowledged_datagrams", Gauge, ["peer"],
        "Datagrams that the peer has not acknowledged.";
    SYNC_REPORTS_WAITING, "sluice_sync_reports_waiting", Gauge, [],
        "Changes of sessions that wait at the workers to be reported; no peer's lag includes them.";
    SYNC_REPORTS_SENT, "sluice_sync_reports_sent", Counter, [],
        "Reports of sessions sent, counted once for all peers.";
    SYNC_REPORTS_RECEIVED, "sluice_sync_reports_received", Counter, ["result"],
        "Reports of sessions received, by result: new (session was not known), newer (than what \
         was known), ended, older (or the same), unknown (no such service, real server or local \
         address is configured), refused (the table is full, the endpoints are in use, or its \
         time is over).";
    SYNC_ENDS_UNREPORTED, "sluice_sync_ends_unreported", Counter, [],
        "Ends of sessions that could not be reported; the peers' copies time out.";
    SYNC_SENT, "sluice_sync_sent_datagrams", Counter, [], "Datagrams sent to peers.";
    SYNC_RECEIVED, "sluice_sync_received_datagrams", Counter, [],
        "Datagrams received from peers, including rejected ones.";
    SYNC_TO_GROUP, "sluice_sync_group_datagrams", Counter, [],
        "Datagrams sent to the multicast group.";
    SYNC_REPAIRED, "sluice_sync_repaired_datagrams", Counter, [], "Datagrams sent again.";
    SYNC_LOST, "sluice_sync_lost_datagrams", Counter, [],
        "Datagrams of peers that could not be repaired; all sessions were requested again.";
    SYNC_REJECTED, "sluice_sync_rejected_datagrams", Counter, ["reason"],
        "Datagrams rejected, by reason: forged (not authentic, or of an unknown key), replayed \
         (received before, or of an earlier start of the peer), malformed (not understood, or of \
         another version).";
    SYNC_SENT_BYTES, "sluice_sync_sent_bytes", Counter, [],
        "Bytes of UDP payload in the datagrams sent.";
    SYNC_RECEIVED_BYTES, "sluice_sync_received_bytes", Counter, [],
        "Bytes of UDP payload in the datagrams received.";
}
"The process": {
    PROCESS_CPU, "process_cpu_seconds", Counter, [],
        "User and system time; a polling worker uses its whole core.";
    PROCESS_OPEN_FDS, "process_open_fds", Gauge, [], "Open file descriptors.";
    PROCESS_MAX_FDS, "process_max_fds", Gauge, [], "Maximum number of open file descriptors.";
    PROCESS_RESIDENT, "process_resident_memory_bytes", Gauge, [],
        "Resident memory, without huge pages.";
    PROCESS_VIRTUAL, "process_virtual_memory_bytes", Gauge, [], "Virtual memory.";
    PROCESS_THREADS, "process_threads", Gauge, [], "Threads.";
    PROCESS_START, "process_start_time_seconds", Gauge, [],
        "Unix time at which the process started.";
}
}

/// Tables of all metrics, for the documentation.
pub fn markdown() -> String {
    let mut text = String::new();
    for (heading, families) in ALL {
        // Writing to a string does not fail.
        let _ =
            write!(text, "\n### {heading}\n\n| metric | type | labels | |\n|---|---|---|---|\n");
        for family in *families {
            let kind = match family.kind {
                Kind::Counter => "counter",
                Kind::Gauge => "gauge",
                Kind::Info => "info",
            };
            let labels = family.labels.iter().map(|l| format!("`{l}`")).collect::<Vec<_>>();
            let (name, suffix, help) = (family.name, family.suffix(), family.help);
            let _ = writeln!(text, "| `{name}{suffix}` | {kind} | {} | {help} |", labels.join(" "));
        }
    }
    text
}
