//! Tables of the configuration file, key by key, for tests that need more than the usual recipe.

use std::fmt::{self, Display, Write};

/// A `[[service]]` and its real servers.
#[derive(Debug, Clone)]
pub struct Service {
    own: String,
    reals: Vec<Real>,
}

/// A `[[service.real]]`.
#[derive(Debug, Clone)]
pub struct Real {
    text: String,
}

/// Appends `key = value`. Text is quoted; what reads as a number, a truth value or a list is not.
fn put(out: &mut String, key: &str, value: &impl Display) {
    let text = value.to_string();
    let bare =
        text.parse::<u64>().is_ok() || ["true", "false"].contains(&&*text) || text.starts_with('[');
    // Writing to a string does not fail.
    let _ = if bare { writeln!(out, "{key} = {text}") } else { writeln!(out, "{key} = {text:?}") };
}

impl Service {
    /// A service by its name, protocol and virtual address, scheduled by `rr`.
    pub fn new(name: &str, protocol: &str, vip: &str) -> Self {
        let own = String::from("[[service]]\n");
        let service = Self { own, reals: Vec::new() };
        service.set("name", name).set("protocol", protocol).set("vip", vip)
    }

    /// Another key of its own.
    #[must_use]
    pub fn set(mut self, key: &str, value: impl Display) -> Self {
        put(&mut self.own, key, &value);
        self
    }

    /// A real server.
    #[must_use]
    pub fn real(mut self, real: Real) -> Self {
        self.reals.push(real);
        self
    }

    /// Several real servers.
    #[must_use]
    pub fn reals(mut self, reals: impl IntoIterator<Item = Real>) -> Self {
        self.reals.extend(reals);
        self
    }
}

impl Real {
    /// A real server that keeps the client's destination port.
    pub fn at(address: impl Display) -> Self {
        Self { text: String::from("[[service.real]]\n") }.set("address", address)
    }

    /// Another key.
    #[must_use]
    pub fn set(mut self, key: &str, value: impl Display) -> Self {
        put(&mut self.text, key, &value);
        self
    }
}

impl Display for Service {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(out, "{}", self.own)?;
        self.reals.iter().try_for_each(|real| writeln!(out, "{}", real.text))
    }
}
