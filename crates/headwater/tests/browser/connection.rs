//! What a page does while the way to its server is gone, and when it is there again.
use std::io::{Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::sync::{Arc, Condvar, Mutex, PoisonError};

use crate::place::Place;

/// How a way is.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Way {
    Open,
    /// Connections end, and new ones as well.
    Cut,
    /// Nothing gets through, and nobody is told: a server without power, a cable that was pulled.
    Silent,
}

/// A way to the server that a test can block: bytes pass as they are, so TLS is the server's.
struct Road {
    port: u16,
    state: Arc<State>,
}

struct State {
    way: Mutex<Way>,
    changed: Condvar,
    open: Mutex<Vec<TcpStream>>,
}

impl Road {
    /// To a port of this host.
    fn to(port: u16) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let own = listener.local_addr().unwrap().port();
        let state =
            Arc::new(State { way: Mutex::new(Way::Open), changed: Condvar::new(), open: Mutex::default() });
        let shared = Arc::clone(&state);
        std::thread::spawn(move || {
            for client in listener.incoming().map_while(Result::ok) {
                if *shared.way.lock().unwrap() == Way::Cut {
                    continue;
                }
                let Ok(server) = TcpStream::connect(("127.0.0.1", port)) else { continue };
                let ends = [&client, &server].map(|stream| stream.try_clone().unwrap());
                shared.open.lock().unwrap().extend(ends);
                for (from, to) in
                    [(client.try_clone().unwrap(), server.try_clone().unwrap()), (server, client)]
                {
                    let shared = Arc::clone(&shared);
                    std::thread::spawn(move || shared.carry(from, to));
                }
            }
        });
        Self { port: own, state }
    }

    fn is(&self, way: Way) {
        *self.state.way.lock().unwrap() = way;
        self.state.changed.notify_all();
        if way == Way::Cut {
            for stream in self.state.open.lock().unwrap().drain(..) {
                let _ = stream.shutdown(Shutdown::Both);
            }
        }
    }
}

impl State {
    /// Carries bytes until one side ends; while the way is silent it holds them.
    fn carry(&self, mut from: TcpStream, mut to: TcpStream) {
        let mut bytes = [0; 16 << 10];
        while let Ok(length @ 1..) = from.read(&mut bytes) {
            let way = self.way.lock().unwrap_or_else(PoisonError::into_inner);
            drop(self.changed.wait_while(way, |way| *way == Way::Silent));
            if to.write_all(&bytes[..length]).is_err() {
                break;
            }
        }
        let _ = to.shutdown(Shutdown::Both);
    }
}

const TOLD: &str = "!document.getElementById('lost').hidden";

/// A page is cut off, something changes meanwhile, and the page shows it when the way is there again.
fn lost_and_found(how: Way) {
    let place = Place::new();
    let road = Road::to(place.port());
    let admin = place.admin_in(place.browser_over(road.port));
    admin.go("/devices");
    admin.sees(&["lab-01"]);
    // A change that the page hears of: it listens.
    admin.script("window.stays = true;", &[]);
    place.site.headwater(&["device", "set", "lab-01", "kind=test"]);
    admin.until("window.stays && document.querySelector('#device-table tbody').innerText.includes('test')");
    assert_eq!(admin.script(&format!("return {TOLD};"), &[]), false);

    road.is(how);
    admin.until(TOLD);
    admin.sees(&["Live updates are interrupted"]);
    let seen = "const at = document.getElementById('lost').getBoundingClientRect(); return at.top >= 0 && at.bottom <= innerHeight;";
    admin.script("document.body.style.minHeight = '300vh'; scrollTo(0, 500);", &[]);
    assert_eq!(admin.script(seen, &[]), true, "it is seen wherever the page is scrolled to");
    place.site.headwater(&["device", "set", "lab-01", "kind=maintenance"]);
    assert!(
        !admin
            .script("return document.querySelector('#device-table tbody').innerText;", &[])
            .to_string()
            .contains("maintenance")
    );

    road.is(Way::Open);
    admin.until(&format!("!({TOLD})"));
    admin.until(
        "window.stays && document.querySelector('#device-table tbody').innerText.includes('maintenance')",
    );
}

#[test]
fn page_whose_connection_is_cut_says_so_and_shows_what_changed_meanwhile() {
    lost_and_found(Way::Cut);
}

#[test]
fn page_whose_connection_is_silent_says_so_though_nobody_closed_it() {
    lost_and_found(Way::Silent);
}

#[test]
fn more_tabs_than_a_browser_has_connections_are_all_served() {
    let place = Place::new();
    let admin = place.admin();
    let mut tabs = Vec::new();
    // Browsers open six connections to a server, and each page that listens takes one.
    for _ in 0..10 {
        admin.go("/devices");
        admin.sees(&["lab-01"]);
        tabs.push(admin.new_tab());
    }
    admin.go("/devices");
    place.site.headwater(&["device", "set", "lab-01", "kind=test"]);
    let shows =
        |kind: &str| format!("document.querySelector('#device-table tbody').innerText.includes('{kind}')");
    admin.until(&shows("test"));
    // One that was behind shows what it missed, and listens again.
    admin.to_tab(&tabs[0]);
    admin.until(&shows("test"));
    place.site.headwater(&["device", "set", "lab-01", "kind=maintenance"]);
    admin.until(&shows("maintenance"));
}
