//! Durability: what an fsync guarantees of a file, and the file found after a crash.

use std::collections::HashMap;

use nextent::inodes::{InodeNo, Inodes};
use nextent::{Cred, Error};

use crate::worker::read;

/// The extended attribute of files. Its value repeats one byte and is too long for an inode.
pub(crate) const ATTRIBUTE: &[u8] = b"user.x";
/// Bytes of that value.
pub(crate) const ATTRIBUTE_LEN: usize = 300;

/// A guaranteed property of a file.
#[derive(Clone, Debug)]
pub(crate) struct GuaranteedPart<T> {
    pub(crate) value: T,
    /// The device's events before a later change of the property began.
    until: usize,
}

impl<T> GuaranteedPart<T> {
    fn new(value: T) -> Self {
        Self { value, until: usize::MAX }
    }

    /// The value, if it must survive a power cut after `cut` events.
    fn required_after(&self, cut: usize) -> Option<&T> {
        (cut <= self.until).then_some(&self.value)
    }
}

/// A property that a call changes, other than by growing the file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Property {
    Bytes,
    Name,
    Attribute,
    Mode,
    All,
}

/// What one fsync or sync guarantees of one file.
#[derive(Clone, Debug)]
pub(crate) struct Guarantee {
    pub(crate) mark: u64,
    pub(crate) file: u8,
    /// The file begins with these.
    bytes: GuaranteedPart<Vec<u8>>,
    /// The file's only name.
    name: GuaranteedPart<Vec<u8>>,
    attribute: GuaranteedPart<Option<u8>>,
    mode: GuaranteedPart<u16>,
}

impl Guarantee {
    /// The guarantee of the present state of `file`.
    pub(crate) fn of(mark: u64, file: &crate::worker::OwnFile) -> Self {
        Self {
            mark,
            file: file.number,
            bytes: GuaranteedPart::new(file.bytes.clone()),
            name: GuaranteedPart::new(file.name.clone()),
            attribute: GuaranteedPart::new(file.attribute),
            mode: GuaranteedPart::new(file.mode),
        }
    }

    /// Withdraws the guarantee of `what` for power cuts after `now` events: a change begins.
    pub(crate) fn withdraw(&mut self, what: Property, now: usize) {
        let parts = [
            (Property::Bytes, &mut self.bytes.until),
            (Property::Name, &mut self.name.until),
            (Property::Attribute, &mut self.attribute.until),
            (Property::Mode, &mut self.mode.until),
        ];
        for (part, until) in parts {
            if what == part || what == Property::All {
                *until = now.min(*until);
            }
        }
    }

    /// Whether the file must survive a power cut after `cut` events.
    fn is_required_after(&self, cut: usize) -> bool {
        let until = [self.bytes.until, self.name.until, self.attribute.until, self.mode.until];
        until.iter().any(|until| cut <= *until)
    }
}

/// A file as it is after recovery.
pub(crate) struct RecoveredFile {
    ino: InodeNo,
    names: Vec<Vec<u8>>,
    pub(crate) bytes: Vec<u8>,
    pub(crate) attribute: Option<u8>,
    pub(crate) mode: u16,
}

/// Recovered files by their numbers.
pub(crate) type RecoveredFiles = HashMap<u8, RecoveredFile>;

/// The attribute's byte. A value that no thread has set is an error.
pub(crate) fn attribute(volume: &Inodes, ino: InodeNo) -> Result<Option<u8>, String> {
    match volume.getxattr(&Cred::root(), ino, ATTRIBUTE) {
        Ok(value) => {
            let whole = value.len() == ATTRIBUTE_LEN && value.iter().all(|byte| *byte == value[0]);
            if whole { Ok(Some(value[0])) } else { Err(format!("inode {ino} has {value:?}")) }
        }
        Err(Error::NoData) => Ok(None),
        Err(error) => Err(error.to_string()),
    }
}

/// Reads the file `number` by one of its names.
pub(crate) fn read_file(
    volume: &Inodes,
    found: &mut RecoveredFiles,
    number: u8,
    (name, ino): (&str, InodeNo),
) -> Result<(), String> {
    let describe = |error: Error| error.to_string();
    if let Some(seen) = found.get_mut(&number) {
        // A relink was interrupted between adding the new name and removing the old one.
        if seen.ino != ino {
            return Err(format!("file {number} is there twice"));
        }
        seen.names.push(name.as_bytes().to_vec());
        return Ok(());
    }
    let bytes = read(volume, ino).map_err(describe)?;
    if let Some(at) = bytes.iter().position(|byte| ![0, number].contains(byte)) {
        return Err(format!("{name} has byte {} of another at {at}", bytes[at]));
    }
    let mode = volume.getattr(ino).map_err(describe)?.mode;
    let attribute = attribute(volume, ino)?;
    let names = vec![name.as_bytes().to_vec()];
    found.insert(number, RecoveredFile { ino, names, bytes, attribute, mode });
    Ok(())
}

/// Checks that all properties that must survive a power cut after `cut` events did.
pub(crate) fn check_guarantees<'p>(
    found: &RecoveredFiles,
    guarantees: impl Iterator<Item = &'p Guarantee>,
    cut: usize,
) -> Result<(), String> {
    for guarantee in guarantees.filter(|guarantee| guarantee.is_required_after(cut)) {
        let file = guarantee.file;
        let Some(have) = found.get(&file) else {
            return Err(format!("file {file} was synced and is missing"));
        };
        if let Some(bytes) = guarantee.bytes.required_after(cut)
            && !have.bytes.starts_with(bytes)
        {
            let differ = have.bytes.iter().zip(bytes).position(|(a, b)| a != b);
            let (have, bytes) = (have.bytes.len(), bytes.len());
            return Err(format!(
                "file {file} was synced with {bytes} bytes; it has {have}, differs at {differ:?}"
            ));
        }
        if let Some(name) = guarantee.name.required_after(cut)
            && have.names != [name.clone()]
        {
            let names: Vec<_> =
                have.names.iter().map(|name| name.escape_ascii().to_string()).collect();
            return Err(format!("file {file} was synced as {}: {names:?}", name.escape_ascii()));
        }
        let attribute = (have.attribute, guarantee.attribute.required_after(cut));
        if attribute.1.is_some_and(|wanted| *wanted != attribute.0) {
            return Err(format!("file {file}: attribute and what was synced: {attribute:?}"));
        }
        let mode = (have.mode, guarantee.mode.required_after(cut));
        if mode.1.is_some_and(|wanted| *wanted != mode.0) {
            return Err(format!("file {file}: mode and what was synced: {mode:?}"));
        }
    }
    Ok(())
}
