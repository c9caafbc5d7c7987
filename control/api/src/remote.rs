//! A director over the network, as a client reaches it: URL, token, authorities.

use std::fmt;
use std::io;
use std::net::IpAddr;
use std::path::Path;
use std::sync::Arc;

use hyper::Uri;
use hyper::header::HeaderValue;
use rustls::ClientConfig;
use rustls::pki_types::ServerName;
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

use crate::error::ApiError;
use crate::tls;
use crate::tokens::read_guarded;

/// The longest file with a token, in bytes.
const TOKEN_BYTES: u64 = 4096;

/// A director over the network.
#[derive(Clone)]
pub struct Remote {
    url: String,
    /// As the header `Host` has it.
    authority: String,
    host: String,
    port: u16,
    tls: Option<(Arc<ClientConfig>, ServerName<'static>)>,
    authorization: HeaderValue,
}

impl fmt::Debug for Remote {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.debug_struct("Remote").field("url", &self.url).finish_non_exhaustive()
    }
}

/// A connection to a director.
pub(crate) enum Stream {
    Plain(TcpStream),
    Secure(Box<TlsStream<TcpStream>>),
}

impl Remote {
    /// A director at `url` (`https://HOST:PORT`, or `http://` on this machine), with the token that
    /// is in a file, whose certificate one of `authorities` (PEM) has signed, or one of the
    /// system's.
    ///
    /// # Errors
    /// [`ApiError::Url`] or [`ApiError::File`].
    pub fn new(url: &str, token_file: &Path, authorities: Option<&Path>) -> Result<Self, ApiError> {
        let wrong = |reason: &str| ApiError::Url { url: url.to_owned(), reason: reason.to_owned() };
        let uri: Uri = url.parse().map_err(|_| wrong("this is no URL"))?;
        let (Some(scheme), Some(authority)) = (uri.scheme_str(), uri.authority()) else {
            return Err(wrong("scheme or host is missing"));
        };
        if !matches!(uri.path(), "" | "/") || uri.query().is_some() {
            return Err(wrong("there must be nothing behind host and port"));
        }
        let host = authority.host().trim_matches(['[', ']']).to_owned();
        let loopback = host == "localhost"
            || host.parse::<IpAddr>().is_ok_and(|address| address.is_loopback());
        let (port, secure) = match scheme {
            "https" => (443, true),
            "http" if loopback => (80, false),
            "http" => return Err(wrong("a token must not cross a network in the clear")),
            _ => return Err(wrong("only https is spoken, and http on this machine")),
        };
        let name = || ServerName::try_from(host.clone()).map_err(|_| wrong("that is no host"));
        let tls = secure.then(|| Ok((tls::client(authorities)?, name()?))).transpose()?;
        Ok(Self {
            url: url.trim_end_matches('/').to_owned(),
            authority: authority.to_string(),
            port: authority.port_u16().unwrap_or(port),
            host,
            tls,
            authorization: authorization(token_file)?,
        })
    }

    /// Its URL.
    pub fn url(&self) -> &str {
        &self.url
    }

    pub(crate) fn authority(&self) -> &str {
        &self.authority
    }

    pub(crate) fn authorization(&self) -> HeaderValue {
        self.authorization.clone()
    }

    pub(crate) async fn connect(&self) -> Result<Stream, ApiError> {
        let unreachable = |error: io::Error| ApiError::Unreachable {
            url: self.url.clone(),
            reason: reason(&error),
        };
        let stream =
            TcpStream::connect((self.host.as_str(), self.port)).await.map_err(unreachable)?;
        let Some((config, name)) = &self.tls else { return Ok(Stream::Plain(stream)) };
        let secured = TlsConnector::from(Arc::clone(config)).connect(name.clone(), stream).await;
        Ok(Stream::Secure(Box::new(secured.map_err(unreachable)?)))
    }
}

/// TLS's own words where it is to blame.
fn reason(error: &io::Error) -> String {
    match error.get_ref().and_then(|inner| inner.downcast_ref::<rustls::Error>()) {
        Some(rustls::Error::InvalidCertificate(rustls::CertificateError::UnknownIssuer)) => {
            "TLS: nobody that is trusted has signed its certificate; name an authority with --ca"
                .to_owned()
        }
        Some(inner) if format!("{inner:?}").contains("CaUsedAsEndEntity") => {
            "TLS: its certificate is an authority's; a server's has basicConstraints CA:FALSE"
                .to_owned()
        }
        Some(inner) => format!("TLS: {inner}"),
        None => error.to_string(),
    }
}

fn authorization(file: &Path) -> Result<HeaderValue, ApiError> {
    let text = read_guarded(file, TOKEN_BYTES)?;
    let token = text.trim();
    if token.is_empty() || token.contains(char::is_whitespace) {
        return Err(ApiError::file(file, "it must have a token, and nothing else"));
    }
    let header = HeaderValue::from_str(&format!("Bearer {token}"));
    let mut header = header.map_err(|_| ApiError::file(file, "this is no token"))?;
    header.set_sensitive(true);
    Ok(header)
}
