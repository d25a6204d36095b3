//! `edit`: runs a script of changes on one open image.

mod atomic;
mod script;
mod verbs;
mod write;

use self::script::{Error, Script};
use self::verbs::Verbs;
use crate::failure::{Context, Failure, Result, complain};
use crate::image::{Image, Purpose};
use crate::location::Inside;
use crate::scope::Scope;
use crate::target::ImageSpec;
use crate::{log, show};
use nextent::inodes::Inodes;
use std::fs::File;
use std::io::{self, BufRead, BufReader};
use std::path::{Path, PathBuf};

/// Arguments of `edit`.
#[derive(Debug, clap::Args)]
#[command(after_long_help = HELP)]
pub(crate) struct Args {
    /// The script; `-`, the default, is standard input
    #[arg(short, long, value_name = "SCRIPT")]
    file: Option<PathBuf>,
    /// Go on after lines that fail; exit with 1 if there are any
    #[arg(short, long)]
    keep_going: bool,
    /// Make all changes or none, also if this program or the machine ends in between. The image
    /// must have a journal, which must hold the changed blocks that are in use. Until the end of
    /// the script changes are in a file without a name in TMPDIR, or else in /var/tmp
    #[arg(long, conflicts_with = "keep_going")]
    atomic: bool,
    /// The image
    #[arg(value_hint = clap::ValueHint::FilePath)]
    image: ImageSpec,
}

const HELP: &str = "\
Verbs:
  mkdir [-p] [-m MODE] PATH...        make directories
  write [-a] PATH TEXT                give a file this text as its contents; -a appends
  cp [-r] [-p] [-a] HOST... PATH      copy files of the host into the image
  rm [-r] [-d] [-f] PATH...           remove
  mv [-n] [--exchange] PATH... PATH   move or rename
  ln [-s] TARGET PATH                 make a link
  chmod [-R] MODE PATH...             change permission bits
  chown [-R] [-h] UID:GID PATH...     change owner and group
  truncate [-c] SIZE PATH...          set the length
  fallocate -l LENGTH PATH...         allocate, punch, zero, collapse or insert
  touch [-a] [-m] [-c] [-d DATE] PATH...
                                      set times, make empty files
  mknod [-m MODE] PATH TYPE [MAJOR MINOR]
                                      make a device node or a pipe
  setxattr PATH NAME VALUE            set an attribute; -x NAME PATH... removes it
  getxattr [-d] PATH [NAME]           show attributes
  ls [-l] [-a] [-d] PATH...           list
  stat PATH...                        show attributes, times and extents
  cat PATH...                         write contents to standard output

Quotes:
  'TEXT'                              the text as it is
  \"TEXT\"                              the same, with \\\\, \\\" and \\$ for \\, \" and $
  $'TEXT'                             with \\n, \\t, \\xHH and \\OOO (octal) for any byte
  \\C                                  the character C
  # TEXT                              a comment
";

/// `nextent edit`.
pub(crate) fn run(args: &Args) -> Result<()> {
    let (name, input) = open(args.file.as_deref())?;
    if args.atomic {
        return atomic::run(&args.image, &name, input);
    }
    let image = Image::open(&args.image, Purpose::Change)?;
    let root = Inside::root(&args.image);
    let done = play(&name, input, args.keep_going, &image.volume, &root);
    let closed = image.close();
    done.and(closed)
}

/// The script and its name.
fn open(file: Option<&Path>) -> Result<(String, Box<dyn BufRead>)> {
    match file {
        None => Ok(("-".to_owned(), Box::new(io::stdin().lock()))),
        Some(path) if path == Path::new("-") => Ok(("-".to_owned(), Box::new(io::stdin().lock()))),
        Some(path) => {
            let file = File::open(path).context(|| show::path(path))?;
            Ok((show::path(path), Box::new(BufReader::new(file))))
        }
    }
}

/// Runs the script. Prints the failure of each line.
///
/// # Errors
/// A failure without a message, if a line failed; a failed read of the script.
fn play(
    name: &str,
    input: impl BufRead,
    keep_going: bool,
    volume: &Inodes,
    root: &Inside,
) -> Result<()> {
    let scope = Scope::Open { volume, root };
    let (mut script, mut verbs) = (Script::new(input), Verbs::new());
    let (mut lines, mut failed) = (0u64, 0u64);
    loop {
        let (line, done) = match script.next() {
            Ok(None) => break,
            Ok(Some(command)) => {
                log::at_line(name, command.line);
                (command.line, verbs.run(command.words, scope))
            }
            Err(Error::Text(line, what)) => (line, Err(Failure::usage(what))),
            Err(Error::Read(error)) => return Err(Failure::new(format!("{name}: {error}"))),
        };
        lines += 1;
        if let Err(failure) = done {
            log::at_line(name, line);
            failure.print();
            log::behind_script();
            failed += 1;
            if failure.ends_all() {
                return Err(Failure::reported(failure.code()).fatal());
            }
            if !keep_going {
                return Err(Failure::reported(1));
            }
        }
    }
    log::behind_script();
    if failed > 0 {
        complain(&format!("{name}: {failed} of {lines} commands failed"));
        return Err(Failure::reported(1));
    }
    Ok(())
}
