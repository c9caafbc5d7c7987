//! Isolated networks: by which of the machine's devices probes of each leave.
//!
//! The same address may be another machine in each network. A probe is therefore bound to a device
//! of its network, and one that has none is not sent: the machine's main routes would take it to
//! whoever has the address there.

use crate::socket::{Trouble, Way};
use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::watch;
use tokio::time::timeout;

/// How probes leave to one address.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Exit {
    /// The device that they are bound to: a VRF, or an interface of the network.
    pub device: String,
    /// The network's table, if the kernel does not go by it for what is bound to the device. For a
    /// VRF it does; for an interface only if a rule says so.
    pub table: Option<u32>,
}

impl Exit {
    /// What the kernel is to be told when it has no route by this device.
    fn remedy(&self, to: IpAddr) -> Option<String> {
        let (device, table) = (&self.device, self.table?);
        let family = if to.is_ipv4() { "" } else { "-6 " };
        Some(format!("needs `ip {family}rule add oif {device} lookup {table}`"))
    }
}

/// What is known of the ways to a network's addresses. All clones share it.
#[derive(Clone, Debug, Default)]
pub struct Exits(Arc<watch::Sender<HashMap<IpAddr, Option<Exit>>>>);

impl Exits {
    /// Replaces what is known: an address without a way has `None`. Probes to an address that is
    /// not among these wait for it, as long as a probe may take.
    pub fn set(&self, exits: HashMap<IpAddr, Option<Exit>>) {
        self.0.send_if_modified(|known| {
            let is_news = *known != exits;
            *known = exits;
            is_news
        });
    }

    async fn find(&self, to: IpAddr) -> Option<Option<Exit>> {
        let mut known = self.0.subscribe();
        let exits = known.wait_for(|exits| exits.contains_key(&to)).await.ok()?;
        exits.get(&to).cloned()
    }
}

impl PartialEq for Exits {
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }
}

impl Eq for Exits {}

/// The isolated network that a real server is in.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Network {
    /// Its name, for people and programs.
    pub name: Arc<str>,
    /// By which devices its addresses are reached.
    pub exits: Exits,
}

impl Network {
    async fn exit(&self, to: IpAddr, patience: Duration) -> Result<Exit, Trouble> {
        let name = &self.name;
        match timeout(patience, self.exits.find(to)).await {
            Ok(Some(Some(exit))) => Ok(exit),
            Ok(Some(None)) => Err(Trouble::Peer(format!("no route to {to} in network {name:?}"))),
            _ => Err(Trouble::Blind(format!("the routes of network {name:?} are not known yet"))),
        }
    }
}

impl Way {
    /// The same way, with the device of the network if the check names no interface of its own;
    /// and what the kernel needs to be told should it have no route.
    pub(crate) async fn settled(
        mut self,
        to: IpAddr,
        patience: Duration,
    ) -> Result<(Self, Option<String>), Trouble> {
        let (None, Some(network)) = (&self.interface, &self.network) else {
            return Ok((self, None));
        };
        let exit = network.exit(to, patience).await?;
        let remedy = exit.remedy(to);
        self.interface = Some(exit.device);
        Ok((self, remedy))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TO: IpAddr = IpAddr::V4(std::net::Ipv4Addr::new(192, 0, 2, 7));
    const SHORT: Duration = Duration::from_millis(20);

    fn way() -> (Way, Exits) {
        let exits = Exits::default();
        let network = Network { name: "blue".into(), exits: exits.clone() };
        (Way { network: Some(network), ..Way::default() }, exits)
    }

    fn exit(device: &str, table: Option<u32>) -> HashMap<IpAddr, Option<Exit>> {
        HashMap::from([(TO, Some(Exit { device: device.to_owned(), table }))])
    }

    fn settled(way: &Way) -> Result<(Option<String>, Option<String>), Trouble> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build();
        let settled = runtime.expect("a runtime").block_on(way.clone().settled(TO, SHORT));
        settled.map(|(way, remedy)| (way.interface, remedy))
    }

    #[test]
    fn a_probe_leaves_by_its_networks_device() {
        let (way, exits) = way();
        exits.set(exit("back", Some(100)));
        let (device, remedy) = settled(&way).expect("a device");
        assert_eq!(device.as_deref(), Some("back"));
        assert_eq!(remedy.as_deref(), Some("needs `ip rule add oif back lookup 100`"));
        exits.set(exit("vrf-blue", None));
        assert_eq!(settled(&way).expect("a device"), (Some("vrf-blue".to_owned()), None));
    }

    #[test]
    fn the_checks_own_interface_wins() {
        let (way, exits) = way();
        exits.set(exit("back", Some(100)));
        let own = Some("mgmt".to_owned());
        let way = Way { interface: own.clone(), ..way };
        assert_eq!(settled(&way).expect("a device"), (own, None));
    }

    #[test]
    fn nothing_is_sent_without_a_device() {
        let (way, exits) = way();
        let unknown = settled(&way).expect_err("nothing is known");
        assert!(matches!(&unknown, Trouble::Blind(text) if text.contains("not known yet")));
        exits.set(HashMap::from([(TO, None)]));
        let unrouted = settled(&way).expect_err("there is no route");
        let Trouble::Peer(text) = unrouted else { panic!("{unrouted:?}") };
        assert_eq!(text, "no route to 192.0.2.7 in network \"blue\"");
    }

    #[test]
    fn a_probe_waits_until_its_device_is_known() {
        let (way, exits) = way();
        let later = std::thread::spawn(move || {
            std::thread::sleep(SHORT);
            exits.set(exit("back", Some(100)));
        });
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build();
        let long = Duration::from_secs(10);
        let settled = runtime.expect("a runtime").block_on(way.settled(TO, long));
        assert_eq!(settled.expect("a device").0.interface.as_deref(), Some("back"));
        later.join().expect("the thread ends");
    }
}
