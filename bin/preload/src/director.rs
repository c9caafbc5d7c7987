//! Whom to ask, and what the program's user is told beside what the program says.
//!
//! Unsafe: one call of the C library that gets a string of ours.

use std::ffi::CString;
use std::sync::OnceLock;
use std::time::Duration;

use rustix::fs::{fstat, major, minor};
use sluice_ipvs::abi::Away;
use sluice_ipvs::call::{CallError, Caller};
use sluice_ipvs::{Answer, Connection, Errno, Request};

/// Names the interface that programs are to find: `netlink` or `sockopt`; both when it is not set.
const INTERFACE_VARIABLE: &str = "SLUICE_IPVS_INTERFACE";
/// How long the director may take: keepalived does nothing else meanwhile.
const PATIENCE: Duration = Duration::from_secs(5);

struct Settled {
    caller: Caller,
    hidden: bool,
}

static SETTLED: OnceLock<Settled> = OnceLock::new();

/// Reads the environment, once: programs change theirs.
pub fn settle() {
    settled();
}

fn settled() -> &'static Settled {
    SETTLED.get_or_init(|| {
        let interface = std::env::var_os(INTERFACE_VARIABLE);
        Settled {
            caller: Caller::from_environment().with_patience(PATIENCE),
            hidden: interface.is_some_and(|interface| interface == "sockopt"),
        }
    })
}

/// Whether programs are to find no netlink family, as on kernels that are old.
pub fn is_netlink_hidden() -> bool {
    settled().hidden
}

/// Asks.
///
/// # Errors
/// When there is no answer.
pub fn ask(request: &Request) -> Result<Answer, Away> {
    let answer = settled().caller.ask(request).map_err(|error| away(&error))?;
    // Programs have but one sentence for each: "you must be root", which is seldom it, and
    // "Invalid operation", which may be anything.
    if let Answer::Refused { errno: Errno::Perm | Errno::Inval, detail } = &answer
        && request.changes()
    {
        tell(detail);
    }
    Ok(answer)
}

/// Hands over each connection.
///
/// # Errors
/// When there is no answer, or a refusal.
pub fn connections(each: impl FnMut(Connection)) -> Result<(), Away> {
    match settled().caller.connections(each) {
        Ok(None) => Ok(()),
        Ok(Some(_)) => Err(Away::Broken),
        Err(error) => Err(away(&error)),
    }
}

fn away(error: &CallError) -> Away {
    match error {
        // The kernel says nothing either when it has no IPVS: the program does.
        CallError::Absent { .. } => Away::Absent,
        CallError::Denied { .. } => {
            tell(&error.to_string());
            Away::Denied
        }
        _ => {
            tell(&error.to_string());
            Away::Broken
        }
    }
}

/// Says something to whoever runs the program: on standard error, or where that leads nowhere, as
/// a daemon's does, in the system's log.
fn tell(text: &str) {
    let line: String = text.chars().filter(|c| !c.is_control()).collect();
    if !leads_nowhere() {
        eprintln!("sluice: {line}");
        return;
    }
    if let Ok(line) = CString::new(line) {
        // SAFETY: the format takes one text, which ends with a zero and outlives the call.
        unsafe { libc::syslog(libc::LOG_WARNING, c"sluice: %s".as_ptr(), line.as_ptr()) };
    }
}

/// Whether standard error is `/dev/null`, or closed.
fn leads_nowhere() -> bool {
    fstat(std::io::stderr()).map_or(true, |stat| {
        let device = rustix::fs::FileType::from_raw_mode(stat.st_mode);
        device.is_char_device() && (major(stat.st_rdev), minor(stat.st_rdev)) == (1, 3)
    })
}
