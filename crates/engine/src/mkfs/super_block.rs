//! The superblock of a new volume, before counts and inodes are known.

use nextent_num::must_fit;
use nextent_ondisk::superblock::{CHECKSUM_CRC32C, flags, on_error, state};
use nextent_ondisk::{Compat, GroupNo, Incompat, Superblock};

use super::options::{CreatorOs, MkfsOptions, NameHash, OnError};
use super::resolve::Resolved;

/// The time between periodic checks, in seconds: 180 days.
const CHECK_INTERVAL: u32 = 180 * 86_400;
/// The fewest mounts between periodic checks, and the range of random mounts more.
const CHECKED_MOUNTS: u16 = 20;
/// Bytes past the first 128 that every inode uses.
const EXTRA_ISIZE: u16 = 32;

fn creator(os: CreatorOs) -> u32 {
    match os {
        CreatorOs::Linux => 0,
        CreatorOs::Hurd => 1,
        CreatorOs::Masix => 2,
        CreatorOs::FreeBsd => 3,
        CreatorOs::Lites => 4,
    }
}

/// A superblock whose numbers and names are final, but not its counts.
pub(super) fn build(options: &MkfsOptions, resolved: &Resolved) -> Superblock {
    let mut sb = Superblock::empty();
    let extended = &options.extended;
    set_numbers(&mut sb, resolved);
    sb.set_written_at(resolved.clock);
    sb.set_checked_at(resolved.clock);
    set_checks(&mut sb, options, resolved);
    sb.state.set(state::VALID);
    sb.errors.set(match options.on_error {
        OnError::Continue => on_error::CONTINUE,
        OnError::ReadOnly => on_error::READ_ONLY,
        OnError::Panic => on_error::PANIC,
    });
    sb.creator_os.set(creator(options.creator_os));
    sb.uuid = *resolved.uuid.as_bytes();
    sb.set_label(&options.label);
    for (to, from) in sb.last_mounted.iter_mut().zip(options.last_mounted.bytes()) {
        *to = from;
    }
    set_hash(&mut sb, options.name_hash, resolved);
    sb.flags.set(flags::SIGNED_HASH | if extended.test_fs { flags::TEST_FILESYS } else { 0 });
    sb.first_ino.set(11);
    sb.inode_size.set(must_fit(resolved.inode_size));
    sb.set_made_at(resolved.clock);
    if options.revision_0 {
        sb.rev_level.set(0);
        return sb;
    }
    sb.set_features(resolved.shape.features);
    sb.reserved_gdt_blocks.set(must_fit(resolved.shape.reserved_gdt_blocks));
    sb.default_mount_opts.set(options.default_mount_options);
    if resolved.inode_size > 128 {
        sb.min_extra_isize.set(EXTRA_ISIZE);
        sb.want_extra_isize.set(EXTRA_ISIZE);
    }
    sb.raid_stride.set(must_fit(extended.stride));
    sb.raid_stripe_width.set(extended.stripe_width);
    sb.log_groups_per_flex = resolved.log_flex;
    set_optional(&mut sb, options, resolved);
    sb
}

fn set_numbers(sb: &mut Superblock, resolved: &Resolved) {
    let shape = &resolved.shape;
    sb.inodes_count.set(shape.inodes_count);
    sb.set_blocks_count(shape.blocks_count);
    sb.set_reserved_blocks_count(shape.reserved_blocks);
    sb.first_data_block.set(u32::from(resolved.block_size == 1024));
    sb.log_block_size.set(resolved.block_size.ilog2() - 10);
    sb.log_cluster_size.set(resolved.block_size.ilog2() - 10);
    sb.blocks_per_group.set(shape.blocks_per_group);
    sb.clusters_per_group.set(shape.blocks_per_group);
    sb.inodes_per_group.set(shape.inodes_per_group);
}

/// Sets when a check is due. The UUID spreads the checks of volumes that are mounted together.
fn set_checks(sb: &mut Superblock, options: &MkfsOptions, resolved: &Resolved) {
    sb.max_mnt_count.set(u16::MAX);
    if options.periodic_checks {
        let [.., last] = *resolved.uuid.as_bytes();
        sb.max_mnt_count.set(CHECKED_MOUNTS + u16::from(last) % CHECKED_MOUNTS);
        sb.checkinterval.set(CHECK_INTERVAL);
    }
}

fn set_hash(sb: &mut Superblock, hash: NameHash, resolved: &Resolved) {
    let (words, _) = resolved.hash_seed.as_bytes().as_chunks::<4>();
    for (to, from) in sb.hash_seed.iter_mut().zip(words) {
        *to = (*from).into();
    }
    sb.def_hash_version = match hash {
        NameHash::Legacy => 0,
        NameHash::HalfMd4 => 1,
        NameHash::Tea => 2,
    };
}

/// Fields that belong to features.
fn set_optional(sb: &mut Superblock, options: &MkfsOptions, resolved: &Resolved) {
    let features = resolved.shape.features;
    if features.has(Incompat::BIT64) {
        sb.desc_size.set(resolved.desc_size);
    }
    if features.metadata_csum() {
        sb.checksum_type = CHECKSUM_CRC32C;
    }
    if features.has(Incompat::CSUM_SEED) {
        let seed = nextent_ondisk::checksum::csum(!0, resolved.uuid.as_bytes());
        sb.checksum_seed.set(seed);
    }
    if features.has(Compat::SPARSE_SUPER2) {
        let last = resolved.shape.group_count - 1;
        let backups = match options.extended.backup_supers {
            0 => [0, 0],
            // A single backup is noted in the second place.
            2 if last > 1 => [1, last],
            _ => [0, last.min(1)],
        };
        for (to, group) in sb.backup_bgs.iter_mut().zip(backups) {
            to.set(group);
        }
    }
}

/// The bytes of the copy that `group` keeps.
pub(crate) fn copy_for(sb: &Superblock, group: GroupNo) -> Superblock {
    let mut copy = sb.clone();
    // The field has 16 bits; groups beyond are noted as the last it can name, as mke2fs does.
    copy.block_group_nr.set(must_fit(group.0.min(u32::from(u16::MAX))));
    // A copy is never known to be up to date.
    copy.state.set(copy.state.get() & !state::VALID);
    copy.seal();
    copy
}
