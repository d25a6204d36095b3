//! `sync`: brings a directory of an image to a directory of the host.

use super::mkfs::attributes::{id_maps, parse_owner};
use crate::failure::{Failure, Result, complain, say};
use crate::image::{Purpose, device};
use crate::location::{Inside, Location};
use crate::progress::Progress;
use crate::target::ImageSpec;
use crate::{faked, show};
use nextent::FileType;
use nextent_image::sync::{Action, Differs, Item, SyncError, SyncObserver, Synced, TreeSync};
use nextent_image::{IdRange, Observer, Problem};
use nextent_sync::{LockClass, Mutex};
use serde_json::{Value, json};
use std::ffi::OsString;
use std::io::{BufWriter, Stdout, Write};
use std::path::PathBuf;

/// Arguments of `sync`.
#[derive(Debug, clap::Args)]
#[command(after_long_help = HELP)]
pub(crate) struct Args {
    /// Change nothing; print what would change
    #[arg(short = 'n', long)]
    dry_run: bool,
    /// Print the path of each change
    #[arg(short, long)]
    verbose: bool,
    /// Print what changes of each path, in rsync's form
    #[arg(short, long)]
    itemize_changes: bool,
    /// Compare the contents of files of the same length and time, too
    #[arg(short, long)]
    checksum: bool,
    /// Show no progress and no last line
    #[arg(short, long, conflicts_with_all = ["verbose", "itemize_changes"])]
    quiet: bool,
    /// Print all changes and the counts as JSON
    #[arg(long, conflicts_with_all = ["verbose", "itemize_changes", "quiet"])]
    json: bool,
    /// Owner and group of every entry, as numbers or names
    #[arg(long, value_name = "UID:GID", conflicts_with_all = ["map_uid", "map_gid"])]
    owner: Option<String>,
    /// Change COUNT user numbers from FROM on to those from TO on; may be repeated; other users
    /// are errors
    #[arg(long, value_name = "FROM:TO:COUNT")]
    map_uid: Vec<IdRange>,
    /// The same for group numbers
    #[arg(long, value_name = "FROM:TO:COUNT")]
    map_gid: Vec<IdRange>,
    /// Threads that compare
    #[arg(long, value_name = "N", hide = true)]
    threads: Option<usize>,
    /// A directory of the host
    #[arg(value_hint = clap::ValueHint::DirPath)]
    source: PathBuf,
    /// An image, or a directory in it
    #[arg(value_name = "IMAGE[:/DIR]", value_hint = clap::ValueHint::FilePath)]
    target: OsString,
}

const HELP: &str = "\
Changes, as -i prints them:
  >f+++++++++ PATH        a new file
  cd+++++++++ PATH        a new directory; L is a link, D a device, S a pipe or a socket
  >fcst...... PATH        a file with other contents (c), length (s) and time (t)
  .f...pog.ax PATH        other modes (p), owner (o), group (g), access lists (a), attributes (x)
  hf+++++++++ PATH        a further name of a file
  *deleting   PATH        not in SOURCE";

/// `nextent sync`.
///
/// # Errors
/// A failure without a message, if an entry failed.
pub(crate) fn run(args: &Args) -> Result<()> {
    faked::check().map_err(|why| Failure::new(format!("sync: {why}")))?;
    let inside = match Location::parse(&args.target)? {
        Location::Image(inside) => inside,
        Location::Host(_) => Inside::root(&ImageSpec::parse(&args.target).map_err(Failure::usage)?),
    };
    let mut sync = TreeSync::new(&args.source)
        .checksum(args.checksum)
        .dry_run(args.dry_run)
        .image_file(&inside.image.host_file());
    if let Some(threads) = args.threads {
        sync = sync.threads(threads);
    }
    if let Some(owner) = &args.owner {
        let (uid, gid) = parse_owner(owner).map_err(usage)?;
        sync = sync.owner(uid, gid);
    } else if !args.map_uid.is_empty() || !args.map_gid.is_empty() {
        let (users, groups) = id_maps(&args.map_uid, &args.map_gid).map_err(usage)?;
        sync = sync.mapped(users, groups);
    }
    let purpose = if args.dry_run { Purpose::Read } else { Purpose::Change };
    let device = device(&inside.image, purpose)?;
    let printer = Printer::new(args, &inside);
    let done = sync.run(device, &inside.path, &printer);
    let ended = printer.end();
    let done = done.map_err(|error| {
        let text = match &error {
            SyncError::Open(open) => inside.image.explain(open),
            error => error.to_string(),
        };
        match error {
            SyncError::Source { .. } | SyncError::ImageInSource(_) => {
                Failure::new(format!("sync {text}"))
            }
            SyncError::Directory { .. } => Failure::new(format!("sync {}:{text}", inside.image)),
            _ => Failure::new(format!("sync {}: {text}", inside.image)),
        }
    })?;
    finish(args, &done, ended?)
}

fn usage(text: String) -> Failure {
    Failure::usage(format!("sync: {text}"))
}

/// Prints the last line, or all as JSON.
fn finish(args: &Args, done: &Synced, changes: Vec<Value>) -> Result<()> {
    if done.kept > 0 {
        let names = if done.kept == 1 { "name" } else { "names" };
        let text = "sync: because of errors nothing that SOURCE lacks was removed";
        complain(&format!("{text} ({} {names})", done.kept));
    }
    let Synced { created, updated, removed, blocks, failed, kept, .. } = *done;
    if args.json {
        let all = json!({
            "dry_run": args.dry_run, "created": created, "updated": updated, "removed": removed,
            "blocks": blocks, "failed": failed, "kept": kept, "changes": changes,
        });
        say!("{all:#}");
    } else if !args.quiet {
        let would = if args.dry_run { "would be " } else { "" };
        let counts =
            format!("{created} {would}created, {updated} {would}updated, {removed} {would}removed");
        say!("{counts}; {blocks} blocks written");
    }
    if failed > 0 { Err(Failure::reported(1)) } else { Ok(()) }
}

/// Standard output, and the error that it had.
struct Lines {
    out: BufWriter<Stdout>,
    lost: Option<std::io::Error>,
    /// For JSON.
    changes: Vec<Value>,
}

static LINES: LockClass = LockClass::new("sync.lines", 51);

/// Prints changes and failures.
struct Printer {
    progress: Progress,
    /// None if changes are not printed.
    lines: Option<Mutex<Lines>>,
    itemizes: bool,
    json: bool,
}

impl Printer {
    fn new(args: &Args, inside: &Inside) -> Self {
        let shown = args.verbose || args.itemize_changes || args.dry_run || args.json;
        let out = BufWriter::new(std::io::stdout());
        let lines = Lines { out, lost: None, changes: Vec::new() };
        Self {
            json: args.json,
            progress: Progress::new("sync", inside.to_string(), args.quiet || shown),
            lines: (shown && !args.quiet).then(|| Mutex::new(&LINES, lines)),
            itemizes: args.itemize_changes,
        }
    }

    /// Returns the changes for JSON.
    fn end(self) -> Result<Vec<Value>> {
        let Some(lines) = self.lines else { return Ok(Vec::new()) };
        let Lines { mut out, lost, changes } = lines.into_inner();
        if let Some(error) = lost {
            return Err(error.into());
        }
        out.flush()?;
        Ok(changes)
    }
}

impl Observer for Printer {
    fn entry(&self) {
        self.progress.entry();
    }

    fn bytes(&self, bytes: u64) {
        self.progress.bytes(bytes);
    }

    fn problem(&self, problem: &Problem<'_>) {
        self.progress.problem(problem);
    }
}

impl SyncObserver for Printer {
    fn item(&self, item: &Item<'_>) {
        let Some(lines) = &self.lines else { return };
        if self.json {
            return lines.lock().changes.push(value(item));
        }
        let path = if item.path.is_empty() { "./".to_owned() } else { show::name(item.path) };
        let slash = item.kind == FileType::Directory && !item.path.is_empty();
        let path = if slash { format!("{path}/") } else { path };
        let line = match (self.itemizes, item.action) {
            (true, _) => format!("{} {path}", code(item)),
            (false, Action::Remove) => format!("deleting {path}"),
            (false, _) => path,
        };
        let mut lines = lines.lock();
        if lines.lost.is_none() {
            lines.lost = writeln!(lines.out, "{line}").err();
        }
    }
}

fn value(item: &Item<'_>) -> Value {
    let action = match item.action {
        Action::Create => "create",
        Action::Replace => "replace",
        Action::Link => "link",
        Action::SetAttributes => "attributes",
        Action::Remove => "remove",
        _ => "other",
    };
    let Differs { kind, contents, size, mode, owner, group, time, lists, xattrs } = item.differs;
    let differs = [
        (kind, "type"),
        (contents, "contents"),
        (size, "size"),
        (mode, "mode"),
        (owner, "owner"),
        (group, "group"),
        (time, "time"),
        (lists, "acl"),
        (xattrs, "xattrs"),
    ];
    let differs: Vec<_> = differs.iter().filter(|(differs, _)| *differs).map(|(_, n)| n).collect();
    let (path, kind) = (show::name(item.path), show::kind(item.kind));
    json!({ "path": path, "type": kind, "action": action, "differs": differs })
}

/// A change in the form of `rsync -i`.
fn code(item: &Item<'_>) -> String {
    let kind = match item.kind {
        FileType::Regular => 'f',
        FileType::Directory => 'd',
        FileType::Symlink => 'L',
        FileType::CharDevice | FileType::BlockDevice => 'D',
        _ => 'S',
    };
    let is_file = item.kind == FileType::Regular;
    let first = match item.action {
        Action::Remove => return "*deleting  ".to_owned(),
        Action::Link => 'h',
        Action::SetAttributes => '.',
        _ if is_file => '>',
        _ => 'c',
    };
    let Differs { kind: other, contents, size, mode, owner, group, time, lists, xattrs } =
        item.differs;
    if other || item.action == Action::Create || item.action == Action::Link {
        return format!("{first}{kind}+++++++++");
    }
    let flag = |differs: bool, letter: char| if differs { letter } else { '.' };
    let letters = [
        flag(contents, 'c'),
        flag(size, 's'),
        flag(time, 't'),
        flag(mode, 'p'),
        flag(owner, 'o'),
        flag(group, 'g'),
        '.',
        flag(lists, 'a'),
        flag(xattrs, 'x'),
    ];
    format!("{first}{kind}{}", letters.iter().collect::<String>())
}
