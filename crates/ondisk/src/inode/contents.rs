//! Compares two states of an inode: did only the contents change?

use zerocopy::FromBytes;
use zerocopy::little_endian::{U16, U32};

use super::raw::{RawBase, RawExtra};

/// Whether the change from `old` to `new` concerns only contents: size, blocks, map, times,
/// version. Names, owner, mode, flags and attributes are then the same.
#[must_use]
pub fn differ_in_contents(old: &[u8], new: &[u8]) -> bool {
    match (Rest::of(old), Rest::of(new)) {
        (Some(old), Some(new)) => old == new,
        _ => false,
    }
}

/// The fields that a change of contents keeps.
#[derive(PartialEq)]
struct Rest<'a> {
    mode: U16,
    owner: [U16; 4],
    dtime: U32,
    links: U16,
    flags: U32,
    generation: U32,
    attributes: (U32, U16),
    size: U16,
    project: U32,
    after: &'a [u8],
}

impl<'a> Rest<'a> {
    fn of(bytes: &'a [u8]) -> Option<Self> {
        let (base, more) = RawBase::ref_from_prefix(bytes).ok()?;
        let (extra, after) = match RawExtra::read_from_prefix(more) {
            Ok((extra, after)) => (extra, after),
            Err(_) => (RawExtra::default(), more),
        };
        Some(Self {
            mode: base.mode,
            owner: [base.uid_lo, base.gid_lo, base.uid_hi, base.gid_hi],
            dtime: base.dtime,
            links: base.links,
            flags: base.flags,
            generation: base.generation,
            attributes: (base.file_acl_lo, base.file_acl_hi),
            size: extra.extra_isize,
            project: extra.projid,
            after,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::differ_in_contents;

    #[test]
    fn contents_may_change_and_nothing_else() {
        let old = vec![1; 256];
        // Size, a time, blocks, the map, the version, checksums, high bits of times.
        for at in [4, 12, 0x1C, 0x24, 40, 0x6C, 0x74, 0x7C, 0x82, 0x84, 0x98] {
            let mut new = old.clone();
            new[at] = 9;
            assert!(differ_in_contents(&old, &new), "{at:#x}");
        }
        // Mode, owner, time of deletion, links, flags, generation, attributes, project.
        for at in [0, 2, 0x14, 0x1A, 0x20, 0x64, 0x68, 0x76, 0x80, 0x9C, 0xA0, 255] {
            let mut new = old.clone();
            new[at] = 9;
            assert!(!differ_in_contents(&old, &new), "{at:#x}");
        }
        assert!(!differ_in_contents(&old[..100], &old[..100]));
        assert!(differ_in_contents(&old[..128], &old[..128]));
    }
}
