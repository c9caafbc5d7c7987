//! TCP sockets that listen.

use std::fs::File;
use std::io::{BufRead, BufReader};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use super::Survey;

/// `TCP_LISTEN` in the column `st`.
const LISTEN: &str = "0A";

impl Survey {
    /// Where programs of this network namespace listen for TCP connections, in the kernel's order.
    ///
    /// The kernel lists sockets that listen before all others, of which there may be a million:
    /// reading ends with the first of these.
    pub fn listening(&self) -> Vec<SocketAddr> {
        ["proc/self/net/tcp", "proc/self/net/tcp6"]
            .into_iter()
            .flat_map(|it| self.in_table(it))
            .collect()
    }

    fn in_table(&self, path: &str) -> Vec<SocketAddr> {
        let Ok(file) = File::open(self.root.join(path)) else { return Vec::new() };
        let lines = BufReader::new(file).lines().skip(1).map_while(Result::ok);
        lines.map_while(|line| listens(&line)).collect()
    }
}

/// The local address of a line, `0: 0100007F:1F90 00000000:0000 0A …`, of a socket that listens.
fn listens(line: &str) -> Option<SocketAddr> {
    let mut words = line.split_whitespace().skip(1);
    let (local, _, state) = (words.next()?, words.next()?, words.next()?);
    if state != LISTEN {
        return None;
    }
    let (address, port) = local.split_once(':')?;
    Some(SocketAddr::new(ip(address)?, u16::from_str_radix(port, 16).ok()?))
}

/// An address as words of 32 bits, each in the byte order of the machine.
fn ip(hex: &str) -> Option<IpAddr> {
    let word = |at: usize| {
        let word = u32::from_str_radix(hex.get(8 * at..8 * at + 8)?, 16).ok()?;
        Some(word.to_ne_bytes())
    };
    if hex.len() == 8 {
        return Some(Ipv4Addr::from(word(0)?).into());
    }
    let mut bytes = [0; 16];
    for at in 0..4 {
        bytes[4 * at..4 * at + 4].copy_from_slice(&word(at)?);
    }
    (hex.len() == 32).then(|| Ipv6Addr::from(bytes).to_canonical())
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;

    use super::*;

    #[test]
    fn what_listens_is_found_and_what_is_connected_is_not() {
        let bound: Vec<_> = ["127.0.0.1:0", "0.0.0.0:0", "[::1]:0", "[::]:0"]
            .iter()
            .map(|at| TcpListener::bind(at).expect("a free port"))
            .collect();
        let at: Vec<_> = bound.iter().map(|it| it.local_addr().expect("an address")).collect();
        let stream = std::net::TcpStream::connect(at[0]).expect("connected");
        let found = Survey::default().listening();
        assert!(at.iter().all(|it| found.contains(it)), "{at:?}: {found:?}");
        let own = stream.local_addr().expect("an address");
        assert!(!found.contains(&own), "{own}: {found:?}");
        drop(bound);
        assert!(!Survey::default().listening().contains(&at[0]));
    }
}
