//! TLS by rustls: a configuration for each way of verifying, made once and shared.

use crate::socket::{Trouble, words};
use crate::spec::Tls;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::{WebPkiSupportedAlgorithms, ring};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::{ClientConfig, DigitallySignedStruct, RootCertStore, SignatureScheme};
use sluice_health::certificate::ends_at;
use std::collections::HashMap;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

const DAY_S: i64 = 86_400;
/// How long a configuration is used before its authorities are read again.
const FRESH: Duration = Duration::from_secs(300);

type What = (bool, Option<PathBuf>, Vec<Vec<u8>>);

/// Configurations by what they verify with and which protocols they offer.
#[derive(Default)]
pub struct Contexts(Mutex<HashMap<What, (Instant, Arc<ClientConfig>)>>);

impl Contexts {
    fn get(&self, tls: &Tls, protocols: &[&[u8]]) -> Result<Arc<ClientConfig>, Trouble> {
        let protocols: Vec<Vec<u8>> = protocols.iter().map(|name| name.to_vec()).collect();
        let what = (tls.verify, tls.authorities.clone(), protocols);
        // A poisoned lock holds as good a map as any.
        let mut known = self.0.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
        if let Some((made, config)) = known.get(&what)
            && made.elapsed() < FRESH
        {
            return Ok(Arc::clone(config));
        }
        let config = Arc::new(make(&what).map_err(Trouble::Blind)?);
        known.insert(what, (Instant::now(), Arc::clone(&config)));
        Ok(config)
    }
}

fn make((verify, authorities, protocols): &What) -> Result<ClientConfig, String> {
    let provider = Arc::new(ring::default_provider());
    let builder = ClientConfig::builder_with_provider(Arc::clone(&provider));
    let builder = builder.with_safe_default_protocol_versions().map_err(|e| e.to_string())?;
    let mut config = if *verify {
        builder.with_root_certificates(roots(authorities.as_deref())?).with_no_client_auth()
    } else {
        let any = Arc::new(Anybody(provider.signature_verification_algorithms));
        builder.dangerous().with_custom_certificate_verifier(any).with_no_client_auth()
    };
    config.alpn_protocols.clone_from(protocols);
    // Each probe is to see a whole handshake.
    config.resumption = rustls::client::Resumption::disabled();
    Ok(config)
}

fn roots(file: Option<&Path>) -> Result<RootCertStore, String> {
    let mut store = RootCertStore::empty();
    let found: Vec<CertificateDer<'static>> = match file {
        Some(file) => {
            let read = CertificateDer::pem_file_iter(file).and_then(Iterator::collect);
            read.map_err(|error| format!("cannot read {}: {error}", file.display()))?
        }
        None => rustls_native_certs::load_native_certs().certs,
    };
    store.add_parsable_certificates(found);
    if store.is_empty() {
        let whose = file.map_or("the system".to_owned(), |file| file.display().to_string());
        return Err(format!("{whose} has no certificate authority"));
    }
    Ok(store)
}

/// Shakes hands over a connection.
pub async fn secure(
    stream: TcpStream,
    to: SocketAddr,
    tls: &Tls,
    contexts: &Contexts,
    protocols: &[&[u8]],
) -> Result<TlsStream<TcpStream>, Trouble> {
    let config = contexts.get(tls, protocols)?;
    let name = match &tls.name {
        Some(name) => ServerName::try_from(name.clone())
            .map_err(|_| Trouble::Blind(format!("{name:?} is no name of a server")))?,
        None => ServerName::from(to.ip()),
    };
    let secured = TlsConnector::from(config).connect(name, stream).await;
    secured.map_err(|error| {
        let inner = error.get_ref().and_then(|inner| inner.downcast_ref::<rustls::Error>());
        let text = inner.map_or_else(|| words(&error), ToString::to_string);
        Trouble::Peer(format!("TLS: {text}"))
    })
}

/// A remark on a certificate that ends soon.
pub fn remark(stream: &TlsStream<TcpStream>, tls: &Tls) -> String {
    let certificates = stream.get_ref().1.peer_certificates().unwrap_or_default();
    let Some(ends) = certificates.first().and_then(|own| ends_at(own)) else {
        return String::new();
    };
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs() as i64;
    match (ends - now).div_euclid(DAY_S) {
        ..0 => ", its certificate has expired".to_owned(),
        days if days < i64::from(tls.expiry_days) => {
            format!(", its certificate ends in {days} days")
        }
        _ => String::new(),
    }
}

/// Takes any certificate, but has its owner prove that it is theirs.
#[derive(Debug)]
struct Anybody(WebPkiSupportedAlgorithms);

impl ServerCertVerifier for Anybody {
    fn verify_server_cert(
        &self,
        _: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        _: &[u8],
        _: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        rustls::crypto::verify_tls12_signature(message, certificate, signed, &self.0)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        rustls::crypto::verify_tls13_signature(message, certificate, signed, &self.0)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.0.supported_schemes()
    }
}
