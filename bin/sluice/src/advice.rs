//! Commands that this command advises: they ask the director that was asked.
//!
//! What was named to reach it (`--socket`, or by the environment) is part of each advised command,
//! so that one that is copied, or is in `doctor --fix-script`, does not go to the usual director.

use std::path::Path;

use sluice_api::DEFAULT_SOCKET;

/// How the director was reached, as an advised command has it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Reached(Vec<String>);

impl Reached {
    /// By a socket. The usual one need not be named.
    pub fn by_socket(path: &Path) -> Self {
        match path == Path::new(DEFAULT_SOCKET) {
            true => Self::default(),
            false => Self::default().option("--socket", path.to_str()),
        }
    }

    /// Over the network.
    pub fn by_url(url: &str, token_file: &Path, authority: Option<&Path>) -> Self {
        let with_token =
            Self::default().option("--url", Some(url)).option("--token-file", token_file.to_str());
        match authority {
            Some(authority) => with_token.option("--ca", authority.to_str()),
            None => with_token,
        }
    }

    fn option(mut self, name: &str, value: Option<&str>) -> Self {
        // A path that is no text cannot be advised.
        self.0.extend(value.map(|value| format!(" {name} {}", word(value))));
        self
    }

    /// The command line of a subcommand: `sluice --socket /run/blue.sock config reload`.
    pub fn sluice(&self, subcommand: &str) -> String {
        format!("sluice{} {subcommand}", self.0.concat())
    }
}

/// A word of a command line, in quotes where a shell would take it apart.
pub fn word(text: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "/._-:@%+=,[]~".contains(c);
    match !text.is_empty() && text.chars().all(plain) && !text.contains(['[', ']']) {
        true => text.to_owned(),
        false => format!("'{}'", text.replace('\'', "'\\''")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_advised_command_asks_the_same_director() {
        let usual = Reached::by_socket(Path::new(DEFAULT_SOCKET));
        assert_eq!(usual.sluice("config reload"), "sluice config reload");
        let blue = Reached::by_socket(Path::new("/run/sluice/blue.sock"));
        assert_eq!(blue.sluice("doctor"), "sluice --socket /run/sluice/blue.sock doctor");
        let odd = Reached::by_socket(Path::new("/tmp/it's here"));
        assert_eq!(odd.sluice("doctor"), "sluice --socket '/tmp/it'\\''s here' doctor");
        let (token, authority) = (Path::new("/t"), Path::new("/ca.pem"));
        let remote = Reached::by_url("https://[2001:db8::1]:8443", token, Some(authority));
        let expected = "sluice --url 'https://[2001:db8::1]:8443' --token-file /t --ca /ca.pem top";
        assert_eq!(remote.sluice("top"), expected);
    }
}
