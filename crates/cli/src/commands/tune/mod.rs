//! `tune`: changes of a superblock, with tune2fs's options and texts.
//!
//! All options are checked before anything is written. Then the volume is opened, which replays its
//! journal, and the superblock changes in one transaction.

mod changes;
mod extended;
mod features;
mod inode_size;
mod journal;

use crate::e2fsprogs::{self, mount_options};
use crate::failure::{Context, Failure, Result, say};
use crate::image::{Image, Purpose, device};
use crate::show;
use crate::target::ImageSpec;
use changes::Changes;
use clap::Parser;
use nextent_image::accounts;
use nextent_ondisk::Superblock;
use std::ffi::OsString;
use std::os::unix::ffi::OsStrExt;
use std::process::ExitCode;

#[cfg(any(test, feature = "generate"))]
pub(crate) use extended::KEYS;

/// The accepted names, for `--help` and the manual.
const HELP: &str = "\
Keys of -E:

  stride=BLOCKS, stripe_width=BLOCKS
                        blocks on each disk of a RAID, and on all its data disks
  hash_alg=NAME         hash of names in new directories: legacy, half_md4 or tea
  mount_opts=TEXT       mount options that the kernel uses by default
  force_fsck            set the flag of an error, so that the next fsck checks everything
  test_fs, ^test_fs     mark as a file system for tests, or not
  mmp_update_interval=SECONDS
                        time between two heartbeats of multiple mount protection, up to 300
  clear_mmp             (with -f) give the volume back that a node had which has crashed

Features of -O:

  dir_index, fast_commit, filetype, metadata_csum_seed, large_file, huge_file, dir_nlink and
  extra_isize are set, and with ^ cleared; stable_inodes, extent, flex_bg, large_dir, encrypt,
  ea_inode and verity are only set. has_journal is the same as -j; ^has_journal removes the journal
  after a replay, unless the volume has orphan_file. After a change of filetype, and after
  large_file or huge_file is cleared, e2fsck -f must complete the change. Others are refused, unless
  the volume is already as asked for.

Where checksums depend on the UUID, -U checks the volume and computes all of them anew, as one
transaction: the volume must have a journal with room for all blocks that change. With -O
metadata_csum_seed in the same call, no checksum depends on the UUID. -I checks the volume, moves
files out of the way and writes new inode tables; times then reach beyond 2038. -Q is refused. An
image in use is refused. Times (-T) are in UTC: YYYYMMDD[HH[MM[SS]]] or now.";

/// tune2fs's options; tune2fs(8) describes them.
#[derive(Debug, Parser)]
#[command(about = "Change what a superblock says, with tune2fs's options")]
#[command(after_long_help = HELP)]
pub(crate) struct Args {
    /// The image
    #[arg(value_hint = clap::ValueHint::FilePath)]
    pub(crate) image: ImageSpec,
    /// Mounts after which a check is due; 0 or -1 for none; random
    #[arg(short = 'c', value_name = "COUNT", allow_hyphen_values = true)]
    most_mounts: Option<String>,
    /// Mounts since the last check
    #[arg(short = 'C', value_name = "COUNT", allow_hyphen_values = true)]
    mounts: Option<String>,
    /// What a kernel does on errors: continue, remount-ro or panic
    #[arg(short = 'e', value_name = "WHAT")]
    on_error: Option<String>,
    /// Extended options, separated by commas; --help lists the keys
    #[arg(short = 'E', value_name = "KEY=VALUE,...")]
    extended: Vec<String>,
    /// Allow -E clear_mmp
    #[arg(short = 'f', action = clap::ArgAction::Count)]
    force: u8,
    /// Group that may use reserved blocks
    #[arg(short = 'g', value_name = "GROUP")]
    group: Option<String>,
    /// Time between two checks: a number of days, or with d, w or m; 0 for none
    #[arg(short = 'i', value_name = "INTERVAL", allow_hyphen_values = true)]
    interval: Option<String>,
    /// Bytes of an inode, more than now
    #[arg(short = 'I', value_name = "BYTES")]
    inode_size: Option<String>,
    /// Add a journal
    #[arg(short = 'j')]
    journal: bool,
    /// Add a journal with these options, separated by commas: size=MIB
    #[arg(short = 'J', value_name = "KEY=VALUE,...")]
    journal_options: Vec<String>,
    /// Show the superblock, after the changes
    #[arg(short = 'l')]
    list: bool,
    /// Label, up to 16 bytes
    #[arg(short = 'L', value_name = "LABEL")]
    label: Option<OsString>,
    /// Percentage of blocks that only the user and the group of -u and -g may use
    #[arg(short = 'm', value_name = "PERCENT", allow_hyphen_values = true)]
    percentage: Option<String>,
    /// Directory to record as the last mount point
    #[arg(short = 'M', value_name = "DIR")]
    last_mounted: Option<OsString>,
    /// Mount options that are set by default, or with ^ not, separated by commas
    #[arg(short = 'o', value_name = "[^]OPTION,...", allow_hyphen_values = true)]
    mount_options: Vec<String>,
    /// Features to set, or with ^ to clear, separated by commas; --help lists them
    #[arg(short = 'O', value_name = "[^]FEATURE,...")]
    features: Vec<String>,
    /// The same as -m, as a number of blocks
    #[arg(short = 'r', value_name = "BLOCKS", allow_hyphen_values = true)]
    reserved: Option<String>,
    /// Time of the last check, in UTC
    #[arg(short = 'T', value_name = "TIME")]
    checked: Option<String>,
    /// User that may use reserved blocks
    #[arg(short = 'u', value_name = "USER")]
    user: Option<String>,
    /// UUID, or random, clear or time
    #[arg(short = 'U', value_name = "UUID")]
    uuid: Option<String>,
}

/// Why nothing was changed.
#[derive(Debug)]
pub(crate) enum Wrong {
    /// An option has a value that it cannot have.
    Value(String),
    /// A change is impossible or not supported.
    Plain(String),
    /// The same, with the lines that tune2fs prints without its name.
    Raw(String),
    /// A word of `-E` that is none, and the line about its value.
    Extended { word: String, line: Option<String> },
    /// The image cannot be read or changed.
    Failed(Failure),
}

impl From<Failure> for Wrong {
    fn from(failure: Failure) -> Self {
        Self::Failed(failure)
    }
}

/// What the arguments ask for.
#[derive(Debug, Default)]
struct Plan {
    changes: Changes,
    /// The lines about it.
    said: Vec<String>,
    needs_check: bool,
    clear_mmp: bool,
    list: bool,
    /// Add a journal of a size, or remove the journal.
    journal: Option<journal::Change>,
    inode_size: Option<u16>,
}

/// `nextent tune`.
pub(crate) fn run(args: &Args) -> Result<ExitCode> {
    let at = |text: &str| format!("tune {}: {text}", show::path(&args.image));
    let one_line = |text: &str| text.split_whitespace().collect::<Vec<_>>().join(" ");
    let volume = e2fsprogs::superblock(&args.image, None).map_err(Failure::new)?;
    match change(args, volume.superblock()) {
        Ok(()) => Ok(ExitCode::SUCCESS),
        Err(Wrong::Failed(failure)) => Err(failure),
        Err(Wrong::Value(text)) => Err(Failure::usage(at(&one_line(&text)))),
        Err(Wrong::Plain(text) | Wrong::Raw(text)) => Err(Failure::new(at(&one_line(&text)))),
        Err(Wrong::Extended { word, line }) => {
            let why = line.unwrap_or_else(|| "unknown, or with a value too many or none".into());
            Err(Failure::usage(at(&format!("-E {word}: {why}"))))
        }
    }
}

/// Changes the volume with superblock `sb` as the arguments ask for, and prints what they say.
pub(crate) fn change(args: &Args, sb: &Superblock) -> std::result::Result<(), Wrong> {
    let mut plan = Plan { list: args.list, ..Plan::default() };
    plan.add(args, sb)?;
    let writes = plan.writes(args);
    let other = plan.journal.is_some() || plan.inode_size.is_some();
    if !writes && !plan.list && !plan.clear_mmp && !other {
        return Err(Wrong::Value("nothing to change".into()));
    }
    if plan.clear_mmp {
        let device = device(&args.image, Purpose::Change)?;
        nextent::clear_mmp(&device, sb).context(|| args.image.to_string())?;
    }
    let seeds = changes::seeds_checksums(sb, plan.changes.set);
    let seed = plan.changes.uuid.take_if(|uuid| seeds && uuid.as_bytes() != &sb.uuid);
    if writes && (seed.is_none() || plan.writes_more(args)) {
        plan.write(&args.image, sb)?;
    }
    if let Some(uuid) = seed {
        let device = device(&args.image, Purpose::Change)?;
        let changed = nextent::change_uuid(&device, uuid.into_bytes());
        changed.context(|| format!("{}: UUID", args.image))?;
    }
    for line in &plan.said {
        print(line)?;
    }
    if let Some(change) = plan.journal {
        journal::apply(change, &args.image)?;
    }
    if let Some(size) = plan.inode_size {
        inode_size::apply(size, &args.image)?;
    }
    if plan.needs_check {
        print("\nPlease run e2fsck -f on the filesystem.\n")?;
    }
    if plan.list {
        print(&e2fsprogs::listing(&args.image)?)?;
    }
    Ok(())
}

/// Changes the label of the volume with superblock `sb`.
pub(crate) fn relabel(image: &ImageSpec, label: &[u8], sb: &Superblock) -> Result<()> {
    let changes = Changes { label: Some(label.to_vec()), ..Changes::default() };
    Plan { changes, ..Plan::default() }.write(image, sb)
}

fn print(line: &str) -> Result<()> {
    say!("{line}");
    Ok(())
}

impl Plan {
    /// Whether the superblock changes.
    fn writes(&self, args: &Args) -> bool {
        args.uuid.is_some() || self.writes_more(args)
    }

    /// Whether the superblock changes besides the UUID.
    fn writes_more(&self, args: &Args) -> bool {
        let given = [
            &args.most_mounts,
            &args.mounts,
            &args.on_error,
            &args.group,
            &args.interval,
            &args.percentage,
            &args.reserved,
            &args.checked,
            &args.user,
        ];
        let texts = args.label.is_some() || args.last_mounted.is_some();
        let lists = [&args.mount_options, &args.features];
        let extended = args.extended.iter().flat_map(|list| list.split(','));
        given.iter().any(|value| value.is_some())
            || texts
            || lists.iter().any(|list| !list.is_empty())
            || extended.into_iter().any(|word| word != "clear_mmp")
    }

    fn say(&mut self, line: String) {
        self.said.push(line);
    }

    /// Notes what the arguments ask for, in tune2fs's order.
    fn add(&mut self, args: &Args, sb: &Superblock) -> std::result::Result<(), Wrong> {
        self.add_checks(args)?;
        self.add_reserved(args, sb)?;
        if let Some(text) = &args.checked {
            let at = changes::checked(text)?;
            self.changes.checked = Some(at);
            self.say(format!(
                "Setting time filesystem last checked to {}\n",
                e2fsprogs::calendar(at)
            ));
        }
        if let Some(name) = &args.user {
            let user = changes::owner("uid/user name", name, accounts::user)?;
            self.changes.user = Some(user);
            self.say(format!("Setting reserved blocks uid to {user}"));
        }
        if let Some(label) = &args.label {
            let (label, cut) = changes::label(label.as_bytes());
            if cut {
                e2fsprogs::to_stderr("Warning: label too long, truncating.");
            }
            self.changes.label = Some(label);
        }
        let dir = args.last_mounted.as_ref();
        self.changes.last_mounted = dir.map(|dir| dir.as_bytes().to_vec());
        self.add_lists(args, sb)?;
        if args.journal || !args.journal_options.is_empty() {
            self.journal = Some(journal::asked(&args.journal_options, sb)?);
        }
        if let Some(change) = self.journal {
            journal::check(change, sb)?;
        }
        if let Some(text) = &args.inode_size {
            self.inode_size = Some(inode_size::asked(text, sb)?);
        }
        if let Some(text) = &args.uuid {
            self.changes.uuid = Some(changes::uuid(text, sb, self.changes.set)?);
        }
        Ok(())
    }

    fn add_checks(&mut self, args: &Args) -> std::result::Result<(), Wrong> {
        if let Some(text) = &args.most_mounts {
            let count = changes::most_mounts(text)?;
            self.changes.most_mounts = Some(count);
            self.say(format!("Setting maximal mount count to {}", count.cast_signed()));
        }
        if let Some(text) = &args.mounts {
            let count = changes::mounts(text)?;
            self.changes.mounts = Some(count);
            self.say(format!("Setting current mount count to {count}"));
        }
        if let Some(text) = &args.on_error {
            let number = changes::on_error(text)?;
            self.changes.on_error = Some(number);
            self.say(format!("Setting error behavior to {number}"));
        }
        if let Some(name) = &args.group {
            let group = changes::owner("gid/group name", name, accounts::group)?;
            self.changes.group = Some(group);
            self.say(format!("Setting reserved blocks gid to {group}"));
        }
        if let Some(text) = &args.interval {
            let seconds = changes::interval(text)?;
            self.changes.interval = Some(seconds);
            self.say(format!("Setting interval between checks to {seconds} seconds"));
        }
        Ok(())
    }

    fn add_reserved(&mut self, args: &Args, sb: &Superblock) -> std::result::Result<(), Wrong> {
        let blocks = sb.blocks_count();
        if let Some(text) = &args.percentage {
            let (percent, reserved) = changes::percentage(text, blocks)?;
            self.changes.reserved = Some(reserved);
            self.say(format!(
                "Setting reserved blocks percentage to {percent}% ({reserved} blocks)"
            ));
        }
        if let Some(text) = &args.reserved {
            let reserved = changes::reserved(text, blocks)?;
            self.changes.reserved = Some(reserved);
            self.say(format!("Setting reserved blocks count to {reserved}"));
        }
        Ok(())
    }

    fn add_lists(&mut self, args: &Args, sb: &Superblock) -> std::result::Result<(), Wrong> {
        for list in &args.mount_options {
            let bits = self.changes.mount_options.unwrap_or(sb.default_mount_opts.get());
            let list = list.replace('+', "");
            let invalid = || Wrong::Raw(format!("Invalid mount option set: {}", show::line(&list)));
            let bits = mount_options(bits, &list).map_err(|_| invalid())?;
            self.changes.mount_options = Some(bits);
        }
        for list in &args.features {
            let asked = features::edit(list, sb, &mut self.changes)?;
            self.needs_check |= asked.needs_check;
            if let Some(on) = asked.journal {
                self.journal =
                    Some(if on { journal::Change::Add(None) } else { journal::Change::Remove });
            }
        }
        for word in args.extended.iter().flat_map(|list| list.split(',')) {
            let (said, clear_mmp) = extended::edit(word, &mut self.changes)?;
            if clear_mmp && args.force == 0 {
                let text = "Error in using clear_mmp. It must be used with -f";
                return Err(Wrong::Raw(text.into()));
            }
            self.clear_mmp |= clear_mmp;
            self.said.extend(said);
        }
        let changes = &self.changes;
        let (stride, width) = (changes.stride, changes.stripe_width);
        let text = changes.mount_text.as_ref().map(|text| show::name(text));
        self.said.extend(stride.map(|blocks| format!("Setting stride size to {blocks}")));
        self.said.extend(width.map(|blocks| format!("Setting stripe width to {blocks}")));
        self.said
            .extend(text.map(|text| format!("Setting extended default mount options to '{text}'")));
        Ok(())
    }

    /// Changes all copies of the superblock. `before` is the superblock before the volume was
    /// opened: an open for this is no mount.
    fn write(&self, image: &ImageSpec, before: &Superblock) -> Result<()> {
        let opened = Image::open(image, Purpose::Change)?;
        let at = || format!("{image}: superblock");
        let (mounts, mounted_at) = (before.mnt_count, before.mounted_at());
        let changed = opened.volume.change_superblock(&|sb| {
            sb.mnt_count = mounts;
            sb.set_mounted_at(mounted_at);
            self.changes.apply(sb);
        });
        let marked = match changed {
            Ok(()) if self.needs_check => opened.volume.require_check(),
            other => other,
        };
        marked.context(at)?;
        opened.close()
    }
}
