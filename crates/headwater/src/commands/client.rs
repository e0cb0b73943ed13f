//! Asking the server over its administration socket.
use std::path::PathBuf;

use anyhow::{Context, bail};
use http_body_util::{BodyExt, Empty, Limited};
use hyper::body::{Bytes, Incoming};
use hyper::{Method, Request, Response, StatusCode};
use hyper_util::rt::TokioIo;
use serde::de::DeserializeOwned;
use tokio::net::UnixStream;

use crate::admin::api::ErrorAnswer;
use crate::cli::{ClientArgs, DEFAULT_CONFIG};
use crate::config::{Config, DEFAULT_SOCKET};

/// The longest answer that is read: thousands of devices.
const MAX_ANSWER_BYTES: usize = 256 << 20;

/// The way to a server.
#[derive(Clone, Debug)]
pub(super) struct Client {
    socket: PathBuf,
}

/// An answer that comes line by line.
pub(super) struct Lines {
    body: Incoming,
    rest: Vec<u8>,
}

impl Client {
    /// The socket that the command line names, or else the configuration.
    pub(super) fn new(args: &ClientArgs) -> anyhow::Result<Self> {
        if let Some(socket) = &args.socket {
            return Ok(Self { socket: socket.clone() });
        }
        let socket = match &args.config {
            Some(path) => Config::load(path)?.admin_socket,
            None => match Config::load(DEFAULT_CONFIG.as_ref()) {
                Ok(config) => config.admin_socket,
                // Whoever may use the socket need not be allowed to read the configuration, with its secrets.
                Err(_) => PathBuf::from(DEFAULT_SOCKET),
            },
        };
        Ok(Self { socket })
    }

    /// A GET and its answer.
    pub(super) async fn get<T: DeserializeOwned>(&self, path: &str) -> anyhow::Result<T> {
        let response = self.request(Method::GET, path).await?;
        let body = Limited::new(response.into_body(), MAX_ANSWER_BYTES).collect().await;
        let body = body.map_err(|error| anyhow::anyhow!("the answer broke off: {error}"))?.to_bytes();
        serde_json::from_slice(&body)
            .context("the server's answer is not what this version of headwater expects")
    }

    /// A POST without a body.
    pub(super) async fn post(&self, path: &str) -> anyhow::Result<()> {
        self.request(Method::POST, path).await.map(drop)
    }

    /// A GET whose answer goes on.
    pub(super) async fn lines(&self, path: &str) -> anyhow::Result<Lines> {
        Ok(Lines { body: self.request(Method::GET, path).await?.into_body(), rest: Vec::new() })
    }

    async fn request(&self, method: Method, path: &str) -> anyhow::Result<Response<Incoming>> {
        let socket = self.socket.display();
        let stream = UnixStream::connect(&self.socket).await.with_context(|| {
            format!(
                "no server answers on {socket} (is \"headwater serve\" running? --socket names another place; \
                 stored boots can be shown without it: headwater boots --state DIR)"
            )
        })?;
        let (mut sender, connection) = hyper::client::conn::http1::handshake(TokioIo::new(stream)).await?;
        tokio::spawn(connection);
        let request = Request::builder()
            .method(method)
            .uri(path)
            .header("host", "headwater")
            .body(Empty::<Bytes>::new())?;
        let response = sender.send_request(request).await?;
        if response.status().is_success() {
            return Ok(response);
        }
        let status = response.status();
        let body = Limited::new(response.into_body(), MAX_ANSWER_BYTES).collect().await;
        let body = body.map(http_body_util::Collected::to_bytes).unwrap_or_default();
        match serde_json::from_slice::<ErrorAnswer>(&body) {
            Ok(answer) => bail!("{}", answer.error),
            Err(_) if status == StatusCode::NOT_FOUND => {
                bail!("the server does not know {path}: is it older than this program?")
            }
            Err(_) => bail!("the server answers {status} to {path}"),
        }
    }
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
