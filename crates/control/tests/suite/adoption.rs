//! A folder of files becomes vDisks.
use std::path::Path;

use control::Code;
use control::adopt::{FindingKind, Plan, Template, import, plan};
use diskimage::Format;
use diskimage::ops::{SnapshotOptions, snapshot};
use farm::model::{Access, AccessMode, ByteSize, Lineage, Percent, Vdisk, WriteCache, WriteCacheKind};

use crate::sample::{Farm, blank, n, text, write};

fn child(farm: &Farm, parent: &str, name: &str, at: u64, fill: u8) {
    snapshot(&farm.path(parent), &farm.path(name), &SnapshotOptions::default()).unwrap();
    write(&farm.path(name), at, fill);
}

fn base(farm: &Farm, name: &str) {
    let path = farm.path(name);
    blank(&path, Format::of_ending(Path::new(name)).unwrap());
    write(&path, 0, 1);
}

fn template() -> Template {
    let limit = ByteSize::new(1 << 30).unwrap();
    let warn_at = Percent::new(80).unwrap();
    let mode = AccessMode::Standard(WriteCache { kind: WriteCacheKind::ServerDisk, limit, warn_at });
    Template { mode, description: text("from the old farm"), newest_in_test: true, production_up_to: None }
}

fn look(farm: &Farm) -> Plan {
    plan(&farm.control, &farm.by(), farm.store).unwrap()
}

fn finding(plan: &Plan, file: &str) -> (FindingKind, String) {
    let found = plan.findings.iter().find(|finding| finding.file == file);
    let found = found.unwrap_or_else(|| panic!("nothing about {file} in {plan:?}"));
    (found.kind, found.why.clone())
}

#[test]
fn chains_of_other_systems_become_vdisks_in_one_transaction() {
    let farm = Farm::new();
    // As Citrix PVS names them, in both formats; the second chain was merged once.
    base(&farm, "win11.vhdx");
    child(&farm, "win11.vhdx", "win11.1.avhdx", 1 << 20, 2);
    child(&farm, "win11.1.avhdx", "win11.2.avhdx", 2 << 20, 3);
    base(&farm, "win11.3.vhdx");
    child(&farm, "win11.3.vhdx", "win11.4.avhdx", 1 << 20, 5);
    base(&farm, "old.vhd");
    child(&farm, "old.vhd", "old.1.avhd", 1 << 20, 2);
    // As Hyper-V names checkpoints.
    base(&farm, "lab.vhdx");
    child(&farm, "lab.vhdx", "lab_0E5A.avhdx", 1 << 20, 7);
    child(&farm, "lab_0E5A.avhdx", "lab_01C3.avhdx", 2 << 20, 8);
    let plan = look(&farm);
    assert_eq!(plan.findings, []);
    let shown: Vec<String> = plan
        .chains
        .iter()
        .map(|chain| {
            let versions = chain.versions.iter().map(|version| {
                let parent = version.lineage.parent().map_or(String::new(), |parent| format!("<{parent}"));
                format!(" {}{parent}", version.number)
            });
            format!("{}:{}", chain.name, versions.collect::<String>())
        })
        .collect();
    assert_eq!(shown, ["lab: 0 1<0 2<1", "old: 0 1<0", "win11: 0 1<0 2<1 3 4<3"]);
    assert_eq!(
        farm.control.read(|reader| Ok(reader.all::<Vdisk>()?.len())).unwrap(),
        0,
        "a plan makes nothing"
    );

    let made =
        import(&farm.control, &farm.by(), farm.store, &[text("win11"), text("lab")], &template()).unwrap();
    assert_eq!(made.len(), 2);
    let win11 = farm.control.read(|reader| Ok(reader.vdisk(farm.store, &text("win11"))?)).unwrap();
    let newest = farm.version(win11.id, 4);
    assert_eq!((newest.access, newest.lineage), (Access::Test, Lineage::Difference { parent: n(3) }));
    assert!(matches!(farm.version(win11.id, 2).access, Access::Production { .. }));
    assert_eq!(farm.contents(&newest)[..3], [1, 5, 0]);
    assert_eq!(farm.contents(&farm.version(win11.id, 2))[..4], [1, 2, 3, 0]);
    // What was adopted is known now, and what was not is still there.
    let plan = look(&farm);
    assert_eq!((plan.known, plan.chains.len(), plan.chains[0].name.as_str()), (8, 1, "old"));
    let rest = import(&farm.control, &farm.by(), farm.store, &[], &template()).unwrap();
    assert_eq!(rest[0].name.as_str(), "old");
    let nothing = import(&farm.control, &farm.by(), farm.store, &[], &template()).unwrap_err();
    assert_eq!(nothing.code, Code::Refused);
    // They live on as versions of ours do.
    let update = farm.update(rest[0].id, 3 << 20, 9);
    assert_eq!((update.number, update.file.as_str()), (n(2), "old.2.avhd"));
    assert_eq!(farm.contents(&update)[..4], [1, 2, 0, 9]);
}

#[test]
fn what_cannot_be_adopted_is_told_with_the_reason() {
    let farm = Farm::new();
    base(&farm, "a.vhdx");
    child(&farm, "a.vhdx", "a.1.avhdx", 0, 2);
    child(&farm, "a.1.avhdx", "a.2.avhdx", 0, 3);
    std::fs::remove_file(farm.path("a.1.avhdx")).unwrap();
    base(&farm, "b.vhdx");
    child(&farm, "b.vhdx", "b.1.avhdx", 0, 2);
    std::fs::rename(farm.path("b.vhdx"), farm.path("b-renamed.vhdx")).unwrap();
    std::fs::write(farm.path("c.vhdx"), b"no image").unwrap();
    std::fs::write(farm.path("d.vhdx.partial"), b"half an image").unwrap();
    base(&farm, "#e.vhdx");
    base(&farm, "f.vhdx");
    child(&farm, "f.vhdx", "f.1.avhdx", 0, 2);
    std::fs::copy(farm.path("f.vhdx"), farm.path("f-copy1.vhdx")).unwrap();
    std::fs::rename(farm.path("f.vhdx"), farm.path("f-copy2.vhdx")).unwrap();
    base(&farm, "g.vhd");
    base(&farm, "g.vhdx");
    std::fs::write(farm.path("notes.txt"), b"nothing to us").unwrap();
    let plan = look(&farm);
    let (kind, why) = finding(&plan, "a.2.avhdx");
    assert_eq!(kind, FindingKind::Orphan);
    assert!(why.contains("\"a.1.avhdx\"") && why.contains("is not in the folder"), "{why}");
    let (kind, why) = finding(&plan, "b.1.avhdx");
    assert_eq!(kind, FindingKind::Orphan);
    assert!(why.contains("headwater image rebase"), "{why}");
    assert_eq!(finding(&plan, "c.vhdx").0, FindingKind::Damaged);
    assert_eq!(finding(&plan, "d.vhdx.partial").0, FindingKind::Unfinished);
    assert_eq!(finding(&plan, "#e.vhdx").0, FindingKind::Name);
    let (kind, why) = finding(&plan, "f.1.avhdx");
    assert_eq!(kind, FindingKind::Ambiguous);
    assert!(why.contains("f-copy1.vhdx, f-copy2.vhdx"), "{why}");
    assert_eq!(finding(&plan, "g.vhd").0, FindingKind::Ambiguous);
    assert_eq!(finding(&plan, "g.vhdx").0, FindingKind::Ambiguous);
    let names: Vec<_> = plan.chains.iter().map(|chain| chain.name.as_str()).collect();
    assert_eq!(names, ["a", "f-copy1", "f-copy2"]);
    let error =
        import(&farm.control, &farm.by(), farm.store, &[text("a"), text("c")], &template()).unwrap_err();
    assert_eq!(error.code, Code::NotFound);
    assert!(error.message.contains("vDisk \"c\" cannot be adopted"), "{error}");
    assert_eq!(farm.control.read(|reader| Ok(reader.all::<Vdisk>()?.len())).unwrap(), 0, "all or nothing");
}

#[test]
fn file_beside_versions_of_the_catalogue_is_told_from_them() {
    let farm = Farm::new();
    farm.vdisk("golden", Format::Vhdx);
    child(&farm, "golden.vhdx", "golden.1.avhdx", 0, 2);
    child(&farm, "golden.1.avhdx", "golden.2.avhdx", 0, 2);
    base(&farm, "Golden.9.vhdx");
    let plan = look(&farm);
    assert_eq!((plan.known, plan.chains.len()), (1, 0));
    assert_eq!(finding(&plan, "golden.1.avhdx").0, FindingKind::Extends);
    assert_eq!(finding(&plan, "golden.2.avhdx").0, FindingKind::Extends);
    assert_eq!(finding(&plan, "Golden.9.vhdx").0, FindingKind::Name);
}

#[test]
fn stray_child_beside_a_chain_becomes_no_version_and_files_of_other_programs_are_told() {
    let farm = Farm::new();
    base(&farm, "win11.vhdx");
    child(&farm, "win11.vhdx", "win11.1.avhdx", 1 << 20, 2);
    child(&farm, "win11.1.avhdx", "win11.2.avhdx", 1 << 20, 3);
    // Somebody tried something on a child of their own.
    child(&farm, "win11.vhdx", "trial.vhdx", 1 << 20, 9);
    // Names that say nothing, and two that stand on the same.
    base(&farm, "lab.vhdx");
    child(&farm, "lab.vhdx", "lab_0E5A.avhdx", 1 << 20, 7);
    child(&farm, "lab.vhdx", "lab_01C3.avhdx", 2 << 20, 8);
    for file in ["win11.pvp", "win11.1.lok", "win11.xml"] {
        std::fs::write(farm.path(file), b"<x/>").unwrap();
    }
    let found = look(&farm);
    let names: Vec<_> =
        found.chains.iter().map(|chain| (chain.name.as_str(), chain.versions.len())).collect();
    assert_eq!(names, [("win11", 3)]);
    let (kind, why) = finding(&found, "trial.vhdx");
    assert!(kind == FindingKind::Name && why.contains("win11.NUMBER.avhdx"), "{why}");
    let (kind, why) = finding(&found, "lab_0E5A.avhdx");
    assert!(kind == FindingKind::Ambiguous && why.contains("lab.1.avhdx"), "{why}");
    for file in ["win11.pvp", "win11.1.lok", "win11.xml"] {
        assert_eq!(finding(&found, file).0, FindingKind::Beside, "{file}");
    }
    // The administrator knows which version production had.
    let up_to = Template { newest_in_test: false, production_up_to: Some(n(1)), ..template() };
    let made = import(&farm.control, &farm.by(), farm.store, &[], &up_to).unwrap();
    let access = |number| farm.version(made[0].id, number).access;
    assert!(matches!((access(0), access(1)), (Access::Production { .. }, Access::Production { .. })));
    assert_eq!(access(2), Access::Test);
}
