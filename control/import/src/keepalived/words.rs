//! Words that are not converted, with what they do and what to do instead.

/// What becomes of a block or word outside of all others.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Top {
    /// Whose it stays: the name of all that is alike, what it does, and what to do.
    Kept(&'static str, &'static str, &'static str),
    /// What it does, and what to do instead.
    Lost(&'static str, &'static str),
}

const VRRP: Top = Top::Kept(
    "vrrp",
    "VRRP, which moves virtual addresses between machines, and what it goes by",
    "it stays with keepalived, which runs beside Sluice with these blocks and without virtual \
     servers",
);
const STATIC: Top = Top::Kept(
    "static",
    "addresses, routes and rules of the kernel",
    "they stay with keepalived or the system's network configuration; Sluice follows the kernel's",
);
const PROCESS: Top = Top::Kept(
    "process",
    "how keepalived itself runs",
    "it stays with keepalived where it runs for VRRP",
);

/// Blocks and words outside of all others.
pub fn top(word: &str) -> Option<Top> {
    Some(match word {
        "vrrp_instance"
        | "vrrp_sync_group"
        | "vrrp_script"
        | "vrrp_track_file"
        | "track_file"
        | "vrrp_track_process"
        | "track_process"
        | "static_track_group"
        | "garp_group"
        | "bfd_instance"
        | "linkbeat_interfaces"
        | "linkbeat_use_polling"
        | "interface_up_down_delays" => VRRP,
        "static_ipaddress" | "static_routes" | "static_rules" => STATIC,
        "net_namespace"
        | "net_namespace_ipvs"
        | "namespace_with_ipsets"
        | "instance"
        | "use_pid_dir"
        | "child_wait_time"
        | "include_check"
        | "random_seed"
        | "daemon" => PROCESS,
        "SSL" => Top::Lost(
            "the certificate that SSL_GET shows, and the authorities it trusts",
            "`tls_authorities` of a [[check]] names authorities; a certificate of its own no \
             check shows",
        ),
        "tunnel_group" => Top::Lost(
            "tunnel interfaces of DPVS",
            "`ip link add … type ipip|gre`; real servers behind tunnels have mode = \"ipip\"",
        ),
        _ => return None,
    })
}

/// Words of `global_defs` that concern the balancing.
pub fn global(word: &str) -> Option<(&'static str, &'static str)> {
    Some(match word {
        "lvs_sync_daemon" | "lvs_sync_daemon_interface" => (
            "sends connections to a standby director",
            "there is none; after a takeover connections go on only where `[tcp] \
             accept_mid_stream` and the same real server are had",
        ),
        "lvs_timeouts" => (
            "how long idle connections stay",
            "set tcp_established_s, tcp_fin_wait_s and udp_s of [timeouts] in the director's file",
        ),
        _ => return None,
    })
}

const SCRIPT: (&str, &str) = (
    "runs a program at each change",
    "follow `sluice events --follow` or GET /v1/events, and run it from there",
);

/// Words of virtual and real servers and their checks for which there is nothing.
pub fn lost(word: &str) -> Option<(&'static str, &'static str)> {
    of_servers(word).or_else(|| of_checks(word))
}

fn of_servers(word: &str) -> Option<(&'static str, &'static str)> {
    Some(match word {
        "notify_up" | "notify_down" | "quorum_up" | "quorum_down" => SCRIPT,
        "smtp_alert" => (
            "sends mail at each change",
            "alerts for Prometheus are in packaging/prometheus; `sluice events` has each change",
        ),
        "omega" => (
            "runs the scripts for down when keepalived ends",
            "have systemd run them: ExecStopPost of sluiced.service",
        ),
        "ha_suspend" => (
            "checks only while the virtual address is here",
            "checks go on on a standby director, too; that costs the probes only",
        ),
        "persistence_engine" => (
            "binds clients by what is in SIP messages",
            "persistence_s binds them by their address",
        ),
        "syn_proxy" => (
            "answers SYNs until the client is known to be there",
            "the real servers' own SYN cookies (net.ipv4.tcp_syncookies); max_new_per_s limits",
        ),
        "quic" => (
            "finds a QUIC client's real server by its connection id",
            "protocol = \"udp\" with persistence_s, or scheduler = \"mh\"",
        ),
        "vip_bind_dev" => (
            "answers for the virtual address on one device only",
            "put the address on that interface: the service is on all ports",
        ),
        "bps" | "limit_proportion" => (
            "limits a service's bandwidth",
            "max_sessions and max_new_per_s limit sessions; `tc` at the real servers bandwidth",
        ),
        "src-range" | "dst-range" | "iif" | "oif" => (
            "tells packets by range or device",
            "a service has its vip and port; `virtual_server match` with SNAT becomes a rule",
        ),
        _ => return None,
    })
}

fn of_checks(word: &str) -> Option<(&'static str, &'static str)> {
    Some(match word {
        "misc_dynamic" | "dynamic" => (
            "makes a check's result the weight",
            "`sluice real set SERVICE REAL --weight N` sets it, from the check's own script",
        ),
        "user" => (
            "runs the script as another user",
            "the script runs as the director; have it change user by itself (`setpriv`)",
        ),
        "digest" => (
            "compares the MD5 sum of the page",
            "set expect or expect_regex of the check to something that is on the page",
        ),
        "bind_port" => (
            "sends probes from one port",
            "the kernel chooses it; source, interface and mark of the check can be set",
        ),
        "regex_no_match" => (
            "fails when something is on the page",
            "write an expect or expect_regex for what is there when all is well",
        ),
        "min_reply_length" | "max_reply_length" => (
            "holds the length of the answer within bounds",
            "set expect or expect_regex of the check to something that the answer holds",
        ),
        "helo_name" => (
            "speaks SMTP with this name",
            "the check connects only; a check of kind = \"script\" can speak SMTP",
        ),
        "log_all_failures" | "checker_log_all_failures" => (
            "logs every failed probe",
            "`sluice health` has the last finding of each check, `sluice events` each change",
        ),
        _ => return None,
    })
}

/// Words that say what holds anyway: nothing is missing without them.
pub fn holds_anyway(word: &str) -> bool {
    [
        // Sessions of a sorry server stay when another comes back.
        "sorry_server_inhibit",
        // The family is that of the addresses.
        "ip_family",
        // Clients of one that is down go where those of a full one go.
        "sh-fallback",
        "mh-fallback",
        // All of a probe's bytes are looked at, without a stack of their own.
        "regex_stack",
        "regex_min_offset",
        "regex_max_offset",
        // A probe that passes brings it back at once.
        "fast_recovery",
        // Checks of Sluice speak HTTP/1.1 and close.
        "http_protocol",
        // SNI is asked for wherever there is a name.
        "enable_sni",
        // As `lb_algo sh` has it.
        "hashed",
        "snmp_name",
    ]
    .contains(&word)
}
