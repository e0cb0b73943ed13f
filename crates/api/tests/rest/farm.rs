//! A farm to ask, and a server that is none.
use std::net::SocketAddr;
use std::sync::atomic::{AtomicI64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::SystemTime;

use api::guest_commands::{CommandState, CommandStatus, CommandWanted, CommandedDevice};
use api::live::{
    AdmissionStatus, DeviceStatus, Followed, Live, PresenceChange, Requests, ServerStatus, Stats,
    TraceStatus, TraceWanted,
};
use api::{Api, Door};
use axum::body::Body;
use axum::extract::ConnectInfo;
use axum::http::{HeaderMap, Method, Request, StatusCode};
use axum::{Extension, Router};
use control::people::People;
use control::{Clock, Control, ControlError, Options};
use farm::catalogue::Catalogue;
use farm::model::{DeviceName, Id, SecretName, Timestamp};
use farm::snapshot::{SharedSnapshot, Snapshot};
use http_body_util::BodyExt;
use serde_json::{Value, json};
use tokio::sync::{mpsc, watch};
use tower::ServiceExt;

pub(crate) struct Farm {
    pub(crate) local: Router,
    pub(crate) network: Router,
    pub(crate) control: Arc<Control>,
    pub(crate) people: Arc<People>,
    pub(crate) stop: watch::Sender<bool>,
    pub(crate) resets: Arc<Mutex<Vec<(String, bool)>>>,
    ahead_ms: Arc<AtomicI64>,
    _folder: tempfile::TempDir,
}

/// An answer.
#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) status: StatusCode,
    pub(crate) headers: HeaderMap,
    pub(crate) text: String,
}

impl Answer {
    pub(crate) fn json(&self) -> Value {
        serde_json::from_str(&self.text).unwrap_or_else(|error| panic!("{error}: {self:?}"))
    }

    pub(crate) fn header(&self, name: &str) -> &str {
        self.headers.get(name).map_or("", |value| value.to_str().unwrap())
    }

    /// As it should be.
    pub(crate) fn is(self, status: u16) -> Value {
        assert_eq!(self.status.as_u16(), status, "{}", self.text);
        if self.text.is_empty() { Value::Null } else { self.json() }
    }

    /// A failure of this kind.
    pub(crate) fn fails(self, status: u16, code: &str) -> Value {
        let value = self.is(status);
        assert_eq!(value["code"], code, "{value}");
        assert!(value["request_id"].as_str().is_some_and(|id| !id.is_empty()), "{value}");
        value
    }
}

impl Farm {
    pub(crate) fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let catalogue = Catalogue::open_file(&folder.path().join("farm.db")).unwrap();
        let snapshot = Arc::new(SharedSnapshot::new(Snapshot::load(&catalogue).unwrap()));
        let ahead_ms = Arc::new(AtomicI64::new(0));
        let told = Arc::clone(&ahead_ms);
        let clock: Clock = Arc::new(move || {
            let now: Timestamp = SystemTime::now().into();
            Timestamp::from_ms(now.ms() + told.load(Ordering::Relaxed))
        });
        let options = Options { clock, ..Options::of(Id::new(1).unwrap()) };
        let control = Control::open(catalogue, snapshot, options);
        let people = Arc::new(People::default());
        let (stop, stopping) = watch::channel(false);
        let resets = Arc::default();
        let live = Arc::new(NoServer {
            resets: Arc::clone(&resets),
            secrets: Mutex::default(),
            commands: Mutex::default(),
        });
        let api = Api::new(Arc::clone(&control), Arc::clone(&people), live, stopping);
        let peer = ConnectInfo(SocketAddr::from(([10, 0, 0, 7], 50_000)));
        let network = api::router(Arc::clone(&api), Door::Network).layer(Extension(peer));
        let local = api::router(api, Door::Local);
        Self { local, network, control, people, stop, resets, ahead_ms, _folder: folder }
    }

    /// Lets the farm's clock go on.
    pub(crate) fn wait(&self, seconds: i64) {
        self.ahead_ms.fetch_add(seconds * 1000, Ordering::Relaxed);
    }

    /// With one site, one server, one store, two collections and one vDisk.
    pub(crate) async fn furnished() -> Self {
        let farm = Self::new();
        let bodies = [
            ("farm", json!({"name": "Works"})),
            ("sites", json!({"name": "Main"})),
            ("servers", json!({"name": "one.example.org", "site": "Main", "addresses": ["10.0.0.1"]})),
            (
                "stores",
                json!({"name": "images", "paths": [{"server": "one.example.org", "path": "/srv/images"}]}),
            ),
            ("collections", json!({"name": "lab", "site": "Main", "newcomers": "lab-###"})),
            ("collections", json!({"name": "office", "site": "Main"})),
            ("vdisks", json!({"name": "win11", "store": "images"})),
        ];
        for (kind, body) in bodies {
            farm.post(&format!("/v1/{kind}"), &body).await.is(201);
        }
        farm
    }

    pub(crate) async fn get(&self, path: &str) -> Answer {
        self.send(Method::GET, path, &[], None).await
    }

    pub(crate) async fn post(&self, path: &str, body: &Value) -> Answer {
        self.send(Method::POST, path, &[], Some(body)).await
    }

    pub(crate) async fn patch(&self, path: &str, tag: &str, body: &Value) -> Answer {
        self.send(Method::PATCH, path, &[("if-match", tag)], Some(body)).await
    }

    pub(crate) async fn delete(&self, path: &str, tag: &str) -> Answer {
        self.send(Method::DELETE, path, &[("if-match", tag)], None).await
    }

    /// As root on the server.
    pub(crate) async fn send(
        &self,
        method: Method,
        path: &str,
        headers: &[(&str, &str)],
        body: Option<&Value>,
    ) -> Answer {
        ask(&self.local, method, path, headers, body).await
    }

    /// Over the network, with what is shown.
    pub(crate) async fn with(
        &self,
        secret: Option<&str>,
        method: Method,
        path: &str,
        body: Option<&Value>,
    ) -> Answer {
        let bearer = secret.map(|secret| format!("Bearer {secret}"));
        let headers: Vec<(&str, &str)> = match &bearer {
            Some(bearer) => vec![("authorization", bearer.as_str()), ("if-match", "*")],
            None => Vec::new(),
        };
        ask(&self.network, method, path, &headers, body).await
    }
}

pub(crate) async fn ask(
    router: &Router,
    method: Method,
    path: &str,
    headers: &[(&str, &str)],
    body: Option<&Value>,
) -> Answer {
    let mut request = Request::builder().method(method).uri(path);
    for (name, value) in headers {
        request = request.header(*name, *value);
    }
    let own_type = headers.iter().any(|(name, _)| *name == "content-type");
    if body.is_some() && !own_type {
        request = request.header("content-type", "application/json");
    }
    let body = match body {
        None => Body::empty(),
        // A text is sent as it is.
        Some(Value::String(text)) if own_type => Body::from(text.clone()),
        Some(body) => Body::from(body.to_string()),
    };
    let response = router.clone().oneshot(request.body(body).unwrap()).await.unwrap();
    let (parts, body) = response.into_parts();
    let bytes = body.collect().await.unwrap().to_bytes();
    Answer { status: parts.status, headers: parts.headers, text: String::from_utf8(bytes.to_vec()).unwrap() }
}

fn trace_status(state: &str) -> TraceStatus {
    TraceStatus { state: state.to_owned(), recorded: 1, dropped: 0, file: "t".to_owned(), trouble: None }
}

/// A server with one boot and no devices that run.
struct NoServer {
    commands: Mutex<Vec<CommandStatus>>,
    secrets: Mutex<std::collections::BTreeMap<String, String>>,
    resets: Arc<Mutex<Vec<(String, bool)>>>,
}

impl Live for NoServer {
    fn status(&self) -> ServerStatus {
        ServerStatus {
            version: "0.1.0".to_owned(),
            uptime_s: 1,
            iscsi: vec![SocketAddr::from(([127, 0, 0, 1], 3260))],
            nbd: Vec::new(),
            http: SocketAddr::from(([127, 0, 0, 1], 80)),
            devices: 0,
            sessions: 0,
            catalogue_change: 0,
            catalogue_trouble: None,
            admission: AdmissionStatus::default(),
            network: Vec::new(),
            process: api::live::ProcessStatus::default(),
        }
    }

    fn stats(&self) -> Stats {
        Stats { uptime_us: 1, accounts: Vec::new() }
    }

    fn metrics(&self) -> String {
        "# HELP headwater_up up\n".to_owned()
    }

    fn devices(&self) -> Vec<DeviceStatus> {
        Vec::new()
    }

    fn device(&self, name: &DeviceName) -> Option<DeviceStatus> {
        (name.as_str() == "lab-001").then(|| DeviceStatus {
            name: name.to_string(),
            mac: None,
            server: None,
            vdisk: None,
            version: None,
            vdisk_id: None,
            initiator: "iqn.2026-01.org.example:lab-001".to_owned(),
            status: "off".into(),
            presence: "online".into(),
            boot: None,
            sessions: 0,
            write_cache: None,
            path: None,
            kept_out: None,
            secrets_told: false,
            takes_commands: true,
        })
    }

    fn secrets(&self) -> Vec<String> {
        self.secrets.lock().unwrap().keys().cloned().collect()
    }

    fn keep_secret(&self, name: &SecretName, secret: Option<&str>) -> Result<bool, ControlError> {
        let mut kept = self.secrets.lock().unwrap();
        Ok(match secret {
            Some(secret) => kept.insert(name.to_string(), secret.to_owned()).is_some(),
            None => kept.remove(name.as_str()).is_some(),
        })
    }

    fn wake(&self, name: &DeviceName) -> Result<Vec<String>, ControlError> {
        match name.as_str() {
            "off" => Err(ControlError::new(control::Code::NotFound, "no network card")),
            _ => Ok(vec!["eth1".to_owned()]),
        }
    }

    /// Of any devices but "off", which is.
    fn give_command(
        &self,
        devices: &[DeviceName],
        wanted: &CommandWanted,
    ) -> Result<CommandStatus, ControlError> {
        let item = |name: &DeviceName| {
            let off = name.as_str() == "off";
            let state = if off { CommandState::Refused } else { CommandState::Pending };
            let problem = off.then(|| "it is off".to_owned());
            CommandedDevice { name: name.to_string(), state, heard_s: None, problem }
        };
        let mut commands = self.commands.lock().unwrap();
        let status = CommandStatus {
            id: (!wanted.dry_run).then_some(7 + commands.len() as u64),
            command: wanted.kind,
            text: Some(wanted.text.clone()),
            by: wanted.by.clone(),
            given_at: "2026-01-01T00:00:00Z".to_owned(),
            expires_at: format!("{}", wanted.expires_in.as_secs()),
            items: devices.iter().map(item).collect(),
        };
        if !wanted.dry_run {
            commands.insert(0, status.clone());
        }
        Ok(status)
    }

    fn commands(&self) -> Vec<CommandStatus> {
        self.commands.lock().unwrap().clone()
    }

    fn reset(&self, name: &DeviceName, discard_persistent: bool) -> Result<(), ControlError> {
        self.resets.lock().unwrap().push((name.to_string(), discard_persistent));
        Ok(())
    }

    fn boots(&self) -> Result<Vec<Value>, ControlError> {
        Ok(vec![json!({"id": "b1", "device": "in"}), json!({"id": "b3", "device": "out"})])
    }

    fn boots_of(&self, wanted: &str) -> Result<Vec<Value>, ControlError> {
        let mut boots = self.boots()?;
        boots.retain(|boot| boot["id"] == wanted);
        Ok(boots)
    }

    fn trace_start(&self, _: &DeviceName, wanted: &TraceWanted) -> Result<TraceStatus, ControlError> {
        let state = if wanted.next_boot { "waiting" } else { "recording" };
        Ok(trace_status(state))
    }

    fn trace_stop(&self, name: &DeviceName) -> Option<TraceStatus> {
        (name.as_str() == "lab-001").then(|| trace_status("done"))
    }

    fn trace(&self, name: &DeviceName) -> Option<TraceStatus> {
        self.trace_stop(name)
    }

    fn trace_table(&self, name: &DeviceName) -> Result<Option<String>, ControlError> {
        Ok((name.as_str() == "lab-001").then(|| "time_us,operation,offset,length\n".to_owned()))
    }

    fn boots_under_way(&self) -> Result<Vec<Value>, ControlError> {
        Ok(vec![json!({"id": "b0"})])
    }

    fn follow(&self, _: Requests) -> mpsc::Receiver<Followed> {
        let (sender, receiver) = mpsc::channel(2);
        sender.try_send(Followed::Boot(json!({"id": "b1"}))).unwrap();
        sender.try_send(Followed::Lost).unwrap();
        // There may always be more.
        tokio::spawn(async move { sender.closed().await });
        receiver
    }

    fn follow_presence(&self) -> mpsc::Receiver<PresenceChange> {
        let (sender, receiver) = mpsc::channel(2);
        for (device, presence) in [("out", "lost"), ("in", "online")] {
            let before = Some("booting".to_owned());
            let change = PresenceChange { device: device.to_owned(), presence: presence.to_owned(), before };
            sender.try_send(change).unwrap();
        }
        receiver
    }
}
