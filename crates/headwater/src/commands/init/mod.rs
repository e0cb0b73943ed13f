//! `headwater init`: a farm on an empty host, asked for on the terminal or told by options.
//!
//! Made are the configuration, with all its comments; the directories; and the catalogue, with the farm, its site, this
//! server, a store, a collection for devices, the vDisks that lie in the store already, and the first administrator. What
//! is there already is never written over. All questions are asked before anything is made.
mod answers;
mod config_file;

use std::fs::File;
use std::io::Write;
use std::net::IpAddr;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::sync::Arc;

use anyhow::Context;
use control::people::People;
use control::{Caller, Control, Options, adopt};
use farm::catalogue::Catalogue;
use farm::model::{
    AccessMode, ByteSize, Collection, Description, Farm, Grant, Name, PasswordHash, Percent, Role, Scope,
    Server, ServerId, Site, Store, StoreId, StorePath, Stored, User, Vdisk, VdiskName, Weight, WriteCache,
    WriteCacheKind,
};
use farm::snapshot::{SharedSnapshot, Snapshot};

use crate::catalogue::now;
use crate::cli::{DEFAULT_CONFIG, InitArgs};
use crate::config::Config;
use answers::{Adopt, Answers};

/// What the first store and the first collection are called.
const STORE: &str = "images";
const COLLECTION: &str = "devices";

/// Runs the command; what it prints.
///
/// # Errors
/// In words for the administrator. What was made until then is told.
pub fn run(args: &InitArgs) -> anyhow::Result<String> {
    refuse_to_overwrite(&args.config)?;
    let answers = answers::gather(args)?;
    let database = answers.state_dir.join(super::CATALOGUE_FILE);
    refuse_to_overwrite(&database)?;
    let text = config_file::text(&answers);
    // What it will be read as: a mistake shows before anything is made.
    let config = crate::config::parse(&text, &args.config)?;
    let hash = password_hash(&answers)?;
    for directory in [&answers.state_dir, &config.write_cache.directory, &answers.store] {
        std::fs::create_dir_all(directory)
            .with_context(|| format!("the directory {} cannot be made", directory.display()))?;
    }
    let farm = make_farm(&database, &answers, &config, hash.as_ref())
        .with_context(|| format!("the catalogue {} cannot be made", database.display()));
    let adopted = match farm {
        Ok(adopted) => adopted,
        Err(error) => {
            // Ours, and of no use: another try begins anew.
            for end in ["", "-wal", "-shm"] {
                let _ = std::fs::remove_file(format!("{}{end}", database.display()));
            }
            return Err(error);
        }
    };
    write_config(&args.config, &text).with_context(|| {
        format!("{} cannot be made (the catalogue was: {})", args.config.display(), database.display())
    })?;
    Ok(report(args, &answers, &database, &adopted))
}

fn refuse_to_overwrite(path: &Path) -> anyhow::Result<()> {
    anyhow::ensure!(
        !path.exists(),
        "{} exists: there is a farm here already (headwater backup saves one; headwater doctor looks at it)",
        path.display()
    );
    Ok(())
}

fn password_hash(answers: &Answers) -> anyhow::Result<Option<PasswordHash>> {
    let Some(admin) = &answers.admin else { return Ok(None) };
    Ok(Some(People::default().hash(&admin.name, &admin.password)?))
}

/// The farm and all that is in it; the vDisks that were taken over.
fn make_farm(
    database: &Path,
    answers: &Answers,
    config: &Config,
    hash: Option<&PasswordHash>,
) -> anyhow::Result<Vec<Stored<Vdisk>>> {
    let catalogue = Catalogue::open_file(database)?;
    let (server, store) = populate(&catalogue, answers, config, hash)?;
    if answers.adopt == Adopt::Nothing {
        return Ok(Vec::new());
    }
    let snapshot = Arc::new(SharedSnapshot::new(Snapshot::load(&catalogue)?));
    let control = Control::open(catalogue, snapshot, Options::of(server));
    let names: Vec<VdiskName> = match &answers.adopt {
        Adopt::One(name) => vec![name.clone()],
        Adopt::All | Adopt::Nothing => Vec::new(),
    };
    let cache = WriteCache {
        kind: WriteCacheKind::ServerDisk,
        limit: ByteSize::new(config.write_cache.limit.0)?,
        warn_at: Percent::new(config.write_cache.warn_percent)?,
    };
    let template = adopt::Template {
        mode: AccessMode::Standard(cache),
        description: Description::new("")?,
        newest_in_test: false,
        production_up_to: None,
    };
    let caller = Caller::local_root(None, now());
    adopt::import(&control, &caller, store, &names, &template).map_err(|error| with_hint(&error))
}

fn with_hint(error: &control::ControlError) -> anyhow::Error {
    match &error.hint {
        Some(hint) => anyhow::anyhow!("{}: {hint}", error.message),
        None => anyhow::anyhow!("{}", error.message),
    }
}

fn populate(
    catalogue: &Catalogue,
    answers: &Answers,
    config: &Config,
    hash: Option<&PasswordHash>,
) -> anyhow::Result<(ServerId, StoreId)> {
    let caller = Caller::local_root(None, now());
    let path = StorePath::new(&answers.store.to_string_lossy())?;
    let addresses: Vec<IpAddr> =
        config.iscsi.listen.iter().map(std::net::SocketAddr::ip).filter(|ip| !ip.is_unspecified()).collect();
    let empty = Description::new("")?;
    let made = catalogue.change(caller.actor(), now(), |change| {
        change.create(Farm { name: answers.farm.clone(), description: empty.clone(), auto_merge: None })?;
        let site = change.create(Site {
            name: answers.site.clone(),
            description: empty.clone(),
            disabled: false,
        })?;
        let server = change.create(Server {
            name: answers.server.clone(),
            site: site.id,
            description: empty.clone(),
            addresses: addresses.clone(),
            weight: Weight::DEFAULT,
            max_devices: None,
            disabled: false,
        })?;
        let store = change.create(Store {
            name: Name::new(STORE)?,
            description: empty.clone(),
            site: None,
            disabled: false,
            paths: [(server.id, path.clone())].into(),
        })?;
        change.create(Collection::plain(Name::new(COLLECTION)?, site.id, empty.clone()))?;
        if let (Some(admin), Some(hash)) = (&answers.admin, hash) {
            let user = change.create(User {
                name: admin.name.clone(),
                description: Description::new("the first administrator")?,
                password: Some(hash.clone()),
                must_change_password: false,
                disabled: false,
            })?;
            change.create(Grant { user: user.id, role: Role::Administrator, scope: Scope::Farm })?;
        }
        Ok((server.id, store.id))
    })?;
    Ok(made)
}

/// Never over another one; readable by its owner alone, since secrets come into it.
fn write_config(path: &Path, text: &str) -> std::io::Result<()> {
    if let Some(folder) = path.parent() {
        std::fs::create_dir_all(folder)?;
    }
    let mut file = File::options().write(true).create_new(true).mode(0o600).open(path)?;
    file.write_all(text.as_bytes())?;
    file.sync_all()
}

fn report(args: &InitArgs, answers: &Answers, database: &Path, adopted: &[Stored<Vdisk>]) -> String {
    let config = args.config.display();
    let own = match args.config == Path::new(DEFAULT_CONFIG) {
        true => String::new(),
        false => format!(" --config {config}"),
    };
    let mut text = format!(
        "{config}\n{}\n\nFarm \"{}\" with site \"{}\", server \"{}\", store \"{STORE}\" ({}) and collection \"{COLLECTION}\".\n",
        database.display(),
        answers.farm,
        answers.site,
        answers.server,
        answers.store.display()
    );
    for vdisk in adopted {
        text.push_str(&format!("vDisk \"{}\" was taken over.\n", vdisk.value.name));
    }
    match &answers.admin {
        Some(admin) => text.push_str(&format!("Administrator \"{}\".\n", admin.name)),
        None => text.push_str(
            "There is no administrator yet: at its start the server prints a token, good once, for \"headwater user claim\".\n\
             Root of this machine needs none.\n",
        ),
    }
    text.push_str(&format!(
        "\nNext:\n  headwater doctor{own}\n  headwater serve{own}   (under systemd: systemctl enable --now headwater)\n"
    ));
    text.push_str("  headwater device create NAME mac=MAC vdisk=VDISK\n");
    text
}
