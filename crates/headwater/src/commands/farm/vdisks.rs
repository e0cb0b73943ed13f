//! What stores, vDisks and versions can do besides.
use hyper::Method;
use serde_json::{Value, json};

use super::nouns::{STORE, VDISK, VERSION};
use super::plain::name_it;
use super::{Found, Server, print, refer, settings, sure};
use crate::cli::{Format, StoreVerb, VdiskVerb, VersionVerb, Work};

impl Server {
    pub(super) async fn store(&self, verb: StoreVerb) -> anyhow::Result<String> {
        match verb {
            StoreVerb::Plain(verb) => self.plain(&STORE, verb).await,
            StoreVerb::Adopt { store, vdisks, dry_run, newest_in_test, production_up_to } => {
                let found = self.find(&STORE, &store).await?;
                let path = format!("{}/adopt", found.path);
                let body = json!({
                    "dry_run": dry_run, "names": vdisks, "newest_in_test": newest_in_test,
                    "production_up_to": production_up_to,
                });
                let answer = self.ask(Method::POST, &path, Some(&body)).await?;
                match self.format {
                    Format::Table => Ok(print::adoption(&store, &answer)),
                    Format::Json | Format::Csv => self.print(&answer),
                }
            }
            StoreVerb::Import { store, folder, name, in_test, wait } => {
                let found = self.find(&STORE, &store).await?;
                let mut body = json!({ "folder": folder, "in_test": in_test });
                put(&mut body, "name", name);
                let task = self.ask(Method::POST, &format!("{}/import", found.path), Some(&body)).await?;
                self.begun(&task, wait).await
            }
            StoreVerb::Inspect { store } => {
                let found = self.find(&STORE, &store).await?;
                let report = self.ask(Method::POST, &format!("{}/inspect", found.path), None).await?;
                match self.format {
                    Format::Table => Ok(print::inspection(&report)),
                    Format::Json | Format::Csv => self.print(&report),
                }
            }
        }
    }

    pub(super) async fn vdisk(&self, verb: VdiskVerb) -> anyhow::Result<String> {
        match verb {
            VdiskVerb::Plain(verb) => self.plain(&VDISK, verb).await,
            VdiskVerb::Blank { name, size, values } => {
                let mut vdisk = settings::object(&VDISK, &values)?;
                name_it(&VDISK, &name, &mut vdisk);
                self.place(&VDISK, &mut vdisk).await?;
                let body = json!({ "vdisk": vdisk, "size_bytes": size.0 });
                let made = self.ask(Method::POST, &format!("{}/blank", VDISK.path), Some(&body)).await?;
                self.row(&VDISK, &made)
            }
            VdiskVerb::Destroy { vdisk, sure } => {
                let found = self.find(&VDISK, &vdisk).await?;
                let versions: Value = self.client.get(&format!("{}/versions?limit=1", found.path)).await?;
                let count = versions.get("total").and_then(Value::as_u64).unwrap_or_default();
                sure::ask(
                    sure,
                    &format!("Delete vDisk \"{vdisk}\" with the files of its {count} versions?"),
                )?;
                self.change(Method::DELETE, &found, "?remove_files=true", None).await?;
                Ok(String::new())
            }
            VdiskVerb::Export { vdisk, folder, version, wait } => {
                let found = self.find(&VDISK, &vdisk).await?;
                let mut body = json!({ "folder": folder });
                put(&mut body, "version", version);
                let task = self.ask(Method::POST, &format!("{}/export", found.path), Some(&body)).await?;
                self.begun(&task, wait).await
            }
            VdiskVerb::Versions { vdisk, list } => {
                let found = self.find(&VDISK, &vdisk).await?;
                self.list(&VERSION, &format!("{}/versions", found.path), &list).await
            }
            VdiskVerb::Hold { version } => {
                let version = refer::version(&version.words)?;
                let (vdisk, number) = refer::parts(&version)?;
                self.hold(vdisk, number.into()).await
            }
            VdiskVerb::Release { vdisk } => self.hold(&vdisk, Value::Null).await,
            VdiskVerb::Merge { vdisk, base, result, comment, work } => {
                let mut body = json!({ "kind": if base { "base" } else { "updates" } });
                put(&mut body, "result", result);
                put(&mut body, "comment", comment);
                self.work(&vdisk, "merge", body, work).await
            }
            VdiskVerb::Convert { vdisk, comment, work } => {
                let mut body = json!({});
                put(&mut body, "comment", comment);
                self.work(&vdisk, "convert", body, work).await
            }
            VdiskVerb::DeleteObsolete { vdisk, sure } => {
                let found = self.find(&VDISK, &vdisk).await?;
                self.delete_obsolete(&vdisk, &found, sure).await
            }
        }
    }

    async fn delete_obsolete(
        &self,
        vdisk: &str,
        found: &Found,
        sure: crate::cli::Sure,
    ) -> anyhow::Result<String> {
        let path = format!("{}/delete-obsolete", found.path);
        let plan = self.ask(Method::POST, &format!("{path}?dry_run=true"), None).await?;
        let numbers = |answer: &Value, key: &str| {
            let all = answer.get(key).and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default();
            all.iter().map(Value::to_string).collect::<Vec<_>>().join(", ")
        };
        let obsolete = numbers(&plan, "deleted");
        if obsolete.is_empty() {
            return match self.format {
                Format::Table => Ok(format!("vDisk \"{vdisk}\" needs all its versions.\n")),
                Format::Json | Format::Csv => self.print(&plan),
            };
        }
        sure::ask(
            sure,
            &format!(
                "Delete these versions of vDisk \"{vdisk}\", with their files, that nothing needs any more: {obsolete}?"
            ),
        )?;
        let answer = self.ask(Method::POST, &path, None).await?;
        if self.format != Format::Table {
            return self.print(&answer);
        }
        let leaving = numbers(&answer, "leaving");
        let left = |number: &&str| leaving.split(", ").any(|left| left == *number);
        let deleted = numbers(&answer, "deleted");
        let gone: Vec<&str> = deleted.split(", ").filter(|number| !left(number)).collect();
        let lines =
            [("Deleted", gone.join(", ")), ("In use, and gone as soon as they are free", leaving.clone())];
        let told = lines.iter().filter(|(_, numbers)| !numbers.is_empty());
        Ok(told.map(|(what, numbers)| format!("{what}: {numbers}\n")).collect())
    }

    /// Begins work on a vDisk's versions.
    async fn work(&self, vdisk: &str, what: &str, mut body: Value, work: Work) -> anyhow::Result<String> {
        let found = self.find(&VDISK, vdisk).await?;
        put(&mut body, "verify", Some(work.verify));
        let task = self.ask(Method::POST, &format!("{}/{what}", found.path), Some(&body)).await?;
        self.begun(&task, work.wait).await
    }

    async fn hold(&self, vdisk: &str, version: Value) -> anyhow::Result<String> {
        let found = self.find(&VDISK, vdisk).await?;
        let body = json!({ "version": version });
        self.row(&VDISK, &self.change(Method::POST, &found, "/hold", Some(&body)).await?)
    }

    pub(super) async fn version(&self, verb: VersionVerb) -> anyhow::Result<String> {
        let find = async |words: &[String]| self.find(&VERSION, &refer::version(words)?).await;
        let act = async |found: Found, action: &str, body: Value| {
            self.row(&VERSION, &self.change(Method::POST, &found, action, Some(&body)).await?)
        };
        match verb {
            VersionVerb::List { vdisk: None, list } => self.list(&VERSION, VERSION.path, &list).await,
            VersionVerb::List { vdisk: Some(vdisk), list } => {
                let found = self.find(&VDISK, &vdisk).await?;
                self.list(&VERSION, &format!("{}/versions", found.path), &list).await
            }
            VersionVerb::Show { version } => self.print(&find(&version.words).await?.value),
            VersionVerb::Create { vdisk, parent, comment } => {
                let found = self.find(&VDISK, &vdisk).await?;
                let mut body = json!({});
                put(&mut body, "parent", parent);
                put(&mut body, "comment", comment);
                let made = self.ask(Method::POST, &format!("{}/versions", found.path), Some(&body)).await?;
                self.row(&VERSION, &made)
            }
            VersionVerb::Promote { version, to, at } => {
                let mut body = json!({ "to": to });
                put(&mut body, "release_at", at);
                let found = find(&version.words).await?;
                let answer = self.change(Method::POST, &found, "/promote", Some(&body)).await?;
                if let Some(task) = answer.get("merge").and_then(|task| task.get("id")) {
                    eprintln!(
                        "The chain has become long: task {task} merges it (headwater task watch {task})"
                    );
                }
                self.row(&VERSION, answer.get("version").unwrap_or(&answer))
            }
            VersionVerb::Schedule { words } => {
                let (version, at) = refer::version_and_word(&words, "the moment: 2026-11-21T22:00:00Z")?;
                let found = self.find(&VERSION, &version).await?;
                act(found, "/schedule", json!({ "release_at": at })).await
            }
            VersionVerb::Revert { version, to } => {
                act(find(&version.words).await?, "/revert", json!({ "to": to })).await
            }
            VersionVerb::Accept { version, sure } => {
                let found = find(&version.words).await?;
                let question = format!(
                    "Take {} for what it is now? Devices boot whatever was written into it.",
                    found.text("file")
                );
                sure::ask(sure, &question)?;
                self.row(&VERSION, &self.change(Method::POST, &found, "/accept", None).await?)
            }
            VersionVerb::Comment { words } => {
                let (version, text) = refer::version_and_word(&words, "the remark")?;
                let found = self.find(&VERSION, &version).await?;
                let body = json!({ "comment": text });
                self.row(&VERSION, &self.change(Method::PATCH, &found, "", Some(&body)).await?)
            }
            VersionVerb::Delete { versions, sure } => {
                self.delete_versions(&refer::versions(&versions)?, sure).await
            }
        }
    }

    async fn delete_versions(&self, versions: &[String], sure: crate::cli::Sure) -> anyhow::Result<String> {
        let mut found: Vec<Found> = Vec::new();
        for version in versions {
            found.push(self.find(&VERSION, version).await?);
        }
        let files: Vec<String> = versions
            .iter()
            .zip(&found)
            .map(|(name, version)| format!("{name} ({})", version.text("file")))
            .collect();
        sure::ask(sure, &format!("Delete version {} with its file?", files.join(", ")))?;
        let mut text = String::new();
        for (name, version) in versions.iter().zip(&found) {
            let answer = self.change(Method::DELETE, version, "", None).await?;
            let waits: Vec<&str> = answer
                .get("waits_for")
                .and_then(Value::as_array)
                .map(|names| names.iter().filter_map(Value::as_str).collect())
                .unwrap_or_default();
            if !waits.is_empty() {
                text.push_str(&format!(
                    "{name} goes as soon as it is free; it is in use by {}\n",
                    waits.join(", ")
                ));
            }
        }
        Ok(text)
    }
}

/// Puts a property into a body where there is one to put.
pub(super) fn put(body: &mut Value, key: &str, value: Option<impl Into<Value>>) {
    if let (Some(value), Some(object)) = (value, body.as_object_mut()) {
        object.insert(key.to_owned(), value.into());
    }
}
