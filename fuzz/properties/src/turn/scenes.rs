//! Scripts that reach every mode, as seeds: for each service and rule of the world a conversation,
//! with its fragments, its errors and its packets that do not fit.

use super::World;
use super::script::HEAD;

/// TCP flags.
const SYN: u8 = 2;
const ACK: u8 = 16;
const FIN: u8 = 1;
const RST: u8 = 4;

/// Every scene as (name, script).
pub fn all() -> Vec<(String, Vec<u8>)> {
    // Of the world: as it is, resets and VLAN, small MTUs, mid-stream and unknown neighbours;
    // schedulers, limits; workers.
    let heads: [[u8; HEAD]; 9] = [
        [0, 0, 40],
        [0x09, 0x02, 60],
        [0x20, 0x20, 0x7f],
        [0x52, 0x04, 63],
        [0x04, 0x52, 63],
        [0x80, 0x08, 20],
        [0x65, 0xc4, 0xbf],
        [0x01, 0x81, 5],
        [0x11, 0x2b, 7],
    ];
    let mut scenes = Vec::new();
    for (number, head) in heads.into_iter().enumerate() {
        let places = World::new(head).places().len() as u8;
        for place in 0..places {
            scenes.push((format!("service-{number}-{place}"), of_service(head, place)));
        }
        for how in 0..8 {
            scenes.push((format!("snat-{number}-{how}"), of_rule(head, how)));
        }
    }
    scenes
}

/// A script in the making.
struct Scene(Vec<u8>);

impl Scene {
    /// A client's packet to a service: flags, bytes of payload, what is odd, class.
    fn client(&mut self, place: u8, flags: u8, (length, odd, class): (u8, u8, u8)) -> &mut Self {
        self.0.extend([2, place, 3, flags, length, odd, class]);
        self
    }

    fn host(&mut self, how: u8, flags: u8, (length, odd, class): (u8, u8, u8)) -> &mut Self {
        self.0.extend([3, how, 1, flags, length, odd, class]);
        self
    }

    /// An answer to the `which`th last packet that was sent.
    fn answer(&mut self, which: u8, flags: u8, (length, odd): (u8, u8)) -> &mut Self {
        self.0.extend([4, which, flags, length, odd, 0]);
        self
    }

    fn error(&mut self, which: u8, how: u8, quoted: u16) -> &mut Self {
        self.0.extend([8, which, how]);
        self.0.extend(quoted.to_le_bytes());
        self
    }

    fn cut(&mut self, size: u8, order: u8) -> &mut Self {
        self.0.extend([9, size, order]);
        self
    }

    fn turn(&mut self, port: u8, after_ms: u16) -> &mut Self {
        self.0.extend([5, port]);
        self.0.extend(after_ms.to_le_bytes());
        self
    }

    fn reload(&mut self, variant: u8) -> &mut Self {
        self.0.extend([6, variant]);
        self
    }

    fn neighbours(&mut self, known: u8) -> &mut Self {
        self.0.extend([10, known]);
        self
    }
}

/// A client's conversation with a service.
fn of_service(head: [u8; HEAD], place: u8) -> Vec<u8> {
    let mut scene = Scene(head.to_vec());
    let plain = (10, 0, 0);
    scene.client(place, SYN, (0, 0, 0)).turn(0, 5).answer(0, SYN | ACK, (0, 0)).turn(1, 5);
    scene.client(place, ACK, (0, 0, 0)).client(place, ACK | 8, plain).turn(0, 5);
    scene.answer(0, ACK, (20, 0)).answer(1, ACK, (200, 0)).turn(1, 1);
    // Too long for a tunnel, or for a small MTU: may be cut, and may not.
    scene.client(place, ACK, (240, 0x80, 2)).client(place, ACK, (240, 0x80, 0x80)).turn(2, 3);
    scene.answer(0, ACK, (240, 0x80)).turn(1, 1);
    // Fragments in order, the last one first, without the first.
    for order in 0..3 {
        scene.client(place, ACK | 8, (100, order + 8, 0)).cut(5, order).turn(order << 1, 7);
    }
    scene.client(place, ACK, (90, 0x84, 1)).turn(0, 3).answer(0, ACK, (120, 4)).cut(4, 1);
    scene.turn(1, 40).client(place, ACK, (1, 1, 0)).turn(0, 1).answer(1, ACK, (1, 1)).turn(1, 1);
    // Errors of the far end and of routers, with much and little quoted.
    scene.client(place, ACK, plain).turn(0, 1);
    for how in [0, 1 | 6 << 5, 2 | 8] {
        scene.error(0, how, 40).turn(1, 1).error(0, how, 8).turn(1, 1).error(2, how, 600);
        scene.turn(0, 1);
    }
    scene.client(place, ACK, plain).turn(0, 1).answer(0, ACK, plain_answer()).turn(1, 0);
    scene.error(0, 0, 100).turn(0, 1);
    // The real server goes, and comes back.
    scene.reload(0x22).client(place, ACK, plain).turn(0, 1).client(place, SYN, (0, 0, 0));
    scene.turn(0, 1).reload(0x43).client(place, ACK, plain).turn(4, 9).neighbours(1);
    scene.client(place, ACK, plain).turn(0, 1).answer(0, FIN | ACK, (0, 0)).turn(1, 1);
    scene.client(place, FIN | ACK, (0, 0, 0)).turn(0, 1).answer(0, ACK, (0, 0)).turn(1, 1);
    scene.reload(0).client(place, RST, (0, 0, 0)).turn(0, 0x8000 | 400);
    // What belongs to no session any more, and a new one.
    scene.client(place, ACK, plain).turn(0, 1).client(place, SYN, plain).turn(0, 1);
    scene.0
}

const fn plain_answer() -> (u8, u8) {
    (9, 0)
}

/// A host's conversation with the outside.
fn of_rule(head: [u8; HEAD], how: u8) -> Vec<u8> {
    let mut scene = Scene(head.to_vec());
    let far = how | 1 << 3;
    // An echo asks; TCP opens.
    let first = if how >> 1 == 2 { 0 } else { SYN };
    scene.host(how, first, (5, 0, 0)).host(far, first, (6, 0, 1)).turn(1, 4);
    scene.answer(0, SYN | ACK, (8, 0)).answer(1, SYN | ACK, (8, 0)).turn(0, 3);
    scene
        .host(how, first & ACK | ACK & !3, (10, 0, 0))
        .turn(3, 4)
        .answer(0, ACK, (3, 0))
        .turn(2, 1);
    for order in 0..3 {
        scene.host(how, 16, (100, order + 8, 0)).cut(5, order).turn(1, 7);
        scene.host(how, 16, (100, order, 0)).turn(1, 1).answer(0, ACK, (90, order)).cut(4, order);
        scene.turn(0, 1);
    }
    for kind in [0, 1 | 6 << 5, 2 | 8] {
        scene.host(how, 16, (10, 0, 0)).turn(1, 1).error(0, kind, 60).turn(0, 1);
        scene.answer(0, ACK, (3, 0)).turn(0, 1).error(0, kind, 8).turn(1, 1);
    }
    scene.host(how, 16, (250, 0x80, 0x80)).host(how, 16, (250, 0x80, 0)).turn(1, 1);
    scene.host(how, 16, (1, 1, 0)).turn(1, 1).reload(0x80).host(how, 16, (9, 0, 0)).turn(1, 1);
    scene.reload(0).host(how, first, (9, 0, 0)).turn(1, 0x8000 | 1000);
    scene.host(far, first, (9, 0, 0)).turn(1, 1);
    scene.0
}
