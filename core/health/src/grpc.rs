//! The messages of gRPC's health checking protocol, `grpc.health.v1.Health/Check`
//! (github.com/grpc/grpc, doc/health-checking.md), as they lie in an HTTP/2 stream.
//!
//! The request has one field, `string service = 1`; the answer one, `ServingStatus status = 1`.

use crate::finding::Finding;

/// Path of the request.
pub const PATH: &str = "/grpc.health.v1.Health/Check";
/// The longest answer, in bytes, that is read.
pub const ANSWER_BYTES: usize = 4096;
/// Bytes before a message: whether it is compressed, and its length.
const PREFIX: usize = 5;

/// The request for a service, empty for the server as a whole, with its prefix. Longer names than
/// 16 KiB are cut.
pub fn request(service: &str) -> Vec<u8> {
    let mut name = service.as_bytes();
    name = &name[..name.len().min((16 << 10) - 1)];
    let mut message = Vec::new();
    if !name.is_empty() {
        message.push(0x0a);
        let length = name.len();
        match length {
            0..=0x7f => message.push(length as u8),
            _ => message.extend([(length & 0x7f) as u8 | 0x80, (length >> 7) as u8]),
        }
        message.extend(name);
    }
    let mut framed = vec![0];
    framed.extend((message.len() as u32).to_be_bytes());
    framed.extend(message);
    framed
}

/// What an answer's message, with its prefix, means.
pub fn judge(answer: &[u8]) -> Finding {
    let Some((prefix, message)) = answer.split_first_chunk::<PREFIX>() else {
        return Finding::fail("gRPC answer without a message");
    };
    let length = u32::from_be_bytes([prefix[1], prefix[2], prefix[3], prefix[4]]);
    if prefix[0] != 0 {
        return Finding::fail("gRPC answer is compressed, which was not asked for");
    }
    if message.len() != length as usize {
        return Finding::fail("gRPC answer is not as long as it says");
    }
    match status(message) {
        Some(1) => Finding::pass("gRPC SERVING"),
        Some(0) => Finding::fail("gRPC UNKNOWN, expected SERVING"),
        Some(2) => Finding::fail("gRPC NOT_SERVING, expected SERVING"),
        Some(3) => Finding::fail("gRPC SERVICE_UNKNOWN, expected SERVING"),
        Some(other) => Finding::fail(format!("gRPC status {other}, expected SERVING")),
        None => Finding::fail("gRPC answer is no HealthCheckResponse"),
    }
}

/// The name of a `grpc-status`.
pub fn code_name(code: &str) -> String {
    const NAMES: [&str; 17] = [
        "OK",
        "CANCELLED",
        "UNKNOWN",
        "INVALID_ARGUMENT",
        "DEADLINE_EXCEEDED",
        "NOT_FOUND",
        "ALREADY_EXISTS",
        "PERMISSION_DENIED",
        "RESOURCE_EXHAUSTED",
        "FAILED_PRECONDITION",
        "ABORTED",
        "OUT_OF_RANGE",
        "UNIMPLEMENTED",
        "INTERNAL",
        "UNAVAILABLE",
        "DATA_LOSS",
        "UNAUTHENTICATED",
    ];
    let known = code.parse::<usize>().ok().and_then(|number| NAMES.get(number));
    known.map_or_else(|| code.to_owned(), |name| (*name).to_owned())
}

/// Field 1 of a message; 0 when it is not there, as protobuf has it. The last one counts.
fn status(mut message: &[u8]) -> Option<u64> {
    let mut status = 0;
    while !message.is_empty() {
        let tag = varint(&mut message)?;
        let skip = match tag & 7 {
            0 => {
                let value = varint(&mut message)?;
                if tag >> 3 == 1 {
                    status = value;
                }
                0
            }
            1 => 8,
            2 => usize::try_from(varint(&mut message)?).ok()?,
            5 => 4,
            _ => return None,
        };
        message = message.get(skip..)?;
    }
    Some(status)
}

fn varint(message: &mut &[u8]) -> Option<u64> {
    let mut value = 0;
    for shift in (0..64).step_by(7) {
        let (byte, rest) = message.split_first()?;
        *message = rest;
        value |= u64::from(byte & 0x7f) << shift;
        if byte & 0x80 == 0 {
            return Some(value);
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn requests_are_as_protobuf_has_them() {
        assert_eq!(request(""), [0, 0, 0, 0, 0]);
        assert_eq!(request("web"), [0, 0, 0, 0, 5, 0x0a, 3, b'w', b'e', b'b']);
        let long = request(&"x".repeat(300));
        assert_eq!(long[..9], [0, 0, 0, 1, 47, 0x0a, 0xac, 2, b'x']);
    }

    #[test]
    fn answers_are_judged() {
        assert!(judge(&[0, 0, 0, 0, 2, 8, 1]).passed);
        assert!(judge(&[0, 0, 0, 0, 6, 0x12, 2, 9, 9, 8, 1]).passed, "unknown fields are skipped");
        for (answer, text) in [
            (&[0, 0, 0, 0, 2, 8, 2][..], "NOT_SERVING"),
            (&[0, 0, 0, 0, 0], "UNKNOWN"),
            (&[1, 0, 0, 0, 2, 8, 1], "compressed"),
            (&[0, 0, 0, 0, 3, 8, 1], "not as long"),
            (&[0, 0], "without a message"),
            (&[0, 0, 0, 0, 2, 8, 0x80], "no HealthCheckResponse"),
            (&[0, 0, 0, 0, 2, 0x12, 200], "no HealthCheckResponse"),
        ] {
            let found = judge(answer);
            assert!(!found.passed && found.text.contains(text), "{answer:?}: {found:?}");
        }
        assert_eq!((code_name("12"), code_name("x")), ("UNIMPLEMENTED".into(), "x".into()));
    }

    proptest! {
        #[test]
        fn anything_may_come(message in prop::collection::vec(any::<u8>(), 0..40)) {
            let mut answer = vec![0, 0, 0, 0, message.len() as u8];
            answer.extend(message);
            let _ = judge(&answer);
        }
    }
}
