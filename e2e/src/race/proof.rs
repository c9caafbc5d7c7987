//! What shows that a turn's packets took the contender's way and no other.

use serde_json::Value;

use super::Contender;
use crate::bed::Bed;
use crate::director::Director;
use crate::error::{LabError, expect};
use crate::web::{self, Counted};

/// What the kernel of the director's place has counted since the namespace was made.
#[derive(Debug, Clone, Copy)]
pub struct Kernel {
    /// IPv4 packets that it forwarded.
    pub forwarded: u64,
    /// TCP connections that its own programs accepted.
    pub accepted: u64,
}

impl Kernel {
    /// Reads the counters.
    pub fn look(bed: &Bed) -> Result<Self, LabError> {
        let text = bed.director.run("cat", &["/proc/net/snmp"])?.ok()?.stdout;
        let read = |group, name| {
            counter(&text, group, name).ok_or_else(|| LabError::Unreadable {
                what: format!("{group} {name} of /proc/net/snmp"),
                text: text.clone(),
            })
        };
        Ok(Self {
            forwarded: read("Ip:", "ForwDatagrams")?,
            accepted: read("Tcp:", "PassiveOpens")?,
        })
    }

    /// What was counted after `before`.
    pub fn since(self, before: Self) -> Self {
        Self {
            forwarded: self.forwarded.saturating_sub(before.forwarded),
            accepted: self.accepted.saturating_sub(before.accepted),
        }
    }
}

/// A figure of `/proc/net/snmp`, where a line of names stands above a line of numbers.
fn counter(text: &str, group: &str, name: &str) -> Option<u64> {
    let mut lines = text.lines().filter(|line| line.starts_with(group));
    let at = lines.next()?.split_whitespace().position(|word| word == name)?;
    lines.next()?.split_whitespace().nth(at)?.parse().ok()
}

/// What the real servers' web servers have counted so far.
pub fn reals_counted(bed: &Bed) -> Result<Vec<Counted>, LabError> {
    bed.reals.iter().map(web::nginx_counted).collect()
}

/// That the real servers together answered at least what the clients got, and each of them some.
pub fn all_answered(bed: &Bed, before: &[Counted], requests: u64) -> Result<(), LabError> {
    let after = reals_counted(bed)?;
    let shares: Vec<u64> =
        before.iter().zip(&after).map(|(b, a)| a.requests - b.requests).collect();
    // Asking for the counts is itself a request.
    let right = shares.iter().sum::<u64>() >= requests && shares.iter().all(|share| *share > 1);
    expect(right, || format!("{requests} requests were answered, the real servers saw {shares:?}"))
}

/// That a contender's way was taken: by its own count of connections, and by what the kernel did.
pub fn went_through(
    contender: Contender,
    counted: Option<u64>,
    kernel: Kernel,
    connections: u64,
) -> Result<(), LabError> {
    // Every connection takes several packets: a kernel that forwards carries more than it has
    // connections, one that does not forwards next to nothing.
    let forwards = kernel.forwarded > connections;
    let accepts = kernel.accepted >= connections;
    let (right, way) = match contender {
        Contender::Direct => (forwards && kernel.accepted < 10, "forwarded by the kernel"),
        Contender::Nftables => (forwards && kernel.accepted < 10, "forwarded by the kernel"),
        Contender::Haproxy | Contender::Nginx => (accepts && !forwards, "accepted by the proxy"),
        _ => (!forwards && kernel.accepted < 10, "left to the director by the kernel"),
    };
    expect(right, || format!("{connections} connections were not {way}: {kernel:?}"))?;
    let own = counted.unwrap_or(connections);
    expect(own >= connections, || format!("{connections} connections, but it counted {own}"))
}

/// Connections that rules of nftables have counted: a chain of type nat sees each one's first
/// packet only.
pub fn rules_counted(bed: &Bed) -> Result<u64, LabError> {
    let text = bed.director.run("nft", &["-j", "list", "ruleset"])?.ok()?.stdout;
    let ruleset: Value = serde_json::from_str(&text)
        .map_err(|_| LabError::Unreadable { what: "`nft -j list ruleset`".to_owned(), text })?;
    let entries = ruleset["nftables"].as_array().into_iter().flatten();
    let steps = entries.filter_map(|entry| entry.pointer("/rule/expr")?.as_array()).flatten();
    Ok(steps.filter_map(|step| step.pointer("/counter/packets")?.as_u64()).sum())
}

/// Sessions that the director has opened since it started.
pub fn sessions_counted(director: &Director) -> Result<u64, LabError> {
    let services = director.ask("services")?;
    let rows = services["services"].as_array().into_iter().flatten();
    Ok(rows.filter_map(|row| row["sessions_total"].as_u64()).sum())
}

#[cfg(test)]
mod tests {
    use super::counter;

    #[test]
    fn counters_of_the_kernel_are_read() {
        let text = "Ip: Forwarding ForwDatagrams\nIp: 1 42\nIcmp: InMsgs\nIcmp: 7\n\
                    Tcp: ActiveOpens PassiveOpens\nTcp: 3 -1\n";
        assert_eq!(counter(text, "Ip:", "ForwDatagrams"), Some(42));
        assert_eq!(counter(text, "Icmp:", "InMsgs"), Some(7));
        assert_eq!(counter(text, "Tcp:", "PassiveOpens"), None);
        assert_eq!(counter(text, "Udp:", "InDatagrams"), None);
    }
}
