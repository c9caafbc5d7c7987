//! Tunnels by the words that IPVS's tools have for them, which are the modes' names.

use sluice_config::Mode;

/// The mode of a tunnel of this name.
pub fn named(word: &str) -> Option<&'static str> {
    let mode = Mode::OF_REALS.iter().find(|mode| mode.is_tunnel() && mode.name() == word);
    mode.map(|mode| mode.name())
}
