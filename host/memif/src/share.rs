//! From a finished handshake to rings: what a peer shared, or what we did.

use std::io;
use std::os::fd::OwnedFd;
use std::sync::Arc;

use rustix::event::{EventfdFlags, eventfd};

use crate::event;
use crate::link::{Connection, Line};
use crate::message::{AddRing, Message};
use crate::negotiation::{Limits, Offer, Refused, RingOffer, refuse};
use crate::region::Region;
use crate::ring::{Ring, ring_bytes};
use crate::transfer::{Buffers, RxRing, TxRing};
use crate::turnstile::Turnstile;

/// A ring with what belongs to it, of `rings` of its direction of a link with so many queues. One
/// queue uses it, or several where there are fewer rings.
fn line<R>(
    (ring, event): (Ring, OwnedFd),
    (rings, queues): (usize, u16),
    make: impl FnOnce(Ring) -> R,
) -> Line<R> {
    let words = ring.clone();
    let ring = make(ring);
    let ring = if rings < usize::from(queues) {
        Turnstile::shared(ring)
    } else {
        // SAFETY: a ring is used by the queue of its own index, or of the remainder of that by the
        // number of queues, and by no other while there are as many rings (`Connection::tx_line`,
        // `Receiver::lines`). A queue's two ends exist once ([`crate::Link::open`]), each uses the
        // rings of one direction, and their methods take `&mut self`.
        unsafe { Turnstile::alone(ring) }
    };
    Line { ring, words, event }
}

/// Maps what a client shared and finds its rings.
pub fn accept(offer: Offer<OwnedFd>, queues: u16) -> Result<Connection, Refused> {
    let regions = offer.regions.iter().map(|(file, size)| Region::accept(file, *size));
    let regions: Arc<[Region]> = regions.collect::<Result<_, _>>()?;
    fn lines<R>(
        offers: Vec<RingOffer<OwnedFd>>,
        (regions, queues): (&Arc<[Region]>, u16),
        make: impl Fn(Ring) -> R,
    ) -> Result<Vec<Line<R>>, Refused> {
        let rings = offers.len();
        let one = |RingOffer { ring, event }: RingOffer<OwnedFd>| {
            event::check(&event)?;
            Ok(line((Ring::find(regions, ring)?, event), (rings, queues), &make))
        };
        offers.into_iter().map(one).collect()
    }
    let of = (&regions, queues);
    Ok(Connection {
        rx: lines(offer.to_server, of, |ring| RxRing::new(ring, None))?,
        tx: lines(offer.to_client, of, |ring| TxRing::new(ring, None))?,
        peer: offer.name,
    })
}

/// What we share as the client: one region with all rings and, behind them, a buffer for each
/// descriptor.
#[derive(Debug)]
pub struct Own {
    limits: Limits,
    buffer_bytes: u32,
    size: usize,
    file: OwnedFd,
    regions: Arc<[Region]>,
    /// Of the rings to the server, then of those to the client.
    events: Vec<OwnedFd>,
}

impl Own {
    /// Makes memory for as many rings each way, as large as they may be.
    pub fn new(limits: Limits, buffer_bytes: u32) -> io::Result<Self> {
        let rings = 2 * usize::from(limits.rings);
        let stride = Buffers::stride(buffer_bytes) as usize;
        let size = rings * (ring_bytes(limits.log2) + (stride << limits.log2));
        if u32::try_from(size).is_err() {
            let text = format!("{} rings of 2^{} take 4 GiB or more", rings, limits.log2);
            return Err(io::Error::other(text));
        }
        let (region, file) = Region::create(size)?;
        let flags = EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK;
        let events = (0..rings).map(|_| eventfd(0, flags)).collect::<Result<_, _>>()?;
        let own = Self { limits, buffer_bytes, size, file, regions: Arc::new([region]), events };
        // Their first words, before anybody looks.
        for at in own.rings() {
            Ring::make(&own.regions, at).map_err(io::Error::other)?;
        }
        Ok(own)
    }

    /// Bytes of the region.
    pub fn size(&self) -> u64 {
        self.size as u64
    }

    /// The rings: those to the server, then those to the client.
    pub fn rings(&self) -> Vec<AddRing> {
        let Limits { rings, log2 } = self.limits;
        let each = [true, false].into_iter().flat_map(|to| (0..rings).map(move |at| (to, at)));
        each.zip((0..).step_by(ring_bytes(log2)))
            .map(|((to_server, index), offset)| AddRing {
                to_server,
                index,
                region: 0,
                offset,
                log2,
                private_header: 0,
            })
            .collect()
    }

    /// What rides along with a message.
    pub fn descriptor(&self, message: &Message) -> Option<&OwnedFd> {
        match message {
            Message::AddRegion { .. } => Some(&self.file),
            Message::AddRing(ring) => {
                let first = if ring.to_server { 0 } else { usize::from(self.limits.rings) };
                self.events.get(first + usize::from(ring.index))
            }
            _ => None,
        }
    }

    /// The rings, once the server is ready: before, it sets their indexes to 0.
    pub fn connection(self, peer: String, queues: u16) -> Result<Connection, Refused> {
        let Limits { rings, log2 } = self.limits;
        let behind = 2 * usize::from(rings) * ring_bytes(log2);
        let each = (Buffers::stride(self.buffer_bytes) as usize) << log2;
        let mut connection = Connection { rx: Vec::new(), tx: Vec::new(), peer };
        let all = self.rings().into_iter().zip(self.events).enumerate();
        for (index, (at, event)) in all {
            let Ok(first) = u32::try_from(behind + index * each) else {
                return refuse("the memory is too large");
            };
            let buffers = Some(Buffers { first, bytes: self.buffer_bytes });
            let ring = Ring::make(&self.regions, at)?;
            let of = (usize::from(rings), queues);
            if at.to_server {
                connection.tx.push(line((ring, event), of, |ring| TxRing::new(ring, buffers)));
            } else {
                connection.rx.push(line((ring, event), of, |ring| RxRing::new(ring, buffers)));
            }
        }
        Ok(connection)
    }
}
