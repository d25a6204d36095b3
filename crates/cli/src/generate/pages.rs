//! Renders man pages in roff, with the sections of man-pages(7).

use super::sections;
use clap::{Arg, ArgAction, Command};
use clap_mangen::Man;
use std::fmt::Write;

/// The page of a command in a section of the manual; `own` is the command's name in the program.
pub(super) fn text(command: &Command, own: &str, section: u8) -> String {
    let version = env!("CARGO_PKG_VERSION");
    let mut command = command.clone();
    if own != "nextent" {
        command = command.disable_version_flag(true);
    }
    command = command.version(version).disable_help_subcommand(true);
    command.build();
    let man = Man::new(command.clone())
        .section(section.to_string())
        .source(format!("nextent {version}"))
        .manual("nextent");
    let mut page = String::new();
    let mut add = |render: &dyn Fn(&mut dyn std::io::Write) -> std::io::Result<()>| {
        let mut bytes = Vec::new();
        // Writing to memory cannot fail.
        let _ = render(&mut bytes);
        page.push_str(&String::from_utf8_lossy(&bytes));
    };
    add(&|out| man.render_title(out));
    add(&|out| man.render_name_section(out));
    add(&|out| out.write_all(synopsis(&command).as_bytes()));
    add(&|out| man.render_description_section(out));
    add(&|out| man.render_options_section(out));
    if own == "nextent" {
        add(&|out| man.render_subcommands_section(out));
    }
    if let Some(help) = command.get_after_long_help() {
        add(&|out| out.write_all(lists(&help.to_string()).as_bytes()));
    }
    for (title, body) in sections::of(own, section) {
        add(&|out| out.write_all(format!(".SH \"{title}\"\n{body}").as_bytes()));
    }
    page
}

/// Escapes text for roff, so that nothing in it is a request or an escape.
pub(super) fn escaped(text: &str) -> String {
    let text = text.replace('\\', "\\e").replace('-', "\\-");
    match text.starts_with(['.', '\'']) {
        true => format!("\\&{text}"),
        false => text,
    }
}

fn synopsis(command: &Command) -> String {
    let name = command.get_bin_name().unwrap_or(command.get_name());
    let mut words = vec![format!("\\fB{}\\fR", escaped(name))];
    let shown = |arg: &&Arg| !arg.is_hide_set();
    let standard = |arg: &&Arg| {
        !matches!(
            arg.get_action(),
            ArgAction::Help | ArgAction::HelpLong | ArgAction::HelpShort | ArgAction::Version
        )
    };
    let groups: Vec<_> = command.get_groups().filter(|group| group.is_required_set()).collect();
    for group in &groups {
        let find = |id| command.get_arguments().find(|arg| arg.get_id() == id);
        let all: Vec<String> = group.get_args().filter_map(find).map(option).collect();
        words.push(all.join(" | "));
    }
    let grouped =
        |arg: &&Arg| groups.iter().any(|group| group.get_args().any(|id| id == arg.get_id()));
    let options = command.get_arguments().filter(|arg| !arg.is_positional());
    for arg in options.filter(shown).filter(standard).filter(|arg| !grouped(arg)) {
        words.push(match arg.is_required_set() {
            true => option(arg),
            false => format!("[{}]", option(arg)),
        });
    }
    for arg in command.get_positionals().filter(shown) {
        let many = arg.get_num_args().is_some_and(|range| range.max_values() > 1);
        let value = format!("{}{}", values(arg), if many { "..." } else { "" });
        words.push(if arg.is_required_set() { value } else { format!("[{value}]") });
    }
    if command.has_subcommands() {
        words.push("\\fICOMMAND\\fR [\\fIARGUMENT\\fR...]".to_owned());
    }
    // An option and its value stay on a line.
    let words: Vec<String> = words.iter().map(|word| word.replace(' ', "\\ ")).collect();
    format!(".SH SYNOPSIS\n.ad l\n.nh\n{}\n.ad b\n.hy\n", words.join("\n"))
}

/// An option and the name of its value.
fn option(arg: &Arg) -> String {
    let name = match (arg.get_short(), arg.get_long()) {
        (Some(short), _) => format!("-{short}"),
        (_, long) => format!("--{}", long.unwrap_or_default()),
    };
    let name = format!("\\fB{}\\fR", escaped(&name));
    match arg.get_action() {
        ArgAction::Set | ArgAction::Append => format!("{name} {}", values(arg)),
        _ => name,
    }
}

/// The names of an argument's values.
fn values(arg: &Arg) -> String {
    let names = arg.get_value_names().unwrap_or_default();
    let all: Vec<String> = names.iter().map(|name| escaped(name)).collect();
    match all.is_empty() {
        true => format!("\\fI{}\\fR", escaped(&arg.get_id().as_str().to_uppercase())),
        false => format!("\\fI{}\\fR", all.join(" ")),
    }
}

/// Renders the text after the options of `--help`. A line that ends in a colon begins a section; in
/// a section the left column has words and the right column their meanings.
fn lists(help: &str) -> String {
    let mut page = String::new();
    let mut items: Vec<(String, String)> = Vec::new();
    for line in help.lines() {
        let indented = line.len() - line.trim_start().len();
        match indented {
            0 => {
                tables(&mut page, &std::mem::take(&mut items));
                // Writing to a string cannot fail.
                let _ = match line.strip_suffix(':') {
                    Some(title) => writeln!(page, ".SH \"{}\"", title.to_uppercase()),
                    None if line.is_empty() => Ok(()),
                    None => writeln!(page, "{}", escaped(line)),
                };
            }
            1..=2 => {
                let (words, meaning) = line.trim().split_once("  ").unwrap_or((line.trim(), ""));
                match items.last_mut() {
                    // The list of words continues.
                    Some((before, text)) if text.is_empty() && before.ends_with(',') => {
                        before.push_str(&format!(" {words}"));
                        text.push_str(meaning.trim());
                    }
                    _ => items.push((words.to_owned(), meaning.trim().to_owned())),
                }
            }
            _ => {
                if let Some((_, text)) = items.last_mut() {
                    text.push_str(&format!(" {}", line.trim()));
                }
            }
        }
    }
    tables(&mut page, &items);
    page
}

fn tables(page: &mut String, items: &[(String, String)]) {
    for (words, meaning) in items {
        let (words, meaning) = (escaped(words), escaped(meaning.trim()));
        // Writing to a string cannot fail.
        let _ = match meaning.is_empty() {
            true => writeln!(page, "{words}"),
            false => writeln!(page, ".TP\n\\fB{words}\\fR\n{meaning}"),
        };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_section_of_help_is_a_list() {
        let page = lists("Keys of -E:\n\n  a=N     one\n          and more\n  b,\n  c       two\n");
        assert_eq!(
            page,
            ".SH \"KEYS OF -E\"\n.TP\n\\fBa=N\\fR\none and more\n.TP\n\\fBb, c\\fR\ntwo\n"
        );
        assert_eq!(escaped(".a\\b-c"), "\\&.a\\eb\\-c");
    }
}
