//! One probe: from a specification to a finding. Its time limit is its caller's.

mod datagram;
mod grpc;
mod script;
mod stream;
pub(crate) mod tls;

use crate::runner::Contain;
use crate::socket::{self, Trouble, Way};
use crate::spec::{Kind, Spec};
use sluice_director::plan::probe_port;
use sluice_health::Finding;
use std::net::SocketAddr;
use std::time::Duration;
use tls::Contexts;

/// What probes share.
pub(crate) struct Tools {
    /// TLS configurations, made once.
    pub contexts: Contexts,
    /// Who may run a program.
    pub scripts: tokio::sync::Semaphore,
    /// Called before a program is started.
    pub contain: Contain,
}

/// Probes once. `number` tells it from others.
pub(crate) async fn probe(spec: &Spec, tools: &Tools, number: u64) -> Finding {
    let way = match spec.place {
        None => spec.way.clone(),
        Some(place) => match probe_port(place, number) {
            Some(port) => Way { port, ..spec.way.clone() },
            None => return Finding::blind("the service has too many real servers"),
        },
    };
    let settled = match *spec.kind {
        // Nothing is sent.
        Kind::Passive => Ok((way, None)),
        _ => way.settled(spec.address, patience(spec)).await,
    };
    let (way, remedy) = match settled {
        Ok(settled) => settled,
        Err(trouble) => return trouble.into(),
    };
    match (converse(spec, &way, tools, number).await, remedy) {
        (Ok(finding), _) => finding,
        (Err(Trouble::NoRoute(text)), Some(remedy)) => Finding::fail(format!("{text}; {remedy}")),
        (Err(trouble), _) => trouble.into(),
    }
}

/// Silence has to be over before the caller gives up.
fn patience(spec: &Spec) -> Duration {
    spec.rules.timeout.saturating_sub(Duration::from_millis(10))
}

async fn converse(spec: &Spec, way: &Way, tools: &Tools, number: u64) -> Result<Finding, Trouble> {
    let to = SocketAddr::new(spec.address, spec.port);
    match &*spec.kind {
        Kind::Tcp => socket::connect(to, way).await.map(|_| Finding::pass("connected")),
        Kind::Tls(tls) => stream::handshake(to, way, tls, tools).await,
        Kind::Http { request, wanted, tls } => {
            stream::http(to, way, (request, wanted), tls.as_ref(), tools).await
        }
        Kind::Udp { payload, expect } => {
            datagram::udp(to, way, (payload, expect.as_ref()), patience(spec)).await
        }
        Kind::Dns { name, of, wanted } => datagram::dns(to, way, (name, *of, *wanted)).await,
        Kind::Grpc { service, tls } => grpc::check(to, way, service, tls.as_ref(), tools).await,
        Kind::Ping => datagram::ping(spec.address, way, number).await,
        Kind::Passive => Ok(Finding::pass("clients' connections are watched")),
        Kind::Script { command } => script::run(spec, command, way, tools).await,
    }
}
