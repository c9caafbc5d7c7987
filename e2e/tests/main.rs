//! The director end to end: real programs, the kernel's stack at both ends, tshark as the judge.
//!
//! Every test makes its own namespaces and removes them. They need root; without it they say that
//! they were skipped, unless `CI=true`, when that is a failure.

mod across;
mod api;
mod arena;
mod bench;
mod bulk;
mod churn;
mod dashboard;
mod desired;
mod differential;
mod dns;
mod doctor;
mod dpvs_script;
mod far;
mod fast_open;
mod field;
mod ground;
mod ha;
mod health;
mod install;
mod ipvs_door;
mod keepalived;
mod lifecycle;
mod limits;
mod links;
mod lists;
mod looked;
mod metrics;
mod modes;
mod mtu;
mod outward;
mod passive;
mod race;
mod reload;
mod requests;
mod rules;
mod sctp;
mod shown;
mod steering;
mod stock;
mod stock_ipvsadm;
mod through;
mod told;
mod traffic;
mod trio;
mod twin;
