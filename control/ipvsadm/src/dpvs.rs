//! The words that DPVS adds. What the director has nothing like is refused, and says so.

use std::net::IpAddr;

use sluice_ipvs::Settings;

use crate::gather::seconds;
use crate::options::Opt;
use crate::parse::{Fault, SockPair};

/// What was said in DPVS's words.
#[derive(Clone, Debug, Default)]
pub(crate) struct Additions {
    /// Of a service; none when nothing was said, so that an edit keeps what there is.
    pub(crate) settings: Option<Settings>,
    /// The local address.
    pub(crate) local: Option<IpAddr>,
    /// What a list of clients is to have, or not.
    pub(crate) listed: Option<String>,
    /// The connection that is looked for.
    pub(crate) sockpair: Option<SockPair>,
    /// The first thing that the director has nothing like.
    pub(crate) refused: Option<String>,
}

impl Additions {
    /// Services that the director does not have.
    pub(crate) fn refuse_icmp(&mut self) {
        self.refuse("services of ICMP: the director answers ping, and has no such services");
    }

    fn refuse(&mut self, why: &str) {
        self.refused.get_or_insert_with(|| format!("{why}; nothing was changed"));
    }

    fn settings(&mut self) -> &mut Settings {
        self.settings.get_or_insert_with(Settings::default)
    }

    /// Takes one of DPVS's options.
    pub(crate) fn take(&mut self, option: Opt, value: &str) -> Result<(), Fault> {
        match option {
            Opt::LocalAddress => {
                let complaint = || Fault::usage("illegal local address specified");
                self.local = Some(value.parse().map_err(|_| complaint())?);
            }
            Opt::Denied | Opt::Allowed => self.listed(option, value)?,
            Opt::SynProxy => match value {
                "disable" => {}
                "enable" => self.refuse("--synproxy: the director opens no connections itself"),
                _ => return Err(illegal(option, "enable, disable")),
            },
            Opt::HashTarget => match value {
                "sip" => {}
                "qid" => self.refuse("--hash-target qid: the director hashes client addresses"),
                _ => return Err(illegal(option, "sip, qid")),
            },
            Opt::ExpireQuiescent => self.settings().expire_quiescent = true,
            Opt::ConnTimeout => {
                self.settings().connection_timeout_s = Some(seconds(value, 1)?);
            }
            Opt::ProxyProtocol => self.proxy_protocol(value)?,
            Opt::DestCheck => {
                self.refuse("--dest-check: health checks stand in the configuration file");
            }
            Opt::Quic => self.refuse("--quic: the director knows nothing of QUIC's connections"),
            Opt::Cpu => self.refuse("--cpu: lists are of all workers"),
            Opt::SockPair => {
                let complaint = || illegal(option, "PROTOCOL:CLIENT:PORT:VIRTUAL:PORT");
                self.sockpair = Some(sockpair(value).ok_or_else(complaint)?);
            }
            // The director goes by its routes, and takes the name for the scripts' sake.
            _ => {}
        }
        Ok(())
    }

    fn listed(&mut self, option: Opt, value: &str) -> Result<(), Fault> {
        if value.starts_with("ipset:") {
            self.refuse("ipset: the director has no sets: name addresses or prefixes");
            return Ok(());
        }
        let (address, length) = match value.split_once('/') {
            Some((address, length)) => (address, length.parse().ok()),
            None => (value, Some(0)),
        };
        let most: u8 = if address.contains(':') { 128 } else { 32 };
        let good = address.parse::<IpAddr>().is_ok() && length.is_some_and(|some: u8| some <= most);
        if !good {
            return Err(illegal(option, "an address or a prefix"));
        }
        self.listed = Some(value.to_owned());
        Ok(())
    }

    fn proxy_protocol(&mut self, value: &str) -> Result<(), Fault> {
        let address = match value {
            "disable" => None,
            "v1" => Some("proxy_v1"),
            "v2" => Some("proxy_v2"),
            "v1-insecure" | "v2-insecure" => {
                self.refuse("--proxy-protocol …-insecure: what clients say of themselves is lost");
                return Ok(());
            }
            _ => return Err(illegal(Opt::ProxyProtocol, "disable, v1, v2")),
        };
        self.settings().client_address = address.map(str::to_owned);
        Ok(())
    }
}

fn illegal(option: Opt, right: &str) -> Fault {
    Fault::usage(format!("illegal {} specified: it is one of {right}", option.name()))
}

/// `tcp:192.0.2.1:40000:198.51.100.1:80`, IPv6 in brackets.
fn sockpair(text: &str) -> Option<SockPair> {
    let (protocol, rest) = text.split_once(':')?;
    let protocol = match protocol.to_ascii_lowercase().as_str() {
        "tcp" => 6,
        "udp" => 17,
        "sctp" => 132,
        _ => return None,
    };
    let (client, rest) = end(rest)?;
    let (virtual_, rest) = end(rest.strip_prefix(':')?)?;
    rest.is_empty().then_some((protocol, client, virtual_))
}

/// An address and a port, and what is behind them.
fn end(text: &str) -> Option<((IpAddr, u16), &str)> {
    let (address, rest) = match text.strip_prefix('[') {
        Some(text) => {
            let (inside, rest) = text.split_once(']')?;
            (inside, rest.strip_prefix(':')?)
        }
        None => text.split_once(':')?,
    };
    let digits = rest.find(|letter: char| !letter.is_ascii_digit()).unwrap_or(rest.len());
    let (port, rest) = rest.split_at(digits);
    Some(((address.parse().ok()?, port.parse().ok()?), rest))
}

#[cfg(test)]
mod tests {
    use super::sockpair;

    #[test]
    fn two_ends_are_read_in_either_family() {
        let client = ("192.0.2.1".parse().unwrap(), 40000);
        let service = ("198.51.100.1".parse().unwrap(), 80);
        let text = "tcp:192.0.2.1:40000:198.51.100.1:80";
        assert_eq!(sockpair(text), Some((6, client, service)));
        let client = ("2001:db8::1".parse().unwrap(), 1);
        let service = ("2001:db8::2".parse().unwrap(), 2);
        assert_eq!(sockpair("UDP:[2001:db8::1]:1:[2001:db8::2]:2"), Some((17, client, service)));
        for wrong in ["", "tcp", "tcp:192.0.2.1:1", "icmp:192.0.2.1:1:192.0.2.2:2", "tcp:a:1:b:2"] {
            assert_eq!(sockpair(wrong), None, "{wrong}");
        }
    }
}
