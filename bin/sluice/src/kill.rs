//! `sluice sessions kill`.

use std::error::Error;
use std::process::ExitCode;

use crate::Socket;
use crate::cli::sessions::Doing;
use crate::output::Output;
use crate::show::Shown;

pub fn run(doing: Doing, socket: &Socket) -> Result<ExitCode, Box<dyn Error>> {
    let Doing::Kill { asking, filter, all, dry_run } = doing;
    let (client, query) = (socket.client(&asking), filter.query());
    if query.is_all() != all {
        let advice = match all {
            true => "--all ends everything; leave it out where there is a filter",
            false => {
                "say which: --service, --network, --client, --real, --state, --protocol, or --all"
            }
        };
        return Err(advice.into());
    }
    let killed = match (dry_run, all) {
        (true, all) => client.would_kill(&query, all)?,
        (false, true) => client.kill_all()?,
        (false, false) => client.kill(&query)?,
    };
    let shown = match (asking.json, killed.dry_run) {
        (true, _) => serde_json::to_string_pretty(&killed)? + "\n",
        (false, true) => format!("{} sessions would be ended\n", killed.sessions),
        (false, false) => format!("{} sessions ended\n", killed.sessions),
    };
    Output::write(&Shown::new(shown))?;
    Ok(ExitCode::SUCCESS)
}
