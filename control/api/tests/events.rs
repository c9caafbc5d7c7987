//! Following events, over a real socket.

use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use sluice_api::model::{Event, EventKind};
use sluice_api::{Client, EventQuery, Followed, Server};
use tempfile::TempDir;

const SOON: Duration = Duration::from_secs(10);

struct Place(TempDir);

impl Place {
    fn new() -> Self {
        Self(tempfile::Builder::new().prefix("sluice-api-").tempdir().expect("a folder"))
    }

    fn socket(&self) -> PathBuf {
        self.0.path().join("s")
    }

    fn serve(&self) -> Server {
        Server::start(&self.socket(), Box::new(drop)).expect("a server")
    }

    fn client(&self) -> Client {
        Client::new(self.socket())
    }
}

fn event() -> Event {
    Event { service: "web".to_owned(), ..Event::new(EventKind::Health, "HTTP status 503") }
}

#[test]
fn who_follows_hears_of_each_event_once_and_goes_on_after_a_break() {
    let place = Place::new();
    let server = Arc::new(place.serve());
    server.note_all([event()]);
    let (client, from) = (place.client(), EventQuery { after: Some(0), ..EventQuery::default() });
    let mut heard = Vec::new();
    let teller = Arc::clone(&server);
    let telling = std::thread::spawn(move || {
        // While it is waited for, and several at once.
        std::thread::sleep(Duration::from_millis(50));
        teller.note_all([event()]);
        teller.note_all([event(), event()]);
    });
    let mut listen = |followed: Followed, _: &str| {
        let Followed::Event(event) = followed else { panic!("{followed:?}") };
        heard.push(event.id);
        heard.len() != 3 && heard.len() != 5
    };
    client.follow(&from, None, &mut listen).expect("three events");
    telling.join().expect("no panic");
    server.note_all([event()]);
    let last = at_of(&client, 3);
    client.follow(&EventQuery::default(), Some(&last), &mut listen).expect("two more");
    assert_eq!(heard, [1, 2, 3, 4, 5]);
}

/// The name that a stream gives to the event with a number.
fn at_of(client: &Client, number: u64) -> String {
    let (from, mut name) = (EventQuery { after: Some(0), ..EventQuery::default() }, String::new());
    let look = &mut |followed: Followed, at: &str| match followed {
        Followed::Event(event) if event.id == number => {
            name = at.to_owned();
            false
        }
        _ => true,
    };
    client.follow(&from, None, look).expect("the event");
    name
}

#[test]
fn a_stream_says_what_it_is_and_is_refused_what_it_cannot_be() {
    let place = Place::new();
    let server = place.serve();
    server.note_all([event()]);
    let ask = |target: &str, more: &str| {
        let mut stream = UnixStream::connect(place.socket()).expect("connected");
        stream.set_read_timeout(Some(SOON)).expect("set");
        let text =
            format!("GET {target} HTTP/1.1\r\nHost: d\r\nAccept: text/event-stream\r\n{more}\r\n");
        stream.write_all(text.as_bytes()).expect("sent");
        let (mut all, mut part) = (String::new(), [0; 4096]);
        while !all.contains("data: ") && !all.contains("detail") {
            let length = stream.read(&mut part).expect("more");
            assert!(length > 0, "it ended: {all}");
            all += &String::from_utf8_lossy(&part[..length]);
        }
        all
    };
    let text = ask("/v1/events?after=0&kind=health", "");
    assert!(text.contains("content-type: text/event-stream"), "{text}");
    assert!(text.contains("event: health") && text.contains("\"reason\":\"HTTP status 503\""));
    for (target, more, told) in [
        ("/v1/events?kind=helth", "", "one of health, config"),
        ("/v1/events?after=x", "", "a number"),
        ("/v1/events", "Last-Event-ID: seven\r\n", "Last-Event-ID"),
    ] {
        let text = ask(target, more);
        assert!(text.starts_with("HTTP/1.1 400 ") && text.contains(told), "{text}");
    }
}
