//! ext2, ext3 and ext4, read by the crate `ext4-view`, which replays the journal in memory and forbids unsafe code.
use std::io;

use ext4_view::{Ext4Error, Ext4Read, FileType};

use crate::error::GuestError;
use crate::filesystem::{FileSystem, Kind, MAX_NAMES, Name, OpenFile};
use crate::window::{Window, little};

/// Where the magic number of the superblock lies.
const MAGIC_AT: u64 = 1024 + 0x38;
const MAGIC: u64 = 0xEF53;

/// A mounted ext2, ext3 or ext4.
#[derive(Debug)]
pub(crate) struct Ext4 {
    inner: ext4_view::Ext4,
    place: String,
}

/// What is read of the disk on behalf of the other crate.
struct Reader(Window);

impl Ext4Read for Reader {
    fn read(
        &mut self,
        start_byte: u64,
        dst: &mut [u8],
    ) -> Result<(), Box<dyn std::error::Error + Send + Sync + 'static>> {
        self.0.read_at(start_byte, dst).map_err(|error| Box::new(io::Error::other(error)) as _)
    }
}

impl Ext4 {
    /// Mounts it, or says that it is none.
    pub(crate) fn mount(window: &Window, place: &str) -> Result<Option<Self>, GuestError> {
        let mut magic = [0; 2];
        if window.length() < MAGIC_AT.saturating_add(2) {
            return Ok(None);
        }
        window.read_at(MAGIC_AT, &mut magic)?;
        if little::<2>(&magic, 0) != MAGIC {
            return Ok(None);
        }
        let inner = ext4_view::Ext4::load(Box::new(Reader(window.clone())))
            .map_err(|error| explain(error, place, "/", "file system"))?;
        Ok(Some(Self { inner, place: place.to_owned() }))
    }
}

impl FileSystem for Ext4 {
    fn kind(&self) -> &'static str {
        "ext4"
    }

    fn uuid(&self) -> String {
        self.inner.uuid().to_string()
    }

    fn label(&self) -> String {
        self.inner.label().to_str().unwrap_or_default().to_owned()
    }

    fn list(&self, path: &str) -> Result<Vec<Name>, GuestError> {
        let wrong = |error| explain(error, &self.place, path, "directory");
        let mut names = Vec::new();
        for entry in self.inner.read_dir(path).map_err(wrong)?.take(MAX_NAMES) {
            let entry = entry.map_err(wrong)?;
            // A name that is no UTF-8 cannot be asked for by a boot entry.
            let Ok(name) = entry.file_name().as_str().map(str::to_owned) else { continue };
            if name == "." || name == ".." {
                continue;
            }
            // A link that leads nowhere is no file.
            let kind = self.inner.metadata(&entry.path()).map_or(Kind::Other, |metadata| kind_of(&metadata));
            names.push(Name { name, kind });
        }
        Ok(names)
    }

    fn open(&self, path: &str) -> Result<Box<dyn OpenFile>, GuestError> {
        let file = self.inner.open(path).map_err(|error| explain(error, &self.place, path, "file"))?;
        Ok(Box::new(Ext4File {
            length: file.metadata().len(),
            file,
            place: self.place.clone(),
            path: path.to_owned(),
        }))
    }
}

fn kind_of(metadata: &ext4_view::Metadata) -> Kind {
    match metadata.file_type() {
        FileType::Regular => Kind::File(metadata.len()),
        FileType::Directory => Kind::Directory,
        _ => Kind::Other,
    }
}

#[derive(Debug)]
struct Ext4File {
    file: ext4_view::File,
    length: u64,
    place: String,
    path: String,
}

impl OpenFile for Ext4File {
    fn length(&self) -> u64 {
        self.length
    }

    fn read_at(&mut self, at: u64, buffer: &mut [u8]) -> Result<(), GuestError> {
        let wrong = |error| explain(error, &self.place, &self.path, "file");
        let end = at.saturating_add(u64::try_from(buffer.len()).unwrap_or(u64::MAX));
        if end > self.length {
            return Err(GuestError::Outside { at, end, what: "file", size: self.length });
        }
        if self.file.position() != at {
            self.file.seek_to(at).map_err(wrong)?;
        }
        let mut rest = buffer;
        while !rest.is_empty() {
            let took = self.file.read_bytes(rest).map_err(wrong)?;
            if took == 0 {
                return Err(GuestError::Damaged {
                    kind: "ext4",
                    place: self.place.clone(),
                    what: format!("{} ends before its length", self.path),
                });
            }
            rest = rest.get_mut(took..).unwrap_or_default();
        }
        Ok(())
    }
}

/// Says what the other crate found in our terms.
fn explain(error: Ext4Error, place: &str, path: &str, wanted: &'static str) -> GuestError {
    let (place, path) = (place.to_owned(), path.to_owned());
    match error {
        Ext4Error::NotFound => GuestError::NotFound { place, path },
        Ext4Error::NotADirectory | Ext4Error::IsADirectory | Ext4Error::IsASpecialFile => {
            GuestError::WrongKind { place, path, wanted }
        }
        Ext4Error::Io(error) => match error
            .downcast::<io::Error>()
            .map(|error| error.downcast::<GuestError>())
        {
            Ok(Ok(error)) => error,
            _ => {
                GuestError::Damaged { kind: "ext4", place, what: format!("{path}: it points outside itself") }
            }
        },
        other => GuestError::Damaged { kind: "ext4", place, what: format!("{path}: {other}") },
    }
}
