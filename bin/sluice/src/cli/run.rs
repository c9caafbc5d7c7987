//! Running stock programs with the director as their IPVS.

use std::ffi::OsString;
use std::path::PathBuf;

use clap::{Args, ValueEnum};

pub const IPVSADM_ABOUT: &str = "\
Runs the stock `ipvsadm`, unmodified, with the director in place of the kernel's IPVS.

A library (libsluice-ipvs.so) is loaded into it that answers what it asks the kernel. All services \
of the director are listed; those that the file or the API made are theirs to change.

The exit code is ipvsadm's; 1 when it cannot be run.";

pub const IPVSADM_EXAMPLES: &str = "\
Examples:
  sluice run-ipvsadm -- -A -t 198.51.100.200:80 -s wrr
  sluice run-ipvsadm -- -Ln --stats
  sluice run-ipvsadm --program /usr/sbin/ipvsadm-restore < rules";

pub const KEEPALIVED_ABOUT: &str = "\
Runs the stock `keepalived`, unmodified, with the director in place of the kernel's IPVS.

Its virtual servers become services of the director, its checks take real servers in and out. VRRP \
is the kernel's and keepalived's own as ever. As a service: the drop-in \
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
    /// The interface of the kernel that the program is to find; netlink knows everything
    #[arg(long, value_enum, default_value_t)]
    pub door: KernelDoor,
    /// Arguments of the program, after `--`
    #[arg(last = true, value_name = "ARGS")]
    pub arguments: Vec<OsString>,
}

/// An interface of the kernel's IPVS.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum KernelDoor {
    /// Generic netlink, and socket options for programs that ask for them.
    #[default]
    Netlink,
    /// Socket options only: what old programs have. IPv4 only.
    Sockopt,
}
