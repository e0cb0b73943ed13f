//! What each role is offered: buttons, forms and choices, held to what the REST API allows.
use std::collections::{BTreeMap, BTreeSet};

use axum::http::{Method, StatusCode};
use farm::model::{Id, Task, TaskState, UserName, Word};
use serde_json::{Value, json};

use crate::farm::{Browser, Farm};

/// Who looks: a name, and a role in the farm, in site Main or in its collection `lab`.
const ROLES: &[(&str, &str)] = &[
    ("sam", "administrator of site Main"),
    ("cora", "administrator of collection lab"),
    ("olga", "operator of site Main"),
    ("eve", "read-only in the farm"),
    ("bob", "administrator of site Branch"),
];

/// Two sites, each with a server, a store, a vDisk, a collection and a device; and a store of the whole farm with vDisks.
async fn two_sites() -> Farm {
    let farm = Farm::new().await;
    let store = |name: &str, site: &str, server: &str| json!({"name": name, "site": site, "paths": [{"server": server, "path": "/srv/of-site"}]});
    let bodies = [
        ("sites", json!({"name": "Branch"})),
        ("servers", json!({"name": "two.example.org", "site": "Branch"})),
        ("collections", json!({"name": "shop", "site": "Branch"})),
        ("stores", store("main-images", "Main", "one.example.org")),
        ("stores", store("branch-images", "Branch", "two.example.org")),
        ("vdisks", json!({"name": "of-main", "store": "main-images"})),
        ("vdisks", json!({"name": "of-branch", "store": "branch-images"})),
        ("views", json!({"name": "all-devices", "of": "devices", "filter": "kind = production"})),
        ("views", json!({"name": "of-main", "site": "Main", "of": "devices", "filter": "kind = test"})),
        ("views", json!({"name": "of-branch", "site": "Branch", "of": "servers", "filter": "not disabled"})),
        ("devices", json!({"name": "shop-01", "collection": "shop"})),
    ];
    for (kind, body) in bodies {
        farm.root(Method::POST, &format!("/v1/{kind}"), &body).await;
    }
    farm.user_of_site("sam", "administrator", "Main").await;
    farm.user("cora", "administrator", Some("lab")).await;
    farm.user_of_site("olga", "operator", "Main").await;
    farm.user("eve", "read-only", None).await;
    farm.user_of_site("bob", "administrator", "Branch").await;
    farm
}

/// The ids of all objects of a kind.
async fn ids(farm: &Farm, kind: &str) -> Vec<i64> {
    let found = farm.root(Method::GET, &format!("/v1/{kind}"), &Value::Null).await;
    found["items"].as_array().unwrap().iter().map(|object| object["id"].as_i64().unwrap()).collect()
}

/// The links of a page that make, change or delete something.
fn links(page: &str) -> BTreeSet<String> {
    let targets =
        page.split("href=\"").skip(1).map(|rest| rest.split('"').next().unwrap().replace("&amp;", "&"));
    let changes = |to: &String| {
        to.ends_with("/new")
            || to.ends_with("/edit")
            || to.ends_with("/delete")
            || to.contains("/do?what=")
            || ["/devices/import", "/vdisks/upload", "/vdisks/adopt"].contains(&to.as_str())
    };
    targets.filter(|to| to.starts_with('/')).filter(changes).collect()
}

/// A new object in a place, with all that is asked for before its right is.
fn new_one(kind: &str, name: &str, place: &Value) -> Value {
    let mut body = match kind {
        "views" => json!({"name": name, "of": "devices", "filter": "kind = test"}),
        _ => json!({"name": name}),
    };
    body.as_object_mut().unwrap().extend(place.as_object().cloned().unwrap_or_default());
    body
}

/// Whether the API lets somebody do what stands behind a link: it is asked for what comes too late, is there already or is
/// only tried, so that nothing changes but that collections are made.
async fn allowed(farm: &Farm, who: &mut Browser, link: &str) -> bool {
    let path = link.split('?').next().unwrap();
    let (kind, rest) = path[1..].split_once('/').unwrap();
    let send =
        |method: Method, path: String, body: Value| (method, path, "application/json", body.to_string());
    let mut tries = Vec::new();
    match (kind, rest) {
        ("devices", "import") => {
            let table = "name,collection\nlab-01,lab\n".to_owned();
            let path = "/v1/devices/import?dry_run=true&update=true".to_owned();
            tries.push((Method::POST, path, "text/csv", table));
        }
        ("vdisks", "upload" | "adopt") => {
            for store in ids(farm, "stores").await {
                let body = json!({"dry_run": true});
                tries.push(send(Method::POST, format!("/v1/stores/{store}/adopt"), body));
            }
        }
        ("vdisks", "new") => {
            for store in ids(farm, "stores").await {
                let body = json!({"size_bytes": 1 << 30, "vdisk": {"name": "debian", "store": store}});
                tries.push(send(Method::POST, "/v1/vdisks/blank".to_owned(), body));
            }
        }
        (kind, "new") => {
            let (name, within) = match kind {
                "devices" => ("lab-01", "collection"),
                "servers" => ("one.example.org", "site"),
                "collections" => ("made-by-a-test", "site"),
                "stores" => ("images", "site"),
                "views" => ("all-devices", "site"),
                _ => ("Main", ""),
            };
            if ["stores", "sites", "views"].contains(&kind) {
                tries.push(send(Method::POST, format!("/v1/{kind}"), new_one(kind, name, &Value::Null)));
            }
            if !within.is_empty() {
                for place in ids(farm, &format!("{within}s")).await {
                    let body = new_one(kind, name, &json!({within: place}));
                    tries.push(send(Method::POST, format!("/v1/{kind}"), body));
                }
            }
        }
        (kind, rest) => {
            let (id, what) = rest.split_once('/').unwrap();
            let method = if what == "delete" { Method::DELETE } else { Method::PATCH };
            tries.push(send(method, format!("/v1/{kind}/{id}"), json!({"description": "too late"})));
        }
    }
    assert!(!tries.is_empty(), "{link}");
    let mut any = false;
    for (method, path, content_type, body) in tries {
        let seen = who.api(method, &path, content_type, body).await;
        assert_ne!(seen.status, StatusCode::UNAUTHORIZED, "{path}: {}", seen.text);
        any |= seen.status != StatusCode::FORBIDDEN;
    }
    any
}

#[tokio::test(flavor = "multi_thread")]
async fn every_role_is_offered_what_the_api_lets_it_do_and_nothing_else_on_every_page() {
    let farm = two_sites().await;
    let mut ann = farm.ann().await;
    let mut pages: Vec<String> =
        ["/", "/devices", "/vdisks", "/first-run", "/vdisks/upload", "/search?q=lab", "/persistent-caches"]
            .into_iter()
            .map(str::to_owned)
            .collect();
    for kind in [
        "devices",
        "vdisks",
        "stores",
        "servers",
        "sites",
        "collections",
        "views",
        "users",
        "grants",
        "tokens",
    ] {
        pages.push(format!("/{kind}"));
        pages.extend(ids(&farm, kind).await.iter().map(|id| format!("/{kind}/{id}")));
    }
    for (name, role) in ROLES {
        let mut who = farm.browser(name).await;
        let mut known = BTreeMap::new();
        for page in &pages {
            let all = links(&ann.get(page).await.text);
            let seen = who.get(page).await;
            if seen.status != StatusCode::OK {
                continue;
            }
            let theirs = links(&seen.text);
            assert!(theirs.is_subset(&all), "{role}, {page}: {theirs:?}");
            for link in &all {
                if !known.contains_key(link) {
                    let may = allowed(&farm, &mut who, link).await;
                    let form = who.get(link).await;
                    let refused = form.status == StatusCode::FORBIDDEN;
                    assert_eq!(refused, !may, "{role}: {link} gives {}: {}", form.status, form.text);
                    known.insert(link.clone(), may);
                }
                let may = known[link];
                assert_eq!(theirs.contains(link), may, "{role}, {page}: {link}");
            }
            let disabled = seen.text.matches("aria-disabled=\"true\"").count();
            assert!(disabled >= all.len() - theirs.len(), "{role}, {page}: what is not offered says why");
        }
        let is_administrator = role.starts_with("administrator");
        assert_eq!(known.values().any(|may| *may), is_administrator, "{role}: {known:?}");
        assert!(known.values().any(|may| !may), "{role}: {known:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn forms_offer_the_places_in_which_they_may_and_what_is_there_already() {
    let farm = two_sites().await;
    let mut sam = farm.browser("sam").await;
    let (lab, shop, main, branch) = ("\"Main/lab\"", "\"Branch/shop\"", "\"Main\"", "\"Branch\"");
    let none = "<option value=\"\">–</option>";
    for (page, offered, not) in [
        ("/devices/new", vec![lab, "\"Main/office\""], vec![shop]),
        ("/servers/new", vec![main], vec![branch]),
        ("/collections/new", vec![main], vec![branch]),
        ("/stores/new", vec![main], vec![branch, none]),
        ("/vdisks/new", vec!["\"main-images\""], vec!["\"images\"", "\"branch-images\""]),
        ("/vdisks/upload", vec![">main-images<"], vec![">images<", ">branch-images<"]),
        ("/vdisks/adopt", vec![">main-images<"], vec![">images<", ">branch-images<"]),
        (
            "/first-run",
            vec![">Main<", "role administrator in the whole farm"],
            vec![">Make the store</button>"],
        ),
    ] {
        let seen = sam.get(page).await;
        seen.shows(&offered);
        let main = seen.text.split_once("<main").unwrap().1;
        for not in not {
            assert!(!main.contains(not), "{page} offers {not}: {main}");
        }
    }
    // A collection's administrator may not take it elsewhere, and sees where it is.
    let lab_id = farm.root(Method::GET, "/v1/collections/lab", &Value::Null).await["id"].to_string();
    let mut cora = farm.browser("cora").await;
    let seen = cora.get(&format!("/collections/{lab_id}/edit")).await;
    seen.shows(&[main]);
    assert!(!seen.text.contains(branch), "{}", seen.text);
    let seen = cora.get("/devices/new").await;
    seen.shows(&[lab]);
    assert!(!seen.text.contains("\"Main/office\""), "{}", seen.text);
    // Farm administrators are offered all, and none where that is a place.
    let mut ann = farm.ann().await;
    ann.get("/stores/new").await.shows(&[main, branch, none]);
    ann.get("/devices/new").await.shows(&[lab, shop]);
}

#[tokio::test(flavor = "multi_thread")]
async fn administrator_of_a_site_makes_a_device_and_changes_a_collection_there() {
    let farm = two_sites().await;
    let mut sam = farm.browser("sam").await;
    let id = async |path: &str| farm.root(Method::GET, path, &Value::Null).await["id"].to_string();
    let (lab, shop) = (id("/v1/collections/lab").await, id("/v1/collections/shop").await);
    sam.get("/devices/new").await;
    let device = |name: &'static str, collection: &str| {
        vec![("name", name.to_owned()), ("collection", collection.to_owned())]
    };
    let fields = device("lab-50", &lab);
    let fields: Vec<(&str, &str)> = fields.iter().map(|(key, value)| (*key, value.as_str())).collect();
    let seen = sam.post("/devices/new", &fields).await;
    assert_eq!(seen.status, StatusCode::SEE_OTHER, "{}", seen.text);
    sam.get(seen.header("location")).await.shows(&["lab-50", "Edit</a>"]);
    let fields = device("lab-51", &shop);
    let fields: Vec<(&str, &str)> = fields.iter().map(|(key, value)| (*key, value.as_str())).collect();
    let seen = sam.post("/devices/new", &fields).await;
    assert_eq!(seen.status, StatusCode::FORBIDDEN, "{}", seen.text);
    let page = format!("/collections/{lab}/edit");
    sam.get(&page).await;
    let fields = [("revision", "1"), ("name", "lab"), ("was-name", "lab"), ("description", "ground floor")];
    let seen = sam.post(&page, &fields).await;
    assert_eq!(seen.status, StatusCode::SEE_OTHER, "{}", seen.text);
    sam.get(&format!("/collections/{lab}")).await.shows(&["ground floor"]);
    sam.get("/sites").await.shows(&["administrator in the whole farm", "aria-disabled=\"true\""]);
}

#[tokio::test(flavor = "multi_thread")]
async fn task_is_cancelled_by_those_who_may_where_its_vdisk_is_and_the_others_are_told_why() {
    let farm = two_sites().await;
    let vdisk = farm.root(Method::GET, "/v1/vdisks/of-main", &Value::Null).await["id"].as_i64().unwrap();
    let task = farm.control.change(&farm.control.system(), |change| {
        let waiting = Task {
            kind: Word::new("merge").unwrap(),
            vdisk: Id::new(vdisk).ok(),
            parameters: "{}".to_owned(),
            actor: UserName::new("ann").unwrap(),
            server: None,
            state: TaskState::Waiting,
            made_at: change.now(),
            started_at: None,
            ended_at: None,
            result: None,
        };
        Ok(change.create(waiting)?.id)
    });
    let task = task.unwrap();
    for (name, may) in [("sam", true), ("olga", true), ("eve", false), ("bob", false)] {
        let mut who = farm.browser(name).await;
        for page in ["/tasks".to_owned(), format!("/tasks/{task}"), "/sites".to_owned()] {
            let seen = who.get(&page).await;
            let offered = seen.text.contains(&format!("action=\"/tasks/{task}/cancel\""));
            assert_eq!(offered, may, "{name}, {page}: {}", seen.text);
            assert!(may || seen.text.contains("this takes the role operator"), "{name}, {page}");
        }
    }
    let mut bob = farm.browser("bob").await;
    bob.get("/tasks").await;
    let refused = bob.post(&format!("/tasks/{task}/cancel"), &[]).await;
    bob.get(refused.header("location")).await.shows(&["this takes the role operator"]);
    let mut olga = farm.browser("olga").await;
    olga.get("/tasks").await;
    olga.post(&format!("/tasks/{task}/cancel"), &[]).await;
    olga.get("/tasks").await.shows(&["is being cancelled", "cancelled"]);
}
