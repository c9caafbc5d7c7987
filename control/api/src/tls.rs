//! TLS by rustls, both ends: a server's certificate and key, a client's authorities.

use std::path::Path;
use std::sync::Arc;

use rustls::crypto::ring;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::{ClientConfig, RootCertStore, ServerConfig};

use crate::error::ApiError;
use crate::tokens::read_guarded;

/// The largest file with a key, in bytes.
const KEY_BYTES: u64 = 1 << 20;

/// What a server shows: a chain of certificates, and the key of the first, which is given too.
///
/// # Errors
/// [`ApiError::File`] when a file cannot be read, the key is open to others, or the two do not
/// belong together.
pub(crate) fn server(
    certificate: &Path,
    key: &Path,
) -> Result<(Arc<ServerConfig>, CertificateDer<'static>), ApiError> {
    let chain = certificates(certificate)?;
    let first = chain[0].clone();
    let pem = read_guarded(key, KEY_BYTES)?;
    let private = PrivateKeyDer::from_pem_slice(pem.as_bytes())
        .map_err(|error| ApiError::file(key, format!("there is no private key in it: {error}")))?;
    let made = ServerConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_safe_default_protocol_versions()
        .and_then(|made| made.with_no_client_auth().with_single_cert(chain, private));
    let mut made = made.map_err(|error| {
        let reason = format!("it does not go with the key {}: {error}", key.display());
        ApiError::file(certificate, reason)
    })?;
    made.alpn_protocols = vec![b"http/1.1".to_vec()];
    Ok((Arc::new(made), first))
}

/// What a client trusts: the authorities of a file, or the system's.
///
/// # Errors
/// [`ApiError::File`] when it cannot be read or there is none.
pub(crate) fn client(authorities: Option<&Path>) -> Result<Arc<ClientConfig>, ApiError> {
    let mut roots = RootCertStore::empty();
    let found = match authorities {
        Some(file) => certificates(file)?,
        None => rustls_native_certs::load_native_certs().certs,
    };
    roots.add_parsable_certificates(found);
    if roots.is_empty() {
        let place = authorities.unwrap_or(Path::new("the system's folder of certificates"));
        let reason = "there is no authority to trust; name one with --ca FILE";
        return Err(ApiError::file(place, reason));
    }
    let builder = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()));
    let builder = builder
        .with_safe_default_protocol_versions()
        .map_err(|error| ApiError::file(Path::new("TLS"), format!("cannot be set up: {error}")))?;
    let mut made = builder.with_root_certificates(roots).with_no_client_auth();
    made.alpn_protocols = vec![b"http/1.1".to_vec()];
    Ok(Arc::new(made))
}

fn certificates(file: &Path) -> Result<Vec<CertificateDer<'static>>, ApiError> {
    let read = CertificateDer::pem_file_iter(file).and_then(Iterator::collect);
    let found: Vec<_> = read.map_err(|error| ApiError::file(file, error.to_string()))?;
    match found.is_empty() {
        true => Err(ApiError::file(file, "there is no certificate in it (PEM)")),
        false => Ok(found),
    }
}
