//! Man pages and shell completions, made from the arguments that the commands parse.

use crate::args;
use crate::failure::{Failure, Result};
use clap::builder::PossibleValuesParser;
use clap::{Arg, Command, CommandFactory};
use clap_complete::Shell;
use std::path::PathBuf;
use std::process::ExitCode;

/// The directory to write to.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    directory: PathBuf,
}

/// Writes `man1` and `completions` below the directory.
pub(crate) fn run(args: &Args) -> Result<ExitCode> {
    let failed = |error: std::io::Error| Failure::new(error.to_string());
    let [man, completions] = ["man1", "completions"].map(|name| args.directory.join(name));
    for dir in [&man, &completions] {
        std::fs::create_dir_all(dir).map_err(failed)?;
    }
    clap_mangen::generate_to(args::Args::command(), man).map_err(failed)?;
    let mut whole = with_words(args::Args::command());
    for shell in [Shell::Bash, Shell::Zsh, Shell::Fish] {
        clap_complete::generate_to(shell, &mut whole, "nextent-lab", &completions)
            .map_err(failed)?;
    }
    Ok(ExitCode::SUCCESS)
}

/// Adds the words that arguments take to a command and its subcommands.
fn with_words(mut command: Command) -> Command {
    let name = command.get_name().to_owned();
    let ids: Vec<String> = command.get_arguments().map(|arg| arg.get_id().to_string()).collect();
    for id in ids {
        if let Some(words) = words(&name, &id) {
            command = command.mut_arg(id, |arg| offer(arg, words));
        }
    }
    let below: Vec<String> = command.get_subcommands().map(|c| c.get_name().to_owned()).collect();
    below.into_iter().fold(command, |command, name| command.mut_subcommand(name, with_words))
}

fn offer(arg: Arg, words: Vec<String>) -> Arg {
    // clap takes static words; this process ends soon.
    let words: Vec<&'static str> = words.into_iter().map(|word| &*word.leak()).collect();
    arg.value_parser(PossibleValuesParser::new(words)).default_values(Vec::<&str>::new())
}

/// The words that the argument `id` of a command takes, if they are a fixed list.
fn words(command: &str, id: &str) -> Option<Vec<String>> {
    let fixed = |words: &[&str]| Some(words.iter().map(|word| (*word).to_owned()).collect());
    match (command, id) {
        ("bench" | "simulate", "designs") => {
            Some(nextent_bench::designs::all().iter().map(ToString::to_string).collect())
        }
        ("bench" | "simulate", "workload") => {
            Some(nextent_bench::Workload::all().map(|work| work.name().to_owned()).collect())
        }
        ("bench", "lock_kind") => fixed(&["sleep", "spin"]),
        ("bench", "targets") => fixed(&["engine", "dir:"]),
        ("simulate", "machine") => {
            fixed(&["kunpeng920", "epyc9654x2", "numaq16", "x440", "xeon6140", "host"])
        }
        _ => None,
    }
}
