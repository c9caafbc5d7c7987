//! Running stock programs with the director as their IPVS.

use std::ffi::OsString;
use std::path::PathBuf;

use clap::{Args, ValueEnum};

pub const IPVSADM_ABOUT: &str = "\
Runs the stock `ipvsadm`, unmodified, with the director in place of the kernel's IPVS.

A library (libsluice-ipvs.so) is preloaded into it and answers its requests to the kernel. All \
services of the director are listed; only those that IPVS programs created can be changed.

The exit code is ipvsadm's; 1 when it cannot be run.";

pub const IPVSADM_EXAMPLES: &str = "\
Examples:
  sluice run-ipvsadm -- -A -t 198.51.100.200:80 -s wrr
  sluice run-ipvsadm -- -Ln --stats
  sluice run-ipvsadm --program /usr/sbin/ipvsadm-restore < rules";

pub const KEEPALIVED_ABOUT: &str = "\
Runs the stock `keepalived`, unmodified, with the director in place of the kernel's IPVS.

Its virtual servers become services of the director, its checks add and remove real servers. VRRP \
remains between keepalived and the kernel. To run it as a service, use the drop-in \
keepalived.service.d/sluice.conf.";

pub const KEEPALIVED_EXAMPLES: &str = "\
Examples:
  sluice run-keepalived -- --dont-fork --log-console --use-file /etc/keepalived/keepalived.conf";

/// What to run, and how.
#[derive(Debug, Args)]
pub struct Run {
    /// The stock program; without it the first in PATH, then in /usr/sbin, /sbin, /usr/local/sbin
    #[arg(long, value_name = "PATH")]
    pub program: Option<PathBuf>,
    /// The library; without it beside this command, in ../lib/sluice, or in /usr/lib/sluice
    #[arg(long, value_name = "PATH")]
    pub library: Option<PathBuf>,
    /// The kernel interface that the program finds; netlink supports everything
    #[arg(long, value_enum, default_value_t)]
    pub interface: KernelInterface,
    /// Arguments of the program, after `--`
    #[arg(last = true, value_name = "ARGS")]
    pub arguments: Vec<OsString>,
}

/// An interface of the kernel's IPVS.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum KernelInterface {
    /// Generic netlink, and socket options for programs that ask for them.
    #[default]
    Netlink,
    /// Socket options only, as on an old kernel. IPv4 only.
    Sockopt,
}
