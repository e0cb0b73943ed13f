//! A server with a console, and an administrator in front of it.
use lab::free_port;

use crate::driver::Browser;
use crate::harness::Site;

/// A password that is taken.
pub(crate) const PASSWORD: &str = "correct-horse-battery";

/// What stands before the token in the server's log.
const WELCOME: &str = "sets a password with the token ";

/// A site whose server has a console.
pub(crate) struct Place {
    pub(crate) site: Site,
    port: u16,
}

impl Place {
    /// With the vDisk, the store and the device that every site of the harness has.
    pub(crate) fn new() -> Self {
        let port = free_port();
        let site = Site::new("", "", &format!("[api]\nlisten = \"127.0.0.1:{port}\"\n"));
        Self::started(site, port)
    }

    /// With nothing but a server: the image lies there, and no catalogue knows of it.
    pub(crate) fn empty() -> Self {
        let port = free_port();
        let site = Site::new("", "", "");
        let path = site.path("headwater.toml");
        let text = std::fs::read_to_string(&path).unwrap();
        let (server, _) = text.split_once("[stores]").unwrap();
        std::fs::write(&path, format!("{server}[api]\nlisten = \"127.0.0.1:{port}\"\n")).unwrap();
        std::fs::create_dir(site.path("store")).unwrap();
        Self::started(site, port)
    }

    /// A server beside others on a database, without images of its own.
    pub(crate) fn beside(name: &str, database: &str) -> Self {
        let port = free_port();
        let more = format!("[api]\nlisten = \"127.0.0.1:{port}\"\n");
        Self::started(Site::member(name, database, &more), port)
    }

    fn started(mut site: Site, port: u16) -> Self {
        site.start();
        Self { site, port }
    }

    /// Somebody who is not logged in.
    pub(crate) fn browser(&self) -> Browser {
        self.browser_over(self.port)
    }

    /// Somebody whose way to the server leads over another port of this host.
    pub(crate) fn browser_over(&self, port: u16) -> Browser {
        Browser::open(&format!("https://127.0.0.1:{port}"))
    }

    /// Where the console listens.
    pub(crate) fn port(&self) -> u16 {
        self.port
    }

    /// The first administrator, who sets a password with the token that the server printed, and is in.
    pub(crate) fn admin(&self) -> Browser {
        self.admin_in(self.browser())
    }

    /// The same in a browser of theirs.
    pub(crate) fn admin_in(&self, browser: Browser) -> Browser {
        self.site.wait_for_log(WELCOME);
        let log = self.site.log();
        let token = log.split(WELCOME).nth(1).unwrap().split_whitespace().next().unwrap();
        browser.go("/first-log-in");
        browser.fill("token", token);
        browser.fill("password", PASSWORD);
        browser.fill("again", PASSWORD);
        browser.press("Set the password and log in");
        browser.until("document.querySelector('nav')");
        browser
    }
}

/// Logs in on the page of the log-in.
pub(crate) fn log_in(browser: &Browser, user: &str, password: &str) {
    browser.arrives_at("/log-in");
    browser.fill("user", user);
    browser.fill("password", password);
    browser.press("Log in");
}
