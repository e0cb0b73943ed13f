//! The descriptor: a few lines of text that say what kind of disk this is, whether it has a parent, and of which
//! extents it is made.
use crate::error::{Damage, Refusal};

pub(super) const RULE: &str = "[VMDK] The Descriptor File";
const NAME: &str = "descriptor";
/// The first line of every descriptor.
pub(super) const SIGNATURE: &[u8] = b"# Disk DescriptorFile";

/// The longest descriptor that is read: [`MAX_EXTENTS`] lines and as much again.
pub(super) const MAX_BYTES: u64 = 1 << 20;
/// How many extents a disk is made of at most: 8 TiB in files of 2 GiB, the largest disk of programs that cut them.
const MAX_EXTENTS: usize = 4096;
/// What `parentCID` says where there is no parent.
const NO_PARENT: u32 = 0xFFFF_FFFF;

/// The kinds of disks that are read. What is in the file is what its extent lines say; an unknown kind might mean
/// something else by them.
const KNOWN_TYPES: [&str; 7] = [
    "monolithicSparse",
    "monolithicFlat",
    "twoGbMaxExtentSparse",
    "twoGbMaxExtentFlat",
    "streamOptimized",
    "vmfs",
    "custom",
];

/// What a descriptor says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Descriptor {
    /// At least one.
    pub(super) extents: Vec<ExtentLine>,
}

/// A run of the disk and the file that it lies in. Runs follow each other in the order of their lines.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct ExtentLine {
    pub(super) sectors: u64,
    pub(super) kind: ExtentKind,
}

/// What an extent is stored as.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum ExtentKind {
    /// Byte for byte in the file, from a sector on.
    Flat { name: String, first_sector: u64 },
    /// In a file with a sparse extent's header.
    Sparse { name: String },
    /// Nowhere: zeros.
    Zero,
}

impl Descriptor {
    /// Reads `bytes`, which begin at `at` of the file. What follows a NUL does not count.
    pub(super) fn parse(bytes: &[u8], at: u64) -> Result<Self, Refusal> {
        let damage = |problem: String| Refusal::from(Damage::new(NAME, at, RULE, problem));
        let text = bytes.split(|&byte| byte == 0).next().unwrap_or_default();
        let text = std::str::from_utf8(text).map_err(|error| {
            damage(format!("it is not UTF-8 behind its first {} bytes", error.valid_up_to()))
        })?;
        let mut lines = text.lines().map(str::trim);
        if !lines.next().is_some_and(|line| line.as_bytes().starts_with(SIGNATURE)) {
            return Err(damage("it does not begin with \"# Disk DescriptorFile\"".into()));
        }
        let mut entries = Entries::default();
        for line in lines.filter(|line| !line.is_empty() && !line.starts_with('#')) {
            entries.take(line).map_err(damage)?;
        }
        entries.finish(damage)
    }
}

/// What was read of a descriptor so far.
#[derive(Debug, Default)]
struct Entries {
    version: Option<String>,
    parent: Option<String>,
    create_type: Option<String>,
    lines: Vec<RawLine>,
}

/// An extent's line, of which the kind is not looked at yet.
#[derive(Debug)]
struct RawLine {
    access: String,
    sectors: u64,
    kind: String,
    name: Option<String>,
    first_sector: u64,
}

impl Entries {
    fn take(&mut self, line: &str) -> Result<(), String> {
        let shown = || line.chars().filter(|c| !c.is_control()).take(80).collect::<String>();
        let first = line.split_ascii_whitespace().next().unwrap_or_default();
        if ["RW", "RDONLY", "NOACCESS"].contains(&first) {
            if self.lines.len() >= MAX_EXTENTS {
                return Err(format!("it has more than {MAX_EXTENTS} extents"));
            }
            let line = RawLine::parse(line).ok_or_else(|| format!("{:?} is not an extent", shown()))?;
            self.lines.push(line);
            return Ok(());
        }
        let Some((key, value)) = line.split_once('=') else {
            return Err(format!("{:?} is neither an extent nor a setting", shown()));
        };
        let slot = match key.trim().to_ascii_lowercase().as_str() {
            "version" => &mut self.version,
            "parentcid" => &mut self.parent,
            "createtype" => &mut self.create_type,
            _ => return Ok(()),
        };
        if slot.is_some() {
            return Err(format!("{:?} is set twice", key.trim()));
        }
        *slot = Some(value.trim().trim_matches('"').to_owned());
        Ok(())
    }

    fn finish(self, damage: impl Fn(String) -> Refusal) -> Result<Descriptor, Refusal> {
        if let Some(version) = self.version.filter(|version| !["1", "2", "3"].contains(&version.as_str())) {
            return Err(Refusal::unsupported(RULE, format!("VMDK descriptor version {version:?}")));
        }
        let Some(create_type) = self.create_type else {
            return Err(damage("it does not say its createType".into()));
        };
        if !KNOWN_TYPES.iter().any(|known| known.eq_ignore_ascii_case(&create_type)) {
            return Err(Refusal::unsupported(RULE, format!("a VMDK of the type {create_type:?}")));
        }
        if let Some(parent) = self.parent {
            match u32::from_str_radix(&parent, 16) {
                Ok(NO_PARENT) => {}
                Ok(cid) => {
                    let what = format!("a differencing VMDK (its parentCID is {cid:08x})");
                    return Err(Refusal::unsupported(RULE, what));
                }
                Err(_) => return Err(damage(format!("the parentCID {parent:?} is not a number"))),
            }
        }
        if self.lines.is_empty() {
            return Err(damage("it names no extent".into()));
        }
        let extents = self.lines.into_iter().map(RawLine::checked).collect::<Result<_, _>>()?;
        Ok(Descriptor { extents })
    }
}

impl RawLine {
    /// `RW 4192256 FLAT "disk-f001.vmdk" 0`
    fn parse(line: &str) -> Option<Self> {
        let (front, name, back) = match line.split_once('"') {
            None => (line, None, ""),
            Some((front, rest)) => {
                let (name, back) = rest.split_once('"')?;
                (front, Some(name.to_owned()), back)
            }
        };
        let mut fields = front.split_ascii_whitespace();
        let access = fields.next()?.to_owned();
        let sectors = fields.next()?.parse().ok()?;
        let kind = fields.next()?.to_owned();
        if fields.next().is_some() {
            return None;
        }
        let first_sector = match back.split_ascii_whitespace().next() {
            None => 0,
            Some(number) => number.parse().ok()?,
        };
        Some(Self { access, sectors, kind, name, first_sector })
    }

    fn checked(self) -> Result<ExtentLine, Refusal> {
        let Self { access, sectors, kind, name, first_sector } = self;
        if access == "NOACCESS" {
            return Err(Refusal::unsupported(RULE, "a VMDK with an extent that must not be read (NOACCESS)"));
        }
        let kind = match (kind.as_str(), name) {
            ("FLAT" | "VMFS", Some(name)) => ExtentKind::Flat { name, first_sector },
            ("SPARSE", Some(name)) => ExtentKind::Sparse { name },
            ("ZERO", _) => ExtentKind::Zero,
            ("FLAT" | "VMFS" | "SPARSE", None) => {
                let problem = format!("an extent of the kind {kind} has no file name");
                return Err(Damage::new(NAME, 0, RULE, problem).into());
            }
            _ => {
                return Err(Refusal::unsupported(
                    RULE,
                    format!("a VMDK with an extent of the kind {kind:?}"),
                ));
            }
        };
        Ok(ExtentLine { sectors, kind })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// As qemu-img 7.2 writes it (`subformat=twoGbMaxExtentFlat`), with one extent more and VMware's line ends.
    const SPLIT: &str = "# Disk DescriptorFile\r\nversion=1\r\nCID=7d3a1c10\r\nparentCID=ffffffff\r\n\
        createType=\"twoGbMaxExtentFlat\"\r\n\r\n# Extent description\r\nRW 4194304 FLAT \"a b-f001.vmdk\" 0\r\n\
        RW 2048 FLAT \"a b-f002.vmdk\" 128\r\nRW 63 ZERO\r\n\r\n# The Disk Data Base\r\n#DDB\r\n\r\n\
        ddb.virtualHWVersion = \"4\"\r\n";

    fn parse(text: &str) -> Result<Descriptor, String> {
        Descriptor::parse(text.as_bytes(), 512).map_err(|refusal| refusal.to_string())
    }

    #[test]
    fn extents_are_read_in_their_order() {
        let descriptor = parse(&format!("{SPLIT}\0garbage")).unwrap();
        let flat = |name: &str, first_sector| ExtentKind::Flat { name: name.into(), first_sector };
        assert_eq!(
            descriptor.extents,
            [
                ExtentLine { sectors: 4_194_304, kind: flat("a b-f001.vmdk", 0) },
                ExtentLine { sectors: 2048, kind: flat("a b-f002.vmdk", 128) },
                ExtentLine { sectors: 63, kind: ExtentKind::Zero },
            ]
        );
    }

    #[test]
    fn descriptors_that_break_a_rule_are_refused_with_the_reason() {
        for (from, to, expected) in [
            ("# Disk Desc", "# Desc", "does not begin with"),
            ("version=1", "version=4", "version \"4\""),
            ("parentCID=ffffffff", "parentCID=7d3a1c0f", "a differencing VMDK (its parentCID is 7d3a1c0f)"),
            ("parentCID=ffffffff", "parentCID=none", "the parentCID \"none\" is not a number"),
            ("CID=7d3a1c10", "parentCID=ffffffff", "\"parentCID\" is set twice"),
            ("createType=", "type=", "does not say its createType"),
            ("twoGbMaxExtentFlat", "vmfsSparse", "a VMDK of the type \"vmfsSparse\""),
            ("RW 63 ZERO", "NOACCESS 63 ZERO", "must not be read"),
            ("RW 63 ZERO", "RW 63 VMFSRDM \"x\"", "the kind \"VMFSRDM\""),
            ("RW 63 ZERO", "RW 63 SPARSE", "has no file name"),
            ("RW 63 ZERO", "RW -63 ZERO", "\"RW -63 ZERO\" is not an extent"),
            ("RW 63 ZERO", "RW 63 FLAT \"x", "is not an extent"),
            ("RW 63 ZERO", "RW 99999999999999999999 ZERO", "is not an extent"),
            ("RW 63 ZERO", "garbage", "\"garbage\" is neither an extent nor a setting"),
        ] {
            let text = SPLIT.replace(from, to);
            assert_ne!(text, SPLIT, "{from}");
            let refusal = parse(&text).unwrap_err();
            assert!(refusal.contains(expected), "{from} -> {to}: {refusal}");
        }
    }

    #[test]
    fn descriptor_of_too_many_extents_is_refused() {
        let text = SPLIT.replace("RW 63 ZERO\r\n", &"RW 63 ZERO\r\n".repeat(MAX_EXTENTS));
        assert!(parse(&text).unwrap_err().contains("more than 4096 extents"));
    }
}
