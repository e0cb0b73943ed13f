//! The file of a backup: a tar archive (POSIX.1-1988 `ustar`) whose last member says what must be in it.
//!
//! Anybody's tar lists and unpacks it. Only plain files are written and read. The manifest comes last, so that an archive that
//! was cut off has none; it holds the length and the CRC-32C of every member.
use std::io::{self, Read, Write};

/// The unit of tar: headers have one, contents are padded to it.
const RECORD_BYTES: usize = 512;
/// The longest name, without splitting it in two fields; our names are shorter.
const MAX_NAME_BYTES: usize = 100;
/// The longest directory part in a field of its own.
const MAX_PREFIX_BYTES: usize = 155;
/// The largest member: eleven octal digits.
const MAX_MEMBER_BYTES: u64 = 0o777_7777_7777;
/// How much is copied at a time.
const PIECE_BYTES: usize = 64 << 10;

/// A member, as its header tells.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Member {
    pub(super) name: String,
    pub(super) mode: u32,
    pub(super) length: u64,
}

/// Writes members one after the other.
pub(super) struct Writer<W> {
    out: W,
    /// Seconds since 1970.
    time: u64,
}

impl<W: Write> Writer<W> {
    pub(super) fn new(out: W, time: u64) -> Self {
        Self { out, time }
    }

    /// Writes a member; the CRC-32C of its contents.
    ///
    /// # Errors
    /// `UnexpectedEof` where there are fewer contents than `member.length`; what the system says.
    pub(super) fn add(&mut self, member: &Member, contents: impl Read) -> io::Result<u32> {
        self.out.write_all(&header(member, self.time)?)?;
        let crc = copy(contents, &mut self.out, member.length)?;
        self.out.write_all(padding(member.length))?;
        Ok(crc)
    }

    /// Ends the archive: two records of zeros.
    pub(super) fn finish(mut self) -> io::Result<W> {
        self.out.write_all(&[0; RECORD_BYTES])?;
        self.out.write_all(&[0; RECORD_BYTES])?;
        self.out.flush()?;
        Ok(self.out)
    }
}

/// Reads members one after the other.
pub(super) struct Reader<R> {
    from: R,
}

impl<R: Read> Reader<R> {
    pub(super) fn new(from: R) -> Self {
        Self { from }
    }

    /// The next member; `None` at the end. Its contents must be [copied](Self::contents) before the next.
    ///
    /// # Errors
    /// `InvalidData` of what is no such archive, `UnexpectedEof` of one that was cut off; what the system says.
    pub(super) fn next(&mut self) -> io::Result<Option<Member>> {
        let mut record = [0; RECORD_BYTES];
        self.from.read_exact(&mut record)?;
        if record.iter().all(|byte| *byte == 0) { Ok(None) } else { parse(&record).map(Some) }
    }

    /// Copies a member's contents; their CRC-32C.
    ///
    /// # Errors
    /// As [`next`](Self::next), and of the writing.
    pub(super) fn contents(&mut self, member: &Member, to: impl Write) -> io::Result<u32> {
        let crc = copy(&mut self.from, to, member.length)?;
        let mut rest = [0; RECORD_BYTES];
        if let Some(rest) = rest.get_mut(..padding(member.length).len()) {
            self.from.read_exact(rest)?;
        }
        Ok(crc)
    }
}

fn copy(from: impl Read, mut to: impl Write, length: u64) -> io::Result<u32> {
    let mut from = from.take(length);
    let mut piece = vec![0; PIECE_BYTES];
    let (mut crc, mut done) = (0, 0_u64);
    loop {
        let count = match from.read(&mut piece) {
            Ok(0) => break,
            Ok(count) => count,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
            Err(error) => return Err(error),
        };
        let read = piece.get(..count).unwrap_or_default();
        crc = crc32c::crc32c_append(crc, read);
        to.write_all(read)?;
        done = done.saturating_add(u64::try_from(count).unwrap_or(u64::MAX));
    }
    if done == length { Ok(crc) } else { Err(io::ErrorKind::UnexpectedEof.into()) }
}

/// What fills the last record of a member.
fn padding(length: u64) -> &'static [u8] {
    const ZEROS: [u8; RECORD_BYTES] = [0; RECORD_BYTES];
    let over =
        length.checked_rem(RECORD_BYTES as u64).and_then(|over| usize::try_from(over).ok()).unwrap_or(0);
    let missing = if over == 0 { 0 } else { RECORD_BYTES.saturating_sub(over) };
    ZEROS.get(..missing).unwrap_or_default()
}

/// Where the fields of a header are: offset and length (POSIX.1-2017, pax, "ustar Interchange Format").
const NAME: (usize, usize) = (0, MAX_NAME_BYTES);
const MODE: (usize, usize) = (100, 8);
const OWNER: (usize, usize) = (108, 8);
const GROUP: (usize, usize) = (116, 8);
const SIZE: (usize, usize) = (124, 12);
const TIME: (usize, usize) = (136, 12);
const CHECKSUM: (usize, usize) = (148, 8);
const TYPE: (usize, usize) = (156, 1);
const MAGIC: (usize, usize) = (257, 8);
const PREFIX: (usize, usize) = (345, MAX_PREFIX_BYTES);

fn header(member: &Member, time: u64) -> io::Result<[u8; RECORD_BYTES]> {
    let bad = |why: &str| io::Error::new(io::ErrorKind::InvalidInput, format!("{}: {why}", member.name));
    if member.length > MAX_MEMBER_BYTES {
        return Err(bad("a file of more than 8 GiB does not go into a backup"));
    }
    let (prefix, name) = split(&member.name).ok_or_else(|| bad("its name is too long for a backup"))?;
    let mut record = [0; RECORD_BYTES];
    let mut put = |(at, length): (usize, usize), value: &[u8]| {
        let field = record.get_mut(at..at.saturating_add(length)).unwrap_or_default();
        for (byte, value) in field.iter_mut().zip(value) {
            *byte = *value;
        }
    };
    let octal = |value: u64, digits: usize| format!("{value:0digits$o}").into_bytes();
    put(NAME, name.as_bytes());
    put(PREFIX, prefix.as_bytes());
    put(MODE, &octal(u64::from(member.mode & 0o777), 7));
    put(OWNER, &octal(0, 7));
    put(GROUP, &octal(0, 7));
    put(SIZE, &octal(member.length, 11));
    put(TIME, &octal(time.min(MAX_MEMBER_BYTES), 11));
    put(TYPE, b"0");
    put(MAGIC, b"ustar\x0000");
    // Summed with its own field as spaces.
    put(CHECKSUM, b"        ");
    let sum: u64 = record.iter().map(|byte| u64::from(*byte)).sum();
    let digits = octal(sum, 6);
    for (byte, digit) in record.iter_mut().skip(CHECKSUM.0).zip(digits.iter().chain(b"\0 ")) {
        *byte = *digit;
    }
    Ok(record)
}

/// A long name goes into two fields, with a "/" between them that is in neither.
fn split(name: &str) -> Option<(&str, &str)> {
    if name.len() <= MAX_NAME_BYTES {
        return Some(("", name));
    }
    let fits =
        |(prefix, rest): &(&str, &str)| prefix.len() <= MAX_PREFIX_BYTES && rest.len() <= MAX_NAME_BYTES;
    name.match_indices('/')
        .filter_map(|(at, _)| Some((name.get(..at)?, name.get(at.checked_add(1)?..)?)))
        .find(fits)
}

fn parse(record: &[u8; RECORD_BYTES]) -> io::Result<Member> {
    let bad = |why: &str| io::Error::new(io::ErrorKind::InvalidData, why.to_owned());
    let field = |(at, length): (usize, usize)| record.get(at..at.saturating_add(length)).unwrap_or_default();
    let text = |place| {
        let bytes = field(place).split(|byte| *byte == 0).next().unwrap_or_default();
        std::str::from_utf8(bytes).map_err(|_| bad("a name in it is not UTF-8"))
    };
    let octal = |place| {
        let digits = text(place)?.trim();
        u64::from_str_radix(digits, 8).map_err(|_| bad("a number in it is none"))
    };
    if field((MAGIC.0, 5)) != b"ustar" {
        return Err(bad("it is no tar archive"));
    }
    let blanked = record.iter().enumerate().map(|(at, byte)| {
        let own = (CHECKSUM.0..CHECKSUM.0.saturating_add(CHECKSUM.1)).contains(&at);
        u64::from(if own { b' ' } else { *byte })
    });
    if blanked.sum::<u64>() != octal(CHECKSUM)? {
        return Err(bad("the checksum of a header in it is wrong"));
    }
    if !matches!(field(TYPE), b"0" | b"\0") {
        return Err(bad("it holds something that is no plain file"));
    }
    let name = match text(PREFIX)? {
        "" => text(NAME)?.to_owned(),
        prefix => format!("{prefix}/{}", text(NAME)?),
    };
    let mode = u32::try_from(octal(MODE)?).map_err(|_| bad("a mode in it is none"))? & 0o777;
    Ok(Member { name, mode, length: octal(SIZE)? })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn member(name: &str, length: u64) -> Member {
        Member { name: name.to_owned(), mode: 0o600, length }
    }

    fn archive(members: &[(&str, &[u8])]) -> Vec<u8> {
        let mut writer = Writer::new(Vec::new(), 1_800_000_000);
        for (name, contents) in members {
            let crc = writer.add(&member(name, contents.len() as u64), *contents).unwrap();
            assert_eq!(crc, crc32c::crc32c(contents));
        }
        writer.finish().unwrap()
    }

    fn read(bytes: &[u8]) -> io::Result<Vec<(Member, Vec<u8>)>> {
        let (mut reader, mut all) = (Reader::new(bytes), Vec::new());
        while let Some(member) = reader.next()? {
            let mut contents = Vec::new();
            reader.contents(&member, &mut contents)?;
            all.push((member, contents));
        }
        Ok(all)
    }

    #[test]
    fn members_are_read_as_they_were_written_whatever_their_length() {
        let long = format!("state/{}/{}", "d".repeat(90), "f".repeat(90));
        let (exact, more) = (vec![7; 512], vec![8; 513]);
        let bytes = archive(&[("a", b""), (&long, &exact), ("b", &more), ("c", b"x")]);
        assert!(bytes.len().is_multiple_of(512));
        let all = read(&bytes).unwrap();
        let names: Vec<&str> = all.iter().map(|(member, _)| member.name.as_str()).collect();
        assert_eq!(names, ["a", &long, "b", "c"]);
        assert_eq!(all[1].1, exact);
        assert_eq!(all[2].1, more);
    }

    #[test]
    fn archive_that_was_cut_or_changed_is_refused() {
        let bytes = archive(&[("a", b"some contents"), ("b", b"more")]);
        for cut in 0..bytes.len() - 512 {
            assert!(read(&bytes[..cut]).is_err(), "cut at {cut}");
        }
        for at in (0..500).filter(|at| !(148..156).contains(at)) {
            let mut changed = bytes.clone();
            changed[at] ^= 1;
            assert!(read(&changed).is_err(), "changed at {at}");
        }
    }

    #[test]
    fn contents_that_end_early_are_an_error() {
        let mut writer = Writer::new(Vec::new(), 0);
        let error = writer.add(&member("a", 10), &b"short"[..]).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::UnexpectedEof);
        assert!(writer.add(&member(&"x".repeat(300), 0), &b""[..]).is_err());
        assert!(writer.add(&member("x", MAX_MEMBER_BYTES + 1), &b""[..]).is_err());
    }

    #[test]
    fn mutated_archive_never_panics() {
        let seed = archive(&[("a", b"some contents"), ("b", b"more")]);
        each_byte_changed(&seed, |bytes| drop(read(bytes)));
    }

    /// Every byte in turn becomes each of some values.
    fn each_byte_changed(seed: &[u8], mut check: impl FnMut(&[u8])) {
        for at in 0..seed.len() {
            for value in [0, b'7', b'9', 0x80, 0xFF] {
                let mut bytes = seed.to_vec();
                bytes[at] = value;
                check(&bytes);
            }
        }
    }

    #[test]
    fn tar_of_the_system_lists_and_unpacks_it() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a.tar");
        std::fs::write(&path, archive(&[("state/devices/lab-01.json", b"{}"), ("farm.db", &[1; 700])]))
            .unwrap();
        let mut tar = std::process::Command::new("tar");
        let output = tar.arg("-C").arg(folder.path()).arg("-xvf").arg(&path).output().unwrap();
        assert!(output.status.success(), "{output:?}");
        assert_eq!(String::from_utf8_lossy(&output.stdout), "state/devices/lab-01.json\nfarm.db\n");
        assert_eq!(std::fs::read(folder.path().join("farm.db")).unwrap(), [1; 700]);
    }
}
