//! What an errno is called, by command.

use sluice_ipvs::Errno;

use crate::verb::Verb;

/// The stock program's words for why a command failed.
pub(crate) fn failed(verb: Verb, errno: Errno) -> &'static str {
    use Verb as V;
    match (verb, errno) {
        (V::AddService, Errno::Exist) => "Service already exists",
        (V::AddService | V::EditService, Errno::NoEnt) => {
            "Scheduler or persistence engine not found"
        }
        (V::EditService | V::DeleteService | V::Zero | V::List, Errno::Srch) => "No such service",
        (V::AddServer | V::EditServer | V::DeleteServer, Errno::Srch) => "Service not defined",
        (V::AddServer, Errno::Exist) => "Destination already exists",
        (V::EditServer | V::DeleteServer, Errno::NoEnt) => "No such destination",
        (V::StartDaemon, Errno::Exist) => "Daemon has already run",
        (V::StopDaemon, Errno::Srch) => "No daemon is running",
        (V::AddLocal, Errno::Exist) => "Local address already exists",
        (V::DeleteLocal, Errno::NoEnt) => "No such Local address",
        (V::AddDenied, Errno::Exist) => "blacklist address already exists",
        (V::DeleteDenied, Errno::NoEnt) => "No such blacklist address",
        (V::AddAllowed, Errno::Exist) => "whitelist address already exists",
        (V::DeleteAllowed, Errno::NoEnt) => "No such whitelist address",
        (
            V::AddLocal
            | V::DeleteLocal
            | V::GetLocal
            | V::AddDenied
            | V::DeleteDenied
            | V::GetDenied
            | V::AddAllowed
            | V::DeleteAllowed
            | V::GetAllowed,
            Errno::Srch,
        ) => "Service not defined",
        (_, errno) => plain(errno),
    }
}

/// The same where no command has words of its own.
pub(crate) const fn plain(errno: Errno) -> &'static str {
    match errno {
        Errno::Perm => "Permission denied (you must be root)",
        Errno::NoEnt => "No such file or directory",
        Errno::Srch => "No such process",
        Errno::Io => "Input/output error",
        Errno::NoMem => "Memory allocation problem",
        Errno::Exist => "File exists",
        Errno::Inval => {
            "Invalid operation.  Possibly wrong module version, address not unicast, ..."
        }
        Errno::Range => "Numerical result out of range",
        Errno::OpNotSupp => "Operation not supported with IPv6",
    }
}

/// Whether an errno alone tells what is wrong. Otherwise the director's own words are shown, too:
/// who owns a service, which limit is reached.
pub(crate) const fn tells_enough(verb: Verb, errno: Errno) -> bool {
    match errno {
        Errno::Exist | Errno::Srch => true,
        Errno::NoEnt => !matches!(verb, Verb::AddServer),
        _ => false,
    }
}
