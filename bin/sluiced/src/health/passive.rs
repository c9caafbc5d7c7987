//! Passive checks: what the workers count of clients' connections condemns real servers.

use super::Health;
use sluice_checks::Key;
use sluice_config::{Config, Mode, Protocol};
use sluice_director::counters::Counters;
use sluice_director::plan::{Plan, RealId};
use sluice_health::passive::{Passive, Sample};
use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

/// A real server whose clients are watched.
pub(super) struct Watched {
    id: RealId,
    /// Whether its answers come by the director.
    sees: bool,
    hold: Duration,
    failures: u32,
    passive: Passive,
}

/// All that are watched, as a configuration says; what was seen already stays.
pub(super) fn watched(
    config: &Config,
    plan: &Plan,
    ids: &HashMap<Key, RealId>,
    mut before: HashMap<Key, Watched>,
) -> HashMap<Key, Watched> {
    let checks = config.checks.iter().filter(|check| check.passive_failures > 0);
    let checks: HashMap<&str, _> = checks.map(|check| (check.name.as_str(), check)).collect();
    let mut watched = HashMap::new();
    for service in config.services.iter().filter(|service| service.protocol == Protocol::Tcp) {
        let Some(check) = checks.get(service.check.as_str()) else { continue };
        let name: Arc<str> = service.name.as_str().into();
        for real in service.reals.iter().filter(|real| !real.down) {
            let (address, port) = (real.address, real.port);
            let key = Key { service: Arc::clone(&name), address, port };
            let Some(id) = ids.get(&key) else { continue };
            let mode = plan.real(*id).map_or(service.mode, |real| real.mode);
            let (sees, failures) = (matches!(mode, Mode::Nat | Mode::Fnat), check.passive_failures);
            let passive = match before.remove(&key) {
                Some(known) if (known.id, known.sees, known.failures) == (*id, sees, failures) => {
                    known.passive
                }
                _ => Passive::new(failures),
            };
            let hold = Duration::from_secs(check.passive_hold_s.into());
            watched.insert(key, Watched { id: *id, sees, hold, failures, passive });
        }
    }
    watched
}

impl Health {
    /// Looks at what was counted; to be called about once a second.
    pub fn look_at(&mut self, counted: &Counters) {
        let now = self.begun.elapsed();
        for (key, watched) in &mut self.watched {
            let Some(real) = counted.reals.get(watched.id.0 as usize) else { continue };
            let sample = Sample {
                opened: real.sessions,
                completed: real.handshakes,
                refused: real.refused,
                answers: watched.sees.then_some(real.packets[1]),
            };
            if let Some(reason) = watched.passive.observe(now, sample) {
                self.runner.condemn(key.clone(), watched.hold, reason);
            }
        }
    }
}
