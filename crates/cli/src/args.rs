//! The command line.

use crate::commands::length::Length;
use crate::size;
use crate::target::{self, ImageSpec};
use clap::{Args as ClapArgs, Parser, Subcommand};
use std::ffi::OsString;

/// Make, read, change, check and mount ext4 images, without root.
///
/// A path inside an image is written IMAGE:/path; IMAGE@2 is a partition of a disk image. Sizes
/// accept the suffixes k, m, g and t. `nextent COMMAND --help` describes a command.
#[derive(Debug, Parser)]
#[command(name = "nextent", version, max_term_width = 100, subcommand_required = true)]
#[command(arg_required_else_help = true, args_override_self = true)]
#[command(after_long_help = target::HELP)]
pub(crate) struct Args {
    #[command(subcommand)]
    pub(crate) command: Command,
}

/// What to do.
#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Make an ext2, ext3 or ext4 file system, with mke2fs's options
    Mkfs(Box<crate::commands::mkfs::Args>),
    /// Mount an image over FUSE; returns once it is mounted
    #[cfg(all(feature = "mount", target_os = "linux"))]
    Mount(crate::commands::mount::Args),
    /// Unmount a directory; returns once its image is closed and durable
    #[cfg(all(feature = "mount", target_os = "linux"))]
    Umount(crate::commands::mount::UmountArgs),
    /// Show what a mount does: operations, latencies, caches, commits, errors
    #[cfg(all(feature = "mount", target_os = "linux"))]
    Status(crate::commands::status::Args),
    /// Serve an image to other programs, over NBD
    #[cfg(all(feature = "mount", target_os = "linux"))]
    Serve(crate::commands::serve::Args),
    /// Check an image and replay its journal; exit codes of fsck(8)
    Fsck(crate::commands::fsck::Args),
    /// Change what a superblock says, with tune2fs's options
    Tune(Box<crate::commands::tune::Args>),
    /// Grow or shrink a volume, also grow one that the kernel has mounted
    ///
    /// A regular file becomes as long as the volume if a size is given. The volume is checked
    /// before blocks or inodes move. A crash leaves a volume of the old or of the new size, perhaps
    /// with blocks that `e2fsck -p` frees.
    Resize(crate::commands::resize::Args),
    /// Show the superblock of an image and how fragmented its free space is, or a disk's partitions
    Info(crate::commands::info::Args),
    /// Copy into, out of, between or within images
    Cp(crate::commands::cp::Args),
    /// Stream a tree of an image as tar to stdout, or from stdin into an image
    Tar(crate::commands::tar::Args),
    /// List a directory, or show one entry
    Ls(Ls),
    /// Show a directory and everything below it
    Tree(Tree),
    /// Write a file's contents to stdout
    Cat(Paths),
    /// Show attributes, times and extents of files
    Stat(Stat),
    /// Make directories
    Mkdir(Mkdir),
    /// Remove files, and directories with -r
    Rm(Rm),
    /// Move or rename within an image
    Mv(Mv),
    /// Make a hard link, or a symbolic one with -s
    Ln(Ln),
    /// Change permission bits
    Chmod(Chmod),
    /// Change owner and group
    Chown(Chown),
    /// Set the length of files
    Truncate(Truncate),
    /// Allocate, punch, zero, collapse or insert a range of a file
    Fallocate(Fallocate),
    /// Set times of files; make empty files where there are none
    ///
    /// A DATE is `now`, `@SECONDS`, or a date of ISO 8601: 2026-01-31, or with a time and an offset
    /// 2026-01-31T23:59:59.5+01:00. Without an offset it is UTC, as is a STAMP.
    Touch(crate::commands::touch::Args),
    /// Make a device node or a named pipe
    ///
    /// Numbers are decimal, octal after 0, or hexadecimal after 0x.
    Mknod(crate::commands::mknod::Args),
    /// Show names or values of extended attributes
    ///
    /// Without -d and -n it shows the names. Text, `0x` with hexadecimal digits and `0s` with
    /// base64 are the forms of getfattr(1).
    Getxattr(crate::commands::xattr::Get),
    /// Set or remove an extended attribute
    ///
    /// NAME has its namespace: user., trusted., security., or system.posix_acl_access and
    /// system.posix_acl_default. VALUE is text, `0x` and hexadecimal digits, or `0s` and base64. In
    /// a VALUE in double quotes `\\`, `\"` and `\` with three octal digits are escapes.
    Setxattr(crate::commands::xattr::Set),
    /// Change an image by a script, with one open and one close
    ///
    /// Each line of the script is a verb with its arguments; a verb has the options of the command
    /// with its name. Paths inside the image begin with a slash. The first line that fails ends the
    /// script; the lines before it stay done, unless all changes are to be done or none. A message
    /// names script and line.
    Edit(crate::commands::edit::Args),
    /// Compare two trees, of images or of the host; exit code 1 if they differ
    ///
    /// It compares names, kinds, contents, targets, devices, modes, owners, times of the last
    /// change, extended attributes, and which names are one file. Exit code 0 stands for no
    /// difference, 1 for differences, 2 for trouble.
    Diff(crate::commands::diff::Args),
    /// Bring a directory of an image to a directory of the host, writing only what differs
    ///
    /// As `rsync -aHAX --delete SOURCE/ DIR/`: afterwards DIR has the entries of SOURCE, with the
    /// same types, contents, modes, owners, times of the last change, hard links, devices, access
    /// lists and extended attributes, and no others, except lost+found of the image. A slash after
    /// SOURCE or DIR changes nothing. DIR is made if only its last name is missing; links to it are
    /// followed.
    ///
    /// Files of the same length and time are taken as equal. Others are compared byte by byte; if
    /// only the time differs, only the time is written. A file with other contents is written anew
    /// and then takes the place of the old one. So after a crash each file is the old one or the
    /// new one, and the volume needs room for both. Entries that SOURCE lacks are removed last, or
    /// earlier if the volume is full; and not at all if anything failed.
    ///
    /// The last line says how many blocks were written, those of the journal included. Without a
    /// difference nothing is written, not even a superblock.
    Sync(crate::commands::sync::Args),
    /// Punch holes into the image for free blocks, or discard them
    ///
    /// Options are those of fstrim(8). Blocks that the volume has freed are discarded once that is
    /// durable. The number of bytes counts all free runs, also those that were holes before.
    Trim(crate::commands::trim::Args),
    /// Write the data of an overlay into its base, and empty its delta
    ///
    /// Afterwards BASE reads as the overlay did. All other deltas of BASE then refuse it: give them
    /// another base before. A commit that was interrupted is completed by the next one; until then
    /// the overlay can be read, but not changed.
    CommitOverlay(crate::commands::overlay::Commit),
    /// Put an overlay on another base; it reads the same
    ///
    /// What differs between the two bases is copied into the delta. Afterwards the overlay is
    /// overlay:NEWBASE+DELTA. A base that was only moved or copied needs no rebase.
    Rebase(crate::commands::overlay::Rebase),
    /// Recover the journal, as a mount would
    Replay(Replay),
}

/// Paths inside images.
#[derive(Debug, ClapArgs)]
pub(crate) struct Paths {
    /// A path inside an image
    #[arg(required = true, value_name = "IMAGE:/PATH")]
    pub(crate) paths: Vec<OsString>,
}

#[derive(Debug, ClapArgs)]
pub(crate) struct Ls {
    /// Show mode, links, owner, group, size and time
    #[arg(short, long)]
    pub(crate) long: bool,
    /// Show names that begin with a dot
    #[arg(short, long)]
    pub(crate) all: bool,
    /// Show inode numbers
    #[arg(short, long)]
    pub(crate) inode: bool,
    /// Show directories themselves, not their entries
    #[arg(short, long)]
    pub(crate) directory: bool,
    /// Print JSON
    #[arg(long)]
    pub(crate) json: bool,
    #[command(flatten)]
    pub(crate) paths: Paths,
}

#[derive(Debug, ClapArgs)]
pub(crate) struct Tree {
    /// Levels to descend
    #[arg(short = 'L', long, value_name = "N")]
    pub(crate) level: Option<usize>,
    /// Print JSON
    #[arg(long)]
    pub(crate) json: bool,
    #[command(flatten)]
    pub(crate) paths: Paths,
}

#[derive(Debug, ClapArgs)]
pub(crate) struct Stat {
    /// Print JSON
    #[arg(long)]
    pub(crate) json: bool,
    #[command(flatten)]
    pub(crate) paths: Paths,
}

#[derive(Debug, ClapArgs)]
pub(crate) struct Mkdir {
    /// Make missing parents, too; an existing directory is not an error
    #[arg(short, long)]
    pub(crate) parents: bool,
    /// Permission bits, octal or symbolic
    #[arg(short, long, allow_hyphen_values = true)]
    pub(crate) mode: Option<String>,
    #[command(flatten)]
    pub(crate) paths: Paths,
}

#[derive(Debug, ClapArgs)]
pub(crate) struct Rm {
    /// Remove directories and their contents
    #[arg(short, short_alias = 'R', long)]
    pub(crate) recursive: bool,
    /// Remove empty directories
    #[arg(short, long)]
    pub(crate) dir: bool,
    /// A missing file is not an error
    #[arg(short, long)]
    pub(crate) force: bool,
    #[command(flatten)]
    pub(crate) paths: Paths,
}

#[derive(Debug, ClapArgs)]
pub(crate) struct Mv {
    /// Do not replace an existing file
    #[arg(short, long, conflicts_with = "exchange")]
    pub(crate) no_clobber: bool,
    /// Exchange the two names
    #[arg(long)]
    pub(crate) exchange: bool,
    /// Sources, then the target
    #[arg(required = true, num_args = 2.., value_name = "IMAGE:/PATH")]
    pub(crate) paths: Vec<OsString>,
}

#[derive(Debug, ClapArgs)]
pub(crate) struct Ln {
    /// Make a symbolic link to TARGET
    #[arg(short, long)]
    pub(crate) symbolic: bool,
    /// Existing file (or the target of a symbolic link)
    pub(crate) target: OsString,
    /// New name
    #[arg(value_name = "IMAGE:/PATH")]
    pub(crate) link: OsString,
}

#[derive(Debug, ClapArgs)]
pub(crate) struct Chmod {
    /// Descend into directories
    #[arg(short = 'R', long)]
    pub(crate) recursive: bool,
    /// Octal (755) or symbolic (u+x,go-w)
    #[arg(allow_hyphen_values = true)]
    pub(crate) mode: String,
    #[command(flatten)]
    pub(crate) paths: Paths,
}

#[derive(Debug, ClapArgs)]
#[command(disable_help_flag = true)]
pub(crate) struct Chown {
    /// Descend into directories
    #[arg(short = 'R', long)]
    pub(crate) recursive: bool,
    /// Change a symbolic link itself
    #[arg(short = 'h', long)]
    pub(crate) no_dereference: bool,
    /// Print help
    #[arg(long, action = clap::ArgAction::Help)]
    pub(crate) help: Option<bool>,
    /// UID, UID:GID or :GID, as numbers or as names of this machine
    pub(crate) owner: String,
    #[command(flatten)]
    pub(crate) paths: Paths,
}

#[derive(Debug, ClapArgs)]
pub(crate) struct Truncate {
    /// New length; with +, -, <, >, / or % before it: longer by, shorter by, at most, at least,
    /// rounded down or up to a multiple of SIZE
    #[arg(short, long, allow_hyphen_values = true, value_name = "[+-<>/%]SIZE")]
    pub(crate) size: Length,
    /// Do not create missing files
    #[arg(short = 'c', long)]
    pub(crate) no_create: bool,
    #[command(flatten)]
    pub(crate) paths: Paths,
}

#[derive(Debug, ClapArgs)]
pub(crate) struct Fallocate {
    /// Length of the range
    #[arg(short, long, value_parser = size::bytes)]
    pub(crate) length: u64,
    /// Start of the range
    #[arg(short, long, default_value = "0", value_parser = size::bytes)]
    pub(crate) offset: u64,
    /// Keep the file's length
    #[arg(short = 'n', long)]
    pub(crate) keep_size: bool,
    /// Free the range; it becomes a hole
    #[arg(short, long, group = "mode")]
    pub(crate) punch_hole: bool,
    /// Allocate the range and make it read as zeros
    #[arg(short, long, group = "mode")]
    pub(crate) zero_range: bool,
    /// Remove the range; the data after it moves down
    #[arg(short, long, group = "mode")]
    pub(crate) collapse_range: bool,
    /// Insert a hole; the data after it moves up
    #[arg(short, long, group = "mode")]
    pub(crate) insert_range: bool,
    #[command(flatten)]
    pub(crate) paths: Paths,
}

#[derive(Debug, ClapArgs)]
pub(crate) struct Replay {
    /// The image
    #[arg(value_hint = clap::ValueHint::FilePath)]
    pub(crate) image: ImageSpec,
    /// Print JSON
    #[arg(long)]
    pub(crate) json: bool,
}
