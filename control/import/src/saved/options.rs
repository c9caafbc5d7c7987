//! A line's command and options, in ipvsadm's short and long forms.

use std::collections::VecDeque;

/// What a line does.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Command {
    /// `-A`.
    AddService,
    /// `-a`.
    AddServer,
    /// `-P`.
    AddLocal,
    /// `-U`.
    AddDenied,
    /// `-O`.
    AddAllowed,
    /// `-C`: nothing is there to be cleared.
    Clear,
    /// `--set`.
    Timeouts,
    /// `--start-daemon`.
    Daemon,
    /// Any other.
    Other(String),
}

/// What a line says.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Options {
    /// Protocol, and address with port.
    pub service: Option<(&'static str, String)>,
    /// `-f`.
    pub mark: Option<String>,
    /// `-H`.
    pub matches: Option<String>,
    /// `-r`.
    pub real: Option<String>,
    /// `-s`.
    pub scheduler: Option<String>,
    /// `-p`, with its seconds where it has some.
    pub persistent: Option<Option<u32>>,
    /// `-M`.
    pub netmask: Option<String>,
    /// `--pe`.
    pub engine: Option<String>,
    /// `-b` of a service.
    pub flags: Vec<String>,
    /// `-o`.
    pub one_packet: bool,
    /// `g`, `i`, `m`, `b`, `J`.
    pub method: char,
    /// `-w`.
    pub weight: Option<u32>,
    /// `-x`.
    pub upper: Option<u32>,
    /// `-y`.
    pub lower: Option<u32>,
    /// `--tun-type`.
    pub tunnel: Option<String>,
    /// `--tun-port`.
    pub tunnel_port: Option<String>,
    /// `--tun-csum` or its like.
    pub tunnel_sum: Option<String>,
    /// `-z`.
    pub local: Option<String>,
    /// `-k`.
    pub denied: Option<String>,
    /// `-2`.
    pub allowed: Option<String>,
    /// `--proxy-protocol`.
    pub proxy_protocol: Option<String>,
    /// `--expire-quiescent`.
    pub expire_quiescent: bool,
    /// `--conn-timeout`.
    pub connection_timeout: Option<u32>,
    /// `-j enable`.
    pub syn_proxy: bool,
    /// `--hash-target qid`.
    pub by_connection_id: bool,
    /// `--dest-check`.
    pub dest_check: Option<String>,
    /// `--quic`.
    pub quic: bool,
}

impl Options {
    /// What is said of a service for which there is nothing.
    pub fn without_equal(&self) -> Vec<(&'static str, String, &'static str)> {
        let mut all = Vec::new();
        if let Some(engine) = &self.engine {
            let means = format!("binds clients by what is in messages of {engine}");
            all.push(("--pe", means, "persistence_s binds them by their address"));
        }
        if self.syn_proxy {
            let means = "answers SYNs until the client is known to be there".to_owned();
            all.push(("-j", means, "net.ipv4.tcp_syncookies of the real servers"));
        }
        if self.by_connection_id || self.quic {
            let means = "finds a QUIC client's real server by its connection id".to_owned();
            all.push(("--quic", means, "persistence_s, or scheduler = \"mh\""));
        }
        if let Some(check) = &self.dest_check {
            let means = format!("finds dead servers by {check}");
            let instead = "a [[check]]; passive_failures goes by clients' connections";
            all.push(("--dest-check", means, instead));
        }
        all
    }
}

/// What is wrong with a line: the word, and why.
pub type Wrong = (String, String);

/// Reads a line; a leading `ipvsadm` is left out.
///
/// # Errors
/// The word that is wrong, and why.
pub fn read(line: &str) -> Result<(Command, Options), Wrong> {
    let mut words: VecDeque<String> = line.split_whitespace().map(str::to_owned).collect();
    if words.front().is_some_and(|word| word.ends_with("ipvsadm")) {
        words.pop_front();
    }
    let first = words.pop_front().unwrap_or_default();
    // A short command may have its first option right behind it.
    let (first, attached) = match first.char_indices().nth(2) {
        Some((at, _)) if first.starts_with('-') && !first.starts_with("--") => {
            (first[..at].to_owned(), Some(format!("-{}", &first[at..])))
        }
        _ => (first, None),
    };
    if let Some(attached) = attached {
        words.push_front(attached);
    }
    let command = match first.as_str() {
        "-A" | "--add-service" => Command::AddService,
        "-a" | "--add-server" => Command::AddServer,
        "-P" | "--add-laddr" => Command::AddLocal,
        "-U" | "--add-blklst" => Command::AddDenied,
        "-O" | "--add-whtlst" => Command::AddAllowed,
        "-C" | "--clear" => Command::Clear,
        "--set" => return Ok((Command::Timeouts, Options::default())),
        "--start-daemon" => return Ok((Command::Daemon, Options::default())),
        other => return Ok((Command::Other(other.to_owned()), Options::default())),
    };
    let is_service = command == Command::AddService;
    let mut options = Options { method: 'g', ..Options::default() };
    while let Some(word) = words.pop_front() {
        let (word, attached) = split(&word);
        if let Some(value) = attached {
            words.push_front(value);
        }
        option(&word, is_service, &mut words, &mut options)?;
    }
    Ok((command, options))
}

/// An option and the value that hangs on it: `--weight=5`, `-w5`.
fn split(word: &str) -> (String, Option<String>) {
    if word.starts_with("--") {
        return match word.split_once('=') {
            Some((word, value)) => (word.to_owned(), Some(value.to_owned())),
            None => (word.to_owned(), None),
        };
    }
    match word.char_indices().nth(2) {
        Some((at, _)) if word.starts_with('-') => {
            (word[..at].to_owned(), Some(word[at..].to_owned()))
        }
        _ => (word.to_owned(), None),
    }
}

fn option(
    word: &str,
    is_service: bool,
    words: &mut VecDeque<String>,
    options: &mut Options,
) -> Result<(), Wrong> {
    let wrong = |why: &str| (word.to_owned(), why.to_owned());
    let mut value = || words.pop_front().ok_or_else(|| wrong("its value is missing"));
    let number = |text: String| text.parse::<u32>().map_err(|_| wrong("it needs a number"));
    match word {
        "-t" | "--tcp-service" => options.service = Some(("tcp", value()?)),
        "-u" | "--udp-service" => options.service = Some(("udp", value()?)),
        "--sctp-service" => options.service = Some(("sctp", value()?)),
        "-f" | "--fwmark-service" => options.mark = Some(value()?),
        "-H" | "--match" => options.matches = Some(value()?),
        "-6" | "--ipv6" | "-n" | "--numeric" => {}
        "-r" | "--real-server" => options.real = Some(value()?),
        "-s" | "--scheduler" => options.scheduler = Some(value()?),
        "-p" | "--persistent" => {
            let seconds = words.front().and_then(|word| word.parse().ok());
            if seconds.is_some() {
                words.pop_front();
            }
            options.persistent = Some(seconds);
        }
        "-M" | "--netmask" => options.netmask = Some(value()?),
        "--pe" => options.engine = Some(value()?),
        "-o" | "--ops" => options.one_packet = true,
        "--sched-flags" => options.flags = value()?.split(',').map(str::to_owned).collect(),
        "-b" if is_service => options.flags = value()?.split(',').map(str::to_owned).collect(),
        "-b" | "--fullnat" => options.method = 'b',
        "-g" | "--gatewaying" => options.method = 'g',
        "-i" | "--ipip" => options.method = 'i',
        "-m" | "--masquerading" => options.method = 'm',
        "-J" | "--snat" => options.method = 'J',
        "-w" | "--weight" => options.weight = Some(number(value()?)?),
        "-x" | "--u-threshold" => options.upper = Some(number(value()?)?),
        "-y" | "--l-threshold" => options.lower = Some(number(value()?)?),
        "--tun-type" => options.tunnel = Some(value()?),
        "--tun-port" => options.tunnel_port = Some(value()?),
        "--tun-nocsum" | "--tun-csum" | "--tun-remcsum" => options.tunnel_sum = Some(word.into()),
        "-z" | "--laddr" => options.local = Some(value()?),
        // The interface is that which has the address.
        "-F" | "--ifname" => drop(value()?),
        "-k" | "--blklst" => options.denied = Some(value()?),
        "-2" | "--whtlst" => options.allowed = Some(value()?),
        "--proxy-protocol" => options.proxy_protocol = Some(value()?),
        "--expire-quiescent" => options.expire_quiescent = true,
        "--conn-timeout" => options.connection_timeout = Some(number(value()?)?),
        "-j" | "--synproxy" => options.syn_proxy = value()? == "enable",
        "--hash-target" => options.by_connection_id = value()? == "qid",
        "--dest-check" => options.dest_check = Some(value()?),
        "--quic" => options.quic = true,
        "-q" | "--icmp-service" | "-1" | "--icmpv6-service" => {
            drop(value()?);
            return Err(wrong("a service of ICMP: the kernel answers for the virtual address"));
        }
        _ => return Err(wrong("no option that is known here")),
    }
    Ok(())
}

/// An address or a host, and a port, of `HOST`, `HOST:PORT`, `[ADDRESS]:PORT`.
pub fn endpoint(text: &str) -> (&str, Option<&str>) {
    if let Some(rest) = text.strip_prefix('[') {
        return match rest.split_once(']') {
            Some((host, port)) => (host, port.strip_prefix(':')),
            None => (rest, None),
        };
    }
    match text.split_once(':') {
        Some((host, port)) if !port.contains(':') => (host, Some(port)),
        _ => (text, None),
    }
}

/// The bits of a mask: dotted, or the length of a prefix.
pub fn prefix(mask: &str) -> Option<u32> {
    if let Ok(mask) = mask.parse::<std::net::Ipv4Addr>() {
        let bits = mask.to_bits();
        return (bits.leading_ones() == bits.count_ones() && bits != 0)
            .then(|| bits.leading_ones());
    }
    mask.parse().ok().filter(|bits| (1..=128).contains(bits))
}
