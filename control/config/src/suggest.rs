//! "Did you mean": the known word that means the same, or the nearest to a misspelt one.

use strsim::osa_distance;

/// What other programs' configurations call a key, or what comes to mind first, and the keys that
/// it may stand for: the first one that the section has.
pub(crate) const SYNONYMS: &[(&str, &[&str])] = &[
    ("type", &["kind", "dns_type", "protocol", "device"]),
    ("cert", &["certificate"]),
    ("tls_cert", &["certificate"]),
    ("tls_certificate", &["certificate"]),
    ("certificate_file", &["certificate"]),
    ("cert_file", &["certificate"]),
    ("private_key", &["key"]),
    ("tls_key", &["key"]),
    ("key_file", &["key"]),
    ("token", &["tokens"]),
    ("token_file", &["tokens"]),
    ("bind", &["listen"]),
    ("health_check", &["check"]),
    ("healthcheck", &["check"]),
    ("health", &["check"]),
    ("monitor", &["check"]),
    ("delay_loop", &["interval_ms"]),
    ("period", &["interval_ms"]),
    ("retries", &["fall"]),
    ("retry", &["fall"]),
    ("unhealthy_threshold", &["fall"]),
    ("healthy_threshold", &["rise"]),
    ("url", &["path"]),
    ("uri", &["path"]),
    ("status_code", &["status"]),
    ("sni", &["tls_name"]),
    ("script", &["command"]),
    ("exec", &["command"]),
    ("ip", &["address", "vip"]),
    ("host", &["address"]),
    ("server", &["real", "address"]),
    ("servers", &["real"]),
    ("backend", &["real"]),
    ("backends", &["real"]),
    ("real_server", &["real"]),
    ("real_servers", &["real"]),
    ("upstream", &["real"]),
    ("virtual_service", &["service"]),
    ("virtual_server", &["service"]),
    ("frontend", &["service"]),
    ("listener", &["service"]),
    ("virtual_address", &["vip"]),
    ("address", &["vip", "addresses"]),
    ("algorithm", &["scheduler"]),
    ("lb_algo", &["scheduler"]),
    ("balance", &["scheduler"]),
    ("lb_kind", &["mode"]),
    ("forward", &["mode"]),
    ("forwarding", &["mode"]),
    ("proto", &["protocol"]),
    ("persistent", &["persistence_s"]),
    ("persistence", &["persistence_s"]),
    ("persistence_timeout", &["persistence_s"]),
    ("sticky", &["persistence_s"]),
    ("max_connections", &["max_sessions", "upper_sessions", "sessions"]),
    ("max_conn", &["max_sessions", "upper_sessions", "sessions"]),
    ("upper_threshold", &["upper_sessions"]),
    ("lower_threshold", &["lower_sessions"]),
    ("backup", &["fallback"]),
    ("disabled", &["down"]),
    ("blacklist", &["deny"]),
    ("whitelist", &["allow"]),
    ("interface", &["device", "name"]),
    ("tenant", &["network"]),
    ("vrf_device", &["vrf"]),
    ("subnets", &["cidr"]),
    ("prefixes", &["cidr"]),
    ("gateway", &["via"]),
    ("nexthop", &["via"]),
    ("threads", &["cores"]),
    ("workers", &["cores"]),
    ("cpus", &["cores"]),
    ("socket", &["control_socket"]),
    ("socket_group", &["control_group"]),
    ("group", &["control_group"]),
    ("level", &["log_level"]),
    ("hugepages", &["huge_pages"]),
];

/// What keys with a unit end in.
const UNITS: [&str; 5] = ["_per_s", "_ms", "_s", "_days", "_percent"];

/// The candidate that is meant by `word`: one that means the same, the same with its unit, or the
/// nearest by its letters.
pub(crate) fn meant<'a>(
    word: &str,
    candidates: impl IntoIterator<Item = &'a str>,
) -> Option<&'a str> {
    let candidates: Vec<&str> = candidates.into_iter().collect();
    let known = |word: &str| candidates.iter().copied().find(|candidate| *candidate == word);
    let plain = word.to_ascii_lowercase().replace('-', "_");
    let means = SYNONYMS.iter().find(|(said, _)| *said == plain);
    let same = means.and_then(|(_, keys)| keys.iter().find_map(|key| known(key)));
    same.or_else(|| known(&plain))
        .or_else(|| with_unit(&plain, &candidates))
        .or_else(|| nearest(word, candidates.iter().copied()))
}

/// The candidate that is `word` with a unit, or with another one.
fn with_unit<'a>(word: &str, candidates: &[&'a str]) -> Option<&'a str> {
    let bare = UNITS.iter().find_map(|unit| word.strip_suffix(unit)).unwrap_or(word);
    let is = |candidate: &&&str| {
        UNITS.iter().any(|unit| candidate.strip_suffix(unit).is_some_and(|rest| rest == bare))
            || (bare != word && **candidate == bare)
    };
    candidates.iter().find(is).copied()
}

/// The longest word that is compared, in characters: the cost grows with the square.
const LONGEST: usize = 40;

/// The candidate nearest to `word`, if it is near enough to have been meant.
fn nearest<'a>(word: &str, candidates: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    let word: String = word.chars().take(LONGEST + 1).flat_map(char::to_lowercase).collect();
    let length = word.chars().count();
    if length > LONGEST {
        return None;
    }
    let allowed = (length / 3).max(1);
    candidates
        .into_iter()
        .map(|candidate| (osa_distance(&word, candidate), candidate))
        .filter(|(distance, _)| *distance <= allowed)
        .min_by_key(|(distance, _)| *distance)
        .map(|(_, candidate)| candidate)
}

/// ` (did you mean "rr"?)`, or nothing when no candidate is near.
pub(crate) fn did_you_mean<'a>(
    word: &str,
    candidates: impl IntoIterator<Item = &'a str>,
) -> String {
    nearest(word, candidates).map_or_else(String::new, |near| format!(" (did you mean {near:?}?)"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn finds_what_was_meant_and_nothing_far() {
        let keys = ["scheduler", "service", "sessions", "port", "rr", "neighbour"];
        assert_eq!(nearest("schedular", keys), Some("scheduler"));
        assert_eq!(nearest("Neighbor", keys), Some("neighbour"));
        assert_eq!(nearest("prot", keys), Some("port"));
        assert_eq!(nearest("rrr", keys), Some("rr"));
        assert_eq!(nearest("", keys), None);
        assert_eq!(nearest("colour", keys), None);
        assert_eq!(nearest(&"s".repeat(100_000), keys), None);
    }

    /// What keys in their section are called elsewhere, and keys without their unit.
    #[test]
    fn finds_what_means_the_same() {
        let check = ["name", "kind", "interval_ms", "timeout_ms", "path"];
        assert_eq!(meant("type", check), Some("kind"));
        assert_eq!(meant("interval", check), Some("interval_ms"));
        assert_eq!(meant("timeout_s", check), Some("timeout_ms"));
        assert_eq!(meant("time_out", check), None);
        assert_eq!(meant("pth", check), Some("path"));
        assert_eq!(meant("cert", ["certificate", "key"]), Some("certificate"));
        assert_eq!(meant("Health-Check", ["check", "pool"]), Some("check"));
        assert_eq!(meant("max_new", ["max_sessions", "max_new_per_s"]), Some("max_new_per_s"));
    }

    /// Two neighbours that were swapped are one edit; characters count, not bytes.
    #[test]
    fn counts_a_swap_as_one_edit_and_characters_not_bytes() {
        assert_eq!(nearest("ab", ["ba"]), Some("ba"));
        assert_eq!(nearest("abcd", ["badc"]), None);
        assert_eq!(nearest("kitten", ["sitting"]), None);
        assert_eq!(nearest("mitten", ["kittens"]), Some("kittens"));
        assert_eq!(nearest("pört", ["port"]), Some("port"));
        assert_eq!(nearest("ÖÖ", ["öa"]), Some("öa"));
    }
}
