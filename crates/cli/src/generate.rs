//! Generates man pages and shell completions from the definitions of arguments, for every command
//! and every other name of the program.

mod pages;
mod sections;
mod shells;

use crate::args::Args;
use crate::failure::{Context, Result};
use crate::show;
use clap::{Arg, ArgAction, Command, CommandFactory};
use std::path::{Path, PathBuf};

/// The argument that asks for it.
const WORD: &str = "generate-docs";

/// The output directory, if the arguments ask for this.
pub(crate) fn asked() -> Option<PathBuf> {
    let mut words = std::env::args_os().skip(1);
    (words.next()? == WORD).then(|| words.next().map(PathBuf::from))?
}

/// Writes `man1`, `man8`, `bash`, `zsh` and `fish` below `dir`.
pub(crate) fn run(dir: &Path) -> Result<()> {
    let whole = Args::command();
    page(dir, &whole, "nextent", 1)?;
    completions(dir, &whole)?;
    let shown = |command: &&Command| !command.is_hide_set();
    for command in whole.get_subcommands().filter(shown) {
        let (own, spoken) = (command.get_name().to_owned(), command.clone());
        // clap wants static names, and this process ends soon.
        let name: &'static str = format!("nextent-{own}").leak();
        page(dir, &spoken.name(name).bin_name(format!("nextent {own}")), &own, 1)?;
    }
    for (name, own, command) in [
        ("mkfs.nextent", "mkfs", whole.find_subcommand("mkfs")),
        ("fsck.nextent", "fsck", whole.find_subcommand("fsck")),
        ("mount.fuse.nextent", "mount", whole.find_subcommand("mount")),
        ("umount.fuse.nextent", "umount", Some(&unmount())),
    ] {
        let Some(command) = command else { continue };
        let command = command.clone().name(name).bin_name(name);
        page(dir, &command, own, 8)?;
        completions(dir, &command)?;
    }
    Ok(())
}

/// The helper of umount(8), with umount(8)'s arguments.
fn unmount() -> Command {
    let force = "Do not wait for the server: unanswered requests fail";
    let lazy = "Detach now, unmount when no program uses it; does not wait";
    Command::new("umount.fuse.nextent")
        .about("Unmount a directory; returns once its image is closed and durable")
        .arg(Arg::new("DIRECTORY").required(true).help("The mount point"))
        .arg(Arg::new("force").short('f').action(ArgAction::SetTrue).help(force))
        .arg(Arg::new("lazy").short('l').action(ArgAction::SetTrue).help(lazy))
}

/// Writes the page of a command with the sections of `own`.
fn page(dir: &Path, command: &Command, own: &str, section: u8) -> Result<()> {
    let text = pages::text(command, own, section);
    let name = format!("man{section}/{}.{section}", command.get_name());
    write(&dir.join(name), text.as_bytes())
}

fn completions(dir: &Path, command: &Command) -> Result<()> {
    for (file, text) in shells::completions(command) {
        write(&dir.join(file), &text)?;
    }
    Ok(())
}

fn write(path: &Path, text: &[u8]) -> Result<()> {
    let made = || -> std::io::Result<()> {
        std::fs::create_dir_all(path.parent().unwrap_or(path))?;
        std::fs::write(path, text)
    };
    made().context(|| show::path(path))
}
