//! An inode's attributes in memory: read from both places, and laid out again.

use nextent_ondisk::xattr::{self, Entries, Value, XattrEntry};
use nextent_ondisk::{BlockNo, InodeNo};

use super::cx::XattrCx;
use super::name::XattrName;
use crate::Result;

/// A value, or where it is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Stored {
    Here(Vec<u8>),
    /// In an inode of its own.
    There(InodeNo, u32),
}

/// One attribute.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Attribute {
    pub(super) index: u8,
    pub(super) rest: Vec<u8>,
    pub(super) value: Stored,
    hash: u32,
}

impl Attribute {
    pub(super) fn new(name: XattrName<'_>, value: &[u8]) -> Self {
        let value = Stored::Here(value.to_vec());
        Self { index: name.index, rest: name.rest.to_vec(), value, hash: 0 }
    }

    pub(super) fn name(&self) -> XattrName<'_> {
        XattrName { index: self.index, rest: &self.rest }
    }

    fn of(entry: XattrEntry<'_>) -> Self {
        let value = match entry.value {
            Value::Bytes(bytes) => Stored::Here(bytes.to_vec()),
            Value::Inode(ino, size) => Stored::There(ino, size),
        };
        Self { index: entry.index, rest: entry.name.to_vec(), value, hash: entry.hash }
    }

    fn entry(&self) -> XattrEntry<'_> {
        let value = match &self.value {
            Stored::Here(bytes) => Value::Bytes(bytes),
            Stored::There(ino, size) => Value::Inode(*ino, *size),
        };
        XattrEntry { index: self.index, name: &self.rest, value, hash: self.hash }
    }
}

/// The attributes of one place.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct List(Vec<Attribute>);

impl List {
    fn of(entries: Entries<'_>) -> Self {
        Self(entries.map(Attribute::of).collect())
    }

    /// Those in the inode.
    pub(super) fn inside(cx: &XattrCx<'_>, area: &[u8]) -> Result<Self> {
        let entries = xattr::in_inode(cx.geometry, area).map_err(|e| cx.place(e, None))?;
        Ok(Self::of(entries))
    }

    /// Those in the block, if there is one.
    pub(super) fn outside(cx: &XattrCx<'_>, no: BlockNo) -> Result<Self> {
        if no == BlockNo(0) {
            return Ok(Self::default());
        }
        let image = cx.block(no)?.image();
        let (_, entries) =
            xattr::in_block(cx.geometry, &image).map_err(|e| cx.place(e, Some(no)))?;
        Ok(Self::of(entries))
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = &Attribute> {
        self.0.iter()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(super) fn find(&self, name: XattrName<'_>) -> Option<&Attribute> {
        self.0.iter().find(|a| a.name() == name)
    }

    pub(super) fn without(&self, name: XattrName<'_>) -> Self {
        Self(self.0.iter().filter(|a| a.name() != name).cloned().collect())
    }

    /// The list with this attribute, in the place of one of the same name if there is one.
    pub(super) fn with(&self, attribute: Attribute) -> Self {
        let mut list = self.clone();
        match list.0.iter_mut().find(|a| a.name() == attribute.name()) {
            Some(old) => *old = attribute,
            None => list.0.push(attribute),
        }
        list
    }

    fn entries(&self) -> Vec<XattrEntry<'_>> {
        self.0.iter().map(Attribute::entry).collect()
    }

    /// Whether it goes into `area`.
    pub(super) fn fits_inside(&self, area: &[u8]) -> bool {
        self.is_empty() || xattr::INODE_HEADER + self.space() <= area.len() / 4 * 4
    }

    fn space(&self) -> usize {
        xattr::space_for(self.entries())
    }

    /// Lays the list out in `area`, which it fits.
    pub(super) fn write_inside(&self, area: &mut [u8]) {
        let fits = xattr::write_inode(area, &self.entries());
        debug_assert!(fits, "the caller asked fits_inside");
    }

    /// A block of the list and its hash; none if it does not fit.
    pub(super) fn to_block(&self, block_size: usize) -> Option<(Vec<u8>, u32)> {
        let mut block = vec![0; block_size];
        let hash = xattr::write_block(&mut block, &self.entries())?;
        Some((block, hash))
    }
}
