//! `sluice token`: makes a token, without a director.

use std::error::Error;
use std::process::ExitCode;

use serde_json::json;
use sluice_api::{Holder, NewToken};

use crate::cli::token::Token;
use crate::output::Output;
use crate::show::Shown;

/// The token alone goes to standard output; what to do with it is a remark. As JSON both are one
/// object.
pub fn run(command: &Token) -> Result<ExitCode, Box<dyn Error>> {
    let Token::New { name, role, json } = command;
    let made = NewToken::generate(&Holder { name: name.clone(), role: *role })?;
    if *json {
        let said = json!({
            "name": name, "role": role.name(), "token": made.token, "line": made.line,
        });
        Output::write(&Shown::new(serde_json::to_string_pretty(&said)? + "\n"))?;
        return Ok(ExitCode::SUCCESS);
    }
    let remark = format!(
        "This token is shown once: keep it in a file of mode 600, for --token-file. The file that \
         `tokens` of [api] names (mode 640) gets this line, then `sluice config reload`:\n{}",
        made.line
    );
    Output::write(&Shown { text: made.token + "\n", remark: Some(remark) })?;
    Ok(ExitCode::SUCCESS)
}
