//! Probes over a connection: a TLS handshake, and HTTP over it or plain.

use super::Tools;
use super::tls::{remark, secure};
use crate::socket::{Trouble, Way, connect, peer};
use crate::spec::Tls;
use sluice_health::Finding;
use sluice_health::http::{Reader, Wanted};
use std::net::SocketAddr;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};

/// How much is read at a time, in bytes.
const PIECE: usize = 8 << 10;

pub async fn handshake(
    to: SocketAddr,
    way: &Way,
    tls: &Tls,
    tools: &Tools,
) -> Result<Finding, Trouble> {
    let stream = secure(connect(to, way).await?, to, tls, &tools.contexts, &[]).await?;
    let version = match stream.get_ref().1.protocol_version() {
        Some(rustls::ProtocolVersion::TLSv1_3) => "TLS 1.3",
        Some(rustls::ProtocolVersion::TLSv1_2) => "TLS 1.2",
        _ => "TLS",
    };
    Ok(Finding::pass(format!("{version}{}", remark(&stream, tls))))
}

pub async fn http(
    to: SocketAddr,
    way: &Way,
    (request, wanted): (&[u8], &Wanted),
    tls: Option<&Tls>,
    tools: &Tools,
) -> Result<Finding, Trouble> {
    let mut stream = connect(to, way).await?;
    let Some(tls) = tls else { return exchange(&mut stream, request, wanted).await };
    let mut stream = secure(stream, to, tls, &tools.contexts, &[b"http/1.1"]).await?;
    let mut finding = exchange(&mut stream, request, wanted).await?;
    finding.text.push_str(&remark(&stream, tls));
    Ok(finding)
}

async fn exchange(
    stream: &mut (impl AsyncRead + AsyncWrite + Unpin),
    request: &[u8],
    wanted: &Wanted,
) -> Result<Finding, Trouble> {
    let sent = async {
        stream.write_all(request).await?;
        stream.flush().await
    };
    sent.await.map_err(|error| peer("send", &error))?;
    let mut reader = Reader::new(wanted.clone());
    let mut piece = vec![0; PIECE];
    loop {
        let length = match stream.read(&mut piece).await {
            Ok(0) => return Ok(reader.end()),
            Ok(length) => length,
            // Some close without saying so, which over TLS is an error.
            Err(error) if error.kind() == std::io::ErrorKind::UnexpectedEof => {
                return Ok(reader.end());
            }
            Err(error) => return Err(peer("receive", &error)),
        };
        if let Some(finding) = reader.feed(&piece[..length]) {
            return Ok(finding);
        }
    }
}
