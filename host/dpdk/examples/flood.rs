//! Sends UDP datagrams of 64-byte frames to one endpoint as fast as a port takes them, and counts
//! what comes back: what the other end of `echo` is measured with.
//!
//! `flood DEVICE SOURCE:PORT DESTINATION:PORT DESTINATION-MAC SECONDS`
//!
//! DEVICE is `af_xdp:IF`, `dpdk_af_xdp:IF` or `af_packet:IF`. Prints one line at the end.

use std::error::Error;
use std::net::SocketAddrV4;
use std::time::{Duration, Instant};

use etherparse::PacketBuilder;
use sluice_director::frame::Frame;
use sluice_dpdk::{
    Burst, Device, Eal, EalConfig, FramePool, Port, PortConfig, WorkerThread, XdpDriver,
};
use sluice_steer::{EndpointMatch, Matches, Steer};

fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [device, source, destination, mac, seconds] = arguments.as_slice() else {
        return Err("usage: flood DEVICE SOURCE:PORT DESTINATION:PORT MAC SECONDS".into());
    };
    let device = match device.split_once(':') {
        Some(("af_xdp", interface)) => {
            Device::AfXdp { interface: interface.to_owned(), driver: XdpDriver::OWN }
        }
        Some(("dpdk_af_xdp", interface)) => {
            Device::AfXdp { interface: interface.to_owned(), driver: XdpDriver::Dpdk }
        }
        Some(("af_packet", interface)) => Device::AfPacket { interface: interface.to_owned() },
        _ => return Err("DEVICE is af_xdp:IF, dpdk_af_xdp:IF or af_packet:IF".into()),
    };
    let eal = Eal::init(&EalConfig::default())?;
    let _thread = WorkerThread::register(&eal)?;
    let (port, mut queues) = Port::open(&eal, &PortConfig::new("flood", device))?;
    let source: SocketAddrV4 = source.parse()?;
    if let (Ok(mut steer), [_]) = (steer_of(&port), queues.as_slice()) {
        let address = (*source.ip()).into();
        let service = EndpointMatch::port(17, address, source.port());
        steer.set(&Matches { services: vec![service], ..Matches::default() })?;
    }
    let frame = frame(port.mac(), mac_of(mac)?, source, destination.parse()?)?;
    let mut totals = Totals::default();
    let end = Instant::now() + Duration::from_secs(seconds.parse()?);
    let started = Instant::now();
    let (mut out, mut back) = (Burst::new(), Burst::new());
    while Instant::now() < end {
        fill(&mut out, eal.frames(), &frame);
        totals.sent += queues[0].tx.tx(&mut out) as u64;
        while queues[0].rx.rx(&mut back) > 0 {
            totals.returned += back.len() as u64;
            back.clear();
        }
    }
    let seconds = started.elapsed().as_secs_f64();
    let rate = |count: u64| count as f64 / seconds / 1e6;
    println!("sent {:.3} Mpps, {:.3} Mpps came back", rate(totals.sent), rate(totals.returned));
    Ok(())
}

#[derive(Default)]
struct Totals {
    sent: u64,
    returned: u64,
}

fn steer_of(port: &Port) -> Result<Steer, Box<dyn Error>> {
    let (_, index) = port.interface().ok_or("no interface")?;
    Ok(Steer::for_interface(index)?)
}

fn mac_of(text: &str) -> Result<[u8; 6], Box<dyn Error>> {
    let octets: Vec<u8> =
        text.split(':').map(|octet| u8::from_str_radix(octet, 16)).collect::<Result<_, _>>()?;
    Ok(octets.try_into().map_err(|_| "a MAC address has six octets")?)
}

fn frame(
    from: [u8; 6],
    to: [u8; 6],
    source: SocketAddrV4,
    destination: SocketAddrV4,
) -> Result<Vec<u8>, Box<dyn Error>> {
    let builder = PacketBuilder::ethernet2(from, to)
        .ipv4(source.ip().octets(), destination.ip().octets(), 64)
        .udp(source.port(), destination.port());
    let mut frame = Vec::new();
    builder.write(&mut frame, &[0; 18])?;
    Ok(frame)
}

fn fill(burst: &mut Burst, pool: FramePool, frame: &[u8]) {
    let from = burst.len();
    let room = burst.remaining_capacity();
    pool.alloc_burst(burst, room);
    for fresh in &mut burst[from..] {
        if fresh.set_len(frame.len()) {
            fresh.bytes_mut().copy_from_slice(frame);
        }
    }
}
