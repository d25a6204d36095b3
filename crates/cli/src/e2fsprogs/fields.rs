//! The superblock in the words of `dumpe2fs -h` and `tune2fs -l`, which other programs read.
//!
//! Names, order and forms are e2fsprogs'. Times are in UTC.

use crate::show;
use nextent::DiskTime;
use nextent_image::accounts;
use nextent_ondisk::jbd2::{JournalFeatures, JournalSuperblock};
use nextent_ondisk::mmp::MmpBlock;
use nextent_ondisk::superblock::{flags, mount_opts, on_error, state};
use nextent_ondisk::{Compat, Geometry, Incompat, RoCompat, Superblock};
use std::fmt::{Display, Write};
use uuid::Uuid;

/// Lines of a name and a value.
#[derive(Default)]
struct Lines(String);

impl Lines {
    fn put(&mut self, name: &str, value: impl Display) {
        // Writing to a string cannot fail.
        let _ = writeln!(self.0, "{:<26}{value}", format!("{name}:"));
    }

    /// Puts a line that has a tab in e2fsprogs' form.
    fn tabbed(&mut self, name: &str, value: impl Display) {
        let _ = writeln!(self.0, "{name}:\t          {value}");
    }

    /// Puts a line if a value is not zero.
    fn set(&mut self, name: &str, value: impl Into<u64>) {
        let value = value.into();
        if value != 0 {
            self.put(name, value);
        }
    }

    fn time(&mut self, name: &str, seconds: u64) {
        self.put(name, time(seconds));
    }
}

/// Numbers that follow from a superblock.
pub(super) struct Sizes {
    pub(super) block_size: u32,
    cluster_bits: u32,
    inode_table_blocks: u32,
}

impl Sizes {
    /// Those of a volume.
    pub(super) fn of(geo: &Geometry) -> Self {
        Self {
            block_size: geo.block_size,
            cluster_bits: geo.cluster_bits,
            inode_table_blocks: geo.inode_table_blocks,
        }
    }

    /// Those of an external journal, which has no groups.
    pub(super) fn of_journal(block_size: u32) -> Self {
        Self { block_size, cluster_bits: 0, inode_table_blocks: 0 }
    }
}

/// The lines of a superblock.
pub(super) fn superblock(sb: &Superblock, sizes: &Sizes) -> String {
    let mut lines = Lines::default();
    identity(&mut lines, sb);
    layout(&mut lines, sb, sizes);
    life(&mut lines, sb);
    inodes(&mut lines, sb);
    journal_place(&mut lines, sb);
    errors(&mut lines, sb);
    features(&mut lines, sb);
    lines.0
}

pub(super) fn time(seconds: u64) -> String {
    show::calendar(DiskTime::new(i64::try_from(seconds).unwrap_or(i64::MAX), 0))
}

fn identity(lines: &mut Lines, sb: &Superblock) {
    let or = |bytes: &[u8], none: &str| match bytes {
        [] => none.to_owned(),
        bytes => show::name(bytes),
    };
    let mounted_on = sb.last_mounted_on();
    lines.put("Filesystem volume name", or(sb.label_bytes(), "<none>"));
    lines.put("Last mounted on", or(mounted_on.as_bytes(), "<not available>"));
    lines.put("Filesystem UUID", uuid_or_none(&sb.uuid));
    lines.put("Filesystem magic number", format!("0x{:04X}", sb.magic.get()));
    let revision = sb.rev_level.get();
    let kind = ["(original)", "(dynamic)"];
    let kind = usize::try_from(revision).ok().and_then(|at| kind.get(at));
    lines.put("Filesystem revision #", format!("{revision} {}", kind.unwrap_or(&"(unknown)")));
    lines.put("Filesystem features", words(&sb.features().names(), "(none)"));
    if sb.flags.get() != 0 {
        lines.put("Filesystem flags", flag_words(sb.flags.get()));
    }
    lines.put("Default mount options", words(&option_words(sb.default_mount_opts.get()), "(none)"));
    let end = sb.mount_opts.iter().position(|byte| *byte == 0).unwrap_or(sb.mount_opts.len());
    if end > 0 {
        lines.put("Mount options", show::name(&sb.mount_opts[..end]));
    }
    let is = |bit| sb.state.get() & bit != 0;
    let clean = if is(state::VALID) { "clean" } else { "not clean" };
    let with = if is(state::ERROR) { " with errors" } else { "" };
    lines.put("Filesystem state", format!("{clean}{with}"));
    lines.put(
        "Errors behavior",
        match sb.errors.get() {
            on_error::CONTINUE => "Continue",
            on_error::READ_ONLY => "Remount read-only",
            on_error::PANIC => "Panic",
            _ => "Unknown (continue)",
        },
    );
    lines.put("Filesystem OS type", super::mke2fs::creator(sb.creator_os.get()));
}

fn uuid_or_none(bytes: &[u8; 16]) -> String {
    match Uuid::from_bytes(*bytes) {
        uuid if uuid.is_nil() => "<none>".to_owned(),
        uuid => uuid.to_string(),
    }
}

fn words(list: &[String], none: &str) -> String {
    if list.is_empty() { none.to_owned() } else { list.join(" ") }
}

fn flag_words(bits: u32) -> String {
    let names = [
        (flags::SIGNED_HASH, "signed_directory_hash "),
        (flags::UNSIGNED_HASH, "unsigned_directory_hash "),
        (flags::TEST_FILESYS, "test_filesystem "),
    ];
    let set: String = names.iter().filter(|(bit, _)| bits & bit != 0).map(|row| row.1).collect();
    if set.is_empty() { "(none)".to_owned() } else { set }
}

/// Default mount options: the mode of the journal, then the others by their bits.
fn option_words(bits: u32) -> Vec<String> {
    let mut words = Vec::new();
    match bits & mount_opts::JOURNAL_MODE {
        mount_opts::JOURNAL_DATA => words.push("journal_data".to_owned()),
        mount_opts::JOURNAL_ORDERED => words.push("journal_data_ordered".to_owned()),
        mount_opts::JOURNAL_WRITEBACK => words.push("journal_data_writeback".to_owned()),
        _ => {}
    }
    for place in 0..32 {
        let bit = 1 << place;
        if bits & bit & !mount_opts::JOURNAL_MODE != 0 {
            let known = MOUNT_OPTIONS.iter().find(|(_, value)| *value == bit);
            words.push(known.map_or_else(|| format!("MNTOPT_{place}"), |(name, _)| (*name).into()));
        }
    }
    words
}

/// Names of default mount options.
pub(super) const MOUNT_OPTIONS: [(&str, u32); 12] = [
    ("debug", mount_opts::DEBUG),
    ("bsdgroups", mount_opts::BSDGROUPS),
    ("user_xattr", mount_opts::XATTR_USER),
    ("acl", mount_opts::ACL),
    ("uid16", mount_opts::UID16),
    ("journal_data", mount_opts::JOURNAL_DATA),
    ("journal_data_ordered", mount_opts::JOURNAL_ORDERED),
    ("journal_data_writeback", mount_opts::JOURNAL_WRITEBACK),
    ("nobarrier", mount_opts::NO_BARRIER),
    ("block_validity", mount_opts::BLOCK_VALIDITY),
    ("discard", mount_opts::DISCARD),
    ("nodelalloc", mount_opts::NO_DELALLOC),
];

fn layout(lines: &mut Lines, sb: &Superblock, sizes: &Sizes) {
    let has = sb.features();
    lines.put("Inode count", sb.inodes_count.get());
    lines.put("Block count", sb.blocks_count());
    lines.put("Reserved block count", sb.reserved_blocks_count());
    lines.set("Overhead clusters", sb.overhead_clusters.get());
    lines.put("Free blocks", sb.free_blocks_count());
    lines.put("Free inodes", sb.free_inodes_count.get());
    lines.put("First block", sb.first_data_block.get());
    lines.put("Block size", sizes.block_size);
    let clusters = has.has(RoCompat::BIGALLOC);
    let of = |cluster: &str, fragment: &str| if clusters { cluster } else { fragment }.to_owned();
    lines.put(&of("Cluster size", "Fragment size"), sizes.block_size << sizes.cluster_bits);
    if has.has(Incompat::BIT64) {
        lines.put("Group descriptor size", sb.desc_size.get());
    }
    lines.set("Reserved GDT blocks", sb.reserved_gdt_blocks.get());
    lines.put("Blocks per group", sb.blocks_per_group.get());
    lines.put(&of("Clusters per group", "Fragments per group"), sb.clusters_per_group.get());
    lines.put("Inodes per group", sb.inodes_per_group.get());
    lines.put("Inode blocks per group", sizes.inode_table_blocks);
    lines.set("RAID stride", sb.raid_stride.get());
    lines.set("RAID stripe width", sb.raid_stripe_width.get());
    lines.set("First meta block group", sb.first_meta_bg.get());
    if let Some(groups) = 1u64.checked_shl(sb.log_groups_per_flex.into()).filter(|n| *n > 1) {
        lines.put("Flex block group size", groups);
    }
}

fn life(lines: &mut Lines, sb: &Superblock) {
    if sb.made_at() != 0 {
        lines.time("Filesystem created", sb.made_at());
    }
    match sb.mounted_at() {
        0 => lines.put("Last mount time", "n/a"),
        seconds => lines.time("Last mount time", seconds),
    }
    lines.time("Last write time", sb.written_at());
    lines.put("Mount count", sb.mnt_count.get());
    lines.put("Maximum mount count", sb.max_mnt_count.get().cast_signed());
    lines.time("Last checked", sb.checked_at());
    let every = sb.checkinterval.get();
    lines.put("Check interval", format!("{every} ({})", interval(every)));
    if every != 0 {
        lines.time("Next check after", sb.checked_at() + u64::from(every));
    }
    let written = sb.kbytes_written.get();
    if written != 0 {
        lines.put("Lifetime writes", kilobytes(written));
    }
    let (uid, gid) = sb.reserved_owner();
    let name = |found: Option<String>| found.unwrap_or_else(|| "unknown".to_owned());
    lines.put("Reserved blocks uid", format!("{uid} (user {})", name(accounts::user_name(uid))));
    lines.put("Reserved blocks gid", format!("{gid} (group {})", name(accounts::group_name(gid))));
}

/// Seconds as months of 30 days, weeks, days, and a time of day.
fn interval(seconds: u32) -> String {
    if seconds == 0 {
        return "<none>".to_owned();
    }
    let mut parts = Vec::new();
    let mut rest = seconds;
    for (unit, name) in [(30 * 86_400, "month"), (7 * 86_400, "week"), (86_400, "day")] {
        match rest / unit {
            0 => {}
            1 => parts.push(format!("1 {name}")),
            count => parts.push(format!("{count} {name}s")),
        }
        rest %= unit;
    }
    if rest > 0 {
        parts.push(format!("{}:{:02}:{:02}", rest / 3600, rest / 60 % 60, rest % 60));
    }
    parts.join(", ")
}

/// A number of KiB in the largest unit that leaves at least 8.
fn kilobytes(kib: u64) -> String {
    let units = ["kB", "MB", "GB", "TB"];
    let at = [1 << 13, 1 << 23, 1 << 33].iter().filter(|least| kib >= **least).count();
    let half = (1u64 << (10 * at)) >> 1;
    format!("{} {}", kib.saturating_add(half) >> (10 * at), units[at])
}

fn inodes(lines: &mut Lines, sb: &Superblock) {
    if sb.rev_level.get() == 0 {
        return;
    }
    lines.put("First inode", sb.first_ino.get());
    lines.tabbed("Inode size", sb.inode_size.get());
    lines.set("Required extra isize", sb.min_extra_isize.get());
    lines.set("Desired extra isize", sb.want_extra_isize.get());
}

fn journal_place(lines: &mut Lines, sb: &Superblock) {
    if sb.journal_uuid != [0; 16] {
        lines.put("Journal UUID", Uuid::from_bytes(sb.journal_uuid));
    }
    lines.set("Journal inode", sb.journal_inum.get());
    if sb.journal_dev.get() != 0 {
        lines.tabbed("Journal device", format!("0x{:04x}", sb.journal_dev.get()));
    }
    lines.set("First orphan inode", sb.last_orphan.get());
    let seed = sb.hash_seed_uuid();
    if sb.features().has(Compat::DIR_INDEX) || !seed.is_nil() {
        let name = match sb.def_hash_version {
            0 => "legacy".to_owned(),
            1 => "half_md4".to_owned(),
            2 => "tea".to_owned(),
            other => other.to_string(),
        };
        lines.put("Default directory hash", name);
    }
    if !seed.is_nil() {
        lines.put("Directory Hash Seed", seed);
    }
    match sb.jnl_backup_type {
        0 => {}
        1 => lines.put("Journal backup", "inode blocks"),
        other => lines.put("Journal backup", format!("type {other}")),
    }
    if sb.features().has(Compat::SPARSE_SUPER2) {
        let groups = sb.backup_bgs.iter().map(|group| group.get()).filter(|group| *group != 0);
        let groups: Vec<String> = groups.map(|group| format!("{group} ")).collect();
        lines.put("Backup block groups", groups.concat());
    }
    if sb.snapshot_inum.get() != 0 {
        lines.put("Snapshot inode", sb.snapshot_inum.get());
        lines.put("Snapshot ID", sb.snapshot_id.get());
        lines.put("Snapshot reserved blocks", sb.snapshot_r_blocks_count.get());
    }
    lines.set("Snapshot list head", sb.snapshot_list.get());
}

fn errors(lines: &mut Lines, sb: &Superblock) {
    lines.set("FS Error count", sb.error_count.get());
    let text = |bytes: &[u8; 32]| {
        let end = bytes.iter().position(|byte| *byte == 0).unwrap_or(bytes.len());
        show::name(&bytes[..end])
    };
    let mut record = |which: &str, at: u64, func, line: u32, ino: u32, block: u64, code: u8| {
        if at == 0 {
            return;
        }
        let mut put = |field: &str, value: &dyn Display| {
            lines.put(&format!("{which} error {field}"), value);
        };
        put("time", &time(at));
        put("function", &text(func));
        put("line #", &line);
        if ino != 0 {
            put("inode #", &ino);
        }
        if block != 0 {
            put("block #", &block);
        }
        if code != 0 {
            put("err", &error_name(code));
        }
    };
    record(
        "First",
        sb.first_error_at(),
        &sb.first_error_func,
        sb.first_error_line.get(),
        sb.first_error_ino.get(),
        sb.first_error_block.get(),
        sb.first_error_errcode,
    );
    record(
        "Last",
        sb.last_error_at(),
        &sb.last_error_func,
        sb.last_error_line.get(),
        sb.last_error_ino.get(),
        sb.last_error_block.get(),
        sb.last_error_errcode,
    );
}

fn error_name(code: u8) -> String {
    const NAMES: [&str; 17] = [
        "UNKNOWN",
        "EIO",
        "ENOMEM",
        "EFSBADCRC",
        "EFSCORRUPTED",
        "ENOSPC",
        "ENOKEY",
        "EROFS",
        "EFBIG",
        "EEXIST",
        "ERANGE",
        "EOVERFLOW",
        "EBUSY",
        "ENOTDIR",
        "ENOTEMPTY",
        "ESHUTDOWN",
        "EFAULT",
    ];
    let at = usize::from(code).checked_sub(1);
    let known = at.and_then(|at| NAMES.get(at));
    known.map_or_else(|| format!("UNKNOWN_ERRCODE_{code}"), |name| (*name).to_owned())
}

fn features(lines: &mut Lines, sb: &Superblock) {
    let has = sb.features();
    if has.has(Incompat::MMP) {
        lines.put("MMP block number", sb.mmp_block.get());
        lines.put("MMP update interval", sb.mmp_interval.get());
    }
    lines.set("User quota inode", sb.usr_quota_inum.get());
    lines.set("Group quota inode", sb.grp_quota_inum.get());
    lines.set("Project quota inode", sb.prj_quota_inum.get());
    if has.metadata_csum() {
        lines.put("Checksum type", if sb.checksum_type == 1 { "crc32c" } else { "unknown" });
        lines.put("Checksum", format!("0x{:08x}", sb.checksum.get()));
    }
    if sb.encrypt_pw_salt != [0; 16] {
        lines.put("Encryption PW Salt", Uuid::from_bytes(sb.encrypt_pw_salt));
    }
    if has.has(Incompat::CSUM_SEED) {
        lines.put("Checksum seed", format!("0x{:08x}", sb.checksum_seed.get()));
    }
    if has.has(Incompat::CASEFOLD) {
        let name = if sb.encoding.get() == 1 { "utf8-12.1" } else { "(unknown)" };
        lines.put("Character encoding", name);
    }
    lines.set("Orphan file inode", sb.orphan_file_inum.get());
}

/// The lines of the block of multiple mount protection.
pub(super) fn multi_mount(block: &MmpBlock) -> String {
    let time = block.time.get();
    let lines = [
        "MMP_block:".to_owned(),
        format!("    mmp_magic: 0x{:x}", block.magic.get()),
        format!("    mmp_check_interval: {}", block.check_interval.get()),
        format!("    mmp_sequence: 0x{:06x}", block.sequence.get()),
        format!("    mmp_update_date: {}", self::time(time)),
        format!("    mmp_update_time: {time}"),
        format!("    mmp_node_name: {}", show::name(block.node())),
        format!("    mmp_device_name: {}\n", show::name(block.device())),
    ];
    lines.join("\n")
}

/// The lines of a journal.
pub(super) fn journal(journal: &JournalSuperblock, block_size: u32) -> String {
    let mut lines = Lines::default();
    lines.put("Journal features", words(&journal_words(journal.features()), "(none)"));
    let bytes = u64::from(journal.length()) * u64::from(block_size);
    let fast = journal.stored_fc_blocks();
    let size = match bytes >> 10 {
        kib if kib < 8192 => format!("{kib}k"),
        kib => format!("{}M", kib >> 10),
    };
    lines.put("Total journal size", size);
    lines.put("Total journal blocks", journal.length());
    lines.put("Max transaction length", journal.length().saturating_sub(fast));
    lines.put("Fast commit length", fast);
    if journal.first() != 1 {
        lines.put("Journal first block", journal.first());
    }
    lines.put("Journal sequence", format!("0x{:08x}", journal.sequence().0));
    lines.put("Journal start", journal.start());
    if journal.users() != 1 {
        lines.put("Journal number of users", journal.users());
    }
    if journal.features().compat & JournalFeatures::CHECKSUM_V1 != 0 {
        lines.put("Journal checksum type", "crc32");
    }
    if journal.features().has_checksums() {
        lines.put("Journal checksum type", "crc32c");
        lines.put("Journal checksum", format!("0x{:08x}", journal.stored_checksum()));
    }
    for (at, user) in journal.user_list().iter().filter(|user| **user != [0; 16]).enumerate() {
        let user = Uuid::from_bytes(*user);
        match at {
            0 => lines.put("Journal users", user),
            // Writing to a string cannot fail.
            _ => drop(writeln!(lines.0, "{:<26}{user}", "")),
        }
    }
    if journal.errno() != 0 {
        lines.put("Journal errno", journal.errno());
    }
    lines.0
}

/// The names of a journal's features. e2fsprogs 1.47 has none for fast commits.
fn journal_words(has: JournalFeatures) -> Vec<String> {
    let name = |name| if name == "fast_commit" { "FEATURE_I5" } else { name };
    has.names().into_iter().map(|word| name(word).to_owned()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn features_of_a_journal_have_the_names_of_dumpe2fs() {
        let has = JournalFeatures { compat: 1, incompat: 0x3f, ro_compat: 0 };
        let all = "journal_checksum journal_incompat_revoke journal_64bit journal_async_commit \
            journal_checksum_v2 journal_checksum_v3 FEATURE_I5";
        assert_eq!(journal_words(has).join(" "), all);
        assert!(journal_words(JournalFeatures::default()).is_empty());
    }
}
