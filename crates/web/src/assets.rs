//! Scripts and styles: in the program itself, under addresses that change with their content.
use axum::Router;
use axum::body::Body;
use axum::http::{Response, header};
use axum::routing::get;
use sha2::{Digest, Sha256};

use crate::answer::set;

/// A file that pages refer to.
struct Asset {
    name: &'static str,
    content_type: &'static str,
    content: &'static str,
}

const SCRIPT: &str = "text/javascript; charset=utf-8";
const STYLE: &str = "text/css; charset=utf-8";

const ASSETS: &[Asset] = &[
    Asset { name: "console.css", content_type: STYLE, content: include_str!("../assets/console.css") },
    Asset { name: "console.js", content_type: SCRIPT, content: include_str!("../assets/console.js") },
    Asset { name: "keys.js", content_type: SCRIPT, content: include_str!("../assets/keys.js") },
    Asset { name: "wizard.js", content_type: SCRIPT, content: include_str!("../assets/wizard.js") },
    Asset { name: "htmx.min.js", content_type: SCRIPT, content: include_str!("../assets/htmx.min.js") },
    Asset { name: "uplot.min.js", content_type: SCRIPT, content: include_str!("../assets/uplot.min.js") },
    Asset { name: "uplot.min.css", content_type: STYLE, content: include_str!("../assets/uplot.min.css") },
    Asset { name: "icon.svg", content_type: "image/svg+xml", content: include_str!("../assets/icon.svg") },
];

/// Where a file is.
pub(crate) fn path(name: &str) -> String {
    let content = ASSETS.iter().find(|asset| asset.name == name).map_or("", |asset| asset.content);
    format!("/assets/{}/{name}", tag(content))
}

fn tag(content: &str) -> String {
    Sha256::digest(content).iter().take(6).map(|byte| format!("{byte:02x}")).collect()
}

pub(crate) fn router() -> Router {
    ASSETS.iter().fold(Router::new(), |router, asset| {
        let answer = move || async move {
            let mut response = Response::new(Body::from(asset.content));
            set(&mut response, header::CONTENT_TYPE, asset.content_type);
            // Another content has another address.
            set(&mut response, header::CACHE_CONTROL, "public, max-age=31536000, immutable");
            response
        };
        router.route(&path(asset.name), get(answer))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What the console loads from others, all together, is to be small: a slow link shows it at once.
    const MAX_VENDORED_BYTES: usize = 120 * 1024;

    #[test]
    fn vendored_files_are_what_their_packages_hold_and_small() {
        let list: toml::Table = include_str!("../assets/vendored.toml").parse().unwrap();
        let files = list["file"].as_array().unwrap();
        let mut total = 0;
        for file in files {
            let name = file["name"].as_str().unwrap();
            let asset = ASSETS.iter().find(|asset| asset.name == name).unwrap();
            let digest: String =
                Sha256::digest(asset.content).iter().map(|byte| format!("{byte:02x}")).collect();
            assert_eq!(file["sha256"].as_str(), Some(digest.as_str()), "{name}");
            total += asset.content.len();
        }
        assert!(total < MAX_VENDORED_BYTES, "{total}");
        let ours = ["console.css", "console.js", "icon.svg", "keys.js", "wizard.js"];
        assert_eq!(files.len() + ours.len(), ASSETS.len(), "every other file is in the list");
    }

    #[test]
    fn address_of_a_file_changes_with_its_content() {
        assert_ne!(tag("a"), tag("b"));
        assert!(path("console.css").ends_with("/console.css"));
    }
}
