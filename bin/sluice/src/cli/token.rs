//! `sluice token`.

use clap::Subcommand;
use sluice_api::{Role, check_name};

pub const EXAMPLES: &str = "\
Examples:
  sluice token new grafana --role read
  sluice token new ops@laptop --role operate > ops.token
  sluice token new deploy --role admin --json";

/// `sluice token`.
#[derive(Debug, Subcommand)]
pub enum Token {
    /// Prints a new token, once, and the line that the director's file of tokens gets
    New {
        /// Its name, which becomes the author of changes made with it
        #[arg(value_name = "NAME", value_parser = name)]
        name: String,
        /// What its holder may do: read (view everything), operate (also set weights and drain
        /// real servers, end sessions, reload), admin (everything)
        #[arg(long, value_name = "ROLE")]
        role: Role,
        /// Print the token and the line as JSON
        #[arg(long)]
        json: bool,
    },
}

fn name(text: &str) -> Result<String, String> {
    check_name(text).map(|()| text.to_owned()).map_err(|wrong| wrong.to_string())
}
