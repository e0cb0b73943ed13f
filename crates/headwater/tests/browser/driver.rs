//! Chromium, driven by its own driver: the W3C's WebDriver is JSON over plain HTTP, of which a console's test needs little.
//!
//! Whatever waits, waits for a condition, with one generous bound: how fast the machine is decides nothing.
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use lab::free_port;
use serde_json::{Value, json};

/// How long a browser may take for anything before the test fails.
const PATIENCE: Duration = Duration::from_secs(180);
/// WebDriver §12.2: the key under which an element's reference stands.
const ELEMENT: &str = "element-6066-11e4-a52e-4f735466cecf";
/// How often Tab is pressed before what is looked for is not there: more often than any page of a test has stops.
const MAX_STOPS: usize = 150;
/// What is waited between two looks.
const BETWEEN: Duration = Duration::from_millis(50);

/// WebDriver §17.4.2: what stands for keys that write nothing.
pub(crate) mod key {
    pub(crate) const ENTER: char = '\u{e007}';
    pub(crate) const ESCAPE: char = '\u{e00c}';
    pub(crate) const SHIFT: char = '\u{e008}';
    pub(crate) const SPACE: char = ' ';
    pub(crate) const TAB: char = '\u{e004}';
    pub(crate) const LEFT: char = '\u{e012}';
}

/// A browser with one window, and no cookies at first.
pub(crate) struct Browser {
    driver: Child,
    port: u16,
    session: String,
    /// Where the console is.
    site: String,
    _profile: tempfile::TempDir,
}

/// Starts the program that drives browsers; with its port.
fn driver() -> (Child, u16) {
    let mut said = Vec::new();
    // One of its own choice is free on IPv4 only: it ends where somebody has the same on IPv6.
    let port = free_port();
    let mut driver = Command::new("chromedriver")
        .arg(format!("--port={port}"))
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .unwrap_or_else(|error| panic!("chromedriver is needed (Debian: chromium-driver): {error}"));
    let mut lines = BufReader::new(driver.stdout.take().unwrap()).lines().map_while(Result::ok);
    let started = lines
        .by_ref()
        .inspect(|line| said.push(line.clone()))
        .any(|line| line.contains("started successfully"));
    assert!(started, "chromedriver does not start:\n{}", said.join("\n"));
    // What it prints later has to go somewhere.
    std::thread::spawn(move || lines.for_each(drop));
    (driver, port)
}

impl Browser {
    /// Opens one, for the console at `site`.
    pub(crate) fn open(site: &str) -> Self {
        let profile = tempfile::tempdir().unwrap();
        let (driver, port) = driver();
        let folder = format!("--user-data-dir={}", profile.path().display());
        let arguments = [
            "--headless=new",
            "--no-sandbox",
            "--disable-gpu",
            "--disable-dev-shm-usage",
            "--disable-background-networking",
            "--window-size=1280,900",
            &folder,
        ];
        let wanted = json!({ "capabilities": { "alwaysMatch": {
            "browserName": "chrome",
            "acceptInsecureCerts": true,
            "goog:chromeOptions": { "binary": "/usr/bin/chromium", "args": arguments },
        } } });
        let mut browser =
            Self { driver, port, session: String::new(), site: site.to_owned(), _profile: profile };
        let opened = browser.call("POST", "", &wanted).unwrap_or_else(|error| panic!("no browser: {error}"));
        browser.session = format!("/{}", opened["sessionId"].as_str().unwrap());
        browser
    }

    /// Goes on in another tab, which is in front from now on; what was there is the tab's that is named.
    pub(crate) fn new_tab(&self) -> String {
        let before = self.must("GET", "/window", &json!({}));
        let tab = self.must("POST", "/window/new", &json!({ "type": "tab" }));
        self.to_tab(tab["handle"].as_str().unwrap());
        before.as_str().unwrap().to_owned()
    }

    /// Goes back to a tab.
    pub(crate) fn to_tab(&self, tab: &str) {
        self.must("POST", "/window", &json!({ "handle": tab }));
    }

    /// Goes to a page of the console.
    pub(crate) fn go(&self, path: &str) {
        self.must("POST", "/url", &json!({ "url": format!("{}{path}", self.site) }));
    }

    /// The page that is shown: its path, with what stands behind the question mark.
    pub(crate) fn place(&self) -> String {
        self.script("return location.pathname + location.search;", &[]).as_str().unwrap().to_owned()
    }

    /// What a script gives.
    pub(crate) fn script(&self, script: &str, arguments: &[Value]) -> Value {
        self.must("POST", "/execute/sync", &json!({ "script": script, "args": arguments }))
    }

    /// What a script gives that calls back.
    pub(crate) fn script_later(&self, script: &str, arguments: &[Value]) -> Value {
        self.must("POST", "/execute/async", &json!({ "script": script, "args": arguments }))
    }

    /// Something that Chromium alone does.
    pub(crate) fn chromium(&self, command: &str, parameters: &Value) -> Value {
        self.must("POST", "/goog/cdp/execute", &json!({ "cmd": command, "params": parameters }))
    }

    /// Waits until all of these texts are seen.
    pub(crate) fn sees(&self, texts: &[&str]) {
        let script = "return document.body ? document.body.innerText : '';";
        let mut shown = String::new();
        let seen = self.wait(|| {
            // A page that is just going has no body to be asked for.
            shown = self
                .call("POST", "/execute/sync", &json!({ "script": script, "args": [] }))
                .ok()?
                .as_str()?
                .to_owned();
            texts.iter().all(|text| shown.contains(text)).then_some(())
        });
        assert!(seen.is_some(), "{texts:?} are not on {}, but:\n{shown}", self.place());
    }

    /// Waits until the page is at this path.
    pub(crate) fn arrives_at(&self, path: &str) {
        let there = self.wait(|| self.place().starts_with(path).then_some(()));
        assert!(there.is_some(), "at {}, and not at {path}:\n{}", self.place(), self.text());
    }

    /// Waits until a script gives true.
    pub(crate) fn until(&self, condition: &str) {
        let script = json!({ "script": format!("return Boolean({condition});"), "args": [] });
        let held =
            self.wait(|| (self.call("POST", "/execute/sync", &script).ok()? == json!(true)).then_some(()));
        assert!(held.is_some(), "never on {}: {condition}\n{}", self.place(), self.text());
    }

    /// Presses what is called so: a button, a link, a summary.
    pub(crate) fn press(&self, label: &str) {
        let find = "return [...document.querySelectorAll('main a, main button, summary, header button, header a, nav a')].find((one) => \
             one.innerText.trim() === arguments[0] && one.checkVisibility() && !one.disabled);";
        self.on(label, find, label, |element| {
            self.call("POST", &format!("/element/{element}/click"), &json!({}))
        });
    }

    /// Types into the field of this name, in place of what is there.
    pub(crate) fn fill(&self, field: &str, text: &str) {
        self.on(field, FIELD, field, |element| {
            self.call("POST", &format!("/element/{element}/clear"), &json!({}))?;
            self.call("POST", &format!("/element/{element}/value"), &json!({ "text": text }))
        });
    }

    /// Chooses a file for the field of this name.
    pub(crate) fn choose_file(&self, field: &str, file: &Path) {
        let text = json!({ "text": file.to_str().unwrap() });
        self.on(field, FIELD, field, |element| {
            self.call("POST", &format!("/element/{element}/value"), &text)
        });
    }

    /// Chooses what is called so from the list of this name.
    pub(crate) fn choose(&self, field: &str, label: &str) {
        self.choose_within("main", field, label);
    }

    /// As [`choose`](Self::choose), where several lists have the name: from that in a part of the page.
    pub(crate) fn choose_within(&self, part: &str, field: &str, label: &str) {
        let find = "const list = [...document.querySelectorAll(`${arguments[0].part} select`)].find((one) => one.name === arguments[0].field); \
             return list && [...list.options].find((one) => one.text.trim() === arguments[0].label);";
        let wanted = json!({ "part": part, "field": field, "label": label });
        self.on(label, find, wanted, |element| {
            self.call("POST", &format!("/element/{element}/click"), &json!({}))
        });
    }

    /// Presses one key after the other, as fingers do; [`key::SHIFT`] is held while the next one is pressed.
    pub(crate) fn keys(&self, keys: &str) {
        let mut strokes = Vec::new();
        let mut held = Vec::new();
        for key in keys.chars() {
            strokes.push(json!({ "type": "keyDown", "value": key }));
            held.push(key);
            if key != key::SHIFT {
                strokes.extend(held.drain(..).rev().map(|key| json!({ "type": "keyUp", "value": key })));
            }
        }
        let keyboard = json!({ "type": "key", "id": "keyboard", "actions": strokes });
        self.must("POST", "/actions", &json!({ "actions": [keyboard] }));
    }

    /// Presses one key.
    pub(crate) fn key(&self, key: char) {
        self.keys(key.encode_utf8(&mut [0; 4]));
    }

    /// What has the focus, as it is read out: its label, or its text.
    pub(crate) fn focused(&self) -> String {
        let script = "const one = document.activeElement; if (one === document.body) { return ''; } \
             const label = one.labels && one.labels[0] ? [...one.labels[0].childNodes].filter((part) => part.nodeType === Node.TEXT_NODE) : []; \
             const said = one.getAttribute('aria-label') || label.map((part) => part.textContent).join('').trim() || one.innerText || ''; \
             return said.trim();";
        self.script(script, &[]).as_str().unwrap_or_default().to_owned()
    }

    /// Presses Tab until something that is called so has the focus.
    pub(crate) fn tab_to(&self, label: &str) {
        self.go_by("\u{e004}", label);
    }

    /// As [`tab_to`](Self::tab_to), the other way.
    pub(crate) fn back_to(&self, label: &str) {
        self.go_by("\u{e008}\u{e004}", label);
    }

    fn go_by(&self, keys: &str, label: &str) {
        let mut seen = Vec::new();
        while seen.len() < MAX_STOPS {
            self.keys(keys);
            let focused = self.focused();
            if focused == label {
                return;
            }
            seen.push(focused);
        }
        panic!("no Tab leads to {label:?} on {}: {seen:?}", self.place());
    }

    /// All that is on the page, as text.
    pub(crate) fn text(&self) -> String {
        self.script("return document.body.innerText;", &[]).as_str().unwrap_or_default().to_owned()
    }

    /// A picture of the whole page.
    pub(crate) fn picture(&self) -> Vec<u8> {
        let wanted = json!({ "format": "png", "captureBeyondViewport": true });
        base64(self.chromium("Page.captureScreenshot", &wanted)["data"].as_str().unwrap())
    }

    /// Finds an element by a script and does something with it, again where the page was renewed in between.
    fn on(
        &self,
        what: &str,
        find: &str,
        argument: impl Into<Value>,
        act: impl Fn(&str) -> Result<Value, String>,
    ) {
        let argument = argument.into();
        let find = format!(
            "const found = (() => {{ {find} }})(); if (found) {{ found.scrollIntoView({{ block: 'center' }}); }} return found || null;"
        );
        let mut why = "it is not there".to_owned();
        let done = self.wait(|| {
            let found = self.call("POST", "/execute/sync", &json!({ "script": find, "args": [argument] }));
            let found = found.ok()?[ELEMENT].as_str()?.to_owned();
            act(&found).map_err(|error| why = error).ok()
        });
        assert!(done.is_some(), "{what:?} on {}: {why}\n{}", self.place(), self.text());
    }

    fn wait<T>(&self, mut look: impl FnMut() -> Option<T>) -> Option<T> {
        let deadline = Instant::now() + PATIENCE;
        loop {
            if let Some(found) = look() {
                return Some(found);
            }
            if Instant::now() > deadline {
                return None;
            }
            std::thread::park_timeout(BETWEEN);
        }
    }

    fn must(&self, method: &str, path: &str, body: &Value) -> Value {
        self.call(method, path, body).unwrap_or_else(|error| panic!("{method} {path}: {error}"))
    }

    /// WebDriver §6: one command.
    fn call(&self, method: &str, path: &str, body: &Value) -> Result<Value, String> {
        let (text, port) = (body.to_string(), self.port);
        let mut stream = TcpStream::connect(("127.0.0.1", port)).map_err(|error| error.to_string())?;
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        let length = text.len();
        write!(
            stream,
            "{method} /session{}{path} HTTP/1.1\r\nhost: 127.0.0.1:{port}\r\nconnection: close\r\n\
             content-type: application/json\r\ncontent-length: {length}\r\n\r\n{text}",
            self.session
        )
        .map_err(|error| error.to_string())?;
        let answer = body_of(stream).map_err(|error| error.to_string())?;
        let mut answer: Value = serde_json::from_slice(&answer).map_err(|error| error.to_string())?;
        let value = answer["value"].take();
        match value["error"].as_str() {
            Some(error) => Err(format!("{error}: {}", value["message"].as_str().unwrap_or_default())),
            None => Ok(value),
        }
    }
}

impl Drop for Browser {
    fn drop(&mut self) {
        // It ends the browser; without it Chromium would outlive its driver.
        let _ = self.call("DELETE", "", &json!({}));
        let _ = self.driver.kill();
        let _ = self.driver.wait();
    }
}

/// A field that is seen, by its name.
const FIELD: &str = "return [...document.querySelectorAll('main [name]')].find((one) => one.name === arguments[0] && one.type !== 'hidden');";

/// The body of an answer, by its length.
fn body_of(stream: TcpStream) -> std::io::Result<Vec<u8>> {
    let (mut reader, mut length) = (BufReader::new(stream), 0);
    loop {
        let mut line = String::new();
        reader.read_line(&mut line)?;
        let line = line.trim_end().to_ascii_lowercase();
        if let Some(text) = line.strip_prefix("content-length:") {
            length = text.trim().parse().unwrap_or_default();
        }
        if line.is_empty() {
            break;
        }
    }
    let mut body = vec![0; length];
    reader.read_exact(&mut body)?;
    Ok(body)
}

/// RFC 4648 §4.
fn base64(text: &str) -> Vec<u8> {
    let digit = |byte: u8| match byte {
        b'A'..=b'Z' => Some(byte - b'A'),
        b'a'..=b'z' => Some(byte - b'a' + 26),
        b'0'..=b'9' => Some(byte - b'0' + 52),
        b'+' => Some(62),
        b'/' => Some(63),
        _ => None,
    };
    let digits: Vec<u8> = text.bytes().filter_map(digit).collect();
    let mut bytes = Vec::with_capacity(digits.len() * 3 / 4);
    for group in digits.chunks(4) {
        let bits =
            group.iter().fold(0_u32, |bits, digit| bits << 6 | u32::from(*digit)) << (6 * (4 - group.len()));
        bytes.extend_from_slice(&bits.to_be_bytes()[1..group.len()]);
    }
    bytes
}

#[test]
fn pictures_are_read_from_their_letters() {
    assert_eq!(base64("aGVhZHdhdGVy"), b"headwater");
    assert_eq!(base64("aGVhZA=="), b"head");
    assert_eq!(base64("aGVhZHc="), b"headw");
}
