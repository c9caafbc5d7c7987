//! gRPC's health service over HTTP/2, plain or by TLS.

use super::Tools;
use super::tls::secure;
use crate::socket::{Trouble, Way, connect};
use crate::spec::Tls;
use bytes::Bytes;
use h2::client::SendRequest;
use http::{HeaderMap, Request, Response};
use sluice_health::{Finding, grpc};
use std::net::SocketAddr;
use tokio::io::{AsyncRead, AsyncWrite};

pub async fn check(
    to: SocketAddr,
    way: &Way,
    service: &str,
    tls: Option<&Tls>,
    tools: &Tools,
) -> Result<Finding, Trouble> {
    let stream = connect(to, way).await?;
    let Some(tls) = tls else {
        return exchange(stream, &format!("http://{to}{}", grpc::PATH), service).await;
    };
    let authority = tls.name.clone().map_or(to.to_string(), |name| format!("{name}:{}", to.port()));
    let stream = secure(stream, to, tls, &tools.contexts, &[b"h2"]).await?;
    exchange(stream, &format!("https://{authority}{}", grpc::PATH), service).await
}

fn broken(error: impl std::fmt::Display) -> Trouble {
    Trouble::Peer(format!("HTTP/2: {error}"))
}

async fn exchange<S>(stream: S, uri: &str, service: &str) -> Result<Finding, Trouble>
where
    S: AsyncRead + AsyncWrite + Unpin,
{
    let mut settings = h2::client::Builder::new();
    // An answer of one small message needs no more.
    settings.max_header_list_size(16 << 10).max_concurrent_streams(1).enable_push(false);
    let (sender, connection) = settings.handshake::<_, Bytes>(stream).await.map_err(broken)?;
    tokio::select! {
        finding = ask(sender, uri, service) => finding,
        ended = connection => match ended {
            Ok(()) => Err(broken("closed without an answer")),
            Err(error) => Err(broken(error)),
        },
    }
}

async fn ask(sender: SendRequest<Bytes>, uri: &str, service: &str) -> Result<Finding, Trouble> {
    let request = Request::post(uri)
        .header("content-type", "application/grpc")
        .header("te", "trailers")
        .header("user-agent", "sluice-check")
        .body(());
    let request = request.map_err(|error| Trouble::Blind(error.to_string()))?;
    let mut sender = sender.ready().await.map_err(broken)?;
    let (response, mut body) = sender.send_request(request, false).map_err(broken)?;
    body.send_data(Bytes::from(grpc::request(service)), true).map_err(broken)?;
    let response: Response<h2::RecvStream> = response.await.map_err(broken)?;
    if response.status() != http::StatusCode::OK {
        return Ok(Finding::fail(format!("HTTP status {}, expected 200", response.status())));
    }
    // Without a message the status comes with the headers.
    if let Some(refused) = refusal(response.headers()) {
        return Ok(refused);
    }
    let mut answer = Vec::new();
    let mut stream = response.into_body();
    while let Some(piece) = stream.data().await {
        let piece = piece.map_err(broken)?;
        if answer.len() + piece.len() > grpc::ANSWER_BYTES {
            return Ok(Finding::fail("gRPC answer is too long"));
        }
        // The window was enough for the most that is read: nothing need be given back.
        answer.extend_from_slice(&piece);
    }
    let trailers = stream.trailers().await.map_err(broken)?.unwrap_or_default();
    Ok(refusal(&trailers).unwrap_or_else(|| grpc::judge(&answer)))
}

/// What a `grpc-status` other than 0 means.
fn refusal(headers: &HeaderMap) -> Option<Finding> {
    let text = |name: &str| headers.get(name).and_then(|value| value.to_str().ok());
    let code = text("grpc-status").filter(|code| *code != "0")?;
    let message = text("grpc-message").map(|text| format!(": {text}")).unwrap_or_default();
    Some(Finding::fail(format!("gRPC {}{message}", grpc::code_name(code))))
}
