//! Tunnels in IPVS's terms and in the configuration's.

use serde_json::Value;
use sluice_ipvs::{Destination, Tunnel, TunnelKind};

use crate::refused::Refused;

/// Flags of a tunnel (`IP_VS_TUNNEL_ENCAP_FLAG_*`).
const CHECKSUM: u16 = 1;
const REMOTE_CHECKSUM: u16 = 2;

/// The tunnels by their modes, as IPVS has them when nothing else is said.
const ALL: [(&str, Tunnel); 3] = [
    ("ipip", Tunnel::IPIP),
    ("gue", Tunnel { kind: TunnelKind::Gue, port: 6080, flags: 0 }),
    ("gre", Tunnel { kind: TunnelKind::Gre, port: 0, flags: 0 }),
];

/// The mode of a tunnel.
pub(crate) fn mode(it: &Destination) -> Result<&'static str, Refused> {
    let at = format!("{}:{}", it.address, it.port);
    if it.tunnel.flags & REMOTE_CHECKSUM != 0 {
        let detail = format!(
            "{at}: the director does no remote checksum offload (--tun-remcsum), which leaves the \
             inner checksum to the receiver; use --tun-csum or --tun-nocsum"
        );
        return Err(Refused::invalid(detail));
    }
    let known = ALL.iter().find(|(_, tunnel)| tunnel.kind == it.tunnel.kind);
    known.map(|(mode, _)| *mode).ok_or_else(|| {
        Refused::invalid(format!("{at}: the director has no such tunnel; use --tun-type ipip"))
    })
}

/// Writes what a tunnel has of its own into a real server's section.
pub(crate) fn write(tunnel: Tunnel, real: &mut Value) {
    if tunnel.kind == TunnelKind::Ipip {
        return;
    }
    if tunnel.port != 0 {
        real["tunnel_port"] = tunnel.port.into();
    }
    // The service may say otherwise.
    real["tunnel_checksum"] = (tunnel.flags & CHECKSUM != 0).into();
}

/// The tunnel of a mode, if it is one.
pub(crate) fn of_mode(mode: &str) -> Option<Tunnel> {
    ALL.iter().find(|(name, _)| *name == mode).map(|(_, tunnel)| *tunnel)
}

/// The tunnel to a real server of a mode, as the sections of its service and its own say.
pub(crate) fn of_real(mode: &str, service: &Value, real: &Value) -> Option<Tunnel> {
    let usual = of_mode(mode)?;
    let said = |key: &str| real.get(key).or_else(|| service.get(key));
    let port = said("tunnel_port").and_then(Value::as_u64).and_then(|port| port.try_into().ok());
    Some(Tunnel {
        port: if usual.port == 0 { 0 } else { port.unwrap_or(usual.port) },
        flags: (said("tunnel_checksum") == Some(&Value::Bool(true))).into(),
        ..usual
    })
}
