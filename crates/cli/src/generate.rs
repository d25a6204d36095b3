//! Man pages and shell completions, from the arguments that the commands parse, for every command
//! and every other name of the program.

use crate::args::Args;
use crate::failure::{Context, Result};
use clap::{Arg, ArgAction, Command, CommandFactory};
use clap_complete::{Shell, generate};
use clap_mangen::Man;
use std::fs::File;
use std::path::{Path, PathBuf};

/// What asks for it, in builds that have it.
const WORD: &str = "generate-docs";

/// The directory to write to, if that is what was asked.
pub(crate) fn asked() -> Option<PathBuf> {
    let mut words = std::env::args_os().skip(1);
    (words.next()? == WORD).then(|| words.next().map(PathBuf::from))?
}

/// Writes `man1`, `man8`, `bash`, `zsh` and `fish` below `dir`.
pub(crate) fn run(dir: &Path) -> Result<()> {
    let whole = Args::command();
    page(dir, whole.clone(), 1)?;
    completions(dir, &whole)?;
    let shown = |command: &&Command| !command.is_hide_set();
    for command in whole.get_subcommands().filter(shown) {
        let (long, spoken) = (command.get_name().to_owned(), command.clone());
        // Names of commands are static; this process ends soon.
        let name: &'static str = format!("nextent-{long}").leak();
        page(dir, spoken.name(name).bin_name(format!("nextent {long}")), 1)?;
    }
    for (name, command) in [
        ("mkfs.nextent", whole.find_subcommand("mkfs")),
        ("fsck.nextent", whole.find_subcommand("fsck")),
        ("mount.fuse.nextent", whole.find_subcommand("mount")),
        ("umount.fuse.nextent", Some(&unmount())),
    ] {
        let Some(command) = command else { continue };
        let command = command.clone().name(name).bin_name(name);
        page(dir, command.clone(), 8)?;
        completions(dir, &command)?;
    }
    Ok(())
}

/// umount(8)'s helper, which takes what umount(8) gives it.
fn unmount() -> Command {
    let force = "Let nobody wait for the server any more: what it was asked fails";
    let lazy = "Detach now, end when nobody uses it; does not wait";
    Command::new("umount.fuse.nextent")
        .about("Unmount a directory; back when its image is closed and all is on disk")
        .arg(Arg::new("DIRECTORY").required(true).help("Where it is mounted"))
        .arg(Arg::new("force").short('f').action(ArgAction::SetTrue).help(force))
        .arg(Arg::new("lazy").short('l').action(ArgAction::SetTrue).help(lazy))
}

fn page(dir: &Path, command: Command, section: u8) -> Result<()> {
    let name = command.get_name().to_owned();
    let dir = dir.join(format!("man{section}"));
    let path = dir.join(format!("{name}.{section}"));
    let version = env!("CARGO_PKG_VERSION");
    let made = || -> std::io::Result<()> {
        std::fs::create_dir_all(&dir)?;
        let last = if name == "nextent" { command } else { command.disable_version_flag(true) };
        Man::new(last.version(version).disable_help_subcommand(true))
            .section(section.to_string())
            .source(format!("nextent {version}"))
            .manual("nextent")
            .render(&mut File::create(&path)?)
    };
    made().context(|| path.display().to_string())
}

fn completions(dir: &Path, command: &Command) -> Result<()> {
    let name = command.get_name().to_owned();
    for (shell, folder, file) in [
        (Shell::Bash, "bash", name.clone()),
        (Shell::Zsh, "zsh", format!("_{name}")),
        (Shell::Fish, "fish", format!("{name}.fish")),
    ] {
        let dir = dir.join(folder);
        let path = dir.join(file);
        let made = || -> std::io::Result<()> {
            std::fs::create_dir_all(&dir)?;
            generate(shell, &mut command.clone(), &name, &mut File::create(&path)?);
            Ok(())
        };
        made().context(|| path.display().to_string())?;
    }
    Ok(())
}
