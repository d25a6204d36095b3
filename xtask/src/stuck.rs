//! Reports and kills a stuck command and its descendants.
//!
//! This reads only files of `/proc` that do not wait for the process: while a process changes its
//! program and waits for a server, readers of its command line and `stat` wait, too.

use std::collections::BTreeMap;
use std::path::Path;
use std::process::{Command, Stdio};

/// A line for each thread of `process` and its descendants: its name and what it waits for.
pub(crate) fn report(process: u32) -> String {
    let mut text = String::new();
    for process in family(process) {
        let Ok(threads) = std::fs::read_dir(format!("/proc/{process}/task")) else { continue };
        for thread in threads.filter_map(Result::ok) {
            text += &format!("{process} {}\n", line(&thread.path()));
        }
    }
    text
}

fn line(thread: &Path) -> String {
    let status = std::fs::read_to_string(thread.join("status")).unwrap_or_default();
    let field = |name| field(&status, name).unwrap_or("?").to_owned();
    let waits = std::fs::read_to_string(thread.join("wchan")).unwrap_or_default();
    format!("{} {} {}: {waits}", field("Pid:"), field("Name:"), field("State:"))
}

fn field<'t>(status: &'t str, name: &str) -> Option<&'t str> {
    status.lines().find_map(|line| line.strip_prefix(name)).map(str::trim)
}

/// Kills `process` and its descendants, if they still run.
pub(crate) fn kill(process: u32) {
    let all = family(process).into_iter().map(|process| process.to_string());
    let mut command = Command::new("kill");
    let _ = command.arg("-KILL").args(all).stderr(Stdio::null()).status();
}

/// `process` and its descendants, ancestors first.
fn family(process: u32) -> Vec<u32> {
    let mut children: BTreeMap<u32, Vec<u32>> = BTreeMap::new();
    for entry in std::fs::read_dir("/proc").into_iter().flatten().filter_map(Result::ok) {
        let number = entry.file_name().to_str().and_then(|name| name.parse::<u32>().ok());
        let Some(number) = number else { continue };
        let status = std::fs::read_to_string(entry.path().join("status")).unwrap_or_default();
        if let Some(parent) = field(&status, "PPid:").and_then(|parent| parent.parse().ok()) {
            children.entry(parent).or_default().push(number);
        }
    }
    let mut found = vec![process];
    let mut next = 0;
    while let Some(parent) = found.get(next) {
        found.extend(children.remove(parent).unwrap_or_default());
        next += 1;
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_caller_is_reported() {
        let me = std::process::id();
        assert!(family(me).starts_with(&[me]));
        let text = report(me);
        // Other tests may have started processes.
        let mut mine = text.lines().filter(|line| line.starts_with(&format!("{me} ")));
        assert!(mine.any(|line| line.contains(" R (running): ")), "{text}");
    }
}
