//! Who may do what, and what becomes of a session.
use crate::driver::key;
use crate::place::{PASSWORD, Place, log_in};

#[test]
fn roles_are_respected_and_what_is_not_allowed_says_why() {
    let place = Place::new();
    let admin = place.admin();
    admin.go("/users/new");
    admin.fill("name", "bob");
    admin.fill("password", PASSWORD);
    admin.press("Make");
    admin.sees(&["Made user bob."]);
    admin.go("/grants/new");
    admin.choose("user", "bob");
    admin.choose("role", "read-only");
    admin.press("Make");
    admin.arrives_at("/grants/");

    let bob = place.browser();
    bob.go("/devices");
    log_in(&bob, "bob", PASSWORD);
    bob.arrives_at("/password");
    bob.sees(&["must be changed before anything else"]);
    bob.fill("old", PASSWORD);
    bob.fill("new", "another-horse-battery");
    bob.fill("again", "another-horse-battery");
    bob.press("Change password");
    bob.sees(&["The password was changed."]);
    bob.go("/devices/lab-01");
    bob.sees(&["Not for you"]);
    let disabled = "document.querySelectorAll('main .disabled[aria-disabled=true]').length";
    bob.until(&format!("{disabled} >= 3"));
    // Whoever has no mouse comes to it, and then sees why.
    while bob.script("return !document.activeElement.matches('.disabled');", &[]) == true {
        bob.key(key::TAB);
    }
    bob.until("getComputedStyle(document.querySelector('.disabled:focus .unseen')).position === 'static'");
    bob.go("/devices/import");
    bob.sees(&["This is not allowed"]);
}

#[test]
fn administrator_of_a_site_makes_a_device_there_and_is_told_why_the_farm_is_not_theirs() {
    let place = Place::new();
    let admin = place.admin();
    place.site.headwater(&["site", "create", "Branch"]);
    place.site.headwater(&["collection", "create", "shop", "site=Branch"]);
    admin.go("/users/new");
    admin.fill("name", "bea");
    admin.fill("password", PASSWORD);
    admin.press("Make");
    admin.sees(&["Made user bea."]);
    place.site.headwater(&["user", "grant", "bea", "administrator", "--site", "Branch"]);

    let bea = place.browser();
    bea.go("/devices");
    log_in(&bea, "bea", PASSWORD);
    bea.fill("old", PASSWORD);
    bea.fill("new", "another-horse-battery");
    bea.fill("again", "another-horse-battery");
    bea.press("Change password");
    bea.sees(&["The password was changed."]);
    bea.press("+ Device");
    bea.arrives_at("/devices/new");
    let offered = "[...document.querySelectorAll('select[name=collection] option')].map((one) => one.text.trim()).join()";
    bea.until(&format!("{offered} === '–,Branch/shop'"));
    bea.fill("name", "shop-01");
    bea.choose("collection", "Branch/shop");
    bea.press("Make");
    bea.sees(&["Made device shop-01."]);
    bea.go("/collections");
    // Not the place of that name in the navigation.
    bea.until("document.querySelector('main tbody a').click() === undefined");
    bea.sees(&["What was changed, and by whom"]);
    bea.press("Edit");
    bea.fill("description", "behind the counter");
    bea.press("Change");
    bea.sees(&["Changed.", "behind the counter"]);
    let why = "[...document.querySelectorAll('main [aria-disabled=true]')].map((one) => one.title).join()";
    for page in ["/sites", "/stores"] {
        bea.go(page);
        bea.until("document.querySelector('main h1')");
        let may = page == "/stores";
        bea.until(&format!("{why}.includes('administrator in the whole farm') === {}", !may));
        bea.until(&format!("!!document.querySelector('main a[href=\"{page}/new\"]') === {may}"));
    }
    bea.go("/sites/new");
    bea.sees(&["This is not allowed", "administrator in the whole farm"]);
    bea.go("/devices/import");
    bea.fill("table", "name,site,collection\nshop-02,Branch,shop\nlab-02,site,imported");
    bea.press("Look at it first");
    bea.sees(&["Nothing was done", "this takes the role administrator in collection"]);
    bea.fill("table", "name,site,collection\nshop-02,Branch,shop");
    bea.press("Look at it first");
    bea.press("Import 1 device");
    bea.sees(&["Made 1 device", "shop-02"]);
    assert!(place.site.headwater(&["device", "show", "shop-01"]).contains("shop"));
}

#[test]
fn form_that_comes_second_shows_both_values_and_writes_neither() {
    let place = Place::new();
    let admin = place.admin();
    admin.go("/devices");
    admin.press("lab-01");
    admin.press("Edit");
    admin.fill("description", "mine");
    place.site.headwater(&["device", "set", "lab-01", "description=theirs"]);
    admin.press("Change");
    admin.sees(&["Somebody else changed this meanwhile", "mine", "theirs"]);
    admin.press("Change");
    admin.sees(&["Changed."]);
    assert!(place.site.headwater(&["device", "show", "lab-01"]).contains("mine"));
}

#[test]
fn session_that_ended_comes_back_to_its_page_and_log_out_ends_it() {
    let mut place = Place::new();
    let admin = place.admin();
    admin.go("/devices?kind=production");
    admin.sees(&["lab-01"]);
    admin.until("document.getElementById('lost').hidden");
    // A restart: the page says that it is cut off, and all sessions end.
    place.site.kill();
    admin.until("!document.getElementById('lost').hidden");
    place.site.start();
    admin.go("/devices?kind=production");
    log_in(&admin, "admin", PASSWORD);
    admin.arrives_at("/devices?kind=production");
    admin.sees(&["lab-01"]);
    admin.press("admin");
    admin.press("Log out");
    admin.arrives_at("/log-in");
    admin.go("/vdisks");
    admin.arrives_at("/log-in?next=%2Fvdisks");
}
