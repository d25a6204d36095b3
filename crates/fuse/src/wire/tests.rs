//! Sends each operation's request, as the kernel encodes it, to a volume in memory.

use nextent::inodes::{Inodes, NewNode};
use nextent::mkfs::{self, MkfsOptions};
use nextent::{Cred, OpenOptions};
use nextent_device::{BlockDevice, MemoryDevice};
use nextent_fuse_sys::OP;
use nextent_sync::Arc;
use zerocopy::{FromBytes, Immutable, IntoBytes};

use super::init::{Agreed, Offer};
use super::layout::*;
use super::{answer, is_answered, split};
use crate::errno::{Errno, Result};
use crate::{Served, Server};

const ROOT: u64 = 1;

fn server() -> Server {
    let device = Arc::new(MemoryDevice::new(16 << 20));
    mkfs::make(&*device, &MkfsOptions::default()).expect("it is made");
    let volume = Inodes::open(device, &OpenOptions::default()).expect("it opens");
    Server::new(Arc::new(volume), Served::default())
}

/// Handles a request like a message of `/dev/fuse`.
fn ask(server: &Server, opcode: Opcode, node: u64, own: &[u8], rest: &[u8]) -> Result<Vec<u8>> {
    assert_eq!(own.len(), opcode.own(), "{opcode:?}");
    let len = (size_of::<InHeader>() + own.len() + rest.len()) as u32;
    let header = InHeader { len, opcode: opcode as u32, unique: 7, node, ..InHeader::default() };
    let mut message = [header.as_bytes(), own, rest].concat();
    let n = message.len();
    message.resize(n + 9000, 0xee);
    let (header, op, from) = split(&message[..n], false)?;
    let len = answer(server, &header, &op, (&mut message[from..], n - from))?;
    Ok(message[from..from + len].to_vec())
}

fn structure<T: FromBytes>(bytes: &[u8]) -> T {
    T::read_from_bytes(bytes).unwrap_or_else(|_| panic!("{} bytes", bytes.len()))
}

fn ask_ok<T: FromBytes>(
    server: &Server,
    opcode: Opcode,
    node: u64,
    own: &(impl IntoBytes + Immutable),
    rest: &[u8],
) -> T {
    let answer = ask(server, opcode, node, own.as_bytes(), rest);
    structure(&answer.unwrap_or_else(|error| panic!("{opcode:?}: {error:?}")))
}

/// Makes a file.
fn create(server: &Server, name: &[u8]) -> EntryOut {
    let own = CreateIn { mode: 0o100_666, umask: 0o22, ..CreateIn::default() };
    let answer = ask(server, Opcode::Create, ROOT, own.as_bytes(), name).expect("it is made");
    let (entry, opened) = answer.split_at(size_of::<EntryOut>());
    assert_eq!(structure::<OpenOut>(opened).flags, 2);
    structure(entry)
}

#[test]
fn names() {
    let server = server();
    let made = create(&server, b"file\0");
    assert_eq!((made.attr.mode, made.attr.ino, made.attr.links), (0o100_644, made.node, 1));
    assert_eq!((made.entry_valid, made.attr_valid, made.attr.block_size), (86400, 86400, 1024));
    let found: EntryOut = ask_ok(&server, Opcode::Lookup, ROOT, &(), b"file\0");
    assert_eq!(found, made);
    let none: EntryOut = ask_ok(&server, Opcode::Lookup, ROOT, &(), b"other\0");
    assert_eq!((none.node, none.entry_valid), (0, 86400));
    let own = MkDirIn { mode: 0o777, umask: 0o27 };
    let dir: EntryOut = ask_ok(&server, Opcode::MkDir, ROOT, &own, b"dir\0");
    assert_eq!(dir.attr.mode, 0o40_750);
    let own = MkNodIn { mode: 0o20_600, device: 0x103, ..MkNodIn::default() };
    let node: EntryOut = ask_ok(&server, Opcode::MkNod, dir.node, &own, b"null\0");
    assert_eq!((node.attr.mode, node.attr.device), (0o20_600, 0x103));
    let link: EntryOut = ask_ok(&server, Opcode::SymLink, ROOT, &(), b"link\0to/there\0");
    assert_eq!(link.attr.mode & 0o170_000, 0o120_000);
    let target = ask(&server, Opcode::ReadLink, link.node, &[], &[]);
    assert_eq!(target, Ok(b"to/there".to_vec()));
    let own = LinkIn { node: made.node };
    let second: EntryOut = ask_ok(&server, Opcode::Link, dir.node, &own, b"second\0");
    assert_eq!((second.node, second.attr.links), (made.node, 2));
    let own = RenameIn { to: ROOT };
    let done = ask(&server, Opcode::Rename, dir.node, own.as_bytes(), b"second\0third\0");
    assert_eq!(done, Ok(vec![]));
    let own = Rename2In { to: ROOT, flags: libc::RENAME_NOREPLACE, padding: 0 };
    let done = ask(&server, Opcode::Rename2, ROOT, own.as_bytes(), b"third\0file\0");
    assert_eq!(done, Err(Errno(libc::EEXIST)));
    assert_eq!(ask(&server, Opcode::Unlink, ROOT, &[], b"third\0"), Ok(vec![]));
    assert_eq!(ask(&server, Opcode::RmDir, ROOT, &[], b"dir\0"), Err(Errno(libc::ENOTEMPTY)));
    let own = CreateIn { mode: 0o100_600, flags: libc::O_DIRECT as u32, ..CreateIn::default() };
    let answer = ask(&server, Opcode::TmpFile, ROOT, own.as_bytes(), b"\0").expect("it is made");
    let nameless: EntryOut = structure(&answer[..size_of::<EntryOut>()]);
    let opened: OpenOut = structure(&answer[size_of::<EntryOut>()..]);
    assert_eq!((nameless.attr.links, opened.flags), (0, 1 | 1 << 6));
    let own = ForgetIn { times: 1 };
    assert_eq!(ask(&server, Opcode::Forget, nameless.node, own.as_bytes(), &[]), Ok(vec![]));
    let ones = [ForgetOne { node: dir.node, times: 1 }, ForgetOne { node: made.node, times: 1 }];
    let own = BatchForgetIn { count: 2, padding: 0 };
    assert_eq!(ask(&server, Opcode::BatchForget, 0, own.as_bytes(), ones.as_bytes()), Ok(vec![]));
}

#[test]
fn contents() {
    let server = server();
    let file = create(&server, b"file\0").node;
    let own = OpenIn { flags: libc::O_RDWR as u32, open_flags: 0 };
    let opened: OpenOut = ask_ok(&server, Opcode::Open, file, &own, &[]);
    assert_eq!(opened.flags, 2);
    for flags in [0, libc::O_DIRECT as u32] {
        let own = WriteIn { offset: 4096, size: 4096, flags, ..WriteIn::default() };
        let written: WriteOut = ask_ok(&server, Opcode::Write, file, &own, &[5; 4096]);
        assert_eq!(written.size, 4096);
        let own = ReadIn { offset: 4096, size: 8192, flags, ..ReadIn::default() };
        let read = ask(&server, Opcode::Read, file, own.as_bytes(), &[]);
        assert_eq!(read, Ok(vec![5; 4096]));
    }
    // Not a multiple of a sector.
    let flags = libc::O_DIRECT as u32;
    let own = WriteIn { offset: 8192, size: 3, flags, ..WriteIn::default() };
    let written: WriteOut = ask_ok(&server, Opcode::Write, file, &own, b"end");
    assert_eq!(written.size, 3);
    let own = WriteIn { size: 4, ..WriteIn::default() };
    let short = ask(&server, Opcode::Write, file, own.as_bytes(), b"abc");
    assert_eq!(short, Err(Errno(libc::EINVAL)));
    let own = ReadIn { size: 1 << 21, ..ReadIn::default() };
    assert_eq!(ask(&server, Opcode::Read, file, own.as_bytes(), &[]), Err(Errno(libc::EINVAL)));
    let own = FallocateIn { offset: 0, length: 65536, ..FallocateIn::default() };
    assert_eq!(ask(&server, Opcode::Fallocate, file, own.as_bytes(), &[]), Ok(vec![]));
    let own = FsyncIn { flags: 1, ..FsyncIn::default() };
    assert_eq!(ask(&server, Opcode::Fsync, file, own.as_bytes(), &[]), Ok(vec![]));
    let own = LseekIn { whence: libc::SEEK_DATA as u32, ..LseekIn::default() };
    let found: LseekOut = ask_ok(&server, Opcode::Lseek, file, &own, &[]);
    assert_eq!(found.offset, 0);
    // Blocks of the device: of a whole block, of half a block, of two blocks, of an unwritten one.
    let bmap = |node, block, block_size| {
        let own = BmapIn { block, block_size, padding: 0 };
        let answer = ask(&server, Opcode::Bmap, node, own.as_bytes(), &[]);
        answer.map(|bytes| structure::<BmapOut>(&bytes).block)
    };
    let first = bmap(file, 4, 1024).expect("it has a block");
    assert!(first > 0);
    assert_eq!(bmap(file, 9, 512), Ok(2 * first + 1));
    assert_eq!(bmap(file, 2, 2048), Ok(if first % 2 == 0 { first / 2 } else { 0 }));
    for block in [0, 60, 1 << 40, u64::MAX] {
        assert_eq!(bmap(file, block, 1024), Ok(0));
    }
    assert_eq!(bmap(file, 0, 0), Err(Errno(libc::EINVAL)));
    assert_eq!(bmap(ROOT, 0, 1024), Err(Errno(libc::EINVAL)));
    let to = create(&server, b"copy\0").node;
    let own = CopyIn { offset: 4096, node_out: to, len: 4096, ..CopyIn::default() };
    let copied: WriteOut = ask_ok(&server, Opcode::CopyFileRange, file, &own, &[]);
    assert_eq!(copied.size, 4096);
    let own = ReleaseIn::default();
    assert_eq!(ask(&server, Opcode::Release, file, own.as_bytes(), &[]), Ok(vec![]));
}

#[test]
fn attributes() {
    let server = server();
    let file = create(&server, b"file\0").node;
    let own = SetAttrIn {
        valid: 1 | 1 << 1 | 1 << 3 | 1 << 4 | 1 << 5 | 1 << 8,
        mode: 0o640,
        uid: 42,
        gid: 99,
        size: 123,
        atime: -2_i64 as u64,
        atime_nanos: 7,
        ..SetAttrIn::default()
    };
    let set: AttrOut = ask_ok(&server, Opcode::SetAttr, file, &own, &[]);
    assert_eq!((set.valid, set.attr.mode, set.attr.uid, set.attr.gid), (86400, 0o100_640, 42, 0));
    assert_eq!((set.attr.size, set.attr.atime, set.attr.atime_nanos), (123, -2_i64 as u64, 7));
    assert!(set.attr.mtime > 1_600_000_000 && set.attr.mtime < 1 << 40);
    let got: AttrOut = ask_ok(&server, Opcode::GetAttr, file, &[0_u64; 2], &[]);
    assert_eq!(got, set);
    let own = SetXattrIn { size: 3, ..SetXattrIn::default() };
    let done = ask(&server, Opcode::SetXattr, file, own.as_bytes(), b"user.key\0abc");
    assert_eq!(done, Ok(vec![]));
    let size: GetXattrOut =
        ask_ok(&server, Opcode::GetXattr, file, &GetXattrIn::default(), b"user.key\0");
    assert_eq!(size.size, 3);
    let sized = |opcode, size, name: &[u8]| {
        ask(&server, opcode, file, GetXattrIn { size, padding: 0 }.as_bytes(), name)
    };
    assert_eq!(sized(Opcode::GetXattr, 64, b"user.key\0"), Ok(b"abc".to_vec()));
    assert_eq!(sized(Opcode::GetXattr, 2, b"user.key\0"), Err(Errno(libc::ERANGE)));
    assert_eq!(sized(Opcode::ListXattr, 64, b""), Ok(b"user.key\0".to_vec()));
    assert_eq!(ask(&server, Opcode::RemoveXattr, file, &[], b"user.key\0"), Ok(vec![]));
    let stat: StatFsOut = ask_ok(&server, Opcode::StatFs, ROOT, &(), &[]);
    assert_eq!((stat.block_size, stat.fragment_size, stat.name_max), (1024, 1024, 255));
    let own = IoctlIn { call: 0x8008_6601, out_size: 8, ..IoctlIn::default() };
    let flags = ask(&server, Opcode::Ioctl, file, own.as_bytes(), &[]).expect("flags");
    assert_eq!(flags[..16], [0; 16]);
    assert_eq!(flags[16..], 0x8_0000_u32.to_ne_bytes());
}

/// The entries of a page: inode, name and position of the next, each after `front` bytes.
fn entries(mut page: &[u8], front: usize) -> Vec<(u64, Vec<u8>, u64)> {
    let mut entries = Vec::new();
    while !page.is_empty() {
        let (entry, _) = Dirent::read_from_prefix(&page[front..]).expect("an entry");
        let from = front + size_of::<Dirent>();
        let name = page[from..from + entry.name_len as usize].to_vec();
        entries.push((entry.ino, name, entry.next));
        page = &page[(from + entry.name_len as usize).next_multiple_of(8)..];
    }
    entries
}

#[test]
fn listings() {
    let server = server();
    for n in 0..20 {
        create(&server, format!("file{n}\0").as_bytes());
    }
    for (opcode, front) in [(Opcode::ReadDir, 0), (Opcode::ReadDirPlus, size_of::<EntryOut>())] {
        let (mut from, mut names) = (0, Vec::new());
        loop {
            let own = ReadIn { offset: from, size: 600, ..ReadIn::default() };
            let page = ask(&server, opcode, ROOT, own.as_bytes(), &[]).expect("a page");
            assert!(page.len() <= 600 && page.len().is_multiple_of(8));
            let page = entries(&page, front);
            let Some(last) = page.last() else { break };
            from = last.2;
            names.extend(page.into_iter().map(|entry| entry.1));
        }
        names.sort();
        assert_eq!(names.len(), 23, "{opcode:?}");
        assert!(names.binary_search(&b"file19".to_vec()).is_ok());
    }
}

/// A volume whose root has 300 files in an index; all leaves but the first are damaged.
fn damaged() -> Server {
    let device = Arc::new(MemoryDevice::new(16 << 20));
    mkfs::make(&*device, &MkfsOptions::default()).expect("it is made");
    let options = OpenOptions::new().errors(nextent::ErrorPolicy::Continue);
    let volume = Inodes::open(device.clone(), &options).expect("it opens");
    let (root, dir, regular) = (Cred::root(), nextent::inodes::ROOT_INO, NewNode::Regular);
    for n in 0..300 {
        volume.mknod(&root, dir, format!("file{n}").as_bytes(), regular, 0o644).expect("made");
    }
    let extents = volume.fiemap(dir, 2048, 1 << 20, 100).expect("a map");
    volume.close().expect("it closes");
    drop(volume);
    for extent in extents {
        let skip = 2048u64.saturating_sub(extent.logical);
        let zeros = vec![0; (extent.len - skip) as usize];
        device.write_at(extent.physical + skip, &zeros).expect("it is written");
    }
    let volume = Inodes::open(device, &options).expect("it opens");
    Server::new(Arc::new(volume), Served::default())
}

/// The entries before the damage are listed, and their nodes counted once each; then comes the
/// error.
#[test]
fn a_listing_that_ends_in_damage() {
    let server = damaged();
    let plus = size_of::<EntryOut>();
    for (opcode, front) in [(Opcode::ReadDir, 0), (Opcode::ReadDirPlus, plus)] {
        // Each volume has its own hash seed, so the entries before the damage may take several
        // pages.
        let mut listed = Vec::new();
        let after = loop {
            let offset = listed.last().map_or(0, |entry: &(u64, Vec<u8>, u64)| entry.2);
            let own = ReadIn { offset, size: 8000, ..ReadIn::default() };
            match ask(&server, opcode, ROOT, own.as_bytes(), &[]) {
                Ok(page) if page.is_empty() => break Ok(page),
                Ok(page) => listed.extend(entries(&page, front)),
                after => break after,
            }
        };
        assert!((10..200).contains(&listed.len()), "{opcode:?}: {}", listed.len());
        assert_eq!(after, Err(Errno(libc::EUCLEAN)), "{opcode:?}");
        if front == 0 {
            continue;
        }
        let free = |server: &Server| server.volume.statfs().expect("numbers").files_free;
        for (ino, name, _) in listed.iter().filter(|entry| entry.1.starts_with(b"file")) {
            let before = free(&server);
            let name = [name, &b"\0"[..]].concat();
            assert_eq!(ask(&server, Opcode::Unlink, ROOT, &[], &name), Ok(vec![]));
            assert_eq!(free(&server), before, "the kernel has not forgotten it");
            let own = ForgetIn { times: 1 };
            assert_eq!(ask(&server, Opcode::Forget, *ino, own.as_bytes(), &[]), Ok(vec![]));
            assert_eq!(free(&server), before + 1, "the kernel has forgotten it");
        }
    }
}

#[test]
fn short_and_unknown_requests_fail() {
    let server = server();
    assert_eq!(split(&[0; 39], false).err(), Some(Errno(libc::EINVAL)));
    let header = InHeader { opcode: Opcode::Write as u32, ..InHeader::default() };
    let message = [header.as_bytes(), &[0; 39]].concat();
    assert_eq!(split(&message, false).err(), Some(Errno(libc::EINVAL)));
    // A name without its zero byte, and one name instead of two.
    for (opcode, rest) in [(Opcode::Lookup, &b"name"[..]), (Opcode::SymLink, b"one\0")] {
        assert_eq!(ask(&server, opcode, ROOT, &[], rest), Err(Errno(libc::EINVAL)));
    }
    // A length beyond the buffer.
    let header = InHeader { opcode: Opcode::Unlink as u32, node: ROOT, ..InHeader::default() };
    let refused = answer(&server, &header, &[0; OP], (&mut [0; 8], 9));
    assert_eq!(refused, Err(Errno(libc::EINVAL)));
    // The buffer is too short for the answer.
    let header = InHeader { opcode: Opcode::StatFs as u32, node: ROOT, ..InHeader::default() };
    assert_eq!(answer(&server, &header, &[0; OP], (&mut [0; 8], 0)), Err(Errno(libc::ERANGE)));
    let header = InHeader { opcode: 99, node: ROOT, ..InHeader::default() };
    assert_eq!(answer(&server, &header, &[0; OP], (&mut [0; 8], 0)), Err(Errno(libc::ENOSYS)));
    assert!(!is_answered(2) && !is_answered(36) && !is_answered(42));
    assert!(is_answered(1) && is_answered(99));
}

#[test]
fn the_first_request() {
    let low = 1_u32 << 30 | 1 << 16 | 1 << 20 | 1 << 17;
    let high = 1_u32 << 9 | 1 << 8 | 1 << 4;
    let init = InitIn { major: 7, minor: 45, flags: low, flags2: high, ..InitIn::default() };
    let offer = Offer::read(init.as_bytes()).expect("an offer");
    assert!(offer.is_known() && offer.has_rings() && offer.has_idmapped());
    let taken = offer.take(Agreed { idmapped: true, ..Agreed::default() });
    assert_eq!(taken.flags2, 1 << 8 | 1 << 4);
    let taken = offer.take(Agreed { rings: true, ..Agreed::default() });
    assert_eq!((taken.flags, taken.flags2), (1 << 30, 1 << 9 | 1 << 4));
    assert_eq!((taken.max_write, taken.max_pages), (1 << 20, 256));
    let taken = offer.take(Agreed { acl: true, seconds: true, ..Agreed::default() });
    assert_eq!((taken.flags, taken.flags2), (1 << 30 | 1 << 20, 1 << 4));
    assert_eq!(taken.time_granularity, 1_000_000_000);
    // Without its bit the second word is not valid.
    let init = InitIn { flags: 1 << 16, ..init };
    let plain = Offer::read(init.as_bytes()).expect("an offer");
    assert!(!plain.has_rings() && !plain.has_idmapped());
    let other = InitIn { major: 8, ..init };
    assert!(!Offer::read(other.as_bytes()).expect("an offer").is_known());
    assert!(Offer::read(&[0; 15]).is_err());
    // A kernel before the second word.
    let init = InitIn { minor: 31, flags: 1 << 16 | 1 << 13, ..init };
    let short = Offer::read(&init.as_bytes()[..16]).expect("an offer");
    assert!(short.is_known() && !short.has_rings());
    let older = InitIn { minor: 30, ..init };
    assert!(!Offer::read(older.as_bytes()).expect("an offer").is_known());
    let taken = short.take(Agreed::default());
    assert_eq!((taken.flags, taken.flags2), (1 << 13, 0));
}

/// Nodes that the kernel forgets leave memory, by one message each or one for many. A node that it
/// has not forgotten stays pinned without an object in memory.
#[test]
fn forgotten_nodes_leave_memory() {
    let server = server();
    let release = ReleaseIn::default();
    let nodes: Vec<u64> = (0..64)
        .map(|n| {
            let node = create(&server, format!("file{n}\0").as_bytes()).node;
            let answer = ask(&server, Opcode::Release, node, release.as_bytes(), &[]);
            answer.map(|_| node).expect("it was open")
        })
        .collect();
    let volume = &server.volume;
    volume.sync().expect("it is written");
    volume.shrink_caches(nextent::inodes::Shrink::All);
    assert_eq!((volume.cache_usage().inodes, volume.cache_usage().pinned), (0, 64));
    for node in &nodes {
        let answer: AttrOut = ask_ok(&server, Opcode::GetAttr, *node, &[0_u64; 2], &[]);
        assert_eq!(answer.attr.ino, *node);
    }
    assert_eq!((volume.cache_usage().inodes, volume.cache_usage().pinned), (64, 0));
    let own = ForgetIn { times: 1 };
    for node in &nodes[..32] {
        assert_eq!(ask(&server, Opcode::Forget, *node, own.as_bytes(), &[]), Ok(vec![]));
    }
    assert_eq!(volume.cache_usage().inodes, 32);
    let ones: Vec<_> = nodes[32..].iter().map(|node| ForgetOne { node: *node, times: 1 }).collect();
    let own = BatchForgetIn { count: 32, padding: 0 };
    assert_eq!(ask(&server, Opcode::BatchForget, 0, own.as_bytes(), ones.as_bytes()), Ok(vec![]));
    assert_eq!((volume.cache_usage().inodes, volume.cache_usage().pinned), (0, 0));
}

#[test]
fn short_requests_that_set_an_attribute_remove_no_bit() {
    let own = SetXattrIn { size: 3, flags: 2, set_flags: 1, padding: 0 };
    let header = InHeader { opcode: Opcode::SetXattr as u32, ..InHeader::default() };
    let (from, long) = (size_of::<InHeader>(), own.as_bytes());
    for (short, len, set_flags) in [(false, 16, 1), (true, 8, 0)] {
        let message = [header.as_bytes(), &long[..len], b"user.key\0abc"].concat();
        let (_, op, at) = split(&message, short).expect("a message");
        let read: SetXattrIn = structure(&op[..16]);
        assert_eq!((at, read), (from + len, SetXattrIn { set_flags, ..own }));
    }
}
