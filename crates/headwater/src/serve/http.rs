//! The public HTTP listener: an accept loop with the limits that strangers need.
//!
//! A machine that boots has one or two connections for as long as a file takes. Whoever asks for large files and does not
//! read them holds as many as one address may have, until nothing has been taken for two minutes
//! ([`connections::TcpSetup`]).
use std::net::SocketAddr;
use std::time::{Duration, Instant};

use axum::extract::ConnectInfo;
use axum::{Extension, Router};
use connections::{CongestionControl, Quiet, Slots, TcpSetup};
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio_rustls::TlsAcceptor;

/// The most connections at once.
const MAX_CONNECTIONS: usize = 1024;

/// The most of them from the address of a machine that boots.
pub(super) const MAX_CONNECTIONS_OF_MACHINE: usize = 32;

/// The most of them from an address of administrators: an office behind one, or a proxy before all.
pub(super) const MAX_CONNECTIONS_OF_OFFICE: usize = 512;

/// How often refused connections of one address are logged.
const COMPLAIN_EVERY: Duration = Duration::from_secs(10);

/// How long a request's head may take, which also ends idle connections.
const HEAD_WITHIN: Duration = Duration::from_secs(10);

/// How long the loop rests when the process has no file descriptors left.
const REST: Duration = Duration::from_millis(100);

/// Serves, with TLS where there is a certificate, and at most so many connections from one address, until `stopping` becomes
/// true; connections that are open then end with their current request or with the process.
pub(super) async fn serve(
    listener: TcpListener,
    tls: Option<TlsAcceptor>,
    router: Router,
    of_address: usize,
    mut stopping: watch::Receiver<bool>,
) {
    let slots = Slots::new(MAX_CONNECTIONS, of_address);
    let complaints = Quiet::new(COMPLAIN_EVERY);
    loop {
        let accepted = tokio::select! {
            accepted = listener.accept() => accepted,
            () = stopped(&mut stopping) => return,
        };
        match accepted {
            Ok((stream, peer)) => {
                let slot = match slots.take(peer.ip().to_canonical()) {
                    Ok(slot) => slot,
                    Err(why) => {
                        if let Some(held_back) = complaints.due(peer.ip(), Instant::now()) {
                            tracing::warn!(%peer, held_back, "HTTP connection refused: {why}");
                        }
                        continue;
                    }
                };
                let (router, tls, stopping) = (router.clone(), tls.clone(), stopping.clone());
                tokio::spawn(async move {
                    begin(stream, peer, tls, router, stopping).await;
                    drop(slot);
                });
            }
            Err(error) => {
                tracing::warn!(%error, "HTTP connection not accepted");
                tokio::time::sleep(REST).await;
            }
        }
    }
}

async fn begin(
    stream: TcpStream,
    peer: SocketAddr,
    tls: Option<TlsAcceptor>,
    router: Router,
    stopping: watch::Receiver<bool>,
) {
    let setup = TcpSetup { send_buffer_bytes: None, congestion_control: CongestionControl::default() };
    if let Err(error) = setup.apply(&stream) {
        tracing::debug!(%peer, %error, "HTTP connection ended at once");
        return;
    }
    let service = router.layer(Extension(ConnectInfo(peer)));
    let Some(tls) = tls else { return connection(stream, peer, service, stopping).await };
    match tokio::time::timeout(HEAD_WITHIN, tls.accept(stream)).await {
        Ok(Ok(stream)) => connection(stream, peer, service, stopping).await,
        Ok(Err(error)) => tracing::debug!(%peer, %error, "TLS handshake failed"),
        Err(_) => tracing::debug!(%peer, "TLS handshake did not end in time"),
    }
}

async fn connection(
    stream: impl AsyncRead + AsyncWrite + Unpin,
    peer: SocketAddr,
    service: Router,
    mut stopping: watch::Receiver<bool>,
) {
    let mut builder = hyper::server::conn::http1::Builder::new();
    builder.timer(TokioTimer::new()).header_read_timeout(HEAD_WITHIN);
    let connection = builder.serve_connection(TokioIo::new(stream), TowerToHyperService::new(service));
    let mut connection = std::pin::pin!(connection);
    let result = tokio::select! {
        result = connection.as_mut() => result,
        () = stopped(&mut stopping) => {
            connection.as_mut().graceful_shutdown();
            connection.await
        }
    };
    if let Err(error) = result {
        tracing::debug!(%peer, %error, "HTTP connection ended");
    }
}

/// Waits until the server stops.
async fn stopped(stopping: &mut watch::Receiver<bool>) {
    let _ = stopping.wait_for(|stopping| *stopping).await;
}
