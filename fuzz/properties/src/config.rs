//! Configuration text: whatever it is, it is refused with a message that helps, or it can be used.

use sluice::replay::Player;
use sluice_config::{Config, ConfigErrors};
use sluice_director::plan::{Plan, Retired};

/// More sessions than this are not set aside for here.
const MOST_SESSIONS: u32 = 1 << 16;

/// Reads the bytes as a configuration file.
///
/// # Panics
/// When the text is refused without a place and a hint, or accepted and then cannot be used.
pub fn config(data: &[u8]) {
    let Ok(text) = std::str::from_utf8(data) else { return };
    match Config::parse("fuzz.toml", text) {
        Ok(loaded) => {
            let spec = loaded.config.spec();
            // A plan may be too large for its ids, and says so; that is no fault of the text.
            if Plan::compile(&spec, None, &Retired::default()).is_ok()
                && loaded.config.limits.sessions <= MOST_SESSIONS
            {
                assert!(Player::new(&loaded.config, 1).is_ok(), "accepted, and cannot be replayed");
            }
        }
        Err(errors) => {
            assert!(!errors.to_string().is_empty());
            if let ConfigErrors::Invalid { diagnostics, .. } = &errors {
                assert!(!diagnostics.is_empty(), "refused without a reason");
            }
            for diagnostic in errors.diagnostics() {
                assert!(!diagnostic.hint.is_empty(), "no hint: {diagnostic}");
                // What is missing at the end is missed on the line behind the last.
                assert!(diagnostic.line <= text.lines().count() + 1, "{diagnostic}");
            }
        }
    }
}
