//! Traces and captures over a real socket: what is asked for arrives, what comes is passed on as it
//! comes, and whoever goes away is missed at once.

use std::ops::ControlFlow;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use sluice_api::model::{LookKind, LookRequest, Way};
use sluice_api::{ApiError, Call, Client, LookRefusal, Server};
use sluice_state::FieldFault;
use tempfile::TempDir;
use tokio::sync::mpsc;

const SOON: Duration = Duration::from_secs(10);

type Asked = Arc<Mutex<Vec<(LookKind, LookRequest)>>>;
/// The director's ends of the answers.
type Open = Arc<Mutex<Vec<mpsc::Sender<bytes::Bytes>>>>;

/// A director that answers each request with `pieces`, the last never coming; and what it was
/// asked.
fn director(
    pieces: Result<Vec<&'static str>, LookRefusal>,
) -> (TempDir, Server, Client, Asked, Open) {
    let folder = tempfile::tempdir().expect("a folder");
    let socket = folder.path().join("sluice.sock");
    let (asked, open) = (Asked::default(), Open::default());
    let (asks, opens) = (Arc::clone(&asked), Arc::clone(&open));
    let answer = move |call: Call| {
        let Call::Look(kind, request, reply) = call else { panic!("{call:?}") };
        asks.lock().expect("asked").push((kind, request));
        let answer = pieces.clone().map(|pieces| {
            let (out, stream) = mpsc::channel(8);
            for piece in pieces {
                out.try_send(bytes::Bytes::from_static(piece.as_bytes())).expect("room");
            }
            opens.lock().expect("open").push(out);
            stream
        });
        let _ = reply.send(answer);
    };
    let server = Server::start(&socket, Box::new(answer)).expect("a server");
    (folder, server, Client::new(socket), asked, open)
}

#[test]
fn what_comes_is_passed_on_before_it_ends_and_who_goes_is_missed() {
    let (_folder, _server, client, asked, open) = director(Ok(vec!["one\n", "two\n"]));
    let request = LookRequest {
        filter: Some(vec![[0x28, 0, 0, 12], [6, 0, 0, 0]]),
        service: Some("web".to_owned()),
        real: Some("[2001:db8::11]:80".to_owned()),
        reasons: vec!["dropped".to_owned()],
        direction: Some(Way::Out),
        packets: Some(3),
        seconds: Some(0.5),
        ..LookRequest::default()
    };
    let mut text = Vec::new();
    let mut idle = 0;
    client
        .look(LookKind::Trace, &request, &mut |bytes| {
            text.extend_from_slice(bytes);
            idle += u32::from(bytes.is_empty());
            // It never ends by itself.
            if text == b"one\ntwo\n" && idle > 0 {
                ControlFlow::Break(())
            } else {
                ControlFlow::Continue(())
            }
        })
        .expect("an answer");
    assert_eq!(*asked.lock().expect("asked"), [(LookKind::Trace, request)]);
    let since = Instant::now();
    while !open.lock().expect("open")[0].is_closed() {
        assert!(since.elapsed() < SOON, "nobody reads, and that is not noticed");
        std::thread::sleep(Duration::from_millis(5));
    }
}

#[test]
fn a_refusal_says_what_is_wrong() {
    let fault = FieldFault {
        pointer: "/service".to_owned(),
        detail: "there is no service \"wob\"".to_owned(),
        hint: "there is web".to_owned(),
    };
    for (refusal, status, words) in [
        (
            LookRefusal::Wrong(vec![fault]),
            422,
            "/service: there is no service \"wob\"; there is web",
        ),
        (LookRefusal::Busy(4), 409, "4 traces and captures run already"),
        (LookRefusal::NoAnswer, 504, "did not answer"),
    ] {
        let (_folder, _server, client, ..) = director(Err(refusal));
        let take = &mut |_: &[u8]| ControlFlow::Continue(());
        let said = client.look(LookKind::Capture, &LookRequest::default(), take);
        let Err(ApiError::Refused(problem)) = said else { panic!("{said:?}") };
        assert_eq!(problem.status, status);
        assert!(problem.detail.contains(words), "{problem:?}");
    }
}

#[test]
fn a_body_that_is_wrong_never_reaches_the_director() {
    use std::io::{Read, Write};
    let (folder, _server, _, asked, _) = director(Ok(Vec::new()));
    for (body, status, words) in [
        ("{", "400", "not JSON"),
        ("{\"servise\": \"web\"}", "422", "unknown field `servise`"),
        ("{\"direction\": \"up\"}", "422", "unknown variant `up`"),
        ("{\"filter\": [[1, 2, 3]]}", "422", "invalid length 3"),
        ("{\"packets\": -1}", "422", "invalid value"),
    ] {
        let socket = folder.path().join("sluice.sock");
        let mut stream = std::os::unix::net::UnixStream::connect(socket).expect("connected");
        let kind = "Content-Type: application/json";
        let head = "POST /v1/trace HTTP/1.1\r\nHost: d";
        let head = format!("{head}\r\n{kind}\r\nContent-Length: {}", body.len());
        write!(stream, "{head}\r\n\r\n{body}").expect("sent");
        let mut text = String::new();
        stream.read_to_string(&mut text).expect("read");
        assert!(text.starts_with(&format!("HTTP/1.1 {status}")) && text.contains(words), "{text}");
    }
    assert!(asked.lock().expect("asked").is_empty());
}
