//! What nodes send that is no whole packet: fragments, and ICMP errors.

use super::{Event, Sim};
use crate::errors::About;
use crate::frame::Buffer;
use crate::pieces::Cut;
use crate::rng::Rng;
use crate::status::link_mac;
use crate::universe::Node;
use crate::wire::Packet;

impl Sim {
    /// A node sends a packet in pieces.
    pub(super) fn send_cut(
        &mut self,
        node: usize,
        (packet, cut): (&Packet, Cut),
        macs: ([u8; 6], [u8; 6]),
        luck: &mut Rng,
    ) {
        self.cut += 1;
        let mut packet = Packet { df: false, ..*packet };
        if packet.is_v4() {
            packet.id = self.cut & 0xffff;
        }
        let link = self.universe.nodes[node].link;
        for (mut frame, late) in cut.frames(&mut self.pool, &packet, macs, luck) {
            frame.link = link;
            if self.universe.links[link].vlan != 0 {
                frame.tag(self.universe.links[link].vlan);
            }
            self.fly_late(frame, Event::Arrive, late);
        }
    }

    /// Whoever a frame reached may say that it cannot go on.
    pub(super) fn complain(&mut self, node: usize, frame: &Buffer) {
        let mut luck = Rng::of(&[frame.luck, 31]);
        let Node { address, link, .. } = self.universe.nodes[node];
        // What direct routing brings is complained about past the director.
        let vip = |at| self.universe.services.iter().any(|service| service.vip == at);
        let direct = link > 0 && frame.seen.outer.is_none() && vip(frame.seen.packet.tuple.dst);
        if direct || !luck.chance(self.universe.network.errors) || self.silent[node] {
            return;
        }
        let Some(about) = About::of(frame, address, &mut luck) else { return };
        let bytes = about.write(frame);
        let macs = (self.status.mac(node), link_mac(link));
        let mut error = self.pool.make_error(about, &bytes, macs, luck.next());
        error.link = link;
        if self.universe.links[link].vlan != 0 {
            error.tag(self.universe.links[link].vlan);
        }
        self.fly(error, Event::Arrive);
    }
}
