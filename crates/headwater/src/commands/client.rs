//! Asking a server: over its administration socket, or over HTTPS with a token.
use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::{Context, bail};
use http_body_util::{BodyExt, Full, Limited};
use hyper::body::{Bytes, Incoming};
use hyper::client::conn::http1::{SendRequest, handshake};
use hyper::{Method, Request, Response, StatusCode};
use hyper_util::rt::TokioIo;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::{ClientConfig, RootCertStore};
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::Value;
use tokio::net::{TcpStream, UnixStream};
use tokio_rustls::TlsConnector;

use crate::cli::{DEFAULT_CONFIG, Reach};
use crate::config::{Config, DEFAULT_SOCKET};

/// The longest answer that is read: thousands of devices.
const MAX_ANSWER_BYTES: usize = 256 << 20;

/// The longest token file.
const MAX_TOKEN_BYTES: usize = 4096;

/// The authorities that this machine believes, where `--ca` names no others.
const SYSTEM_AUTHORITIES: &str = "/etc/ssl/certs/ca-certificates.crt";

/// The port of the API, where the address names none.
const API_PORT: u16 = 8443;

/// The way to a server.
#[derive(Clone)]
pub(super) enum Client {
    /// A socket of this machine.
    Socket(PathBuf),
    /// HTTPS.
    Network(Arc<Network>),
}

/// A server on the network.
pub(super) struct Network {
    host: String,
    port: u16,
    tls: TlsConnector,
    token: Option<String>,
}

/// What a request carries besides its path.
#[derive(Clone, Debug, Default)]
pub(super) struct Body {
    /// `Content-Type` and contents.
    pub(super) contents: Option<(&'static str, Vec<u8>)>,
    /// The revision that it is meant for.
    pub(super) revision: Option<u64>,
}

impl Body {
    /// A JSON value.
    pub(super) fn json(value: &Value) -> Self {
        let contents = Some(("application/json", value.to_string().into_bytes()));
        Self { contents, revision: None }
    }
}

/// What the API says when it does not do what it was asked to.
#[derive(Clone, Debug, Deserialize)]
struct Refusal {
    #[serde(default)]
    message: String,
    /// What to do.
    #[serde(default)]
    hint: Option<String>,
    /// Of a table, what is wrong with which rows.
    #[serde(default)]
    rows: Vec<BadRow>,
    /// As the answers had it before there was an API.
    #[serde(default)]
    error: Option<String>,
}

/// What is wrong with a row.
#[derive(Clone, Debug, Deserialize)]
struct BadRow {
    line: u64,
    #[serde(default)]
    column: Option<String>,
    why: String,
}

impl Refusal {
    fn text(&self) -> String {
        let mut text = self.error.clone().unwrap_or_else(|| self.message.clone());
        if let Some(hint) = &self.hint {
            text = format!("{text}: {hint}");
        }
        for row in &self.rows {
            let column = row.column.as_ref().map(|column| format!(", {column}")).unwrap_or_default();
            text = format!("{text}\n  line {}{column}: {}", row.line, row.why);
        }
        text
    }
}

/// An answer that comes line by line.
pub(super) struct Lines {
    body: Incoming,
    rest: Vec<u8>,
}

impl Client {
    /// The server or socket that the command line names, or else the configuration.
    pub(super) fn new(reach: &Reach) -> anyhow::Result<Self> {
        if let Some(server) = &reach.server {
            return network(server, reach).map(|network| Self::Network(Arc::new(network)));
        }
        if let Some(socket) = &reach.socket {
            return Ok(Self::Socket(socket.clone()));
        }
        let socket = match &reach.config {
            Some(path) => Config::load(path)?.admin_socket,
            None => match Config::load(DEFAULT_CONFIG.as_ref()) {
                Ok(config) => config.admin_socket,
                // Whoever may use the socket need not be allowed to read the configuration, with its secrets.
                Err(_) => PathBuf::from(DEFAULT_SOCKET),
            },
        };
        Ok(Self::Socket(socket))
    }

    /// A GET and its answer.
    pub(super) async fn get<T: DeserializeOwned>(&self, path: &str) -> anyhow::Result<T> {
        let bytes = self.bytes(Method::GET, path, Body::default()).await?;
        serde_json::from_slice(&bytes)
            .context("the server's answer is not what this version of headwater expects")
    }

    /// A POST without a body.
    pub(super) async fn post(&self, path: &str) -> anyhow::Result<()> {
        self.request(Method::POST, path, Body::default()).await.map(drop)
    }

    /// Any request, and its answer: null where there is none.
    pub(super) async fn ask(&self, method: Method, path: &str, body: Body) -> anyhow::Result<Value> {
        let bytes = self.bytes(method, path, body).await?;
        if bytes.is_empty() {
            return Ok(Value::Null);
        }
        serde_json::from_slice(&bytes)
            .context("the server's answer is not what this version of headwater expects")
    }

    /// Any request, and the bytes of its answer.
    pub(super) async fn bytes(&self, method: Method, path: &str, body: Body) -> anyhow::Result<Bytes> {
        let response = self.request(method, path, body).await?;
        let body = Limited::new(response.into_body(), MAX_ANSWER_BYTES).collect().await;
        Ok(body.map_err(|error| anyhow::anyhow!("the answer broke off: {error}"))?.to_bytes())
    }

    /// A GET whose answer goes on.
    pub(super) async fn lines(&self, path: &str) -> anyhow::Result<Lines> {
        let response = self.request(Method::GET, path, Body::default()).await?;
        Ok(Lines { body: response.into_body(), rest: Vec::new() })
    }

    async fn request(&self, method: Method, path: &str, body: Body) -> anyhow::Result<Response<Incoming>> {
        let mut request = Request::builder().method(method).uri(path);
        if let Some(revision) = body.revision {
            request = request.header("if-match", format!("\"{revision}\""));
        }
        let contents = match body.contents {
            Some((kind, contents)) => {
                request = request.header("content-type", kind);
                contents
            }
            None => Vec::new(),
        };
        let (mut sender, host) = match self {
            Self::Socket(socket) => (connect_locally(socket).await?, "headwater".to_owned()),
            Self::Network(network) => {
                if let Some(token) = &network.token {
                    request = request.header("authorization", format!("Bearer {token}"));
                }
                (network.connect().await?, format!("{}:{}", network.host, network.port))
            }
        };
        let request = request.header("host", host).body(Full::new(Bytes::from(contents)))?;
        let response = sender.send_request(request).await.context("the server hung up")?;
        if response.status().is_success() {
            return Ok(response);
        }
        Err(refusal(response, path).await)
    }
}

async fn refusal(response: Response<Incoming>, path: &str) -> anyhow::Error {
    let status = response.status();
    let body = Limited::new(response.into_body(), MAX_ANSWER_BYTES).collect().await;
    let body = body.map(http_body_util::Collected::to_bytes).unwrap_or_default();
    match serde_json::from_slice::<Refusal>(&body) {
        Ok(refusal) if refusal.error.is_some() || !refusal.message.is_empty() => {
            anyhow::anyhow!("{}", refusal.text())
        }
        _ if status == StatusCode::NOT_FOUND => {
            anyhow::anyhow!("the server does not know {path}: is it older than this program?")
        }
        _ => anyhow::anyhow!("the server answers {status} to {path}"),
    }
}

async fn connect_locally(socket: &Path) -> anyhow::Result<SendRequest<Full<Bytes>>> {
    let stream = UnixStream::connect(socket).await.with_context(|| {
        format!(
            "no server answers on {} (is \"headwater serve\" running? --socket names another place, --server one on the \
             network; stored boots can be shown without it: headwater boots --state DIR)",
            socket.display()
        )
    })?;
    let (sender, connection) = handshake(TokioIo::new(stream)).await?;
    tokio::spawn(connection);
    Ok(sender)
}

impl Network {
    async fn connect(&self) -> anyhow::Result<SendRequest<Full<Bytes>>> {
        let (host, port) = (&self.host, self.port);
        let stream = TcpStream::connect((host.as_str(), port))
            .await
            .with_context(|| format!("no server answers on {host}:{port}"))?;
        let name =
            ServerName::try_from(host.clone()).with_context(|| format!("{host} is not a host's name"))?;
        let stream = self.tls.connect(name, stream).await.with_context(|| {
            format!("{host}:{port} does not prove that it is {host} (--ca names the certificate to believe)")
        })?;
        let (sender, connection) = handshake(TokioIo::new(stream)).await?;
        tokio::spawn(connection);
        Ok(sender)
    }
}

/// `https://HOST` or `https://HOST:PORT`.
fn address(server: &str) -> anyhow::Result<(String, u16)> {
    let Some(rest) = server.strip_prefix("https://").map(|rest| rest.trim_end_matches('/')) else {
        bail!("--server {server}: is not https://HOST or https://HOST:PORT");
    };
    let bad = || anyhow::anyhow!("--server {server}: is not https://HOST or https://HOST:PORT");
    let (host, port) = match rest.rsplit_once(':') {
        Some((host, port)) if !port.ends_with(']') => (host, port.parse().map_err(|_| bad())?),
        _ => (rest, API_PORT),
    };
    let host = host.trim_start_matches('[').trim_end_matches(']');
    if host.is_empty() || host.contains('/') { Err(bad()) } else { Ok((host.to_owned(), port)) }
}

fn network(server: &str, reach: &Reach) -> anyhow::Result<Network> {
    let (host, port) = address(server)?;
    let authorities = reach.ca.as_deref().unwrap_or(Path::new(SYSTEM_AUTHORITIES));
    let mut roots = RootCertStore::empty();
    let read = || format!("the certificates in {} cannot be read", authorities.display());
    for certificate in CertificateDer::pem_file_iter(authorities).with_context(read)? {
        // Those that are not understood are believed by nobody.
        let _ = roots.add(certificate.with_context(read)?);
    }
    anyhow::ensure!(!roots.is_empty(), "{} holds no certificate", authorities.display());
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let tls = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()?
        .with_root_certificates(roots)
        .with_no_client_auth();
    Ok(Network { host, port, tls: TlsConnector::from(Arc::new(tls)), token: token(reach)? })
}

/// What the caller goes by: a file, or the environment; never the command line, which every user of the machine sees.
fn token(reach: &Reach) -> anyhow::Result<Option<String>> {
    let token = match &reach.token_file {
        Some(path) => {
            let text = std::fs::read_to_string(path)
                .with_context(|| format!("the token in {} cannot be read", path.display()))?;
            Some(text.trim().to_owned())
        }
        None => std::env::var("HEADWATER_TOKEN").ok(),
    };
    if let Some(token) = &token {
        let plain = token.len() <= MAX_TOKEN_BYTES && token.bytes().all(|byte| byte.is_ascii_graphic());
        anyhow::ensure!(plain && !token.is_empty(), "what was given as token is none");
    }
    Ok(token)
}

impl Lines {
    /// The next line; `None` when the server has ended.
    pub(super) async fn next(&mut self) -> anyhow::Result<Option<Vec<u8>>> {
        loop {
            if let Some(end) = self.rest.iter().position(|byte| *byte == b'\n') {
                let after = self.rest.split_off(end.saturating_add(1));
                return Ok(Some(std::mem::replace(&mut self.rest, after)));
            }
            match self.body.frame().await {
                None => return Ok(None),
                Some(Err(error)) => bail!("the server has gone: {error}"),
                Some(Ok(frame)) => self.rest.extend(frame.into_data().unwrap_or_default()),
            }
            if self.rest.len() > MAX_ANSWER_BYTES {
                bail!("the server sends a line without end");
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn address_of_a_server_is_read_with_and_without_its_port() {
        let read = |text: &str| address(text).map_err(|error| error.to_string());
        assert_eq!(read("https://hw1.example.org"), Ok(("hw1.example.org".to_owned(), 8443)));
        assert_eq!(read("https://10.0.0.1:443/"), Ok(("10.0.0.1".to_owned(), 443)));
        assert_eq!(read("https://[fd00::1]:443"), Ok(("fd00::1".to_owned(), 443)));
        assert_eq!(read("https://[fd00::1]"), Ok(("fd00::1".to_owned(), 8443)));
        for bad in ["http://x", "x", "https://", "https://x:y", "https://x/y"] {
            assert!(read(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn refusal_tells_message_hint_and_rows() {
        let text = r#"{"code":"bad-table","message":"the table cannot be imported","hint":"mend it","request_id":"r",
            "rows":[{"line":3,"column":"mac","why":"is none"},{"line":4,"why":"has no name"}]}"#;
        let refusal: Refusal = serde_json::from_str(text).unwrap();
        assert_eq!(
            refusal.text(),
            "the table cannot be imported: mend it\n  line 3, mac: is none\n  line 4: has no name"
        );
    }
}
