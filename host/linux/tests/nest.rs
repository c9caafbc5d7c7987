//! A namespace of the process's own: what is sent inside comes out by the pair of links, also to
//! addresses that are the machine's own outside. Judged by `ip` and by the kernel's own sockets.
//! Needs root and `ip`.
#![forbid(unsafe_code)]

mod bed;

use bed::in_namespace;
use sluice_linux::{INNER_MAC, Nest};
use std::net::{IpAddr, TcpListener, TcpStream, UdpSocket};
use std::process::Command;

fn said(args: &str) -> String {
    let ran = Command::new("ip").args(args.split_whitespace()).output().expect("ip runs");
    assert!(ran.status.success(), "ip {args}: {}", String::from_utf8_lossy(&ran.stderr));
    String::from_utf8_lossy(&ran.stdout).into_owned()
}

fn inside<T: Send + 'static>(nest: &Nest, work: impl FnOnce() -> T + Send + 'static) -> T {
    let nest = nest.clone();
    let thread = std::thread::spawn(move || {
        nest.enter().expect("inside");
        work()
    });
    thread.join().expect("no panic")
}

#[test]
fn what_is_sent_inside_comes_out() {
    in_namespace(|| {
        let addresses: [IpAddr; 2] =
            ["192.0.2.9".parse().expect("v4"), "2001:db8:2::9".parse().expect("v6")];
        let nest = Nest::make("slnest0", &addresses).expect("a nest");
        let [a, b, c, d, e, f] = INNER_MAC;
        for (bits, service) in [(32, "198.51.100.200"), (128, "2001:db8:1::200")] {
            let own = addresses[usize::from(bits == 128)];
            said(&format!("address add {service}/{bits} dev lo nodad"));
            said(&format!("route add {own}/{bits} dev slnest0"));
            let mac = format!("{a:02x}:{b:02x}:{c:02x}:{d:02x}:{e:02x}:{f:02x}");
            said(&format!("neigh replace {own} lladdr {mac} dev slnest0"));
            let service: IpAddr = service.parse().expect("an address");
            let listener = TcpListener::bind((service, 8080)).expect("bound");
            let from = inside(&nest, move || {
                let stream = TcpStream::connect((service, 8080)).expect("connected");
                stream.local_addr().expect("an address")
            });
            assert_eq!(from.ip(), own);
            assert_eq!(listener.accept().expect("a connection").1, from, "it came by the link");
            // The same address may be nobody's inside.
            let bound = inside(&nest, move || UdpSocket::bind((service, 0)).map(drop));
            assert!(bound.is_err(), "{service} is not there");
        }
        assert!(said("-d link show slnest0").contains("veth"));
        drop(nest);
        let gone = || !said("link show").contains("slnest0");
        let deadline = std::time::Instant::now() + bed::LATER;
        while !gone() {
            assert!(std::time::Instant::now() < deadline, "the links outlive the namespace");
            std::thread::sleep(std::time::Duration::from_millis(5));
        }
    });
}
