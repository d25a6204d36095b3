//! Completions for shells, including the words that arguments accept.

use crate::commands::{mkfs, mount};
use clap::builder::PossibleValuesParser;
use clap::{Arg, Command};
use clap_complete::{Shell, generate};

/// The files to write below the directory of completions, with their contents.
pub(super) fn completions(command: &Command) -> Vec<(String, Vec<u8>)> {
    let name = command.get_name().to_owned();
    let command = with_words(command.clone());
    [
        (Shell::Bash, format!("bash/{name}")),
        (Shell::Zsh, format!("zsh/_{name}")),
        (Shell::Fish, format!("fish/{name}.fish")),
    ]
    .into_iter()
    .map(|(shell, file)| {
        let mut text = Vec::new();
        generate(shell, &mut command.clone(), &name, &mut text);
        match shell {
            Shell::Bash => (file, lists_in_bash(&text)),
            _ => (file, text),
        }
    })
    .collect()
}

/// Makes bash complete the last word of a list that commas separate.
fn lists_in_bash(text: &[u8]) -> Vec<u8> {
    let text = String::from_utf8_lossy(text);
    let mut out = String::with_capacity(text.len());
    for line in text.lines() {
        // The line for commands and options has a variable between its quotes, not words.
        let words = line.contains("compgen -W \"") && !line.contains("\"${opts}\"");
        if words {
            let line = line.replace("compgen -W", "compgen -P \"${cur%\"${cur##*,}\"}\" -W");
            out.push_str(&line.replace("-- \"${cur}\"", "-- \"${cur##*,}\""));
        } else {
            out.push_str(line);
        }
        out.push('\n');
    }
    out.into_bytes()
}

/// Adds the accepted words to the arguments of a command and its subcommands.
fn with_words(mut command: Command) -> Command {
    let own = match command.get_name() {
        "mkfs.nextent" => "mkfs".to_owned(),
        "mount.fuse.nextent" => "mount".to_owned(),
        name => name.to_owned(),
    };
    let ids: Vec<String> = command.get_arguments().map(|arg| arg.get_id().to_string()).collect();
    for id in ids {
        if let Some(words) = words(&own, &id) {
            command = command.mut_arg(id, |arg| offer(arg, words));
        }
    }
    let below: Vec<String> = command.get_subcommands().map(|c| c.get_name().to_owned()).collect();
    below.into_iter().fold(command, |command, name| command.mut_subcommand(name, with_words))
}

fn offer(arg: Arg, words: Vec<String>) -> Arg {
    // clap wants static words, and this process ends soon.
    let words: Vec<&'static str> = words.into_iter().map(|word| &*word.leak()).collect();
    arg.value_parser(PossibleValuesParser::new(words)).default_values(Vec::<&str>::new())
}

/// The words that the argument `id` of a command accepts, if they are a list.
fn words(command: &str, id: &str) -> Option<Vec<String>> {
    let fixed = |words: &[&str]| Some(words.iter().map(|word| (*word).to_owned()).collect());
    match (command, id) {
        ("mkfs", "features") => {
            let names = nextent::mkfs::written_features();
            Some(names.iter().flat_map(|name| [name.clone(), format!("^{name}")]).collect())
        }
        ("mkfs", "extended") => fixed(mkfs::values::EXTENDED),
        ("mkfs", "journal_options") => fixed(mkfs::values::JOURNAL),
        ("mkfs", "fs_type") => fixed(&["ext2", "ext3", "ext4"]),
        ("mkfs", "usage") => fixed(mkfs::values::USAGES),
        ("mkfs", "on_error") => fixed(mkfs::values::ON_ERROR),
        ("mkfs", "creator") => fixed(mkfs::values::CREATORS),
        ("tune", "extended") => fixed(crate::commands::tune::KEYS),
        ("tune", "on_error") => fixed(mkfs::values::ON_ERROR),
        ("mkfs", "uuid") => fixed(&["random", "clear", "time"]),
        ("mkfs", "block_size") => fixed(&["1024", "2048", "4096", "65536"]),
        ("mount", "options") => fixed(mount::options::WORDS),
        _ => None,
    }
}
