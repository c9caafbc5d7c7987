//! `virtual_server match` of DPVS's fork: source NAT.

use sluice_ipvs::{Match, MatchError};

use super::block::account;
use super::real;
use super::tree::Statement;
use crate::note::Report;
use crate::outward::Outward;

/// Converts one; its real servers are what sources become.
pub fn convert(statement: &Statement, outward: &mut Outward, report: &mut Report) {
    report.done(&statement.place);
    let word = statement.word(0);
    let (mut list, mut protocol) = (String::new(), None);
    let (mut is_snat, mut addresses) = (false, Vec::new());
    for inner in statement.inside() {
        let value = inner.word(1);
        report.done(&inner.place);
        match inner.word(0) {
            "protocol" => protocol = Some(value.to_ascii_lowercase()),
            "af" | "src-range" | "dst-range" | "iif" | "oif" => {
                list += &format!(",{}={value}", inner.word(0));
            }
            "lb_kind" | "lvs_method" => is_snat = value == "SNAT",
            "lb_algo" | "lvs_sched" => {}
            "real_server" => addresses.push(inner),
            _ => real::other(inner, report),
        }
    }
    if !is_snat {
        addresses.into_iter().for_each(|inner| account(inner, report));
        let means = "a service of whatever fits ranges and devices";
        return report.lost(&statement.place, word, means, "it is source NAT only: lb_kind SNAT");
    }
    let protocol = protocol.unwrap_or_else(|| {
        let means = "without `protocol` keepalived takes it for UDP";
        let how = "so it is here; write `protocol TCP` if that was meant";
        report.differs(&statement.place, word, means, how);
        "udp".to_owned()
    });
    let is = match format!("proto={protocol}{list}").parse::<Match>() {
        Ok(is) => is,
        Err(MatchError { found, right }) => {
            addresses.into_iter().for_each(|inner| account(inner, report));
            return report.lost(&statement.place, word, found, right);
        }
    };
    if !outward.add(is, statement.place.clone(), statement.end) {
        let means = format!("{} is there already", is.rule_name());
        report.lost(&statement.place, word, means, "its addresses are the first one's, too");
    }
    for inner in addresses {
        address(&is, inner, outward, report);
    }
}

fn address(is: &Match, statement: &Statement, outward: &mut Outward, report: &mut Report) {
    let Some((address, _)) = real::endpoint(statement, report) else { return };
    let mut weight = Some(1);
    for inner in statement.inside() {
        report.done(&inner.place);
        match inner.word(0) {
            "weight" => weight = inner.word(1).parse().ok(),
            word if word.ends_with("_CHECK") => {
                account(inner, report);
                let means = "takes an address out whose check fails";
                report.lost(&inner.place, word, means, "addresses of a [[pool]] are not checked");
            }
            _ => real::other(inner, report),
        }
    }
    match weight {
        Some(weight) => drop(outward.address(is, address, weight)),
        None => {
            let means = format!("the weight of {address} is no number");
            report.lost(&statement.place, "weight", means, "write a number from 0 on");
        }
    }
}
