//! `sluice events`.

use clap::Args;
use sluice_api::EventQuery;
use sluice_api::model::EventKind;

use super::Asking;

pub const EXAMPLES: &str = "\
Examples:
  sluice events
  sluice events --kind health --service web
  sluice events --follow
  sluice events --follow --json | jq .reason";

/// `sluice events`.
#[derive(Debug, Args)]
pub struct Events {
    /// How to ask.
    #[command(flatten)]
    pub asking: Asking,
    /// Only of this kind: health, config, override, reload, port, drops, sessions, ha; may be
    /// repeated
    #[arg(long = "kind", value_name = "KIND")]
    kinds: Vec<EventKind>,
    /// Only about this service
    #[arg(long, value_name = "NAME")]
    service: Option<String>,
    /// Continue and print each event as it happens (with --json: one per line)
    #[arg(long, short)]
    pub follow: bool,
}

impl Events {
    /// As the director is asked.
    pub fn query(&self) -> EventQuery {
        EventQuery { kinds: self.kinds.clone(), service: self.service.clone(), after: None }
    }
}
