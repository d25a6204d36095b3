//! The verbs of a script: their arguments, and the commands that they are.

use super::write::Write;
use crate::args::{Chmod, Chown, Fallocate, Ln, Ls, Mkdir, Mv, Paths, Rm, Stat, Truncate};
use crate::commands::length::Length;
use crate::commands::{
    change, cp, fallocate, link, list, mknod, mode, owner, read, remove, stat, touch, xattr,
};
use crate::failure::{Failure, Result, usage_text};
use crate::scope::Scope;
use clap::{ArgMatches, Args, CommandFactory, FromArgMatches, Parser, Subcommand};
use std::ffi::OsString;
use std::os::unix::ffi::OsStringExt;

/// A command of a script.
#[derive(Debug, Parser)]
#[command(multicall = true, subcommand_required = true, disable_help_subcommand = true)]
#[command(args_override_self = true)]
struct Line {
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Debug, Subcommand)]
enum Verb {
    Mkdir(Mkdir),
    Write(Write),
    Cp(cp::Args),
    Rm(Rm),
    Mv(Mv),
    Ln(Ln),
    Chmod(Chmod),
    Chown(Chown),
    Truncate(Size),
    Fallocate(Fallocate),
    Touch(touch::Args),
    Mknod(mknod::Args),
    Getxattr(Attribute),
    Setxattr(xattr::Set),
    Ls(Ls),
    Stat(Stat),
    Cat(Paths),
}

/// `truncate SIZE PATH...`
#[derive(Debug, Args)]
struct Size {
    #[arg(short = 'c', long)]
    no_create: bool,
    #[arg(allow_hyphen_values = true)]
    size: Length,
    #[command(flatten)]
    paths: Paths,
}

/// `getxattr PATH [NAME]`
#[derive(Debug, Args)]
#[command(disable_help_flag = true)]
struct Attribute {
    #[command(flatten)]
    form: xattr::Form,
    path: OsString,
    name: Option<OsString>,
}

/// Parses the verbs of a script.
pub(super) struct Verbs(clap::Command);

impl Verbs {
    pub(super) fn new() -> Self {
        Self(Line::command())
    }

    /// Runs the verb with these words in an open volume.
    ///
    /// # Errors
    /// Wrong arguments; those of the verb.
    pub(super) fn run(&mut self, words: Vec<Vec<u8>>, scope: Scope<'_>) -> Result<()> {
        let words = words.into_iter().map(OsString::from_vec);
        // The definition is reused: making it takes longer than most verbs.
        let matches = self.0.try_get_matches_from_mut(words);
        let parse = |mut matches: ArgMatches| Line::from_arg_matches_mut(&mut matches);
        match matches.and_then(parse) {
            Ok(line) => run(line.verb, scope),
            Err(error) if !error.use_stderr() => {
                Err(Failure::usage("scripts give no help; see `nextent COMMAND --help`"))
            }
            Err(error) => Err(Failure::usage(usage_text(&error))),
        }
    }
}

fn run(verb: Verb, scope: Scope<'_>) -> Result<()> {
    match verb {
        Verb::Mkdir(args) => change::mkdir(&args, scope),
        Verb::Write(args) => super::write::run(&args, scope),
        Verb::Cp(args) => cp::run(&args, scope),
        Verb::Rm(args) => remove::rm(&args, scope),
        Verb::Mv(args) => change::mv(&args, scope),
        Verb::Ln(args) => link::ln(&args, scope),
        Verb::Chmod(args) => mode::chmod(&args, scope),
        Verb::Chown(args) => owner::chown(&args, scope),
        Verb::Truncate(Size { no_create, size, paths }) => {
            change::truncate(&Truncate { size, no_create, paths }, scope)
        }
        Verb::Fallocate(args) => fallocate::run(&args, scope),
        Verb::Touch(args) => touch::run(&args, scope),
        Verb::Mknod(args) => mknod::run(&args, scope),
        Verb::Getxattr(Attribute { form, path, name }) => {
            xattr::get(&xattr::Get::of(path, name, form), scope)
        }
        Verb::Setxattr(args) => xattr::set(&args, scope),
        Verb::Ls(args) => list::ls(&args, scope),
        Verb::Stat(args) => stat::run(&args, scope),
        Verb::Cat(args) => read::cat(&args, scope),
    }
}
