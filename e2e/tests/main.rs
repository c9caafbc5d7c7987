//! The director end to end: real programs, the kernel's stack at both ends, tshark as the judge.
//!
//! Every test makes its own namespaces and removes them. They need root; without it they say that
//! they were skipped, unless `CI=true`, when that is a failure.

mod api;
mod bed;
mod bench;
mod bulk;
mod checks_in_path;
mod churn;
mod client_address;
mod dashboard;
mod desired;
mod differential;
mod dns;
mod doctor;
mod dpvs_script;
mod dual_stack;
mod ecmp;
mod elephants;
mod failover;
mod fast_open;
mod fixture;
mod ha;
mod health;
mod held;
mod install;
mod ipvs_requests;
mod keepalived;
mod lifecycle;
mod limits;
mod links;
mod lists;
mod memif;
mod metrics;
mod modes;
mod mtu;
mod nat64;
mod networks;
mod passive;
mod race;
mod reload;
mod requests;
mod restart;
mod rules;
mod sctp;
mod shown;
mod snat;
mod snat_beyond;
mod steering;
mod stock;
mod stock_ipvsadm;
mod sync;
mod three_hosts;
mod trace;
mod traffic;
mod twin;
