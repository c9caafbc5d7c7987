//! From `[[check]]` and the services that name them to what is to be probed.

use super::exits::Isolated;
use sluice_checks::{Key, Kind, Maker, Network, Sources, Spec, Tls, Way};
use sluice_config::{Check, CheckKind, Config, Method, RealServer, Through, VirtualService};
use sluice_health::expect::Expect;
use sluice_health::{Rules, dns, http};
use std::collections::HashMap;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

/// How plain probes leave.
pub struct Ways<'c> {
    /// Addresses that those of the default network may not come from.
    pub sources: &'c Sources,
    /// All other networks, by their names.
    pub isolated: &'c HashMap<String, Isolated>,
}

/// Everything that a configuration wants checked. A real server that it says is down is not.
pub fn of(config: &Config, makers: &HashMap<String, Maker>, ways: &Ways<'_>) -> Vec<Spec> {
    let checks: HashMap<&str, &Check> =
        config.checks.iter().map(|check| (check.name.as_str(), check)).collect();
    let mut specs = Vec::new();
    for service in &config.services {
        let Some(check) = checks.get(service.check.as_str()) else { continue };
        let template = Template::new(check, service, ways);
        let reals = service.reals.iter().enumerate().filter(|(_, real)| !real.down);
        if check.through == Through::Direct {
            specs.extend(reals.map(|(_, real)| template.spec(real)));
        } else if let Some(maker) = makers.get(&service.network) {
            let from = config.probe_addresses().find(|(network, _)| *network == service.network);
            let mut from = from.into_iter().flat_map(|(_, addresses)| addresses);
            let from = from.find(|it| it.is_ipv4() == service.vip.is_ipv4());
            let way = Way { maker: Some(maker.clone()), source: from.copied(), ..Way::default() };
            let at = SocketAddr::new(service.vip, check.port.unwrap_or(service.ports.first));
            specs.extend(reals.map(|(place, real)| template.through(real, (place, at), &way)));
        }
    }
    specs
}

/// What the real servers of a service have in common.
struct Template<'c> {
    check: &'c Check,
    sources: &'c Sources,
    network: Option<&'c Network>,
    service: Arc<str>,
    name: Arc<str>,
    rules: Rules,
    /// Where nothing depends on the real server.
    kind: Option<Arc<Kind>>,
}

impl<'c> Template<'c> {
    fn new(check: &'c Check, service: &VirtualService, ways: &Ways<'c>) -> Self {
        // Only HTTP without a configured name says whom it speaks to.
        let differs = check.kind.is_http() && check.host.is_none();
        let isolated = ways.isolated.get(&service.network);
        Self {
            check,
            sources: isolated.map_or(ways.sources, |it| &it.sources),
            network: isolated.map(|it| &it.network),
            service: service.name.as_str().into(),
            name: check.name.as_str().into(),
            rules: rules(check),
            kind: (!differs).then(|| Arc::new(kind(check, String::new()))),
        }
    }

    /// One that goes to the service's address, by the data path to this real server.
    fn through(&self, real: &RealServer, (place, at): (usize, SocketAddr), way: &Way) -> Spec {
        let host = || at.to_string();
        Spec {
            address: at.ip(),
            port: at.port(),
            kind: self.kind.clone().unwrap_or_else(|| Arc::new(kind(self.check, host()))),
            way: way.clone(),
            place: Some(place),
            ..self.spec(real)
        }
    }

    fn spec(&self, real: &RealServer) -> Spec {
        let check = self.check;
        let address = real.check.address.unwrap_or(real.address);
        let port = real.check.port.or(check.port).unwrap_or(real.port);
        let host = || SocketAddr::new(address, port).to_string();
        Spec {
            key: Key { service: Arc::clone(&self.service), address: real.address, port: real.port },
            check: Arc::clone(&self.name),
            address,
            port,
            kind: self.kind.clone().unwrap_or_else(|| Arc::new(kind(check, host()))),
            way: Way {
                source: check.source,
                sources: self.sources.clone(),
                mark: check.mark,
                interface: check.interface.clone(),
                network: self.network.cloned(),
                ..Way::default()
            },
            place: None,
            rules: self.rules.clone(),
            initial: super::initial(check.initial),
        }
    }
}

fn rules(check: &Check) -> Rules {
    let ms = |ms: u32| Duration::from_millis(ms.into());
    Rules {
        interval: ms(check.interval_ms),
        fast_interval: check.fast_interval_ms.map(ms),
        timeout: ms(check.timeout_ms),
        rise: check.rise,
        fall: check.fall,
        dead_after: check.dead_after_ms.map(ms),
        jitter_percent: check.jitter_percent,
    }
}

/// `host` is for the `Host` field where the configuration has none.
fn kind(check: &Check, host: String) -> Kind {
    let tls = Tls {
        name: check.tls_name.clone(),
        verify: check.tls_verify,
        authorities: check.tls_authorities.clone(),
        expiry_days: check.tls_expiry_days,
    };
    let secured = check.kind.is_tls().then(|| tls.clone());
    match check.kind {
        CheckKind::Tcp => Kind::Tcp,
        CheckKind::Tls => Kind::Tls(tls),
        CheckKind::Http | CheckKind::Https => Kind::Http {
            request: http::request(
                check.method.word(),
                &check.path,
                check.host.as_deref().unwrap_or(&host),
            ),
            wanted: http::Wanted {
                status: check.status.clone(),
                body: expect(check).unwrap_or(Expect::Anything),
                head: check.method == Method::Head,
            },
            tls: secured,
        },
        CheckKind::Udp => {
            Kind::Udp { payload: check.send.clone().into_bytes(), expect: expect(check) }
        }
        CheckKind::Dns => Kind::Dns {
            name: check.dns_name.clone(),
            of: check.dns_type,
            wanted: dns::Wanted { code: check.dns_code, address: check.dns_address },
        },
        CheckKind::Grpc | CheckKind::Grpcs => {
            Kind::Grpc { service: check.grpc_service.clone(), tls: secured }
        }
        CheckKind::Ping => Kind::Ping,
        CheckKind::Passive => Kind::Passive,
        CheckKind::Script => Kind::Script { command: check.command.clone() },
    }
}

fn expect(check: &Check) -> Option<Expect> {
    // The configuration was checked: an expression that is none is not here.
    let regex = check.expect_regex.as_ref().and_then(|regex| Expect::matches(regex).ok());
    regex.or_else(|| check.expect.as_ref().map(|text| Expect::Holds(text.clone().into_bytes())))
}
