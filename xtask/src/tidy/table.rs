//! The data of the rules.

/// Lines in a file, lines in a function, columns in a line.
pub(super) const FILE_LINES: usize = 800;
pub(super) const FUNCTION_LINES: usize = 70;
pub(super) const COLUMNS: usize = 100;

/// Directories whose Rust files are checked.
pub(super) const ROOTS: [&str; 4] = ["crates", "lab", "xtask", "fuzz"];

/// The list of excused findings; see `allow.rs`.
pub(super) const ALLOW_LIST: &str = "xtask/tidy-allow.txt";
/// The length of that list. It must not be raised.
pub(super) const ALLOWED: usize = 0;

/// The root files of crates that must forbid unsafe code.
pub(super) const SAFE: [&str; 14] = [
    "crates/num/src/lib.rs",
    "crates/ondisk/src/lib.rs",
    "crates/store/src/lib.rs",
    "crates/engine/src/lib.rs",
    "crates/fuse/src/lib.rs",
    "crates/image/src/lib.rs",
    "crates/cli/src/main.rs",
    "lab/bench/src/lib.rs",
    "lab/cli/src/main.rs",
    "lab/historical/src/lib.rs",
    "lab/schedules/src/lib.rs",
    "lab/sim/driver/src/lib.rs",
    "crates/testkit/src/lib.rs",
    "xtask/src/main.rs",
];

/// Modules of one crate by layer: a module may use those of lower layers only.
pub(super) struct Layers {
    /// The crate's sources.
    pub(super) dir: &'static str,
    /// Each top-level module and its layer.
    pub(super) modules: &'static [(&'static str, u32)],
}

pub(super) const LAYERS: [Layers; 3] = [
    Layers {
        dir: "crates/store/src/",
        modules: &[
            ("error", 0),
            ("locks", 0),
            ("flushes", 1),
            ("cache", 2),
            ("journal", 3),
            ("store", 4),
        ],
    },
    Layers {
        dir: "crates/engine/src/",
        modules: &[
            ("error", 0),
            ("cred", 0),
            ("attr", 0),
            ("policy", 0),
            ("observer", 1),
            ("recovered", 0),
            ("mmp", 1),
            ("alloc", 4),
            ("map", 5),
            ("dir", 6),
            ("xattr", 6),
            ("inode", 7),
            ("ops", 8),
            ("open", 9),
            ("mkfs", 9),
            ("check", 10),
            ("resize", 11),
            ("fs", 10),
            ("journal_change", 10),
            ("checked", 10),
            ("checksums", 11),
            ("inodes", 11),
            ("lab_seams", 12),
        ],
    },
    Layers {
        dir: "crates/fuse/src/",
        modules: &[
            ("errno", 0),
            ("node", 1),
            ("admission", 1),
            ("in_flight", 1),
            ("request_counts", 1),
            ("server", 2),
            ("stream", 2),
            ("registration", 2),
            ("space_wait", 3),
            ("write_out", 0),
            ("control", 2),
            ("setup", 3),
            ("refusal", 3),
            ("cores", 3),
            ("wire", 3),
            ("offer", 4),
            ("statistics", 4),
            ("mount_table", 4),
            ("device", 4),
            ("forget_reader", 5),
            ("mounting", 5),
            ("attachment", 6),
            ("transport", 7),
            ("connection", 8),
            ("device_mount", 9),
            ("ring_mount", 10),
        ],
    },
];

/// Where integers may not be cast by `as`.
pub(super) const CASTS: [&str; 8] = [
    "crates/cli/src/",
    "crates/device/src/",
    "crates/engine/src/",
    "crates/fuse/src/",
    "crates/fuse-sys/src/",
    "crates/image/src/",
    "crates/store/src/",
    "crates/sync/src/",
];

/// Words that only some paths may have.
pub(super) struct Words {
    pub(super) rule: &'static str,
    pub(super) words: &'static [&'static str],
    /// Paths that may have them.
    pub(super) except: &'static [&'static str],
    /// Whether tests may have them.
    pub(super) tests: bool,
    pub(super) why: &'static str,
}

pub(super) const CODE_WORDS: [Words; 4] = [
    Words {
        rule: "sync",
        words: &[
            "std::sync",
            "core::sync",
            "std::thread",
            "std::time::Instant",
            "SystemTime",
            "std::{sync",
            "std::{thread",
            "parking_lot::",
        ],
        // Metadata has the times of std.
        except: &["crates/sync/", "lab/sim/", "xtask/", "crates/engine/src/fs/metadata.rs"],
        tests: true,
        why: "locks, atomics, threads and time come from nextent_sync",
    },
    Words {
        rule: "byte-order",
        words: &[
            "from_le_bytes",
            "to_le_bytes",
            "from_be_bytes",
            "to_be_bytes",
            "zerocopy::byteorder",
            "zerocopy::little_endian",
            "zerocopy::big_endian",
        ],
        except: &[
            "crates/ondisk/",
            // The format of the files of overlays, which is not ext4's.
            "crates/device/src/delta/format.rs",
            // A network protocol, and its test with a server of its own.
            "crates/device/src/nbd/",
            "crates/device/tests/nbd.rs",
            // Writes partition tables for tests, without the code that reads them.
            "crates/testkit/src/disk.rs",
        ],
        tests: true,
        why: "only ondisk, delta::format, and nbd for its network protocol, handle byte order",
    },
    Words {
        rule: "unwrap",
        words: &[".unwrap()"],
        except: &["crates/testkit/", "crates/sync/src/primitive/"],
        tests: true,
        why: "say why it cannot fail (expect) or return the error",
    },
    Words {
        rule: "left-over",
        // In two halves, so that this file does not break the rule.
        words: &[concat!("to", "do!("), concat!("unimple", "mented!("), concat!("db", "g!(")],
        except: &[],
        tests: false,
        why: "not for the main branch",
    },
];

/// Words that comments must not have either.
pub(super) const NOTES: [&str; 3] = [concat!("FIX", "ME"), concat!("TO", "DO"), concat!("XX", "X")];
