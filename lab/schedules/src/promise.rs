//! What an fsync promised of a file, and what is found of the file after a crash.

use std::collections::HashMap;

use nextent::{Cred, Error, InodeNo, Volume};

use crate::worker::read;

/// The attribute that files have; its value is one byte over and over, too long for an inode.
pub(crate) const ATTRIBUTE: &[u8] = b"user.x";
/// Bytes of its value.
pub(crate) const ATTRIBUTE_LEN: usize = 300;

/// A property of a file that was promised.
#[derive(Clone, Debug)]
pub(crate) struct Part<T> {
    pub(crate) value: T,
    /// Events of the device before a change of it began.
    until: usize,
}

impl<T> Part<T> {
    fn new(value: T) -> Self {
        Self { value, until: usize::MAX }
    }

    /// The value, if a cut after `cut` events must leave it.
    fn due(&self, cut: usize) -> Option<&T> {
        (cut <= self.until).then_some(&self.value)
    }
}

/// What a call changes otherwise than by letting the file grow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum What {
    Bytes,
    Name,
    Attribute,
    Mode,
    All,
}

/// What was promised of one file.
#[derive(Clone, Debug)]
pub(crate) struct Promise {
    pub(crate) mark: u64,
    pub(crate) file: u8,
    /// These at the front.
    bytes: Part<Vec<u8>>,
    /// This and no other.
    name: Part<Vec<u8>>,
    attribute: Part<Option<u8>>,
    mode: Part<u16>,
}

impl Promise {
    /// The promise of all that `file` is now.
    pub(crate) fn of(mark: u64, file: &crate::worker::Own) -> Self {
        Self {
            mark,
            file: file.number,
            bytes: Part::new(file.bytes.clone()),
            name: Part::new(file.name.clone()),
            attribute: Part::new(file.attribute),
            mode: Part::new(file.mode),
        }
    }

    /// A change of `what` begins after `now` events.
    pub(crate) fn void(&mut self, what: What, now: usize) {
        let parts = [
            (What::Bytes, &mut self.bytes.until),
            (What::Name, &mut self.name.until),
            (What::Attribute, &mut self.attribute.until),
            (What::Mode, &mut self.mode.until),
        ];
        for (part, until) in parts {
            if what == part || what == What::All {
                *until = now.min(*until);
            }
        }
    }

    /// Whether the file must be there after a cut.
    fn is_due(&self, cut: usize) -> bool {
        let until = [self.bytes.until, self.name.until, self.attribute.until, self.mode.until];
        until.iter().any(|until| cut <= *until)
    }
}

/// A file as it is found.
pub(crate) struct Seen {
    ino: InodeNo,
    names: Vec<Vec<u8>>,
    pub(crate) bytes: Vec<u8>,
    pub(crate) attribute: Option<u8>,
    pub(crate) mode: u16,
}

/// Files by their numbers.
pub(crate) type Found = HashMap<u8, Seen>;

/// The attribute's byte; an error for a value that was never set.
pub(crate) fn attribute(volume: &Volume, ino: InodeNo) -> Result<Option<u8>, String> {
    match volume.getxattr(&Cred::root(), ino, ATTRIBUTE) {
        Ok(value) => {
            let whole = value.len() == ATTRIBUTE_LEN && value.iter().all(|byte| *byte == value[0]);
            if whole { Ok(Some(value[0])) } else { Err(format!("inode {ino} has {value:?}")) }
        }
        Err(Error::NoData) => Ok(None),
        Err(error) => Err(error.to_string()),
    }
}

/// Looks at a file of `number` under one of its names.
pub(crate) fn see(
    volume: &Volume,
    found: &mut Found,
    number: u8,
    (name, ino): (&str, InodeNo),
) -> Result<(), String> {
    let told = |error: Error| error.to_string();
    if let Some(seen) = found.get_mut(&number) {
        // A link that was made, of which the old name was still to be removed.
        if seen.ino != ino {
            return Err(format!("file {number} is there twice"));
        }
        seen.names.push(name.as_bytes().to_vec());
        return Ok(());
    }
    let bytes = read(volume, ino).map_err(told)?;
    if let Some(at) = bytes.iter().position(|byte| ![0, number].contains(byte)) {
        return Err(format!("{name} has byte {} of another at {at}", bytes[at]));
    }
    let mode = volume.getattr(ino).map_err(told)?.mode;
    let attribute = attribute(volume, ino)?;
    let names = vec![name.as_bytes().to_vec()];
    found.insert(number, Seen { ino, names, bytes, attribute, mode });
    Ok(())
}

/// Whether all that was promised and must be left by a cut after `cut` events is there.
pub(crate) fn kept<'p>(
    found: &Found,
    promises: impl Iterator<Item = &'p Promise>,
    cut: usize,
) -> Result<(), String> {
    for promise in promises.filter(|promise| promise.is_due(cut)) {
        let file = promise.file;
        let Some(have) = found.get(&file) else {
            return Err(format!("file {file} was synced and is missing"));
        };
        if let Some(bytes) = promise.bytes.due(cut)
            && !have.bytes.starts_with(bytes)
        {
            let differ = have.bytes.iter().zip(bytes).position(|(a, b)| a != b);
            let (have, bytes) = (have.bytes.len(), bytes.len());
            return Err(format!(
                "file {file} was synced with {bytes} bytes; it has {have}, differs at {differ:?}"
            ));
        }
        if let Some(name) = promise.name.due(cut)
            && have.names != [name.clone()]
        {
            let names: Vec<_> =
                have.names.iter().map(|name| name.escape_ascii().to_string()).collect();
            return Err(format!("file {file} was synced as {}: {names:?}", name.escape_ascii()));
        }
        let attribute = (have.attribute, promise.attribute.due(cut));
        if attribute.1.is_some_and(|wanted| *wanted != attribute.0) {
            return Err(format!("file {file}: attribute and what was synced: {attribute:?}"));
        }
        let mode = (have.mode, promise.mode.due(cut));
        if mode.1.is_some_and(|wanted| *wanted != mode.0) {
            return Err(format!("file {file}: mode and what was synced: {mode:?}"));
        }
    }
    Ok(())
}
