//! The fields that `tune` changes, and what each option says about it.

use super::Wrong;
use crate::show;
use nextent_num::must_fit;
use nextent_ondisk::superblock::{MAX_LABEL, flags, state};
use nextent_ondisk::{Features, Incompat, Superblock, checksum};
use uuid::Uuid;

/// Values for fields of a superblock; `None` leaves a field as it is.
#[derive(Clone, Debug, Default)]
pub(super) struct Changes {
    pub(super) label: Option<Vec<u8>>,
    pub(super) last_mounted: Option<Vec<u8>>,
    pub(super) uuid: Option<Uuid>,
    pub(super) reserved: Option<u64>,
    pub(super) most_mounts: Option<u16>,
    pub(super) mounts: Option<u16>,
    pub(super) interval: Option<u32>,
    pub(super) checked: Option<u64>,
    pub(super) on_error: Option<u16>,
    pub(super) user: Option<u32>,
    pub(super) group: Option<u32>,
    pub(super) mount_options: Option<u32>,
    pub(super) stride: Option<u16>,
    pub(super) stripe_width: Option<u32>,
    pub(super) hash: Option<u8>,
    /// The seed of hashes of names, for a volume without one.
    pub(super) hash_seed: Option<Uuid>,
    pub(super) mount_text: Option<Vec<u8>>,
    pub(super) force_check: bool,
    pub(super) test_fs: Option<bool>,
    pub(super) mmp_interval: Option<u16>,
    pub(super) set: Features,
    pub(super) clear: Features,
}

fn put<const N: usize>(field: &mut [u8; N], text: &[u8]) {
    *field = [0; N];
    for (to, from) in field.iter_mut().zip(text) {
        *to = *from;
    }
}

impl Changes {
    /// Changes one copy of the superblock.
    pub(super) fn apply(&self, sb: &mut Superblock) {
        self.features(sb);
        self.names(sb);
        self.checks(sb);
        if let Some(bits) = self.mount_options {
            sb.default_mount_opts.set(bits);
        }
        if let Some(text) = &self.mount_text {
            put(&mut sb.mount_opts, text);
        }
        if let Some(blocks) = self.reserved {
            sb.set_reserved_blocks_count(blocks);
        }
        if let Some(user) = self.user {
            sb.def_resuid.set(must_fit(user & 0xffff));
            sb.def_resuid_hi.set(must_fit(user >> 16));
        }
        if let Some(group) = self.group {
            sb.def_resgid.set(must_fit(group & 0xffff));
            sb.def_resgid_hi.set(must_fit(group >> 16));
        }
        if let Some(blocks) = self.stride {
            sb.raid_stride.set(blocks);
        }
        if let Some(blocks) = self.stripe_width {
            sb.raid_stripe_width.set(blocks);
        }
        if let Some(seconds) = self.mmp_interval {
            sb.mmp_interval.set(seconds);
        }
    }

    fn features(&self, sb: &mut Superblock) {
        let mut features = sb.features();
        if self.set.has(Incompat::CSUM_SEED) && !features.has(Incompat::CSUM_SEED) {
            sb.checksum_seed.set(checksum::csum(checksum::START, &sb.uuid));
        }
        if self.clear.has(Incompat::CSUM_SEED) {
            sb.checksum_seed.set(0);
        }
        for (list, on) in [(self.set, true), (self.clear, false)] {
            features.set(list.compat, on);
            features.set(list.incompat, on);
            features.set(list.ro_compat, on);
        }
        if self.set != Features::EMPTY {
            sb.become_dynamic();
        }
        sb.set_features(features);
        if let Some(hash) = self.hash {
            sb.def_hash_version = hash;
        }
        if let Some(seed) = self.hash_seed {
            let (words, _) = seed.as_bytes().as_chunks::<4>();
            for (to, from) in sb.hash_seed.iter_mut().zip(words) {
                *to = (*from).into();
            }
        }
    }

    fn names(&self, sb: &mut Superblock) {
        if let Some(label) = &self.label {
            sb.set_label_bytes(label);
        }
        if let Some(dir) = &self.last_mounted {
            put(&mut sb.last_mounted, dir);
        }
        if let Some(uuid) = self.uuid {
            sb.uuid = *uuid.as_bytes();
        }
    }

    fn checks(&self, sb: &mut Superblock) {
        if let Some(count) = self.most_mounts {
            sb.max_mnt_count.set(count);
        }
        if let Some(count) = self.mounts {
            sb.mnt_count.set(count);
        }
        if let Some(seconds) = self.interval {
            sb.checkinterval.set(seconds);
        }
        if let Some(at) = self.checked {
            sb.set_checked_at(at);
        }
        if let Some(what) = self.on_error {
            sb.errors.set(what);
        }
        if self.force_check {
            sb.state.set(sb.state.get() | state::ERROR);
        }
        match self.test_fs {
            Some(true) => sb.flags.set(sb.flags.get() | flags::TEST_FILESYS),
            Some(false) => sb.flags.set(sb.flags.get() & !flags::TEST_FILESYS),
            None => {}
        }
    }
}

fn bad(what: &str, text: &str) -> Wrong {
    Wrong::Value(format!("bad {what} - {}", show::line(text)))
}

/// `-c`: mounts after which a check is due.
pub(super) fn most_mounts(text: &str) -> Result<u16, Wrong> {
    const LEAST: u16 = 20;
    if text == "random" {
        let [random, ..] = Uuid::new_v4().into_bytes();
        return Ok(LEAST + u16::from(random) % LEAST);
    }
    let count = text.parse::<i32>().ok().filter(|count| (-1..=16_000).contains(count));
    let count = count.ok_or_else(|| bad("mounts count", text))?;
    // Zero is stored as -1: no check is due.
    Ok(u16::try_from(count).ok().filter(|count| *count > 0).unwrap_or(u16::MAX))
}

/// `-C`: mounts since the last check.
pub(super) fn mounts(text: &str) -> Result<u16, Wrong> {
    let count = text.parse::<u16>().ok().filter(|count| *count <= 16_000);
    count.ok_or_else(|| bad("mounts count", text))
}

/// `-i`: seconds of a number of days, or of the unit that follows.
pub(super) fn interval(text: &str) -> Result<u32, Wrong> {
    const DAY: u32 = 86_400;
    let digits = text.trim_end_matches(|letter: char| letter.is_ascii_alphabetic());
    let unit = match text[digits.len()..].to_ascii_lowercase().as_str() {
        "s" => 1,
        "" | "d" => DAY,
        "w" => 7 * DAY,
        "m" => 30 * DAY,
        _ => return Err(bad("interval", text)),
    };
    let seconds = digits.parse::<u32>().ok().and_then(|count| count.checked_mul(unit));
    seconds.ok_or_else(|| bad("interval", text))
}

/// `-T`: a time in UTC.
pub(super) fn checked(text: &str) -> Result<u64, Wrong> {
    let wrong =
        || Wrong::Value(format!("Couldn't parse date/time specifier: {}", show::line(text)));
    if text == "now" {
        return Ok(nextent_sync::unix_time().as_secs());
    }
    let digits = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    if !digits || !matches!(text.len(), 8 | 10 | 12 | 14) {
        return Err(wrong());
    }
    let all = format!("{text:0<14}");
    let (day, clock) = (&all[..8], &all[8..]);
    let date = format!(
        "{}-{}-{}T{}:{}:{}",
        &day[..4],
        &day[4..6],
        &day[6..],
        &clock[..2],
        &clock[2..4],
        &clock[4..]
    );
    match super::super::date::date(&date) {
        Some(nextent::inodes::SetTime::At(time)) => {
            u64::try_from(time.seconds).map_err(|_| wrong())
        }
        _ => Err(wrong()),
    }
}

/// `-m`: the percentage, and the reserved blocks of so many.
pub(super) fn percentage(text: &str, blocks: u64) -> Result<(f64, u64), Wrong> {
    let percent = text.parse::<f64>().ok().filter(|percent| (0.0..=50.0).contains(percent));
    let percent = percent.ok_or_else(|| bad("reserved block ratio", text))?;
    // Half of the blocks at most, so that the number is exact enough and fits.
    let exact = percent * blocks as f64 / 100.0;
    Ok((percent, nextent_num::whole_part(exact)))
}

/// `-r`: reserved blocks.
pub(super) fn reserved(text: &str, blocks: u64) -> Result<u64, Wrong> {
    let count = text.parse::<u64>().map_err(|_| bad("reserved blocks count", text))?;
    if count > blocks / 2 {
        return Err(Wrong::Plain(format!("reserved blocks count is too big ({count})")));
    }
    Ok(count)
}

/// `-e`: the reaction to errors.
pub(super) fn on_error(text: &str) -> Result<u16, Wrong> {
    use nextent_ondisk::superblock::on_error;
    match text {
        "continue" => Ok(on_error::CONTINUE),
        "remount-ro" => Ok(on_error::READ_ONLY),
        "panic" => Ok(on_error::PANIC),
        _ => Err(bad("error behavior", text)),
    }
}

/// `-u` and `-g`: a number or a name.
pub(super) fn owner(what: &str, text: &str, find: fn(&str) -> Option<u32>) -> Result<u32, Wrong> {
    find(text).ok_or_else(|| bad(what, text))
}

/// `-L`: the label, cut to its field; whether it was cut.
pub(super) fn label(text: &[u8]) -> (Vec<u8>, bool) {
    let len = text.len().min(MAX_LABEL);
    (text[..len].to_vec(), len < text.len())
}

/// Whether checksums depend on the UUID of a volume that gets the features `set`.
pub(super) fn seeds_checksums(sb: &Superblock, set: Features) -> bool {
    let gets_seed = set.has(Incompat::CSUM_SEED) && sb.features().metadata_csum();
    nextent::uuid_seeds_checksums(sb) && !gets_seed
}

/// `-U`: the UUID, if the volume may have another one. `set` are features that it gets.
pub(super) fn uuid(text: &str, sb: &Superblock, set: Features) -> Result<Uuid, Wrong> {
    use nextent_ondisk::Compat;
    let uuid = crate::commands::mkfs::values::uuid(text);
    let uuid = uuid.map_err(|_| Wrong::Plain("Invalid UUID format\n".into()))?;
    let features = sb.features();
    if uuid.as_bytes() == &sb.uuid {
        return Ok(uuid);
    }
    if features.has(Compat::STABLE_INODES) || set.has(Compat::STABLE_INODES) {
        let text = "Cannot change the UUID of this filesystem because it has the stable_inodes \
                    feature flag.";
        return Err(Wrong::Raw(text.into()));
    }
    if features.has(Compat::HAS_JOURNAL) && sb.journal_inum.get() == 0 {
        let text = "-U is not supported with an external journal, which lists the UUID";
        return Err(Wrong::Plain(text.into()));
    }
    if seeds_checksums(sb, set) && !features.has(Compat::HAS_JOURNAL) {
        let text = "-U is not supported without a journal: all checksums depend on the UUID. \
                    If you only use kernels newer than v4.4, add -O metadata_csum_seed.";
        return Err(Wrong::Plain(text.into()));
    }
    Ok(uuid)
}
