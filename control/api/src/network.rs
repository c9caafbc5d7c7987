//! The API over the network: where it listens, what it shows, whom it lets in. All of it is read
//! and bound before any of it holds, so that what is wrong changes nothing.

use std::io;
use std::net::{SocketAddr, TcpListener};
use std::path::PathBuf;
use std::sync::Arc;

use rustls::ServerConfig;
use rustls::pki_types::CertificateDer;
use sluice_config::{Api, Diagnostic, Loaded};
use socket2::{Domain, Protocol, Socket, Type};

use crate::error::ApiError;
use crate::origin::Hosts;
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
    /// What the director is called, besides its addresses and the names of its certificate.
    pub names: Vec<String>,
}

/// A [`Network`] whose files were read and whose addresses are bound.
#[derive(Debug, Default)]
pub struct Prepared {
    pub(crate) listeners: Vec<(SocketAddr, TcpListener)>,
    pub(crate) tls: Option<Arc<ServerConfig>>,
    pub(crate) tokens: Arc<Tokens>,
    pub(crate) hosts: Hosts,
}

/// What the files have.
#[derive(Debug, Default)]
struct Files {
    tls: Option<Arc<ServerConfig>>,
    certificate: Option<CertificateDer<'static>>,
    tokens: Tokens,
}

impl From<&Api> for Network {
    fn from(api: &Api) -> Self {
        Self {
            listen: api.listen.clone(),
            identity: api.certificate.clone().zip(api.key.clone()),
            tokens: api.tokens.clone(),
            names: api.names.clone(),
        }
    }
}

/// What is wrong with the files that `[api]` names, each at its key. A director that starts or
/// reloads reads them in the same way; what only this user may not read is a warning.
pub fn check_files(loaded: &Loaded) -> Vec<Diagnostic> {
    let wrong = match Network::from(&loaded.config.api).read() {
        Ok(_) => return Vec::new(),
        Err(wrong) => wrong,
    };
    let told = wrong.into_iter().filter_map(|error| match error {
        ApiError::File { path, reason } => Some((path, reason)),
        _ => None,
    });
    loaded.check_api_files(told)
}

impl Network {
    /// Reads the files, if they are needed, or says what is wrong with each pair and each file.
    fn read(&self) -> Result<Files, Vec<ApiError>> {
        if self.listen.is_empty() {
            return Ok(Files::default());
        }
        let identity = self.identity.as_ref();
        let tls = identity.map(|(certificate, key)| tls::server(certificate, key)).transpose();
        let tokens = self.tokens.as_deref().map(Tokens::load).transpose();
        match (tls, tokens) {
            (Ok(shown), Ok(tokens)) => {
                let (tls, certificate) = shown.unzip();
                Ok(Files { tls, certificate, tokens: tokens.unwrap_or_default() })
            }
            (tls, tokens) => Err(tls.err().into_iter().chain(tokens.err()).collect()),
        }
    }

    /// Reads the files, and binds the addresses that are not among those `bound` already.
    pub(crate) fn prepare(
        &self,
        bound: &[(SocketAddr, TcpListener)],
    ) -> Result<Prepared, ApiError> {
        if self.listen.is_empty() {
            return Ok(Prepared::default());
        }
        let Files { tls, certificate, tokens } =
            self.read().map_err(|mut wrong| wrong.swap_remove(0))?;
        let names = self.names.iter().map(|name| name.to_ascii_lowercase()).collect();
        let mut listeners = Vec::new();
        for at in &self.listen {
            let failed = |source| ApiError::Bind { at: *at, source };
            let listener = match bound.iter().find(|(known, _)| known == at) {
                Some((_, listener)) => listener.try_clone(),
                None => bind(*at),
            };
            listeners.push((*at, listener.map_err(failed)?));
        }
        let hosts = Hosts { names, certificate };
        Ok(Prepared { listeners, tls, tokens: Arc::new(tokens), hosts })
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
