//! The workloads: names, descriptions, required space.

use crate::workload::{churn_most, read_bytes};

/// A workload.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Workload {
    /// Extends an own file by 8 KiB, truncates it at 1 MiB.
    Fallocate2,
    /// Allocates 128 MiB and truncates the file.
    Fallocate1,
    /// Creates, writes, renames and unlinks.
    Churn,
    /// Creates empty files.
    Create,
    /// Removes files.
    Unlink,
    /// Appends 4 KiB.
    Append,
    /// Reads 4 KiB.
    Read,
    /// Looks up a name.
    Stat,
    /// Appends 4 KiB fallocates, then counts extents.
    Frag,
    /// Replays a load file of dbench.
    Dbench,
    /// Starts and stops handles.
    Handles,
    /// Appends 4 KiB and makes them durable.
    Fsync,
    /// Writes directly to unwritten blocks of one file.
    DioOverwrite,
    /// Writes directly to blocks of one file that hold data.
    DioRewrite,
}

/// A workload, its name, and a description of one operation.
type Row = (Workload, &'static str, &'static str);

const ROWS: [Row; 14] = [
    (
        Workload::Fallocate2,
        "fallocate2",
        "fallocate 8 KiB further into an own unlinked file; at 1 MiB truncate to 0",
    ),
    (Workload::Fallocate1, "fallocate1", "fallocate 128 MiB, truncate to 0"),
    (Workload::Churn, "churn", "create, write 0-64 KiB, rename, unlink"),
    (Workload::Create, "create", "create an empty file"),
    (Workload::Unlink, "unlink", "unlink an empty file"),
    (Workload::Append, "append", "write 4 KiB at the end of an own file"),
    (Workload::Read, "read", "read 4 KiB at random from an own file of 4 MiB"),
    (Workload::Stat, "stat", "look up one of 64 own names"),
    (
        Workload::Frag,
        "frag",
        "fallocate 4 KiB at the end of an own file, up to --file-size; then count extents",
    ),
    (Workload::Dbench, "dbench", "one line of a dbench load file; bytes are read and written"),
    (
        Workload::Handles,
        "handles",
        "start and stop a handle of 8 credits, touching one private metadata block",
    ),
    (Workload::Fsync, "fsync", "write 4 KiB at the end of an own file and fsync it"),
    (
        Workload::DioOverwrite,
        "dio-overwrite",
        "random direct write of --bs into one preallocated, unwritten file; each block once",
    ),
    (
        Workload::DioRewrite,
        "dio-rewrite",
        "random direct write of --bs into one file that is full of data",
    ),
];

impl Workload {
    /// All workloads.
    pub fn all() -> impl Iterator<Item = Self> {
        ROWS.iter().map(|row| row.0)
    }

    fn row(self) -> &'static Row {
        ROWS.iter().find(|row| row.0 == self).expect("every workload has a row")
    }

    /// The name on the command line.
    #[must_use]
    pub fn name(self) -> &'static str {
        self.row().1
    }

    /// A description of one operation.
    #[must_use]
    pub fn operation(self) -> &'static str {
        self.row().2
    }

    /// The workload of that name.
    pub(crate) fn named(name: &str) -> Option<Self> {
        ROWS.iter().find(|row| row.1 == name).map(|row| row.0)
    }

    /// Bytes of free space that it requires.
    pub(crate) fn required_bytes(self, threads: usize, file_bytes: u64) -> u64 {
        const MIB: u64 = 1 << 20;
        let each = match self {
            Self::Fallocate2 => 2 * MIB,
            Self::Fallocate1 => 128 * MIB + MIB,
            Self::Churn => 4 * churn_most(),
            Self::Append | Self::Frag | Self::Fsync => file_bytes + MIB,
            Self::Read => read_bytes() + MIB,
            Self::Dbench => 32 * MIB,
            Self::DioOverwrite | Self::DioRewrite => 0,
            Self::Create | Self::Unlink | Self::Stat | Self::Handles => MIB / 4,
        };
        match self {
            Self::DioOverwrite | Self::DioRewrite => file_bytes + MIB,
            _ => threads as u64 * each,
        }
    }

    /// Whether it consists of direct writes.
    pub(crate) fn is_direct(self) -> bool {
        matches!(self, Self::DioOverwrite | Self::DioRewrite)
    }

    /// Whether it needs an image with more inodes than the default.
    pub(crate) fn wants_inodes(self) -> bool {
        matches!(self, Self::Create | Self::Unlink)
    }
}
