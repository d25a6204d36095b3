//! Operations as values, made by proptest and performed on any [`PosixFs`].

use super::{Errno, PosixFs, RenameFlags, XattrFlags};
use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::select;

/// One call.
#[derive(Clone, Debug, PartialEq, Eq)]
#[allow(missing_docs)]
pub enum Op {
    Create { path: String, mode: u32 },
    Mkdir { path: String, mode: u32 },
    Mknod { path: String, mode: u32, rdev: (u32, u32) },
    Symlink { target: String, path: String },
    Link { from: String, to: String },
    Unlink { path: String },
    Rmdir { path: String },
    Rename { from: String, to: String, flags: RenameFlags },
    Write { path: String, offset: u64, len: usize, fill: u8 },
    Read { path: String, offset: u64, len: usize },
    Truncate { path: String, size: u64 },
    Allocate { path: String, offset: u64, len: u64, keep_size: bool },
    Punch { path: String, offset: u64, len: u64 },
    Zero { path: String, offset: u64, len: u64, keep_size: bool },
    Collapse { path: String, offset: u64, len: u64 },
    Insert { path: String, offset: u64, len: u64 },
    Chmod { path: String, mode: u32 },
    Chown { path: String, uid: u32, gid: u32 },
    Utimes { path: String, mtime: (i64, u32) },
    SetXattr { path: String, name: String, len: usize, fill: u8, how: XattrFlags },
    RemoveXattr { path: String, name: String },
    GetXattr { path: String, name: String },
    Fsync { path: String },
}

/// Bytes that depend on their offset, so that misplaced bytes are detected.
fn pattern(offset: u64, len: usize, fill: u8) -> Vec<u8> {
    (offset..offset + len as u64).map(|at| fill ^ (at as u8) ^ ((at >> 9) as u8)).collect()
}

/// Performs `op` and returns the bytes that it read, if any.
///
/// # Errors
/// The errno of `fs`.
pub fn perform(op: &Op, fs: &(impl PosixFs + ?Sized)) -> Result<Vec<u8>, Errno> {
    let done = match op {
        Op::Read { path, offset, len } => return fs.read(path, *offset, *len),
        Op::GetXattr { path, name } => return fs.get_xattr(path, name),
        Op::Write { path, offset, len, fill } => {
            fs.write(path, *offset, &pattern(*offset, *len, *fill))
        }
        Op::SetXattr { path, name, len, fill, how } => {
            fs.set_xattr(path, name, &pattern(0, *len, *fill), *how)
        }
        Op::RemoveXattr { path, name } => fs.remove_xattr(path, name),
        Op::Truncate { path, size } => fs.truncate(path, *size),
        Op::Allocate { path, offset, len, keep_size } => {
            fs.allocate(path, *offset, *len, *keep_size)
        }
        Op::Punch { path, offset, len } => fs.punch(path, *offset, *len),
        Op::Zero { path, offset, len, keep_size } => fs.zero(path, *offset, *len, *keep_size),
        Op::Collapse { path, offset, len } => fs.collapse(path, *offset, *len),
        Op::Insert { path, offset, len } => fs.insert(path, *offset, *len),
        names => perform_on_names(names, fs),
    };
    done.map(|()| Vec::new())
}

/// Performs calls that change names and attributes.
fn perform_on_names(op: &Op, fs: &(impl PosixFs + ?Sized)) -> Result<(), Errno> {
    match op {
        Op::Create { path, mode } => fs.create(path, *mode),
        Op::Mkdir { path, mode } => fs.mkdir(path, *mode),
        Op::Mknod { path, mode, rdev } => fs.mknod(path, *mode, *rdev),
        Op::Symlink { target, path } => fs.symlink(target, path),
        Op::Link { from, to } => fs.link(from, to),
        Op::Unlink { path } => fs.unlink(path),
        Op::Rmdir { path } => fs.rmdir(path),
        Op::Rename { from, to, flags } => fs.rename(from, to, *flags),
        Op::Chmod { path, mode } => fs.chmod(path, *mode),
        Op::Chown { path, uid, gid } => fs.chown(path, *uid, *gid),
        Op::Utimes { path, mtime } => fs.utimes(path, *mtime),
        Op::Fsync { path } => fs.fsync(path),
        other => unreachable!("{other:?} is performed by the caller"),
    }
}

/// Performs `op` on both file systems and compares the results.
///
/// # Errors
/// Both results on a line, if they differ.
pub fn same_result(
    op: &Op,
    left: &(impl PosixFs + ?Sized),
    right: &(impl PosixFs + ?Sized),
) -> Result<(), String> {
    let say = |result: &Result<Vec<u8>, Errno>| match result {
        Ok(bytes) => format!("{} bytes", bytes.len()),
        Err(errno) => std::io::Error::from_raw_os_error(*errno).to_string(),
    };
    let (a, b) = (perform(op, left), perform(op, right));
    if a == b {
        return Ok(());
    }
    let place = match (&a, &b) {
        (Ok(a), Ok(b)) => a.iter().zip(b).position(|(a, b)| a != b),
        _ => None,
    };
    let place = place.map(|at| format!(", first at byte {at}")).unwrap_or_default();
    Err(format!("{op:?}: {} | {}{place}", say(&a), say(&b)))
}

/// Few names, so that operations meet; one has the maximum length, and one is longer.
fn path() -> impl Strategy<Value = String> {
    let longest = format!("/d/{}", "n".repeat(255));
    let shallow = ["/a", "/b", "/c", "/d", "/e"].map(String::from);
    let deep = ["/d/a", "/d/b", "/d/d", "/e/a", "/e/d", "/d/d/a", "/d/d/d"].map(String::from);
    prop_oneof![
        40 => select(shallow.to_vec()),
        50 => select(deep.to_vec()),
        4 => Just(longest.clone()),
        1 => Just(longest + "n"),
    ]
}

fn dir_path() -> impl Strategy<Value = String> {
    select(["/d", "/e", "/d/d", "/e/d", "/d/d/d"].map(String::from).to_vec())
}

fn offset() -> impl Strategy<Value = u64> {
    prop_oneof![0..40_000u64, (0..40u64).prop_map(|n| n * 1024), 0..1_000_000u64]
}

fn length() -> impl Strategy<Value = u64> {
    prop_oneof![0..3000u64, (1..20u64).prop_map(|n| n * 1024), 0..70_000u64]
}

/// Mostly multiples of 4 KiB, which collapse and insert need.
fn block_offset() -> impl Strategy<Value = u64> {
    prop_oneof![9 => (0..24u64).prop_map(|n| n * 4096), 1 => 0..90_000u64]
}

fn block_length() -> impl Strategy<Value = u64> {
    prop_oneof![9 => (0..8u64).prop_map(|n| n * 4096), 1 => 0..30_000u64]
}

fn name_op() -> impl Strategy<Value = Op> {
    let mode = || prop_oneof![Just(0o644u32), Just(0o755), Just(0o2755), 0..0o10000u32];
    let flags = || {
        prop_oneof![
            6 => Just(RenameFlags::Replace),
            1 => Just(RenameFlags::NoReplace),
            2 => Just(RenameFlags::Exchange),
        ]
    };
    let target = prop_oneof![
        select(vec!["a", "d", "d/a", "nowhere"]).prop_map(String::from),
        (1..300usize).prop_map(|n| "t".repeat(n)),
    ];
    let special = select(vec![libc::S_IFIFO, libc::S_IFCHR, libc::S_IFBLK, libc::S_IFSOCK]);
    prop_oneof![
        6 => (path(), mode()).prop_map(|(path, mode)| Op::Create { path, mode }),
        4 => (dir_path(), mode()).prop_map(|(path, mode)| Op::Mkdir { path, mode }),
        1 => (path(), special, 0..4000u32, 0..70_000u32)
            .prop_map(|(path, kind, major, minor)| {
                Op::Mknod { path, mode: kind | 0o640, rdev: (major, minor) }
            }),
        2 => (target, path()).prop_map(|(target, path)| Op::Symlink { target, path }),
        3 => (path(), path()).prop_map(|(from, to)| Op::Link { from, to }),
        4 => path().prop_map(|path| Op::Unlink { path }),
        2 => path().prop_map(|path| Op::Rmdir { path }),
        6 => (path(), path(), flags()).prop_map(|(from, to, flags)| Op::Rename { from, to, flags }),
        1 => (path(), mode()).prop_map(|(path, mode)| Op::Chmod { path, mode }),
        1 => (path(), 0..70_000u32, 0..70_000u32)
            .prop_map(|(path, uid, gid)| Op::Chown { path, uid, gid }),
        1 => (path(), -(1i64 << 31)..(1i64 << 33), 0..1_000_000_000u32)
            .prop_map(|(path, s, ns)| Op::Utimes { path, mtime: (s, ns) }),
    ]
}

fn data_op() -> impl Strategy<Value = Op> {
    let block = || (path(), block_offset(), block_length());
    prop_oneof![
        8 => (path(), offset(), length(), any::<u8>()).prop_map(|(path, offset, len, fill)| {
            Op::Write { path, offset, len: len as usize, fill }
        }),
        4 => (path(), offset(), length())
            .prop_map(|(path, offset, len)| Op::Read { path, offset, len: len as usize }),
        3 => (path(), offset()).prop_map(|(path, size)| Op::Truncate { path, size }),
        2 => (path(), offset(), length(), any::<bool>())
            .prop_map(|(path, offset, len, keep_size)| {
                Op::Allocate { path, offset, len, keep_size }
            }),
        2 => (path(), offset(), length())
            .prop_map(|(path, offset, len)| Op::Punch { path, offset, len }),
        2 => (path(), offset(), length(), any::<bool>())
            .prop_map(|(path, offset, len, keep_size)| Op::Zero { path, offset, len, keep_size }),
        1 => block().prop_map(|(path, offset, len)| Op::Collapse { path, offset, len }),
        1 => block().prop_map(|(path, offset, len)| Op::Insert { path, offset, len }),
        1 => path().prop_map(|path| Op::Fsync { path }),
    ]
}

fn xattr_op() -> impl Strategy<Value = Op> {
    // Three names whose values fit in one attribute block together.
    let name = || select(vec!["user.a", "user.longer-name", "trusted.t"]).prop_map(String::from);
    let how = prop_oneof![
        4 => Just(XattrFlags::Any),
        1 => Just(XattrFlags::Create),
        1 => Just(XattrFlags::Replace),
    ];
    let len = prop_oneof![0..30usize, 0..250usize];
    prop_oneof![
        4 => (path(), name(), len, any::<u8>(), how)
            .prop_map(|(path, name, len, fill, how)| Op::SetXattr { path, name, len, fill, how }),
        1 => (path(), name()).prop_map(|(path, name)| Op::RemoveXattr { path, name }),
        1 => (path(), name()).prop_map(|(path, name)| Op::GetXattr { path, name }),
    ]
}

/// Sequences of one to `most` operations over few names.
pub fn ops(most: usize) -> impl Strategy<Value = Vec<Op>> {
    let op = prop_oneof![5 => name_op(), 5 => data_op(), 1 => xattr_op()];
    vec(op, 1..=most.max(1))
}
