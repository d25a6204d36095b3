//! The fields of the superblock. Order and widths are those of the format.

use zerocopy::little_endian::{U16, U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

/// The superblock as stored: little endian, any value allowed.
///
/// Field names are those of the documentation without `s_`. Numbers that are split into two fields
/// have accessors in the parent module.
#[derive(Clone, Debug, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
pub struct Superblock {
    /// `0x0` Inodes of the volume.
    pub inodes_count: U32,
    /// `0x4` Blocks of the volume, low half; see [`Superblock::blocks_count`].
    pub blocks_count_lo: U32,
    /// `0x8` Reserved blocks, low half.
    pub r_blocks_count_lo: U32,
    /// `0xc` Free blocks, low half.
    pub free_blocks_count_lo: U32,
    /// `0x10` Free inodes as of the last write of the superblock.
    pub free_inodes_count: U32,
    /// `0x14` The block where group 0 starts.
    pub first_data_block: U32,
    /// `0x18` The block size is 1024 shifted left by this.
    pub log_block_size: U32,
    /// `0x1c` The cluster size is 1024 shifted left by this.
    pub log_cluster_size: U32,
    /// `0x20` Blocks in each group but the last.
    pub blocks_per_group: U32,
    /// `0x24` Clusters in each group but the last.
    pub clusters_per_group: U32,
    /// `0x28` Inodes in each group.
    pub inodes_per_group: U32,
    /// `0x2c` Last mount, low 32 bits.
    pub mtime: U32,
    /// `0x30` Last write of the superblock, low 32 bits.
    pub wtime: U32,
    /// `0x34` Mounts since the last check.
    pub mnt_count: U16,
    /// `0x36` Mounts after which a check is due.
    pub max_mnt_count: U16,
    /// `0x38` [`SUPER_MAGIC`](super::SUPER_MAGIC).
    pub magic: U16,
    /// `0x3a` See [`state`](super::state).
    pub state: U16,
    /// `0x3c` See [`on_error`](super::on_error).
    pub errors: U16,
    /// `0x3e` Minor revision.
    pub minor_rev_level: U16,
    /// `0x40` Last check, low 32 bits.
    pub lastcheck: U32,
    /// `0x44` Seconds after which a check is due.
    pub checkinterval: U32,
    /// `0x48` See [`creator`](super::creator).
    pub creator_os: U32,
    /// `0x4c` Revision, see [`REV_DYNAMIC`](super::REV_DYNAMIC).
    pub rev_level: U32,
    /// `0x50` User of the reserved blocks, low half.
    pub def_resuid: U16,
    /// `0x52` Group of the reserved blocks, low half.
    pub def_resgid: U16,
    /// `0x54` First inode that is not reserved.
    pub first_ino: U32,
    /// `0x58` Bytes of an inode.
    pub inode_size: U16,
    /// `0x5a` Group that holds this copy.
    pub block_group_nr: U16,
    /// `0x5c` See [`Compat`](crate::Compat).
    pub feature_compat: U32,
    /// `0x60` See [`Incompat`](crate::Incompat).
    pub feature_incompat: U32,
    /// `0x64` See [`RoCompat`](crate::RoCompat).
    pub feature_ro_compat: U32,
    /// `0x68` UUID of the volume.
    pub uuid: [u8; 16],
    /// `0x78` Label.
    pub volume_name: [u8; 16],
    /// `0x88` Directory of the last mount.
    pub last_mounted: [u8; 64],
    /// `0xc8` Compression algorithms; unused.
    pub algorithm_usage_bitmap: U32,
    /// `0xcc` Blocks to preallocate for files; unused.
    pub prealloc_blocks: u8,
    /// `0xcd` Blocks to preallocate for directories; unused.
    pub prealloc_dir_blocks: u8,
    /// `0xce` Blocks reserved after the descriptors for their growth.
    pub reserved_gdt_blocks: U16,
    /// `0xd0` UUID of an external journal.
    pub journal_uuid: [u8; 16],
    /// `0xe0` Inode of the journal.
    pub journal_inum: U32,
    /// `0xe4` Device number of an external journal.
    pub journal_dev: U32,
    /// `0xe8` Head of the list of orphans.
    pub last_orphan: U32,
    /// `0xec` Seed of directory hashes.
    pub hash_seed: [U32; 4],
    /// `0xfc` Hash of new directories, see [`HashVersion`](crate::htree::HashVersion).
    pub def_hash_version: u8,
    /// `0xfd` 1 when `jnl_blocks` is a copy of the journal inode's block map.
    pub jnl_backup_type: u8,
    /// `0xfe` Bytes of a group descriptor with `64bit`.
    pub desc_size: U16,
    /// `0x100` See [`mount_opts`](super::mount_opts).
    pub default_mount_opts: U32,
    /// `0x104` First meta group when `meta_bg` is set.
    pub first_meta_bg: U32,
    /// `0x108` Creation, low 32 bits.
    pub mkfs_time: U32,
    /// `0x10c` Copy of the journal inode's `i_block`, then its size (high, low).
    pub jnl_blocks: [U32; 17],
    /// `0x150` Blocks of the volume, high half.
    pub blocks_count_hi: U32,
    /// `0x154` Reserved blocks, high half.
    pub r_blocks_count_hi: U32,
    /// `0x158` Free blocks, high half.
    pub free_blocks_count_hi: U32,
    /// `0x15c` Bytes past 128 that every inode uses.
    pub min_extra_isize: U16,
    /// `0x15e` Bytes past 128 that new inodes use.
    pub want_extra_isize: U16,
    /// `0x160` See [`flags`](super::flags).
    pub flags: U32,
    /// `0x164` Blocks read or written to one disk before the next.
    pub raid_stride: U16,
    /// `0x166` Seconds between heartbeats.
    pub mmp_interval: U16,
    /// `0x168` Block of the heartbeat.
    pub mmp_block: U64,
    /// `0x170` Blocks of a whole stripe.
    pub raid_stripe_width: U32,
    /// `0x174` A flex group has this power of two of groups.
    pub log_groups_per_flex: u8,
    /// `0x175` 1 for crc32c.
    pub checksum_type: u8,
    /// `0x176` Version of the encryption format; unused.
    pub encryption_level: u8,
    /// `0x177` Zero.
    pub reserved_pad: u8,
    /// `0x178` KiB written over the volume's life.
    pub kbytes_written: U64,
    /// `0x180` Snapshots were never merged.
    pub snapshot_inum: U32,
    /// `0x184` Snapshots were never merged.
    pub snapshot_id: U32,
    /// `0x188` Snapshots were never merged.
    pub snapshot_r_blocks_count: U64,
    /// `0x190` Snapshots were never merged.
    pub snapshot_list: U32,
    /// `0x194` Errors since the last check.
    pub error_count: U32,
    /// `0x198` First error, low 32 bits of its time.
    pub first_error_time: U32,
    /// `0x19c` First error, its inode.
    pub first_error_ino: U32,
    /// `0x1a0` First error, its block.
    pub first_error_block: U64,
    /// `0x1a8` First error, where in the program.
    pub first_error_func: [u8; 32],
    /// `0x1c8` First error, the line there.
    pub first_error_line: U32,
    /// `0x1cc` Last error, low 32 bits of its time.
    pub last_error_time: U32,
    /// `0x1d0` Last error, its inode.
    pub last_error_ino: U32,
    /// `0x1d4` Last error, the line in the program.
    pub last_error_line: U32,
    /// `0x1d8` Last error, its block.
    pub last_error_block: U64,
    /// `0x1e0` Last error, where in the program.
    pub last_error_func: [u8; 32],
    /// `0x200` Mount options as text.
    pub mount_opts: [u8; 64],
    /// `0x240` Inode of the user quota file.
    pub usr_quota_inum: U32,
    /// `0x244` Inode of the group quota file.
    pub grp_quota_inum: U32,
    /// `0x248` Clusters that hold fixed metadata; 0 when not computed.
    pub overhead_clusters: U32,
    /// `0x24c` Groups with backups when `sparse_super2` is set.
    pub backup_bgs: [U32; 2],
    /// `0x254` Encryption algorithms in use.
    pub encrypt_algos: [u8; 4],
    /// `0x258` Salt of the string-to-key function.
    pub encrypt_pw_salt: [u8; 16],
    /// `0x268` Inode of `lost+found`.
    pub lpf_ino: U32,
    /// `0x26c` Inode of the project quota file.
    pub prj_quota_inum: U32,
    /// `0x270` Seed of checksums when `metadata_csum_seed` is set.
    pub checksum_seed: U32,
    /// `0x274` Last write, bits 32 to 39.
    pub wtime_hi: u8,
    /// `0x275` Last mount, bits 32 to 39.
    pub mtime_hi: u8,
    /// `0x276` Creation, bits 32 to 39.
    pub mkfs_time_hi: u8,
    /// `0x277` Last check, bits 32 to 39.
    pub lastcheck_hi: u8,
    /// `0x278` First error, bits 32 to 39 of its time.
    pub first_error_time_hi: u8,
    /// `0x279` Last error, bits 32 to 39 of its time.
    pub last_error_time_hi: u8,
    /// `0x27a` First error, its code, see [`error_code`](super::error_code).
    pub first_error_errcode: u8,
    /// `0x27b` Last error, its code.
    pub last_error_errcode: u8,
    /// `0x27c` Character set of `casefold` directories; 1 is UTF-8 12.1.
    pub encoding: U16,
    /// `0x27e` 1: names must be valid in the character set.
    pub encoding_flags: U16,
    /// `0x280` Inode of the orphan file.
    pub orphan_file_inum: U32,
    /// `0x284` User of the reserved blocks, high half.
    pub def_resuid_hi: U16,
    /// `0x286` Group of the reserved blocks, high half.
    pub def_resgid_hi: U16,
    /// `0x288` Zero.
    pub reserved: [U32; 93],
    /// `0x3fc` crc32c of all bytes before.
    pub checksum: U32,
}

// These sizes and offsets are the format; an edit must not move a field.
const _: () = {
    assert!(size_of::<Superblock>() == 1024);
    assert!(align_of::<Superblock>() == 1);
    assert!(std::mem::offset_of!(Superblock, magic) == 0x38);
    assert!(std::mem::offset_of!(Superblock, uuid) == 0x68);
    assert!(std::mem::offset_of!(Superblock, hash_seed) == 0xec);
    assert!(std::mem::offset_of!(Superblock, jnl_blocks) == 0x10c);
    assert!(std::mem::offset_of!(Superblock, mmp_block) == 0x168);
    assert!(std::mem::offset_of!(Superblock, error_count) == 0x194);
    assert!(std::mem::offset_of!(Superblock, mount_opts) == 0x200);
    assert!(std::mem::offset_of!(Superblock, checksum_seed) == 0x270);
    assert!(std::mem::offset_of!(Superblock, orphan_file_inum) == 0x280);
    assert!(std::mem::offset_of!(Superblock, checksum) == 0x3fc);
};
