//! Records for who carries them over a stream of its own, which loses nothing: a director that
//! hands over to another program on the same machine. They are written as in datagrams.

use crate::codec::{Body, is_sendable, read_items};
use crate::record::{Real, Session};

/// The number of the form in which records are written. What has another one cannot be read.
pub const RECORDS: u8 = crate::seal::VERSION;

/// Records as they are written, at most so many bytes of them.
#[derive(Debug)]
pub struct Writer {
    body: Body,
    limit: usize,
}

impl Writer {
    /// Nothing yet; there will never be more bytes than `limit`.
    pub fn new(limit: usize) -> Self {
        Self { body: Body::default(), limit }
    }

    /// Adds a session. `false` when there is no room for it, or it cannot be written.
    pub fn add(&mut self, real: &Real, session: &Session) -> bool {
        is_sendable(real) && self.body.add(real, session, self.limit)
    }

    /// What has been written.
    pub fn bytes(&self) -> &[u8] {
        &self.body.bytes
    }

    /// Begins anew.
    pub fn clear(&mut self) {
        let mut bytes = std::mem::take(&mut self.body.bytes);
        bytes.clear();
        self.body = Body::after(bytes);
    }
}

/// The sessions in what was written, each run of them with its real server. `None` when it is not
/// what a [`Writer`] writes.
pub fn read(bytes: &[u8]) -> Option<Vec<(Real, Vec<Session>)>> {
    let items = read_items(bytes)?;
    items.markers.is_empty().then_some(items.runs)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::record::{Change, Service};

    fn real(last: u8) -> Real {
        let service = Service::Rule("out".to_owned());
        Real { service, address: [192, 0, 2, last].into(), port: 80, mode: 1 }
    }

    fn session(port: u16) -> Session {
        Session {
            change: Change::Live,
            protocol: 6,
            state: 3,
            closing: 0,
            client: [198, 51, 100, 48].into(),
            client_port: port,
            virtual_port: 80,
            local: Some(([192, 0, 2, 10].into(), port)),
            far: None,
            idle_ms: 7,
            fin: 0,
            seen: [1, 2],
            isn: 0,
        }
    }

    #[test]
    fn records_are_read_as_they_were_written_up_to_the_limit() {
        let mut writer = Writer::new(1000);
        assert_eq!(read(writer.bytes()), None);
        let mut written = 0;
        while writer.add(&real(1), &session(written)) {
            written += 1;
        }
        assert!(writer.bytes().len() <= 1000 && written > 20, "{written}");
        let runs = read(writer.bytes()).unwrap();
        assert_eq!(runs, [(real(1), (0..written).map(session).collect::<Vec<_>>())]);
        writer.clear();
        // The real server is written again.
        assert!(writer.add(&real(1), &session(1)) && writer.add(&real(2), &session(2)));
        let runs = read(writer.bytes()).unwrap();
        assert_eq!(runs, [(real(1), vec![session(1)]), (real(2), vec![session(2)])]);
        for end in 0..writer.bytes().len() {
            assert!(read(&writer.bytes()[..end]).is_none_or(|runs| runs.len() == 1), "{end}");
        }
        let unknown = Real { mode: 0, ..real(1) };
        assert!(!writer.add(&unknown, &session(1)), "of no mode");
    }
}
