//! `ioctl(2)` calls for inode flags (`lsattr`, `chattr`), project numbers, the volume's label and
//! discarding free blocks (`fstrim`).
//!
//! Numbers are in the machine's byte order. The kernel gets the long form (`struct fsxattr`) before
//! it sets the short one.

use nextent::inodes::SetAttr;

use super::{Caller, Server};
use crate::errno::{Errno, Result, of_node};
use crate::node::inode;

const GET_FLAGS: u32 = 0x8008_6601;
const SET_FLAGS: u32 = 0x4008_6602;
const GET_FSXATTR: u32 = 0x801c_581f;
const SET_FSXATTR: u32 = 0x401c_5820;
const GET_LABEL: u32 = 0x8100_9431;
const SET_LABEL: u32 = 0x4100_9432;
const TRIM: u32 = 0xc018_5879;

/// Bytes of a label in a call.
const LABEL: usize = 256;

/// Bytes of the long form: flags, extent size, extents, project, padding.
const LONG: usize = 28;

/// Inode flags of ext4, each with its flag of the long form.
const LONG_FLAGS: [(u32, u32); 7] = [
    (0x10, 0x8),
    (0x20, 0x10),
    (0x8, 0x20),
    (0x80, 0x40),
    (0x40, 0x80),
    (0x2000_0000, 0x200),
    (0x200_0000, 0x8000),
];

impl Server {
    /// Runs a call and returns its output.
    pub(crate) fn ioctl(&self, who: Caller, node: u64, call: u32, input: &[u8]) -> Result<Vec<u8>> {
        match call {
            GET_FLAGS => Ok(self.getattr(node)?.flags.to_ne_bytes().to_vec()),
            SET_FLAGS => {
                let set = SetAttr { flags: Some(word(input, 0)?), ..SetAttr::default() };
                self.set(who, node, &set)
            }
            GET_FSXATTR => {
                let attr = self.getattr(node)?;
                let mut long = vec![0; LONG];
                let flags: u32 = translate(attr.flags, |pair| *pair);
                long[0..4].copy_from_slice(&flags.to_ne_bytes());
                long[12..16].copy_from_slice(&attr.project.to_ne_bytes());
                Ok(long)
            }
            SET_FSXATTR => {
                let known: u32 = LONG_FLAGS.iter().map(|pair| pair.0).sum();
                let new = translate(word(input, 0)?, |pair| (pair.1, pair.0));
                let attr = self.getattr(node)?;
                let flags = Some(attr.flags & !known | new);
                // The call has a project also where only flags are to change, and an immutable
                // file refuses a change of its project.
                let project = Some(word(input, 12)?).filter(|project| *project != attr.project);
                self.set(who, node, &SetAttr { flags, project, ..SetAttr::default() })
            }
            GET_LABEL => {
                let mut label = self.volume.label();
                label.resize(LABEL, 0);
                Ok(label)
            }
            SET_LABEL => {
                self.check_privileged(who)?;
                let end = input.iter().position(|byte| *byte == 0).unwrap_or(input.len());
                self.volume.set_label(&input[..end]).map_err(of_node)?;
                Ok(Vec::new())
            }
            TRIM => self.trim(who, input),
            _ => Err(Errno(libc::ENOTTY)),
        }
    }

    /// Discards free blocks. The call has the start and length of the range and the shortest run;
    /// the answer has the discarded bytes in place of the length.
    fn trim(&self, who: Caller, input: &[u8]) -> Result<Vec<u8>> {
        self.check_privileged(who)?;
        let [start, len, min] = [long(input, 0)?, long(input, 8)?, long(input, 16)?];
        let geometry = self.volume.geometry();
        let group = u64::from(geometry.blocks_per_group) << geometry.block_bits;
        let outside = start >> geometry.block_bits >= geometry.blocks_count;
        if outside || len < u64::from(geometry.block_size) || min > group {
            return Err(Errno(libc::EINVAL));
        }
        let range = start..start.saturating_add(len);
        let done = self.volume.trim(range, min).map_err(of_node)?;
        Ok([start, done, min].map(u64::to_ne_bytes).concat())
    }

    /// Whether the caller may do what needs `CAP_SYS_ADMIN`.
    fn check_privileged(&self, who: Caller) -> Result<()> {
        if self.plain(who).privileged { Ok(()) } else { Err(Errno(libc::EPERM)) }
    }

    /// Changes attributes with the caller's own rights: before Linux 5.13 the kernel does not check
    /// owner and capabilities before an `ioctl`. Kernels with idmapped mounts do, and they do not
    /// say which user calls. The kernel does not expect changed attributes from one, so it gets a
    /// notice before the answer.
    fn set(&self, who: Caller, node: u64, set: &SetAttr) -> Result<Vec<u8>> {
        let cred = if self.admission().idmapped { who.named(0) } else { self.plain(who) };
        self.volume.setattr(&cred, inode(node)?, set).map_err(of_node)?;
        self.forget_attributes(node);
        Ok(Vec::new())
    }
}

fn word(input: &[u8], at: usize) -> Result<u32> {
    let bytes = input.get(at..).and_then(<[u8]>::first_chunk);
    bytes.map(|bytes| u32::from_ne_bytes(*bytes)).ok_or(Errno(libc::EINVAL))
}

fn long(input: &[u8], at: usize) -> Result<u64> {
    let bytes = input.get(at..).and_then(<[u8]>::first_chunk);
    bytes.map(|bytes| u64::from_ne_bytes(*bytes)).ok_or(Errno(libc::EINVAL))
}

fn translate(flags: u32, pair: impl Fn(&(u32, u32)) -> (u32, u32)) -> u32 {
    let known = LONG_FLAGS.iter().map(pair);
    known.filter(|(from, _)| flags & from != 0).map(|(_, to)| to).sum()
}
