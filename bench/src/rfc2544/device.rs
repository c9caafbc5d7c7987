//! The generator's ports, which may be any that the director can have, and are opened alike.
//!
//! What the operator writes is the configuration's syntax (`memif:…`, `pci:…`, `af_packet:…`,
//! `dpdk:…`); the first port is the one that clients are behind, the last the real servers' one.

use super::frame::Way;
use crate::error::BenchError;
use sluice_dpdk::{
    Burst, Device, DmaCopies, Eal, EalConfig, FramePool, Memif, MemifRole, Port, PortConfig,
    PortStats, RxQueue, TxQueue,
};
use std::path::Path;
use std::time::{Duration, Instant};

/// Buffers beside those in ports: bursts in the making, what threads keep at hand.
const SPARE_FRAMES: u32 = 8192;
/// Bursts that a ring holds at most.
const RING_BURSTS: usize = 1024;
/// How long a link may take to come up.
const LINK: Duration = Duration::from_secs(15);

/// Reads a device and refuses those that a generator cannot have.
pub fn parse(text: &str) -> Result<Device, String> {
    use sluice_config::Device as From;
    let device: From = text.parse().map_err(|fault: sluice_config::Fault| fault.to_string())?;
    Ok(match device {
        From::AfPacket { interface } => Device::AfPacket { interface },
        From::Pci { address } => Device::Pci { address: address.to_string() },
        From::Memif(memif) => {
            let role = match memif.role {
                sluice_config::MemifRole::Client => MemifRole::Client,
                sluice_config::MemifRole::Server => MemifRole::Server,
            };
            Device::Memif(Memif {
                socket: memif.socket,
                id: memif.id,
                role,
                ip: memif.mode == sluice_config::MemifMode::Ip,
                secret_file: memif.secret_file.map(Into::into),
                ring: memif.ring,
                buffer: memif.buffer,
                copies: memif.dma.map(|dma| DmaCopies { device: dma.device, from: dma.from }),
            })
        }
        From::Dpdk { devargs } => Device::Dpdk { devargs },
        From::AfXdp { .. } | From::Vxlan { .. } | From::Tap { .. } | From::Pcap { .. } => {
            let kinds = "memif, pci, af_packet or dpdk";
            return Err(format!("a generator cannot have {}: use {kinds}", device.kind()));
        }
    })
}

/// The open ports.
#[derive(Debug)]
pub struct Ports {
    pub eal: Eal,
    pub pool: FramePool,
    pub tx: Vec<TxQueue>,
    pub rx: Vec<RxQueue>,
    /// MAC addresses.
    pub macs: Vec<[u8; 6]>,
    /// Whether a frame that a transmit queue has no room for is lost to the device under test. The
    /// ring of a memif is that device's receive ring; a NIC's or a socket's is ours.
    pub full_is_lost: bool,
    /// They close when they are dropped, after the queues.
    ports: Vec<Port>,
}

impl Ports {
    /// Opens them and waits for their links.
    pub fn open(devices: &[Device]) -> Result<Self, BenchError> {
        for device in devices {
            if let Device::Memif(Memif { socket, role: MemifRole::Client, .. }) = device
                && !socket.starts_with('@')
                && !Path::new(socket).exists()
            {
                return Err(BenchError::Link { device: device.to_string() });
            }
        }
        let configs: Vec<_> = devices
            .iter()
            .enumerate()
            .map(|(at, device)| PortConfig::new(format!("port {at}"), device.clone()))
            .collect();
        let pci = devices.iter().filter_map(|device| match device {
            Device::Pci { address } => Some(address.clone()),
            _ => None,
        });
        let frames = configs.iter().map(PortConfig::frames).sum::<u32>() + SPARE_FRAMES;
        let eal = Eal::init(&EalConfig { frames, pci_allow: pci.collect(), ..Default::default() })?;
        let (mut ports, mut tx, mut rx) = (Vec::new(), Vec::new(), Vec::new());
        for config in &configs {
            let (port, queues) = Port::open(&eal, config)?;
            ports.push(port);
            for queue in queues {
                tx.push(queue.tx);
                rx.push(queue.rx);
            }
        }
        let macs = ports.iter().map(Port::mac).collect();
        let full_is_lost = devices.iter().all(|device| match device {
            Device::Memif(_) => true,
            Device::Dpdk { devargs } => devargs.starts_with("net_memif"),
            _ => false,
        });
        let pool = eal.frames();
        let ports = Self { eal, pool, tx, rx, macs, full_is_lost, ports };
        ports.wait_for_links(devices)?;
        Ok(ports)
    }

    fn wait_for_links(&self, devices: &[Device]) -> Result<(), BenchError> {
        let limit = Instant::now() + LINK;
        for (port, device) in self.ports.iter().zip(devices) {
            while !port.link_up() {
                if Instant::now() > limit {
                    return Err(BenchError::Link { device: device.to_string() });
                }
                std::thread::sleep(Duration::from_millis(10));
            }
        }
        Ok(())
    }

    /// The index of the port where frames of a direction leave.
    pub fn from(&self, way: Way) -> usize {
        match way {
            Way::Inbound => 0,
            Way::Outbound => self.tx.len() - 1,
        }
    }

    /// What each port sent and received since it was opened, opening frames included.
    pub fn stats(&self) -> Vec<PortStats> {
        self.ports.iter().map(Port::stats).collect()
    }

    /// Takes what has come and is of no interest: as much as a ring can hold, since others may
    /// never cease to send.
    pub fn empty(&mut self) {
        let mut burst = Burst::new();
        for queue in &mut self.rx {
            for _ in 0..RING_BURSTS {
                if queue.rx(&mut burst) == 0 {
                    break;
                }
                burst.clear();
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn devices_are_those_of_the_configuration() {
        for (text, kind) in [
            ("memif:/run/front.sock,id=1,role=server", "memif:/run/front.sock,id=1,role=server"),
            ("memif:/run/front.sock", "memif:/run/front.sock,id=0,role=client"),
            ("af_packet:eth0", "af_packet:eth0"),
            ("pci:3b:00.0", "pci:0000:3b:00.0"),
            ("dpdk:net_ring0", "dpdk:net_ring0"),
        ] {
            assert_eq!(parse(text).unwrap().to_string(), kind);
        }
        for (text, why) in [
            ("tap:x", "cannot have tap"),
            ("af_xdp:eth0", "use memif"),
            ("memf:/x", "memif"),
            ("eth0", "KIND:WHAT"),
        ] {
            let error = parse(text).unwrap_err();
            assert!(error.contains(why), "{text}: {error}");
        }
    }
}
