//! Structures of the kernel's `linux/fuse.h`, version 7.42.

use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

/// Defines structures with the layout of the protocol, and checks their sizes.
macro_rules! structures {
    ($($(#[$doc:meta])* $name:ident ($size:literal) { $($field:ident: $kind:ty),* $(,)? })*) => {$(
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
        #[derive(FromBytes, IntoBytes, KnownLayout, Immutable)]
        #[repr(C)]
        pub(crate) struct $name { $(pub(crate) $field: $kind),* }
        const _: () = assert!(size_of::<$name>() == $size);
    )*};
}

/// Defines the operations and their numbers.
macro_rules! opcodes {
    ($($name:ident = $number:literal,)*) => {
        /// The operation of a request.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub(crate) enum Opcode { $($name = $number),* }

        impl Opcode {
            /// The operation with this number; none if it is unknown.
            pub(crate) fn of(number: u32) -> Option<Self> {
                match number { $($number => Some(Self::$name),)* _ => None }
            }

            /// Its name.
            pub(crate) fn name(self) -> &'static str {
                match self { $(Self::$name => stringify!($name)),* }
            }
        }
    };
}

opcodes! {
    Lookup = 1,
    Forget = 2,
    GetAttr = 3,
    SetAttr = 4,
    ReadLink = 5,
    SymLink = 6,
    MkNod = 8,
    MkDir = 9,
    Unlink = 10,
    RmDir = 11,
    Rename = 12,
    Link = 13,
    Open = 14,
    Read = 15,
    Write = 16,
    StatFs = 17,
    Release = 18,
    Fsync = 20,
    SetXattr = 21,
    GetXattr = 22,
    ListXattr = 23,
    RemoveXattr = 24,
    Flush = 25,
    Init = 26,
    OpenDir = 27,
    ReadDir = 28,
    ReleaseDir = 29,
    FsyncDir = 30,
    Access = 34,
    Create = 35,
    Interrupt = 36,
    Bmap = 37,
    Destroy = 38,
    Ioctl = 39,
    BatchForget = 42,
    Fallocate = 43,
    ReadDirPlus = 44,
    Rename2 = 45,
    Lseek = 46,
    CopyFileRange = 47,
    SyncFs = 50,
    TmpFile = 51,
    Statx = 52,
}

structures! {
    /// The common header of requests.
    InHeader (40) {
        len: u32, opcode: u32, unique: u64, node: u64, uid: u32, gid: u32, pid: u32,
        extension: u16, padding: u16,
    }
    /// The common header of answers.
    OutHeader (16) { len: u32, error: i32, unique: u64 }
    /// A notice to forget what is cached of a node; with a negative offset, only attributes.
    ForgetCachedOut (24) { node: u64, offset: i64, len: i64 }
    InitIn (64) {
        major: u32, minor: u32, max_readahead: u32, flags: u32, flags2: u32, unused: [u32; 11],
    }
    InitOut (64) {
        major: u32, minor: u32, max_readahead: u32, flags: u32, max_background: u16,
        congestion_threshold: u16, max_write: u32, time_granularity: u32, max_pages: u16,
        map_alignment: u16, flags2: u32, max_stack_depth: u32, unused: [u16; 12],
    }
    AttrBody (88) {
        ino: u64, size: u64, blocks: u64, atime: u64, mtime: u64, ctime: u64, atime_nanos: u32,
        mtime_nanos: u32, ctime_nanos: u32, mode: u32, links: u32, uid: u32, gid: u32, device: u32,
        block_size: u32, flags: u32,
    }
    AttrOut (104) { valid: u64, valid_nanos: u32, padding: u32, attr: AttrBody }
    EntryOut (128) {
        node: u64, generation: u64, entry_valid: u64, attr_valid: u64, entry_valid_nanos: u32,
        attr_valid_nanos: u32, attr: AttrBody,
    }
    OpenOut (16) { handle: u64, flags: u32, backing: u32 }
    SetAttrIn (88) {
        valid: u32, padding: u32, handle: u64, size: u64, lock_owner: u64, atime: u64, mtime: u64,
        ctime: u64, atime_nanos: u32, mtime_nanos: u32, ctime_nanos: u32, mode: u32, unused: u32,
        uid: u32, gid: u32, unused2: u32,
    }
    MkNodIn (16) { mode: u32, device: u32, umask: u32, padding: u32 }
    MkDirIn (8) { mode: u32, umask: u32 }
    RenameIn (8) { to: u64 }
    Rename2In (16) { to: u64, flags: u32, padding: u32 }
    LinkIn (8) { node: u64 }
    OpenIn (8) { flags: u32, open_flags: u32 }
    CreateIn (16) { flags: u32, mode: u32, umask: u32, open_flags: u32 }
    ReadIn (40) {
        handle: u64, offset: u64, size: u32, read_flags: u32, lock_owner: u64, flags: u32,
        padding: u32,
    }
    WriteIn (40) {
        handle: u64, offset: u64, size: u32, write_flags: u32, lock_owner: u64, flags: u32,
        padding: u32,
    }
    WriteOut (8) { size: u32, padding: u32 }
    ReleaseIn (24) { handle: u64, flags: u32, release_flags: u32, lock_owner: u64 }
    FsyncIn (16) { handle: u64, flags: u32, padding: u32 }
    /// Its second half is missing in messages of kernels that do not offer the long form.
    SetXattrIn (16) { size: u32, flags: u32, set_flags: u32, padding: u32 }
    GetAttrIn (16) { flags: u32, padding: u32, handle: u64 }
    StatxIn (24) { flags: u32, padding: u32, handle: u64, statx_flags: u32, mask: u32 }
    StatxTime (16) { seconds: i64, nanos: u32, padding: u32 }
    StatxOut (288) {
        valid: u64, valid_nanos: u32, flags: u32, spare: [u64; 2], mask: u32, block_size: u32,
        attributes: u64, links: u32, uid: u32, gid: u32, mode: u16, padding: u16, ino: u64,
        size: u64, blocks: u64, attributes_mask: u64, atime: StatxTime, btime: StatxTime,
        ctime: StatxTime, mtime: StatxTime, device_major: u32, device_minor: u32,
        volume_major: u32, volume_minor: u32, spare2: [u64; 14],
    }
    GetXattrIn (8) { size: u32, padding: u32 }
    GetXattrOut (8) { size: u32, padding: u32 }
    StatFsOut (80) {
        blocks: u64, blocks_free: u64, blocks_available: u64, files: u64, files_free: u64,
        block_size: u32, name_max: u32, fragment_size: u32, padding: u32, spare: [u32; 6],
    }
    IoctlIn (32) { handle: u64, flags: u32, call: u32, argument: u64, in_size: u32, out_size: u32 }
    IoctlOut (16) { result: i32, flags: u32, in_places: u32, out_places: u32 }
    FallocateIn (32) { handle: u64, offset: u64, length: u64, mode: u32, padding: u32 }
    LseekIn (24) { handle: u64, offset: u64, whence: u32, padding: u32 }
    LseekOut (8) { offset: u64 }
    BmapIn (16) { block: u64, block_size: u32, padding: u32 }
    BmapOut (8) { block: u64 }
    CopyIn (56) {
        handle: u64, offset: u64, node_out: u64, handle_out: u64, offset_out: u64, len: u64,
        flags: u64,
    }
    ForgetIn (8) { times: u64 }
    BatchForgetIn (8) { count: u32, padding: u32 }
    ForgetOne (16) { node: u64, times: u64 }
    Dirent (24) { ino: u64, next: u64, name_len: u32, kind: u32 }
}

impl SetXattrIn {
    /// Bytes of the short form.
    pub(crate) const SHORT: usize = 8;
}

impl Opcode {
    /// The size of the argument structure.
    pub(crate) fn own(self) -> usize {
        match self {
            Self::Forget => size_of::<ForgetIn>(),
            Self::GetAttr => size_of::<GetAttrIn>(),
            Self::Statx => size_of::<StatxIn>(),
            Self::SetAttr => size_of::<SetAttrIn>(),
            Self::MkNod => size_of::<MkNodIn>(),
            Self::MkDir => size_of::<MkDirIn>(),
            Self::Rename => size_of::<RenameIn>(),
            Self::Rename2 => size_of::<Rename2In>(),
            Self::Link => size_of::<LinkIn>(),
            Self::Open | Self::OpenDir => size_of::<OpenIn>(),
            Self::Create | Self::TmpFile => size_of::<CreateIn>(),
            Self::Read | Self::ReadDir | Self::ReadDirPlus => size_of::<ReadIn>(),
            Self::Write => size_of::<WriteIn>(),
            Self::Release | Self::ReleaseDir => size_of::<ReleaseIn>(),
            Self::Fsync | Self::FsyncDir => size_of::<FsyncIn>(),
            Self::SetXattr => size_of::<SetXattrIn>(),
            Self::GetXattr | Self::ListXattr => size_of::<GetXattrIn>(),
            Self::Flush => 24,
            Self::Access | Self::Interrupt | Self::SyncFs => 8,
            Self::Ioctl => size_of::<IoctlIn>(),
            Self::BatchForget => size_of::<BatchForgetIn>(),
            Self::Fallocate => size_of::<FallocateIn>(),
            Self::Lseek => size_of::<LseekIn>(),
            Self::Bmap => size_of::<BmapIn>(),
            Self::CopyFileRange => size_of::<CopyIn>(),
            Self::Lookup | Self::ReadLink | Self::SymLink | Self::Unlink | Self::RmDir => 0,
            // The first request is read apart.
            Self::StatFs | Self::RemoveXattr | Self::Destroy | Self::Init => 0,
        }
    }
}

/// Whether the kernel makes this request for an open file or for itself. Its user is that of the
/// running thread then, so it is not checked; the open was admitted.
pub(super) fn follows_an_open(opcode: Opcode) -> bool {
    use Opcode as Op;
    match opcode {
        Op::Init | Op::Destroy | Op::Forget | Op::BatchForget | Op::Interrupt | Op::SyncFs => true,
        Op::Read | Op::Write | Op::Fsync | Op::Flush | Op::Release | Op::Bmap => true,
        Op::ReadDir | Op::ReadDirPlus | Op::FsyncDir | Op::ReleaseDir => true,
        Op::Lookup | Op::GetAttr | Op::Statx | Op::SetAttr | Op::ReadLink => false,
        Op::SymLink | Op::MkNod => false,
        Op::MkDir | Op::Unlink | Op::RmDir | Op::Rename | Op::Rename2 | Op::Link => false,
        Op::Open | Op::OpenDir | Op::Create | Op::TmpFile | Op::Access | Op::StatFs => false,
        Op::SetXattr | Op::GetXattr | Op::ListXattr | Op::RemoveXattr | Op::Ioctl => false,
        Op::Fallocate | Op::Lseek | Op::CopyFileRange => false,
    }
}
