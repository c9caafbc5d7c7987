//! The API over the network: where it listens, what it shows, whom it lets in. All of it is read
//! and bound before any of it holds, so that what is wrong changes nothing.

use std::io;
use std::net::{SocketAddr, TcpListener};
use std::path::PathBuf;
use std::sync::Arc;

use rustls::ServerConfig;
use socket2::{Domain, Protocol, Socket, Type};

use crate::error::ApiError;
use crate::tls;
use crate::tokens::Tokens;

/// Connections that wait until they are looked at.
const BACKLOG: i32 = 128;

/// What a configuration says of the API over the network.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Network {
    /// Where to listen.
    pub listen: Vec<SocketAddr>,
    /// PEM files with the certificates and the key. `None`: plain HTTP.
    pub identity: Option<(PathBuf, PathBuf)>,
    /// The file of tokens.
    pub tokens: Option<PathBuf>,
}

/// A [`Network`] whose files were read and whose addresses are bound.
#[derive(Debug, Default)]
pub struct Prepared {
    pub(crate) listeners: Vec<(SocketAddr, TcpListener)>,
    pub(crate) tls: Option<Arc<ServerConfig>>,
    pub(crate) tokens: Arc<Tokens>,
}

impl Network {
    /// Reads the files, and binds the addresses that are not among those `bound` already.
    pub(crate) fn prepare(
        &self,
        bound: &[(SocketAddr, TcpListener)],
    ) -> Result<Prepared, ApiError> {
        if self.listen.is_empty() {
            return Ok(Prepared::default());
        }
        let identity = self.identity.as_ref();
        let tls = identity.map(|(certificate, key)| tls::server(certificate, key)).transpose()?;
        let tokens = self.tokens.as_deref().map(Tokens::load).transpose()?.unwrap_or_default();
        let mut listeners = Vec::new();
        for at in &self.listen {
            let failed = |source| ApiError::Bind { at: *at, source };
            let listener = match bound.iter().find(|(known, _)| known == at) {
                Some((_, listener)) => listener.try_clone(),
                None => bind(*at),
            };
            listeners.push((*at, listener.map_err(failed)?));
        }
        Ok(Prepared { listeners, tls, tokens: Arc::new(tokens) })
    }
}

fn bind(at: SocketAddr) -> io::Result<TcpListener> {
    let socket = Socket::new(Domain::for_address(at), Type::STREAM, Some(Protocol::TCP))?;
    if at.is_ipv6() {
        // Each family is named by itself, in the way that it was configured.
        socket.set_only_v6(true)?;
    }
    // A director that was restarted listens again at once.
    socket.set_reuse_address(true)?;
    socket.set_nonblocking(true)?;
    socket.bind(&at.into())?;
    socket.listen(BACKLOG)?;
    Ok(socket.into())
}
