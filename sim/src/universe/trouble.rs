//! What a world's network does to packets, how long its director keeps silent sessions, and how
//! much comes at a time.

use super::Network;
use crate::recipe::{Feature, Recipe};
use crate::rng::Rng;
use sluice_director::spec::Timeouts;

pub(super) fn network(rng: &mut Rng, recipe: &Recipe) -> Network {
    let mut when = |feature, values: &[u32]| {
        let value = *rng.pick(values);
        if recipe.has(feature) { value } else { 0 }
    };
    Network {
        loss: when(Feature::Loss, &[0, 1, 10, 100]),
        duplicates: when(Feature::Duplicates, &[0, 1, 50]),
        spoilt: when(Feature::Spoilt, &[0, 0, 2, 20]),
        jitter_ms: when(Feature::Jitter, &[0, 3, 10, 60]).into(),
        pieces: 0,
        errors: 0,
        delay_ms: rng.range(1, 8),
    }
}

pub(super) fn timeouts(rng: &mut Rng) -> Timeouts {
    let mut aside = *rng;
    let mut some = |few: &[u32]| *rng.pick(few);
    Timeouts {
        tcp_syn_recv_s: some(&[1, 3, 60]),
        tcp_established_s: some(&[2, 10, 900]),
        tcp_fin_wait_s: some(&[1, 2, 120]),
        tcp_close_wait_s: some(&[1, 2, 60]),
        tcp_last_ack_s: some(&[1, 30]),
        tcp_time_wait_s: some(&[0, 0, 1, 60]),
        tcp_close_s: some(&[0, 0, 1, 10]),
        udp_s: some(&[1, 5, 300]),
        one_packet_s: some(&[1, 10]),
        sctp_s: *aside.pick(&[1, 5, 300]),
        other_s: *aside.pick(&[1, 5, 300]),
        ..Timeouts::default()
    }
}

/// The less happens at a time, the longer it is gathered in most worlds, so that bursts are bursts.
pub(super) fn tick(recipe: &Recipe, gap_us: u64) -> u64 {
    let mut rng = Rng::of(&[recipe.seed, 23]);
    *rng.pick(match gap_us {
        5000.. => &[2, 16, 16, 32],
        500.. => &[1, 8, 8, 16],
        _ => &[1, 2, 4, 4],
    })
}
