//! `sluice events`: what has happened, and what happens.

use std::error::Error;
use std::process::ExitCode;
use std::time::Duration;

use sluice_api::{ApiError, Client, Followed, Resource};

use crate::cli::events::Events;
use crate::output::{self, Output};
use crate::show::{self, Shown};
use crate::{Socket, answer};

/// Pause before a lost stream is taken up again.
const AGAIN: Duration = Duration::from_secs(1);

pub fn run(command: &Events, socket: &Socket) -> Result<ExitCode, Box<dyn Error>> {
    let (client, query) = (socket.client(&command.asking), command.query());
    if command.follow {
        return follow(&client, command);
    }
    let resource = Resource::Events(query.clone());
    let shown = answer(&client, &command.asking, &resource, |client| {
        Ok(show::events(&client.events(&query)?, Output::width()))
    })?;
    Output::write(&shown)?;
    Ok(ExitCode::SUCCESS)
}

/// What is kept, then what comes; over restarts of the director, too.
fn follow(client: &Client, command: &Events) -> Result<ExitCode, Box<dyn Error>> {
    let mut query = command.query();
    query.after = Some(0);
    let (mut last, mut written): (Option<String>, _) = (None, Ok(true));
    loop {
        let (mut begun, place) = (false, last.clone());
        let ended = client.follow(&query, place.as_deref(), &mut |followed, place| {
            begun = true;
            if !place.is_empty() {
                last = Some(place.to_owned());
            }
            written = print(&followed, command.asking.json);
            matches!(written, Ok(true))
        });
        match ended {
            Ok(()) => return written.map(|_| ExitCode::SUCCESS).map_err(Into::into),
            // Whoever was never let in need not try again.
            Err(error @ ApiError::Refused(_)) => return Err(error.into()),
            Err(error) if last.is_none() && !begun => return Err(error.into()),
            Err(error) => output::complain(&format!("{error}; trying again")),
        }
        std::thread::sleep(AGAIN);
    }
}

/// Prints one. `false` when nobody reads any more.
fn print(followed: &Followed, json: bool) -> std::io::Result<bool> {
    let text = match followed {
        Followed::Lost(Some(lost)) => {
            output::remark(&format!("{lost} events were missed"));
            return Ok(true);
        }
        Followed::Lost(None) => {
            output::remark("the director was restarted");
            return Ok(true);
        }
        Followed::Event(event) if json => serde_json::to_string(event)? + "\n",
        Followed::Event(event) => show::event(event),
    };
    Output::pass(&Shown::new(text))
}
