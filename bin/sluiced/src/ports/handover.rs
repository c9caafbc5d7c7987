//! Ports that go from one process to the next while their interfaces receive.

use super::{Open, PortSlot, Ports, dealt, twin_config};
use crate::crew::{Crew, Share};
use crate::errors::Error;
use crate::rules::PortRules;
use serde::{Deserialize, Serialize};
use sluice_director::fib::PortId;
use sluice_dpdk::{Adopted, Device, Left, Port, PortConfig, PortOffer};
use sluice_linux::Kernel;
use sluice_steer::Steer;
use std::os::fd::OwnedFd;
use tracing::{info, warn};

/// A port that another process is offered, with its twin.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Given {
    /// Its name.
    pub name: String,
    /// The port; `None` of one that is one process's, which has a twin all the same.
    line: Option<PortOffer>,
    twin: Option<PortOffer>,
}

/// A port that this process wants to go on with: its place among those that were offered.
pub type Wanted = usize;

/// What the queues of a port and of its twin left.
pub type LeftBehind = (Left, Left);

/// A port that another process has open still.
pub(super) struct Coming {
    given: Wanted,
    line: Option<Adopted>,
    twin: Option<Adopted>,
    steer: Option<Steer>,
}

impl Coming {
    /// The kernel's interface that carries the port's addresses.
    pub fn interface(&self) -> Option<&str> {
        Some(self.twin.as_ref().or(self.line.as_ref())?.interface().0)
    }
}

impl Ports {
    /// What another process may go on with, with the descriptors in the same order. The ports go
    /// on.
    pub fn offer(&self, kernel: &Kernel) -> (Vec<Given>, Vec<OwnedFd>) {
        let (mut all, mut all_fds) = (Vec::new(), Vec::new());
        for slot in &self.slots {
            let Some((given, fds)) = self.offer_of(slot, kernel) else { continue };
            all.push(given);
            all_fds.extend(fds);
        }
        (all, all_fds)
    }

    fn offer_of(&self, slot: &PortSlot, kernel: &Kernel) -> Option<(Given, Vec<OwnedFd>)> {
        let open = slot.open.as_ref()?;
        let config = self.line_config(&slot.config, kernel)?;
        let (line, mut fds) = open.port.offer(&config).unzip();
        let fds = fds.get_or_insert_default();
        let twin = match (&open.twin, &slot.config.twin) {
            (Some(twin), Some(name)) => {
                let (offer, of_twin) = twin.offer(&twin_config(name, &config, &open.port))?;
                fds.extend(of_twin);
                Some(offer)
            }
            _ => None,
        };
        let fds = std::mem::take(fds);
        let offers = line.is_some() || twin.is_some();
        offers.then(|| (Given { name: slot.config.name.clone(), line, twin }, fds))
    }

    /// Prepares to go on with ports of another process, as far as they are configured here just so.
    /// Gives which.
    ///
    /// # Errors
    /// When one cannot be taken over.
    pub fn expect(
        &mut self,
        offers: &[Given],
        fds: Vec<OwnedFd>,
        kernel: &Kernel,
    ) -> Result<Vec<Wanted>, Error> {
        let (mut fds, mut wanted) = (fds.into_iter(), Vec::new());
        for (number, given) in offers.iter().enumerate() {
            let count = |offer: &Option<PortOffer>| offer.as_ref().map_or(0, |it| it.descriptors);
            let of_line = fds.by_ref().take(count(&given.line)).collect();
            let of_twin = fds.by_ref().take(count(&given.twin)).collect();
            let found = self.slots.iter().position(|slot| self.is_for(given, slot, kernel));
            let Some(at) = found else { continue };
            let coming = self.prepare((number, given), at, (of_line, of_twin), kernel)?;
            wanted.extend(coming.as_ref().map(|coming| coming.given));
            self.slots[at].coming = coming;
        }
        Ok(wanted)
    }

    /// Whether a slot can go on with a port as it is.
    fn is_for(&self, given: &Given, slot: &PortSlot, kernel: &Kernel) -> bool {
        let Some(line) = self.line_config(&slot.config, kernel) else { return false };
        let link = slot.config.device.interface().and_then(|name| kernel.link_by_name(name));
        let mtu = link.map(|link| link.mtu);
        let twin = slot.config.twin.as_deref().map(|name| twin_name(name, &line));
        let same_twin = match (&twin, &given.twin) {
            (Some(config), Some(offer)) => offer.is_for(config),
            (None, None) => true,
            _ => false,
        };
        let same_mtu = line.mtu.is_none_or(|wanted| mtu == Some(u32::from(wanted)));
        let same_line = match &given.line {
            Some(offer) => offer.is_for(&line),
            None => given.name == slot.config.name,
        };
        slot.coming.is_none() && same_line && same_twin && same_mtu
    }

    fn prepare(
        &self,
        (number, given): (usize, &Given),
        at: usize,
        (of_line, of_twin): (Vec<OwnedFd>, Vec<OwnedFd>),
        kernel: &Kernel,
    ) -> Result<Option<Coming>, Error> {
        let slot = &self.slots[at];
        let Some(config) = self.line_config(&slot.config, kernel) else { return Ok(None) };
        let adopt = |offer| Port::adopt(&self.eal, &config, offer, of_line);
        let line = given.line.as_ref().map(adopt).transpose()?;
        let twin = match (&slot.config.twin, &given.twin) {
            (Some(name), Some(offer)) => {
                Some(Port::adopt(&self.eal, &twin_name(name, &config), offer, of_twin)?)
            }
            _ => None,
        };
        let steer = line.as_ref().map(Adopted::steer).transpose()?.flatten();
        Ok(Some(Coming { given: number, line, twin, steer }))
    }

    /// Takes the queues from the workers, for another process to go on with the ports that it
    /// `wants`: gives what they left, in that order.
    ///
    /// # Errors
    /// When a worker does not give them up, in words.
    pub fn release(
        &mut self,
        offers: &[Given],
        wants: &[Wanted],
        crew: &Crew,
    ) -> Result<Vec<LeftBehind>, String> {
        let ids: Vec<_> = (0..self.slots.len()).map(|at| PortId(at as u16)).collect();
        if !crew.detach_all(&ids) {
            return Err("a worker does not answer".to_owned());
        }
        let left_of = |name: &str| {
            let slot = self.slots.iter().find(|slot| slot.config.name == name)?;
            let open = slot.open.as_ref()?;
            let twin = open.twin.as_ref().map_or(Some(Left::new()), Port::left);
            Some((open.port.left()?, twin?))
        };
        let names = wants.iter().filter_map(|at| Some(&*offers.get(*at)?.name));
        let found = names.map(|name| left_of(name).ok_or(name)).collect::<Result<_, _>>();
        found.map_err(|name| format!("port {name}: a queue is still held"))
    }

    /// Closes the ports that another process does not go on with, after [`Self::release`].
    pub fn close_others(&mut self, offers: &[Given], wants: &[Wanted]) {
        for slot in &mut self.slots {
            let mut wanted = wants.iter().filter_map(|at| offers.get(*at));
            let given = wanted.find(|given| given.name == slot.config.name);
            if given.is_none_or(|given| given.line.is_none()) {
                let twin = close_slot(slot);
                // This process may have to go on.
                slot.twin = twin.filter(|_| given.is_some());
            }
        }
    }

    /// Goes on with what was released: a socket has received meanwhile. What another process may
    /// have used the rings of is closed, to be opened again as if its interface had gone and come
    /// back; but a twin stays, with its addresses.
    pub fn resume(&mut self, crew: &Crew) {
        let mut shares: Vec<Share> = (0..crew.size()).map(|_| Share::new()).collect();
        for (at, slot) in self.slots.iter_mut().enumerate() {
            let Some(open) = &slot.open else { continue };
            let twins =
                open.twin.as_ref().map_or(Some(Vec::new()), |it| it.queues_again(&self.eal));
            let queues = twins.is_some().then(|| open.port.queues_again(&self.eal)).flatten();
            let (Some(queues), Some(twins)) = (queues, twins) else {
                slot.twin = close_slot(slot);
                continue;
            };
            for (worker, line, twin) in dealt(crew, queues, twins) {
                shares[worker].push((PortId(at as u16), line, twin));
            }
        }
        crew.attach_all(shares);
        self.ground = None;
    }

    /// Goes on with the ports that were expected, of which `left` is what the other process left.
    ///
    /// # Errors
    /// When one cannot be.
    pub fn complete(
        &mut self,
        wanted: &[Wanted],
        left: &[LeftBehind],
        crew: &Crew,
    ) -> Result<(), Error> {
        let mut shares: Vec<Share> = (0..crew.size()).map(|_| Share::new()).collect();
        for (at, slot) in self.slots.iter_mut().enumerate() {
            let Some(Coming { given, line, twin, steer }) = slot.coming.take() else { continue };
            let none = LeftBehind::default();
            let place = wanted.iter().position(|it| *it == given);
            let (of_line, of_twin) = place.and_then(|place| left.get(place)).unwrap_or(&none);
            let (twin, twins) = match twin {
                Some(twin) => {
                    let (twin, queues) = twin.complete(of_twin)?;
                    (Some(twin), queues)
                }
                None => (None, Vec::new()),
            };
            let Some(line) = line else {
                // The port is opened when the other process has ended.
                slot.twin = twin;
                continue;
            };
            let (port, queues) = line.complete(of_line)?;
            for (worker, line, twin) in dealt(crew, queues, twins) {
                shares[worker].push((PortId(at as u16), line, twin));
            }
            let rules = PortRules::new(&port, steer.is_some(), slot.config.flow_rules);
            slot.open = Some(Open { port, twin, steer, rules });
        }
        // A port whose packets leave by one that is not there yet would lose them.
        crew.attach_all(shares);
        self.ground = None;
        Ok(())
    }

    /// Opens what another process could not hand over, and puts the steering programs of the
    /// others in place. What fails is tried again as if the interface had gone.
    pub fn settle(&mut self, kernel: &Kernel, crew: &Crew) -> Vec<String> {
        let mut reopened = Vec::new();
        for at in 0..self.slots.len() {
            let slot = &mut self.slots[at];
            if slot.is_tunnel() {
                continue;
            }
            let settled = match &slot.open {
                Some(open) => open.port.settle().map_err(Error::from),
                None => {
                    reopened.push(slot.config.name.clone());
                    self.open_one(at, kernel, crew)
                }
            };
            if let Err(failure) = settled {
                let slot = &mut self.slots[at];
                warn!(port = slot.config.name, %failure, "the port is opened anew");
                if slot.open.is_some() {
                    super::close(slot, at, crew);
                }
            }
        }
        reopened
    }

    /// Lets go of all ports, which are another process's now: nothing of them is undone.
    pub fn leave(self) {
        std::mem::forget(self.slots);
    }
}

/// A twin's configuration, as far as it tells whose it is.
fn twin_name(name: &str, line: &PortConfig) -> PortConfig {
    PortConfig {
        queues: line.queues,
        unfinished: matches!(line.device, Device::AfPacket { .. }),
        ..PortConfig::new(format!("{} twin", line.name), Device::Tap { name: name.to_owned() })
    }
}

/// Closes a port whose queues have gone. Gives its twin, which is open.
fn close_slot(slot: &mut PortSlot) -> Option<Port> {
    let Open { port, twin, steer, .. } = slot.open.take()?;
    drop(steer);
    if port.close().is_err() {
        warn!(port = slot.config.name, "a queue is still held; the port stays open");
    }
    info!(port = slot.config.name, "closed");
    twin
}
