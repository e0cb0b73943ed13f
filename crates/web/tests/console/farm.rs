//! A farm with a console on it, a server that only tells what it is told to tell, and a browser.
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, AtomicI64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, SystemTime};

use api::guest_commands::{CommandState, CommandStatus, CommandWanted, CommandedDevice};
use api::host::{
    Effect, FindingLevel, HostFinding, HostReport, NetworkReport, NewSettings, SettingStatus, SettingsStatus,
};
use api::live::{
    DeviceStatus, Followed, KeptOut, Live, Requests, ServerStatus, Stats, TraceStatus, TraceWanted,
    WriteCacheStatus,
};
use api::{Api, Door};
use axum::body::Body;
use axum::extract::ConnectInfo;
use axum::http::{HeaderMap, Method, Request, StatusCode};
use axum::{Extension, Router};
use control::people::People;
use control::{Clock, Control, ControlError, Options};
use farm::catalogue::Catalogue;
use farm::model::{DeviceName, Id, Owner, Purpose, ServerId, Sharing, Subject, Timestamp};
use farm::rules::leases::Wanted;
use farm::snapshot::{SharedSnapshot, Snapshot};
use http_body_util::BodyExt;
use serde_json::{Value, json};
use tokio::sync::{mpsc, watch};
use tower::ServiceExt;
use web::Console;

/// A password that is taken.
pub(crate) const PASSWORD: &str = "correct-horse-battery";

pub(crate) struct Farm {
    pub(crate) console: Router,
    local: Router,
    pub(crate) control: Arc<Control>,
    people: Arc<People>,
    pub(crate) resets: Arc<Mutex<Vec<String>>>,
    pub(crate) recordings: Arc<Mutex<Vec<String>>>,
    /// The devices that could not log in.
    pub(crate) kept_out: Arc<Mutex<Vec<KeptOut>>>,
    /// The vDisk that `lab-01` runs.
    runs: Arc<AtomicI64>,
    /// Whether `office-01` runs from the server `branch`.
    pub(crate) elsewhere: Arc<AtomicBool>,
    ahead_ms: Arc<AtomicI64>,
    _stop: watch::Sender<bool>,
    _folder: tempfile::TempDir,
}

impl Farm {
    /// With one site, one server, one store, two collections, two vDisks and three devices.
    pub(crate) async fn new() -> Self {
        let farm = Self::empty();
        let bodies = [
            ("farm", json!({"name": "Works"})),
            ("sites", json!({"name": "Main"})),
            ("servers", json!({"name": "one.example.org", "site": "Main", "addresses": ["10.0.0.1"]})),
            (
                "stores",
                json!({"name": "images", "paths": [{"server": "one.example.org", "path": "/srv/images"}]}),
            ),
            ("collections", json!({"name": "lab", "site": "Main"})),
            ("collections", json!({"name": "office", "site": "Main"})),
            ("vdisks", json!({"name": "win11", "store": "images"})),
            ("vdisks", json!({"name": "debian", "store": "images"})),
            (
                "devices",
                json!({"name": "lab-01", "collection": "lab", "macs": ["52:54:00:77:00:10"], "disks": [{"vdisk": "debian"}]}),
            ),
            (
                "devices",
                json!({"name": "lab-02", "collection": "lab", "macs": ["52:54:00:77:00:11"], "kind": "test"}),
            ),
            ("devices", json!({"name": "office-01", "collection": "office", "macs": ["52:54:00:77:00:20"]})),
        ];
        for (kind, body) in bodies {
            farm.root(Method::POST, &format!("/v1/{kind}"), &body).await;
        }
        let debian = farm.root(Method::GET, "/v1/vdisks/debian", &Value::Null).await;
        farm.runs.store(debian["id"].as_i64().unwrap(), Ordering::Relaxed);
        farm
    }

    /// Without anything.
    pub(crate) fn empty() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let catalogue = Catalogue::open_file(&folder.path().join("farm.db")).unwrap();
        let snapshot = Arc::new(SharedSnapshot::new(Snapshot::load(&catalogue).unwrap()));
        let ahead_ms = Arc::new(AtomicI64::new(0));
        let told = Arc::clone(&ahead_ms);
        let clock: Clock = Arc::new(move || {
            let now: Timestamp = SystemTime::now().into();
            Timestamp::from_ms(now.ms() + told.load(Ordering::Relaxed))
        });
        // Objects are numbered as they come: the farm, a site, this server.
        let caches = Some(folder.path().to_owned());
        let options = Options { clock, caches, ..Options::of(Id::new(3).unwrap()) };
        let control = Control::open(catalogue, snapshot, options);
        let people = Arc::new(People::default());
        let (stop, stopping) = watch::channel(false);
        let resets: Arc<Mutex<Vec<String>>> = Arc::default();
        let recordings: Arc<Mutex<Vec<String>>> = Arc::default();
        let runs: Arc<AtomicI64> = Arc::default();
        let elsewhere: Arc<AtomicBool> = Arc::default();
        let kept_out: Arc<Mutex<Vec<KeptOut>>> = Arc::default();
        let live = Arc::new(ToldServer {
            resets: Arc::clone(&resets),
            recordings: Arc::clone(&recordings),
            kept_out: Arc::clone(&kept_out),
            runs: Arc::clone(&runs),
            elsewhere: Arc::clone(&elsewhere),
            settings: Mutex::new(settings()),
            report: Mutex::default(),
        });
        let api = Api::new(Arc::clone(&control), Arc::clone(&people), live.clone(), stopping.clone());
        let network = api::router(Arc::clone(&api), Door::Network);
        let console = Console::start(Arc::clone(&control), Arc::clone(&people), network, live, stopping);
        let peer = ConnectInfo(SocketAddr::from(([10, 0, 0, 7], 50_000)));
        let console = web::router(console).layer(Extension(peer));
        let local = api::router(api, Door::Local);
        Self {
            console,
            local,
            control,
            people,
            resets,
            recordings,
            kept_out,
            runs,
            elsewhere,
            ahead_ms,
            _stop: stop,
            _folder: folder,
        }
    }

    /// Lets the farm's clock go on.
    pub(crate) fn wait(&self, duration: Duration) {
        let ms = i64::try_from(duration.as_millis()).unwrap();
        self.ahead_ms.fetch_add(ms, Ordering::Relaxed);
    }

    /// A server tells what it carries, so many seconds from now by its own clock; `None`: that it stops.
    pub(crate) async fn report(&self, server: &str, load: Option<Value>, from_now_s: i64) {
        let server = self.root(Method::GET, &format!("/v1/servers/{server}"), &Value::Null).await;
        let server: ServerId = Id::new(server["id"].as_i64().unwrap()).unwrap();
        let at = Timestamp::from_ms(self.control.now().ms() + from_now_s * 1000);
        let (by, load) = (self.control.system(), load.map(|load| load.to_string()));
        let change = self
            .control
            .catalogue()
            .change(by.actor(), at, |change| change.report_server(server, load.as_deref()));
        change.unwrap();
    }

    /// What root on the server does, over the REST API.
    pub(crate) async fn root(&self, method: Method, path: &str, body: &Value) -> Value {
        let request = Request::builder().method(method).uri(path).header("if-match", "*");
        let request = request.header("content-type", "application/json");
        let body = if body.is_null() { Body::empty() } else { Body::from(body.to_string()) };
        let response = self.local.clone().oneshot(request.body(body).unwrap()).await.unwrap();
        let status = response.status();
        let bytes = response.into_body().collect().await.unwrap().to_bytes();
        assert!(status.is_success(), "{path}: {}", String::from_utf8_lossy(&bytes));
        if bytes.is_empty() { Value::Null } else { serde_json::from_slice(&bytes).unwrap() }
    }

    /// A user with a role in the whole farm, or in a collection.
    pub(crate) async fn user(&self, name: &str, role: &str, collection: Option<&str>) {
        self.user_with(name, &json!({"user": name, "role": role, "collection": collection})).await;
    }

    /// A user with a role in a site.
    pub(crate) async fn user_of_site(&self, name: &str, role: &str, site: &str) {
        self.user_with(name, &json!({"user": name, "role": role, "site": site})).await;
    }

    async fn user_with(&self, name: &str, grant: &Value) {
        let user = json!({"name": name, "password": PASSWORD, "must_change_password": false});
        self.root(Method::POST, "/v1/users", &user).await;
        self.root(Method::POST, "/v1/grants", grant).await;
    }

    /// The folder of a store that is there, "local".
    pub(crate) async fn store_folder(&self) -> std::path::PathBuf {
        let folder = self._folder.path().join("store");
        std::fs::create_dir(&folder).unwrap();
        let paths = json!([{"server": "one.example.org", "path": folder}]);
        self.root(Method::POST, "/v1/stores", &json!({"name": "local", "paths": paths})).await;
        folder
    }

    /// The token of the first run.
    pub(crate) fn first_token(&self) -> String {
        self.people.first_run(&self.control).unwrap().unwrap().token.reveal().to_owned()
    }

    /// Lets `lab-01` have vDisk debian alone; the number of that lock.
    pub(crate) fn lock(&self) -> i64 {
        let (vdisk, device) = (Id::new(8).unwrap(), Id::new(9).unwrap());
        let wanted = Wanted {
            subject: Subject::Chain(vdisk),
            sharing: Sharing::Exclusive,
            purpose: Purpose::Maintenance,
            owner: Owner::Device(device),
        };
        let server = self.control.server();
        let lease = self.control.change(&self.control.system(), |change| Ok(change.lease(&wanted, server)?));
        lease.unwrap().fence.get()
    }

    /// Somebody who is logged in.
    pub(crate) async fn browser(&self, user: &str) -> Browser {
        let mut browser = Browser::new(self.console.clone());
        let seen = browser.post("/log-in", &[("user", user), ("password", PASSWORD)]).await;
        assert_eq!(seen.status, StatusCode::SEE_OTHER, "{}", seen.text);
        browser
    }

    /// An administrator of the farm.
    pub(crate) async fn ann(&self) -> Browser {
        self.user("ann", "administrator", None).await;
        self.browser("ann").await
    }
}

/// A page that came.
#[derive(Debug)]
pub(crate) struct Seen {
    pub(crate) status: StatusCode,
    pub(crate) headers: HeaderMap,
    pub(crate) text: String,
}

impl Seen {
    pub(crate) fn header(&self, name: &str) -> &str {
        self.headers.get(name).map_or("", |value| value.to_str().unwrap())
    }

    /// As it should be, with all of these in it.
    pub(crate) fn shows(&self, texts: &[&str]) {
        assert_eq!(self.status, StatusCode::OK, "{}", self.text);
        for text in texts {
            assert!(self.text.contains(text), "{text:?} is missing in {}", self.text);
        }
    }
}

/// Keeps cookies as a browser does, and sends the token that stands in the forms that it is shown.
pub(crate) struct Browser {
    console: Router,
    cookies: Vec<(String, String)>,
    form_token: String,
}

impl Browser {
    pub(crate) const fn new(console: Router) -> Self {
        Self { console, cookies: Vec::new(), form_token: String::new() }
    }

    pub(crate) async fn get(&mut self, path: &str) -> Seen {
        self.send(Method::GET, path, &[], String::new()).await
    }

    /// What the REST API says to whoever is logged in.
    pub(crate) async fn api(&mut self, method: Method, path: &str, content_type: &str, body: String) -> Seen {
        let session = self.cookies.iter().find(|(name, _)| name == "__Host-headwater");
        let bearer = format!("Bearer {}", session.unwrap().1);
        let headers =
            [("authorization", bearer.as_str()), ("content-type", content_type), ("if-match", "\"999999\"")];
        self.send(method, path, &headers, body).await
    }

    /// As htmx asks.
    pub(crate) async fn part(&mut self, path: &str) -> Seen {
        let headers = [("hx-request", "true"), ("hx-current-url", "https://server/devices?q=x")];
        self.send(Method::GET, path, &headers, String::new()).await
    }

    /// Sends a form, with the token of the last page.
    pub(crate) async fn post(&mut self, path: &str, fields: &[(&str, &str)]) -> Seen {
        let token = self.form_token.clone();
        let mut fields = fields.to_vec();
        fields.push(("form_token", &token));
        self.send(Method::POST, path, &[], form(&fields)).await
    }

    /// Sends bytes as a script of the last page does.
    pub(crate) async fn send_with_token(&mut self, path: &str, body: String) -> Seen {
        let token = self.form_token.clone();
        self.send(Method::POST, path, &[("x-form-token", &token)], body).await
    }

    /// As htmx sends a form.
    pub(crate) async fn post_part(&mut self, path: &str) -> Seen {
        let token = self.form_token.clone();
        self.send(Method::POST, path, &[("hx-request", "true")], form(&[("form_token", &token)])).await
    }

    pub(crate) async fn send(
        &mut self,
        method: Method,
        path: &str,
        headers: &[(&str, &str)],
        body: String,
    ) -> Seen {
        let cookies: Vec<String> =
            self.cookies.iter().map(|(name, value)| format!("{name}={value}")).collect();
        let mut request = Request::builder().method(method).uri(path).header("cookie", cookies.join("; "));
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        let response = self.console.clone().oneshot(request.body(Body::from(body)).unwrap()).await.unwrap();
        let (parts, body) = response.into_parts();
        for cookie in parts.headers.get_all("set-cookie") {
            let (pair, attributes) = cookie.to_str().unwrap().split_once(';').unwrap();
            for attribute in ["Path=/", "Secure", "HttpOnly", "SameSite=Lax"] {
                assert!(attributes.contains(attribute), "{cookie:?}");
            }
            let (name, value) = pair.split_once('=').unwrap();
            self.cookies.retain(|(known, _)| known != name);
            if !value.is_empty() {
                self.cookies.push((name.to_owned(), value.to_owned()));
            }
        }
        let bytes = body.collect().await.unwrap().to_bytes();
        let text = String::from_utf8(bytes.to_vec()).unwrap();
        let mark = "name=\"form_token\" value=\"";
        if let Some(at) = text.find(mark) {
            self.form_token = text[at + mark.len()..].split('"').next().unwrap().to_owned();
        }
        Seen { status: parts.status, headers: parts.headers, text }
    }
}

/// A form as it is sent.
pub(crate) fn form(fields: &[(&str, &str)]) -> String {
    let encode = |text: &str| text.bytes().map(|byte| format!("%{byte:02x}")).collect::<String>();
    let pairs: Vec<String> =
        fields.iter().map(|(name, value)| format!("{}={}", encode(name), encode(value))).collect();
    pairs.join("&")
}

/// A server on which `lab-01` runs and has booted.
struct ToldServer {
    resets: Arc<Mutex<Vec<String>>>,
    recordings: Arc<Mutex<Vec<String>>>,
    kept_out: Arc<Mutex<Vec<KeptOut>>>,
    runs: Arc<AtomicI64>,
    elsewhere: Arc<AtomicBool>,
    settings: Mutex<SettingsStatus>,
    report: Mutex<Option<HostReport>>,
}

/// One setting for each moment at which a value takes effect.
fn settings() -> SettingsStatus {
    let item = |key: &str, value: &str, effect, says: &str| SettingStatus {
        key: key.to_owned(),
        value: value.to_owned(),
        configured: value.to_owned(),
        changed: false,
        running: value.to_owned(),
        effect,
        says: says.to_owned(),
    };
    let items = vec![
        item("admission.at_once", "8", Effect::Now, "how many devices boot at a time"),
        item("limits.bandwidth", "none", Effect::NextBoot, "what each device may move in a second"),
        item("boots_kept", "50", Effect::NextStart, "how many boot timelines are kept"),
    ];
    SettingsStatus { revision: 1, items }
}

/// What a server that has little to do carries.
pub(crate) fn load() -> Value {
    json!({
        "version": "0.1.0", "uptime_s": 3725, "devices": 12, "sessions": 13, "booting": 1, "at_once": 20, "waiting": 0, "longest_wait_s": 0,
        "processors_busy": 0.42, "processors": 4, "memory_bytes": 310 << 20, "cache_memory_bytes": 100 << 20,
        "cache_memory_limit_bytes": 1 << 30, "read_bytes_per_second": 25_480_000, "written_bytes_per_second": 1 << 20,
        "requests_per_second": 1480, "hit_share": 0.97,
    })
}

/// What names and files of a host that mean harm look like in a finding.
pub(crate) const HOSTILE: &str = "<script>alert(1)</script>\u{202e}txt.exe\" onmouseover=\"x";

fn report() -> HostReport {
    let finding = |subject: &str, level, found: &str, mend: Option<&str>| HostFinding {
        subject: subject.to_owned(),
        level,
        found: found.to_owned(),
        meaning: mend.map(|_| "Devices do not boot.".to_owned()),
        mend: mend.map(str::to_owned),
    };
    HostReport {
        at: "2026-11-21T10:00:00Z".to_owned(),
        config: "/etc/headwater/headwater.toml".to_owned(),
        problems: 1,
        warnings: 1,
        findings: vec![
            finding("clock", FindingLevel::Ok, "synchronised", None),
            finding("storage", FindingLevel::Warning, HOSTILE, Some("give it another name")),
            finding(
                "ports",
                FindingLevel::Problem,
                "UDP 67 is taken\nby dnsmasq",
                Some("systemctl stop dnsmasq"),
            ),
        ],
    }
}

fn recording() -> TraceStatus {
    TraceStatus {
        state: "done".to_owned(),
        recorded: 3000,
        dropped: 0,
        file: "/var/lib/headwater/traces/lab-01.csv.gz".to_owned(),
        trouble: None,
    }
}

/// A boot that reads the start of the disk again and again, and then runs through a part in its middle.
fn table() -> String {
    let mut text =
        String::from("# headwater block trace 1\n# title: device lab-01, vDisk debian version 2\n");
    text.push_str("# disk_bytes: 42949672960\n# started_unix_us: 1700000000000000\n");
    text.push_str("time_us,operation,offset,length,stage,latency_us,ok\n");
    for n in 0..3000_u64 {
        let (offset, length, stage) = match n {
            0..600 => ((n % 40) * 65_536, 65_536, 1),
            600..1800 => ((3 << 30) + (n - 600) * 131_072, 131_072, 2),
            _ => ((9 << 30) + (n * 7919 % 4096) * 49_152, 4096, 2),
        };
        text.push_str(&format!("{},read,{offset},{length},{stage},{},1\n", n * 1500, 180 + n % 90));
    }
    text
}

impl Live for ToldServer {
    fn status(&self) -> ServerStatus {
        ServerStatus {
            version: "0.1.0".to_owned(),
            uptime_s: 3725,
            iscsi: vec![SocketAddr::from(([127, 0, 0, 1], 3260))],
            nbd: Vec::new(),
            http: SocketAddr::from(([127, 0, 0, 1], 80)),
            devices: 3,
            sessions: 1,
            catalogue_change: 0,
            catalogue_trouble: None,
            admission: api::live::AdmissionStatus::default(),
            network: Vec::new(),
            process: api::live::ProcessStatus {
                cpu_us: 0,
                processors: 4,
                memory_bytes: 310 << 20,
                cache_memory_bytes: 0,
                cache_memory_limit_bytes: 0,
            },
        }
    }

    fn kept_out(&self) -> Vec<KeptOut> {
        self.kept_out.lock().unwrap().clone()
    }

    fn host_report(&self) -> Option<HostReport> {
        self.report.lock().unwrap().clone()
    }

    fn look_at_host(&self, dhcp: bool) -> Result<HostReport, ControlError> {
        if dhcp {
            return Err(ControlError::new(
                control::Code::InUse,
                "somebody else is having the host looked at",
            ));
        }
        *self.report.lock().unwrap() = Some(report());
        Ok(report())
    }

    fn look_at_network(&self, name: &DeviceName) -> Result<NetworkReport, ControlError> {
        if name.as_str() != "lab-01" {
            return Err(ControlError::new(
                control::Code::NotFound,
                format!("device {name} has not logged in"),
            )
            .hint("let it boot first"));
        }
        Ok(NetworkReport {
            device: name.to_string(),
            at: "2026-11-21T10:00:00Z".to_owned(),
            address: "10.0.0.9".to_owned(),
            mtu_bytes: 9000,
            pinged_bytes: Some(1500),
            limited_by: "network".to_owned(),
            text: "lab-01 at 10.0.0.9\npings of more than 1500 bytes do not arrive\n".to_owned(),
        })
    }

    fn settings(&self) -> SettingsStatus {
        self.settings.lock().unwrap().clone()
    }

    fn change_settings(
        &self,
        new: &NewSettings,
        expected: Option<i64>,
        dry_run: bool,
    ) -> Result<SettingsStatus, ControlError> {
        let mut settings = self.settings.lock().unwrap();
        if expected.is_some_and(|expected| expected != settings.revision) {
            return Err(ControlError::new(control::Code::Stale, "somebody changed the settings"));
        }
        let mut changed = settings.clone();
        for (key, value) in new {
            if value.as_deref() == Some("many") {
                return Err(ControlError::bad_value(key, "\"many\" is not a number"));
            }
            let item = changed.items.iter_mut().find(|item| item.key == *key).unwrap();
            item.changed = value.is_some();
            item.value = value.clone().unwrap_or_else(|| item.configured.clone());
            if item.effect != Effect::NextStart {
                item.running = item.value.clone();
            }
        }
        changed.revision += 1;
        if !dry_run {
            *settings = changed.clone();
        }
        Ok(changed)
    }

    fn stats(&self) -> Stats {
        Stats { uptime_us: 1, accounts: Vec::new() }
    }

    fn wake(&self, name: &DeviceName) -> Result<Vec<String>, ControlError> {
        match name.as_str() {
            "lab-01" => Ok(vec!["lan0".to_owned()]),
            _ => Err(ControlError::new(control::Code::Internal, "no network is up")),
        }
    }

    fn give_command(
        &self,
        devices: &[DeviceName],
        wanted: &CommandWanted,
    ) -> Result<CommandStatus, ControlError> {
        let told = |name: &DeviceName| CommandedDevice {
            name: name.to_string(),
            state: if name.as_str() == "lab-01" { CommandState::Pending } else { CommandState::Refused },
            heard_s: None,
            problem: (name.as_str() != "lab-01").then(|| "it is not running".to_owned()),
        };
        Ok(CommandStatus {
            id: Some(1),
            command: wanted.kind,
            text: Some(wanted.text.clone()),
            by: wanted.by.clone(),
            given_at: "2026-11-21T10:00:00Z".to_owned(),
            expires_at: "2026-11-21T10:02:00Z".to_owned(),
            items: devices.iter().map(told).collect(),
        })
    }

    fn trace_start(&self, name: &DeviceName, wanted: &TraceWanted) -> Result<TraceStatus, ControlError> {
        let what = if wanted.next_boot { "next boot" } else { "now" };
        self.recordings.lock().unwrap().push(format!("{name} {what}"));
        Ok(recording())
    }

    fn trace(&self, name: &DeviceName) -> Option<TraceStatus> {
        (name.as_str() == "lab-01").then(recording)
    }

    fn trace_table(&self, name: &DeviceName) -> Result<Option<String>, ControlError> {
        Ok((name.as_str() == "lab-01").then(table))
    }

    fn metrics(&self) -> String {
        "# HELP headwater_up up\n".to_owned()
    }

    fn devices(&self) -> Vec<DeviceStatus> {
        let status = |name: &str| self.device(&DeviceName::new(name).unwrap());
        ["lab-01", "lab-02", "office-01"].into_iter().filter_map(status).collect()
    }

    fn device(&self, name: &DeviceName) -> Option<DeviceStatus> {
        let runs = name.as_str() == "lab-01";
        let away = name.as_str() == "office-01" && self.elsewhere.load(Ordering::Relaxed);
        Some(DeviceStatus {
            name: name.to_string(),
            mac: None,
            server: away.then(|| "branch".to_owned()),
            vdisk: runs.then(|| "debian".to_owned()),
            version: runs.then_some(2),
            vdisk_id: runs.then(|| self.runs.load(Ordering::Relaxed)),
            initiator: format!("iqn.2026-01.org.example:{name}"),
            status: if runs || away { "ready" } else { "off" }.into(),
            presence: "online".into(),
            boot: if runs { Some("b1".to_owned()) } else { away.then(|| "b9".to_owned()) },
            sessions: u32::from(runs || away),
            write_cache: runs.then(|| WriteCacheStatus {
                used_bytes: 900 << 20,
                limit_bytes: 1 << 30,
                fill: "nearly full".into(),
            }),
            path: None,
            kept_out: None,
            secrets_told: false,
            takes_commands: runs,
        })
    }

    fn reset(&self, name: &DeviceName, _: bool) -> Result<(), ControlError> {
        self.resets.lock().unwrap().push(name.to_string());
        Ok(())
    }

    fn boots(&self) -> Result<Vec<Value>, ControlError> {
        Ok(vec![boot("b1", 1.0)])
    }

    fn boots_of(&self, wanted: &str) -> Result<Vec<Value>, ControlError> {
        Ok(match wanted {
            "lab-01" => vec![boot("b1", 1.0), boot("b0", 1.5)],
            "b1" => vec![boot("b1", 1.0)],
            "b0" => vec![boot("b0", 1.5)],
            _ => Vec::new(),
        })
    }

    fn boots_under_way(&self) -> Result<Vec<Value>, ControlError> {
        Ok(Vec::new())
    }

    fn follow(&self, _: Requests) -> mpsc::Receiver<Followed> {
        mpsc::channel(1).1
    }
}

/// A boot of `lab-01`, so many times slower than one of four seconds.
fn boot(id: &str, slower: f64) -> Value {
    let ms = |ms: f64| ms * slower;
    let io = |count: u64, bytes: u64| json!({"count": count, "bytes": bytes, "errors": 0, "sizes": [{"up_to_bytes": 4096, "count": count}]});
    let stage = |from: f64, to: f64, bytes: u64| json!({"first_request_at_ms": from, "last_request_at_ms": to, "reads": io(100, bytes), "writes": io(0, 0), "read_bytes_per_second": 1_000_000});
    json!({
        "id": id, "device": "lab-01", "vdisk": "debian", "target": "iqn.x", "status": "ready", "sessions": 1,
        "started_unix_us": 1_700_000_000_000_000_u64,
        "steps": [
            {"at_ms": 0.0, "step": "dhcp-discover", "client": "UEFI PXE"},
            {"at_ms": 2.0, "step": "dhcp-offer", "address": null},
            {"at_ms": ms(700.0), "step": "script"},
            {"at_ms": ms(800.0), "step": "login", "stage": "first", "peer": "10.0.0.9:3000", "protocol": "iscsi", "isid": "40"},
            {"at_ms": ms(2200.0), "step": "login", "stage": "second", "peer": "10.0.0.9:4000", "protocol": "iscsi", "isid": "00"},
            {"at_ms": ms(4000.0), "step": "ready"},
        ],
        "first_stage": stage(ms(810.0), ms(1800.0), 32 << 20),
        "hand_over": {"at_ms": ms(2200.0), "gap_ms": ms(400.0)},
        "second_stage": stage(ms(2210.0), ms(3900.0), 180 << 20),
        "ready_at_ms": ms(4000.0), "end": null,
    })
}
