//! `sluice ha`.

use sluice_api::model::{Ha, HaRole};

use super::figures::span;
use super::table::{Align, Cell, Table};
use super::{NOTE, Shown};

/// Virtual addresses, and what role they make.
pub fn ha(ha: &Ha) -> Shown {
    use Align::{Left, Right};
    let mut table = Table::new([
        ("VIP", Left),
        ("HERE", Left),
        ("INTERFACE", Left),
        ("FOR", Right),
        ("CHANGES", Right),
        ("SERVICES", Right),
    ]);
    for address in &ha.addresses {
        let here = address.interface.is_some();
        table.row([
            address.vip.to_string().into(),
            if here { Cell::from("yes") } else { Cell::from("no").style(NOTE) },
            address.interface.clone().unwrap_or_else(|| "-".to_owned()).into(),
            span(address.for_s).into(),
            address.changes.to_string().into(),
            address.services.to_string().into(),
        ]);
    }
    let remark = match ha.role {
        HaRole::Idle => "there are no services",
        HaRole::Active => "active: this machine has every virtual address",
        HaRole::Standby => {
            "standby: another machine has the virtual addresses, or none has; what comes for them \
             all the same is served (routes, say)"
        }
        HaRole::Partial => "partial: this machine has some of the virtual addresses",
    };
    let text = if ha.addresses.is_empty() { String::new() } else { table.text() };
    Shown { text, remark: Some(remark.to_owned()) }
}
