//! Handshakes on their sockets: what has come is answered, until all is said.

use std::collections::HashMap;
use std::os::fd::OwnedFd;
use std::time::Instant;

use crate::hub::{Entry, Phase};
use crate::link::{Connection, LinkConfig, Role};
use crate::message::Message;
use crate::negotiation::{Client, Next, Refused, Server, Turn};
use crate::share;
use crate::socket::{self, Address};

/// Messages of one socket that are read in a row.
const MESSAGES: usize = 64;

/// A client's handshake.
pub struct Joining {
    pub socket: OwnedFd,
    pub client: Client,
    pub shares: Option<share::Own>,
    pub deadline: Instant,
}

/// A handshake with a client that has not come to its end.
pub struct Pending {
    pub socket: OwnedFd,
    pub server: Server<OwnedFd>,
    pub address: Address,
    pub deadline: Instant,
}

impl Pending {
    /// Acts on what has come. When all is said, returns which link it is for and what is shared.
    pub fn go_on(
        &mut self,
        links: &HashMap<u64, Entry>,
    ) -> Result<Option<(u64, Connection)>, Refused> {
        for _ in 0..MESSAGES {
            let Some((message, descriptor)) = socket::receive(&self.socket)? else { break };
            let find = |id: u32| {
                links.iter().find(|(_, entry)| {
                    let LinkConfig { role, socket, id: own, .. } = &entry.config;
                    (*role, *own) == (Role::Server, id) && *socket == self.address
                })
            };
            let next = self.server.handle(message, descriptor, |init| {
                let Some((_, entry)) = find(init.id) else {
                    return Err(Refused(format!("there is no interface with id {}", init.id)));
                };
                if !same_secret(&entry.config.secret, &init.secret) {
                    return Err(Refused("the secret is not the right one".into()));
                }
                if init.mode != entry.config.mode.number() {
                    let mode = entry.config.mode.number();
                    let text =
                        format!("mode {} where {mode} is wanted (0 Ethernet, 1 IP)", init.mode);
                    return Err(Refused(text));
                }
                free(entry)?;
                Ok(entry.config.limits())
            })?;
            match next {
                Next::Reply(reply) => socket::send(&self.socket, &reply, None)?,
                Next::Left(text) => return Err(Refused(left(&text))),
                Next::Ready(offer) => {
                    let Some((number, entry)) = find(offer.id) else {
                        return Err(Refused("the interface is gone".into()));
                    };
                    // Another may have been faster.
                    free(entry)?;
                    let connection = share::accept(offer, entry.config.queues)?;
                    let name = entry.config.name.clone();
                    socket::send(&self.socket, &Message::Connected { name }, None)?;
                    return Ok(Some((*number, connection)));
                }
            }
        }
        Ok(None)
    }
}

/// Refuses a second client.
fn free(entry: &Entry) -> Result<(), Refused> {
    match entry.phase {
        Phase::Joined(_) => Err(Refused("the interface has a client already".into())),
        _ => Ok(()),
    }
}

/// Compares in a time that does not tell where they differ.
fn same_secret(one: &[u8], other: &[u8]) -> bool {
    let differences = one.iter().zip(other).fold(0, |all, (a, b)| all | (a ^ b));
    std::hint::black_box(differences) == 0
}

impl Joining {
    /// Acts on what has come. When the server is ready, returns what is shared.
    pub fn go_on(&mut self, config: &LinkConfig) -> Result<Option<Connection>, Refused> {
        for _ in 0..MESSAGES {
            let Some((message, _)) = socket::receive(&self.socket)? else { break };
            let name = match &message {
                Message::Connected { name } => name.clone(),
                _ => String::new(),
            };
            match self.client.handle(message)? {
                Turn::Share(limits) => {
                    let own = share::Own::new(limits, config.buffer_bytes)
                        .map_err(|error| Refused(format!("make memory to share: {error}")))?;
                    let init = self.client.share(own.size(), own.rings());
                    self.shares = Some(own);
                    socket::send(&self.socket, &init, None)?;
                }
                Turn::Say(message) => {
                    let with = self.shares.as_ref().and_then(|own| own.descriptor(&message));
                    socket::send(&self.socket, &message, with)?;
                }
                Turn::Left(text) => return Err(Refused(left(&text))),
                Turn::Connected => {
                    let own = self.shares.take();
                    return own.map(|own| own.connection(name, config.queues)).transpose();
                }
            }
        }
        Ok(None)
    }
}

/// What a leave-taking said.
pub fn left(text: &str) -> String {
    if text.is_empty() { "the peer left".into() } else { format!("the peer left: {text}") }
}
