//! Converts the arguments of `mkfs` to the engine's options.

use super::values;
use super::{Args, Front};
use crate::size::Size;
use nextent::mkfs::{ExtendedOptions, MkfsOptions, Owner, Usage};
use uuid::Uuid;

/// The unit of SIZE without a suffix and without `-b`.
const SIZE_UNIT: u64 = 1024;

/// The accepted keys, for `--help` and the manual.
pub(super) const HELP: &str = "\
Keys of -E:

  stride=BLOCKS, stripe_width=BLOCKS
                        blocks on each disk of a RAID, and on all its data disks
  resize=BLOCKS         reserve space to grow to so many blocks
  lazy_itable_init=0|1, lazy_journal_init=0|1
                        leave inode tables, or the journal, for the kernel to zero
  hash_seed=UUID        seed of the hashes of names
  root_owner[=UID:GID]  owner of the root directory; without a value, the calling user
  root_perms[=OCTAL]    permission bits of the root directory; without a value, by the umask
  no_copy_xattrs        leave out the extended attributes of -d
  discard, nodiscard    whether the device is discarded first (default: discard)
  assume_storage_prezeroed=0|1
                        the device reads as zeros, so zeros need not be written
  num_backup_sb=0|1|2   backups of the superblock with sparse_super2
  packed_meta_blocks=0|1
                        bitmaps, tables and journal at the start of the volume
  orphan_file_size=SIZE size of the orphan file
  mmp_update_interval=SECONDS
                        time between heartbeats with mmp, at most 300 (default: 5)
  desc_size=BYTES       size of a group descriptor with 64bit
  test_fs               mark as a file system for tests
  offset=BYTES          where the file system starts in the image

Keys of -J:

  size=MIB              size of the journal; from 1024 to 10240000 blocks
  location=BLOCK        first block of the journal
  fast_commit_size=KIB  size of its area for fast commits

Size of the contents (--free, or -d without SIZE for a new image):

  The contents are measured before they are copied: a directory is walked twice, a tar file is
  read twice, and a stream is kept in a file without a name in the image's directory. A percentage
  is the part of all blocks of the finished image that is free; blocks reserved by -m are free.
  --free 0 leaves at most a few blocks. Without -b and -T, blocks have 4 KiB. Without -N there is
  an inode for each 16 KiB (or -i), but at least as many as the contents need and a tenth more;
  with --free 0, as many as they need.

Features of -O:

  has_journal, ext_attr, resize_inode, dir_index, sparse_super2, fast_commit, stable_inodes,
  orphan_file, filetype, meta_bg, extents, 64bit, flex_bg, metadata_csum_seed, sparse_super,
  large_file, huge_file, uninit_bg, dir_nlink, extra_isize, metadata_csum, verity; others are
  refused. With journal_dev, IMAGE becomes an external journal for volumes with blocks of the same
  size (-b). It has no contents, inodes and groups, so options about these have no effect.

Order of the options about owners:

  Each replaces what the earlier ones left: --owners with a state file of fakeroot (entries that
  are not in it belong to root, as fakeroot shows them); --owner, or --map-uid and --map-gid;
  --fs-config;
  --owners with a device table, whose last line about a file counts. -E root_owner replaces
  the root directory's owner before a table does. lost+found belongs to root unless a source or a
  table says otherwise. Numbers outside all ranges of a map are errors.

  A line of a device table is NAME TYPE MODE UID GID [MAJOR MINOR START INC COUNT]: f, d, c, b, p,
  s and l are the types; - stands for 0. Devices, pipes, sockets and directories that do not exist
  are made; others must exist. With a COUNT, devices NAMEstart to NAMEcount-1 are made.

  A line of an fs_config file is PATH UID GID MODE [capabilities=N] [selabel=CONTEXT], / for the
  root directory; entries without a line keep what they have.

  A line of a file_contexts file is EXPRESSION [TYPE] CONTEXT, with -- -d -l -c -b -p -s as types
  and <<none>> for no label. The last line that matches counts; those without special characters
  come before the others. Look-around and references in expressions are refused.
  FILE.homedirs, FILE.local, FILE.subs and FILE.subs_dist are read, too, where they exist.

Environment:

  SOURCE_DATE_EPOCH     seconds since 1970: the time of the file system and the latest time of files
                        that -d copies; with -U and -E hash_seed, equal contents make equal images";

/// The options, and the byte offset of the volume in the image.
pub(super) fn from(args: &Args) -> Result<(MkfsOptions, u64), String> {
    let block_size = args.block_size.map(|size| bytes(size, 1, "block size")).transpose()?;
    let unit = block_size.map_or(SIZE_UNIT, u64::from);
    let size = args.size.map(|size| size.bytes(unit).ok_or("the size is too large"));
    let mut options = MkfsOptions::default();
    options.size = size.transpose()?;
    options.fs_type = values::fs_type(&args.fs_type)?;
    options.usage = usages(&args.usage)?;
    options.block_size = block_size;
    options.inode_size = args.inode_size;
    options.bytes_per_inode = args
        .bytes_per_inode
        .map(|size| size.bytes(1).ok_or("the inode ratio is too large"))
        .transpose()?;
    options.inode_count = args.inodes;
    options.blocks_per_group = args.blocks_per_group;
    options.flex_groups = args.flex_groups;
    options.force_journal = args.journal;
    options.features = args.features.join(",");
    options.label = args.label.clone();
    options.last_mounted = args.last_mounted.clone();
    options.reserved_percent = args.reserved;
    options.creator_os = values::creator(&args.creator)?;
    options.uuid = Some(args.uuid.as_deref().map_or_else(|| Ok(Uuid::new_v4()), values::uuid)?);
    options.revision_0 = revision_0(args.revision)?;
    options.on_error = values::on_error(&args.on_error)?;
    options.clock = values::source_date_epoch()?;
    let block = block_size.map_or(SIZE_UNIT, u64::from);
    for text in &args.journal_options {
        values::journal(text, block, &mut options.journal)?;
    }
    let mut offset = 0;
    for text in &args.extended {
        values::extended(text, block, &mut options.extended, &mut offset)?;
    }
    if args.keep {
        options.extended.discard = false;
    }
    Ok((options, offset))
}

/// Completes the options of a file system of `bytes` as `front` does.
pub(super) fn complete(
    args: &Args,
    front: &dyn Front,
    options: &mut MkfsOptions,
    bytes: u64,
) -> Result<(), String> {
    let defaults = front.extended(options, bytes)?;
    let block = options.block_size.map_or(SIZE_UNIT, u64::from);
    options.extended = ExtendedOptions::default();
    for text in defaults.iter().chain(&args.extended) {
        values::extended(text, block, &mut options.extended, &mut 0)?;
    }
    options.extended.discard &= !args.keep;
    front.complete(options, bytes)
}

/// The owner of the root directory, if the user gave one.
pub(super) fn root_owner(args: &Args, options: &MkfsOptions) -> Option<Owner> {
    asked(args, "root_owner").then_some(options.extended.root_owner)
}

/// Whether the user gave a key of `-E`.
pub(super) fn asked(args: &Args, key: &str) -> bool {
    let mut words = args.extended.iter().flat_map(|list| list.split(','));
    words.any(|word| word.split('=').next().is_some_and(|given| given.trim() == key))
}

fn bytes(size: Size, unit: u64, what: &str) -> Result<u32, String> {
    let bytes = size.bytes(unit).and_then(|bytes| u32::try_from(bytes).ok());
    bytes.ok_or_else(|| format!("invalid {what}"))
}

fn usages(lists: &[String]) -> Result<Vec<Usage>, String> {
    lists.iter().flat_map(|list| list.split(',')).map(values::usage).collect()
}

fn revision_0(revision: u32) -> Result<bool, String> {
    match revision {
        0 => Ok(true),
        1 => Ok(false),
        _ => Err(format!("revision {revision} is unknown; there are 0 and 1")),
    }
}
