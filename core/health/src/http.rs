//! An HTTP/1.1 exchange over a stream of bytes (RFC 9112): the request, and a reader of the answer.
//!
//! The reader takes bytes as they come, in whatever pieces, and says as soon as it knows. A peer
//! may send anything: the head, the number of fields, each chunk's size line and what is kept of
//! the body are bounded.
//!
//! The head and the sizes of chunks are read by `httparse`. What is ours is the order of the parts,
//! their bounds and the judgement. hyper's client is futures over I/O objects, which ring 0 must
//! not have. `ureq-proto` has no I/O either, but it reads from and writes into its caller's
//! buffers, so pieces would still be joined and bounded here: about as much code as there is.

use crate::expect::Expect;
use crate::finding::{Finding, printable};
use std::ops::RangeInclusive;

/// The longest head of an answer, in bytes.
pub const HEAD_BYTES: usize = 16 << 10;
/// The part of a body that is looked at, in bytes.
pub const BODY_BYTES: usize = 64 << 10;
/// The most header fields.
const FIELDS: usize = 100;
/// The most interim answers (1xx) before the real one.
const INTERIM: u32 = 8;
/// The longest size line of a chunk, in bytes.
const CHUNK_LINE: usize = 256;

/// The request for a path.
///
/// `method`, `path` and `host` must hold no control characters and no spaces; whoever configures
/// them checks that ([`is_sound`]).
pub fn request(method: &str, path: &str, host: &str) -> Vec<u8> {
    format!(
        "{method} {path} HTTP/1.1\r\nHost: {host}\r\nUser-Agent: sluice-check\r\n\
         Accept: */*\r\nConnection: close\r\n\r\n"
    )
    .into_bytes()
}

/// Whether a text may stand in a request line or a `Host` field.
pub fn is_sound(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_graphic())
}

/// What an answer must be.
#[derive(Clone, Debug, PartialEq)]
pub struct Wanted {
    /// Statuses that will do.
    pub status: Vec<RangeInclusive<u16>>,
    /// What the first [`BODY_BYTES`] of the body must hold.
    pub body: Expect,
    /// Whether the request was `HEAD`: then no body follows.
    pub head: bool,
}

impl Wanted {
    fn status_words(&self) -> String {
        let words = self.status.iter().map(|range| match (range.start(), range.end()) {
            (first, last) if first == last => first.to_string(),
            (first, last) => format!("{first}-{last}"),
        });
        words.collect::<Vec<_>>().join(", ")
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Part {
    Head,
    /// So many bytes are still to come; `None` until the peer closes.
    Body(Option<u64>),
    ChunkLine,
    /// So many bytes of this chunk, its line end included.
    Chunk(u64),
}

/// A reader of one answer.
#[derive(Clone, Debug)]
pub struct Reader {
    wanted: Wanted,
    part: Part,
    interim: u32,
    status: String,
    /// Bytes of the head, or of a chunk's size line, that are not understood yet.
    open: Vec<u8>,
    body: Vec<u8>,
}

impl Reader {
    /// A reader that has seen nothing yet.
    pub fn new(wanted: Wanted) -> Self {
        Self {
            wanted,
            part: Part::Head,
            interim: 0,
            status: String::new(),
            open: Vec::new(),
            body: Vec::new(),
        }
    }

    /// Takes more bytes; says what they mean once that is clear. Nothing may be fed afterwards.
    pub fn feed(&mut self, mut bytes: &[u8]) -> Option<Finding> {
        while !bytes.is_empty() {
            let (taken, finding) = match self.part {
                Part::Head => self.head(bytes),
                Part::Body(left) => self.plain(bytes, left),
                Part::ChunkLine => self.chunk_line(bytes),
                Part::Chunk(left) => self.chunk(bytes, left),
            };
            if finding.is_some() {
                return finding;
            }
            bytes = &bytes[taken.min(bytes.len())..];
        }
        None
    }

    /// The peer has closed.
    pub fn end(&mut self) -> Finding {
        match self.part {
            Part::Body(None) => self.judge(),
            Part::Head if self.open.is_empty() => Finding::fail("closed without an answer"),
            Part::Head => Finding::fail("closed in the middle of the answer's head"),
            _ => Finding::fail(format!("{}, closed in the middle of the body", self.status)),
        }
    }

    fn head(&mut self, bytes: &[u8]) -> (usize, Option<Finding>) {
        let before = self.open.len();
        let room = HEAD_BYTES.saturating_sub(before);
        self.open.extend_from_slice(&bytes[..bytes.len().min(room)]);
        let mut fields = [httparse::EMPTY_HEADER; FIELDS];
        let mut response = httparse::Response::new(&mut fields);
        let length = match response.parse(&self.open) {
            Ok(httparse::Status::Complete(length)) => length,
            Ok(httparse::Status::Partial) if self.open.len() < HEAD_BYTES => {
                return (bytes.len(), None);
            }
            Ok(httparse::Status::Partial) => {
                return (0, Some(Finding::fail(format!("a head of over {HEAD_BYTES} bytes"))));
            }
            Err(error) => {
                let start = String::from_utf8_lossy(&self.open[..self.open.len().min(40)]);
                let text = format!("not HTTP: {error} ({:?})", printable(&start));
                return (0, Some(Finding::fail(text)));
            }
        };
        let code = response.code.unwrap_or(0);
        let phrase = response.reason.unwrap_or("");
        let status = format!("HTTP status {code} {phrase}").trim_end().to_owned();
        let part = body_part(code, &self.wanted, response.headers);
        let taken = length.saturating_sub(before);
        self.open.clear();
        if (100..200).contains(&code) && code != 101 {
            self.interim += 1;
            let enough = self.interim > INTERIM;
            return (taken, enough.then(|| Finding::fail("too many interim answers")));
        }
        if !self.wanted.status.iter().any(|range| range.contains(&code)) {
            let text = format!("{status}, expected {}", self.wanted.status_words());
            return (taken, Some(Finding::fail(text)));
        }
        self.status = status;
        match part {
            _ if self.wanted.body.is_anything() => (taken, Some(Finding::pass(&self.status))),
            Ok(Part::Body(Some(0))) => (taken, Some(self.judge())),
            Ok(part) => {
                self.part = part;
                (taken, None)
            }
            Err(what) => (taken, Some(Finding::fail(format!("{}, {what}", self.status)))),
        }
    }

    fn plain(&mut self, bytes: &[u8], left: Option<u64>) -> (usize, Option<Finding>) {
        let here = left.map_or(bytes.len(), |left| bytes.len().min(left as usize));
        let left = left.map(|left| left - here as u64);
        self.part = Part::Body(left);
        let full = self.keep(&bytes[..here]);
        (here, (full || left == Some(0)).then(|| self.judge()))
    }

    fn chunk_line(&mut self, bytes: &[u8]) -> (usize, Option<Finding>) {
        let line = bytes.iter().position(|byte| *byte == b'\n').map(|at| at + 1);
        let here = line.unwrap_or(bytes.len());
        if self.open.len() + here > CHUNK_LINE {
            let text = format!("{}, a chunk's size line is too long", self.status);
            return (0, Some(Finding::fail(text)));
        }
        self.open.extend_from_slice(&bytes[..here]);
        if line.is_none() {
            return (here, None);
        }
        let size = httparse::parse_chunk_size(&self.open);
        self.open.clear();
        match size {
            Ok(httparse::Status::Complete((_, 0))) => (here, Some(self.judge())),
            Ok(httparse::Status::Complete((_, size))) => {
                self.part = Part::Chunk(size.saturating_add(2));
                (here, None)
            }
            _ => (0, Some(Finding::fail(format!("{}, a chunk without a size", self.status)))),
        }
    }

    fn chunk(&mut self, bytes: &[u8], left: u64) -> (usize, Option<Finding>) {
        let here = bytes.len().min(usize::try_from(left).unwrap_or(usize::MAX));
        // The last two are the line end.
        let data = here.min(usize::try_from(left.saturating_sub(2)).unwrap_or(usize::MAX));
        let full = self.keep(&bytes[..data]);
        let left = left - here as u64;
        self.part = if left == 0 { Part::ChunkLine } else { Part::Chunk(left) };
        (here, full.then(|| self.judge()))
    }

    /// Keeps what there is room for; whether that is all there will be.
    fn keep(&mut self, bytes: &[u8]) -> bool {
        let room = BODY_BYTES - self.body.len();
        self.body.extend_from_slice(&bytes[..bytes.len().min(room)]);
        self.body.len() == BODY_BYTES
    }

    fn judge(&self) -> Finding {
        if self.wanted.body.is_in(&self.body) {
            return Finding::pass(&self.status);
        }
        let of = if self.body.len() == BODY_BYTES { "first bytes of the body" } else { "body" };
        let body = &self.body[..self.body.len().min(60)];
        let start = printable(&String::from_utf8_lossy(body));
        let expected = &self.wanted.body;
        Finding::fail(format!("{}, {of} {start:?}, expected {expected}", self.status))
    }
}

/// How the body comes (RFC 9112 6.3).
fn body_part(
    code: u16,
    wanted: &Wanted,
    fields: &[httparse::Header<'_>],
) -> Result<Part, &'static str> {
    if wanted.head || matches!(code, 204 | 304) {
        return Ok(Part::Body(Some(0)));
    }
    let named = |name: &'static str| {
        fields.iter().filter(move |field| field.name.eq_ignore_ascii_case(name))
    };
    if let Some(field) = named("transfer-encoding").next_back() {
        let text = String::from_utf8_lossy(field.value).to_ascii_lowercase();
        return match text.trim() {
            "chunked" => Ok(Part::ChunkLine),
            "identity" => Ok(Part::Body(None)),
            _ => Err("its transfer encoding is not understood"),
        };
    }
    let mut lengths = named("content-length").map(|field| std::str::from_utf8(field.value));
    match lengths.next() {
        None => Ok(Part::Body(None)),
        Some(first) => {
            let length = first.ok().and_then(|text| text.trim().parse::<u64>().ok());
            let same = lengths.all(|other| other == first);
            length.filter(|_| same).map(|n| Part::Body(Some(n))).ok_or("its length makes no sense")
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn wanted(body: &str) -> Wanted {
        let body = if body.is_empty() { Expect::Anything } else { Expect::Holds(body.into()) };
        Wanted { status: vec![200..=299, 304..=304], body, head: false }
    }

    /// What is found when the answer comes in pieces of this size, and then the peer closes.
    fn read(wanted: &Wanted, answer: &[u8], piece: usize) -> Finding {
        let mut reader = Reader::new(wanted.clone());
        let found = answer.chunks(piece.max(1)).find_map(|piece| reader.feed(piece));
        found.unwrap_or_else(|| reader.end())
    }

    fn finding(body: &str, answer: &str) -> Finding {
        let whole = read(&wanted(body), answer.as_bytes(), answer.len());
        for piece in [1, 2, 3, 7] {
            let pieces = read(&wanted(body), answer.as_bytes(), piece);
            assert_eq!(pieces.passed, whole.passed, "{answer:?}: {pieces:?}");
        }
        whole
    }

    fn fails(body: &str, answer: &str, text: &str) {
        let found = finding(body, answer);
        assert!(!found.passed && found.text.contains(text), "{answer:?}: {found:?}");
    }

    #[test]
    fn statuses() {
        let found = finding("", "HTTP/1.1 200 OK\r\n\r\n");
        assert_eq!(found, Finding::pass("HTTP status 200 OK"));
        assert!(finding("", "HTTP/1.0 304 Not Modified\r\nServer: x\r\n\r\n").passed);
        assert!(finding("", "HTTP/1.1 103 Early Hints\r\n\r\nHTTP/1.1 204 \r\n\r\n").passed);
        let reason = "HTTP status 503 Service Unavailable, expected 200-299, 304";
        fails("", "HTTP/1.1 503 Service Unavailable\r\nContent-Length: 0\r\n\r\n", reason);
        fails("", "SSH-2.0-OpenSSH_9.2p1\r\n", "not HTTP");
        fails("", "HTTP/1.1 200", "middle of the answer's head");
        fails("", "", "closed without an answer");
        fails("", &"HTTP/1.1 100 Continue\r\n\r\n".repeat(20), "interim");
        let endless = "HTTP/1.1 200 OK\r\nX: ".to_owned() + &"x".repeat(HEAD_BYTES);
        let mut reader = Reader::new(wanted(""));
        assert!(reader.feed(endless.as_bytes()).is_some_and(|found| !found.passed));
    }

    #[test]
    fn bodies() {
        let with_length = "HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nalivefoo";
        assert!(finding("alive", with_length).passed);
        fails("foo", with_length, "body \"alive\", expected \"foo\"");
        fails("alive", "HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nalive", "middle of the body");
        fails("x", "HTTP/1.1 200 OK\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\nx", "length");
        assert!(finding("alive", "HTTP/1.1 200 OK\r\n\r\nit is alive").passed);
        fails("x", "HTTP/1.1 204 No Content\r\n\r\n", "body \"\"");
        let chunked = "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n\
                       3\r\nali\r\n2;ext=1\r\nve\r\n0\r\n\r\n";
        assert!(finding("alive", chunked).passed);
        let broken = "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\nali";
        fails("alive", broken, "a chunk without a size");
        let gzip = "HTTP/1.1 200 OK\r\nTransfer-Encoding: gzip, chunked\r\n\r\n0\r\n";
        fails("alive", gzip, "not understood");
    }

    #[test]
    fn a_long_body_is_looked_at_in_part() {
        let answer = "HTTP/1.1 200 OK\r\n\r\n".to_owned() + &"x".repeat(BODY_BYTES) + "alive";
        let found = read(&wanted("alive"), answer.as_bytes(), 1000);
        assert!(!found.passed && found.text.contains("first bytes"), "{found:?}");
    }

    #[test]
    fn the_request_is_a_request() {
        let text = request("GET", "/health?a=1", "www.example.com");
        let mut fields = [httparse::EMPTY_HEADER; 8];
        let mut parsed = httparse::Request::new(&mut fields);
        assert!(parsed.parse(&text).unwrap().is_complete());
        assert_eq!((parsed.method, parsed.path), (Some("GET"), Some("/health?a=1")));
        assert!(is_sound("/x") && !is_sound("/x y") && !is_sound("/x\r\nEvil: 1") && !is_sound(""));
    }

    proptest! {
        /// Whatever comes, in whatever pieces, the finding is the same, and nothing panics.
        #[test]
        fn pieces_do_not_matter(
            head in prop::sample::select(vec![
                "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n",
                "HTTP/1.1 200 OK\r\nContent-Length: 20\r\n\r\n",
                "HTTP/1.1 200 OK\r\n\r\n",
                "",
            ]),
            body in "(([0-9a-f]{1,2})?\r\n[a-c]{0,9}){0,6}",
            piece in 1usize..20,
        ) {
            let answer = format!("{head}{body}").into_bytes();
            let whole = read(&wanted("ab"), &answer, answer.len());
            prop_assert_eq!(read(&wanted("ab"), &answer, piece).passed, whole.passed);
        }
    }
}
