//! The lower layer: a small Debian system with the packages that the overlays install.

use super::mounts::{is_below, unmount_below};
use super::steps::Steps;
use crate::shell::command;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::Command;

/// Installed in each overlay. Their scripts change many files, and link and rename others.
const PACKAGES: &str = "less git python3-minimal";
/// A package of the lower layer with many files: installed again, then removed.
const REINSTALLED: &str = "tzdata";

/// Says that the layer is complete.
const COMPLETE: &str = ".nextent-complete";

/// Downloads packages without installing them.
const DOWNLOAD: &str = r#"
set -eu
apt-get update
apt-get install -y --no-install-recommends --download-only $PACKAGES
apt-get install -y --reinstall --download-only $REINSTALLED
"#;

/// A suite of Debian and a mirror of it.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Source {
    suite: String,
    mirror: String,
}

impl Source {
    /// The suite of this machine and the first mirror of it in the sources of apt.
    pub(super) fn of_this_machine() -> Option<Self> {
        let release = std::fs::read_to_string("/etc/os-release").ok()?;
        let suite = release.lines().find_map(|line| line.strip_prefix("VERSION_CODENAME="))?;
        let suite = suite.trim_matches('"').to_owned();
        let dir = std::fs::read_dir("/etc/apt/sources.list.d").into_iter().flatten();
        let mut files: Vec<_> = dir.filter_map(|entry| Some(entry.ok()?.path())).collect();
        files.push("/etc/apt/sources.list".into());
        files.sort();
        let mirror = files.iter().find_map(|path| {
            let text = std::fs::read_to_string(path).ok()?;
            mirror_of(&text, &suite)
        })?;
        Some(Self { suite, mirror })
    }

    /// Makes the layer in `dir`, unless a complete one is there.
    pub(super) fn make(&self, dir: &Path, steps: &Steps) -> Result<(), String> {
        if dir.join(COMPLETE).exists() {
            return Ok(());
        }
        println!("a Debian system of {} from {}", self.suite, self.mirror);
        let made = self.fill(dir, steps);
        // debootstrap mounts /proc there, and leaves that when it is killed.
        unmount_below(dir);
        made?;
        if is_below(dir) {
            return Err(format!("something is still mounted in {}", dir.display()));
        }
        std::fs::write(dir.join(COMPLETE), "").map_err(|error| error.to_string())
    }

    fn fill(&self, dir: &Path, steps: &Steps) -> Result<(), String> {
        let dir_text = dir.display().to_string();
        let args = ["--variant=minbase", &self.suite, &dir_text, &self.mirror];
        steps.run("debootstrap", command("debootstrap", args))?;
        // Packages start no services.
        let policy = dir.join("usr/sbin/policy-rc.d");
        let written = std::fs::write(&policy, "#!/bin/sh\nexit 101\n").and_then(|()| {
            std::fs::set_permissions(&policy, std::fs::Permissions::from_mode(0o755))
        });
        written.map_err(|error| error.to_string())?;
        steps.run("download packages", chroot(dir, DOWNLOAD))
    }
}

/// A command that runs a script of the shell in `root`.
pub(super) fn chroot(root: &Path, script: &str) -> Command {
    let mut command = command("chroot", [root]);
    command.args(["/bin/sh", "-c", script]);
    let proxies = ["http_proxy", "https_proxy", "no_proxy"];
    let proxies = proxies.map(|name| (name, std::env::var_os(name)));
    command.env_clear();
    command.envs(proxies.into_iter().filter_map(|(name, value)| Some((name, value?))));
    command.env("PATH", "/usr/sbin:/usr/bin:/sbin:/bin").env("HOME", "/root");
    command.env("LC_ALL", "C").env("DEBIAN_FRONTEND", "noninteractive");
    command.env("PACKAGES", PACKAGES).env("REINSTALLED", REINSTALLED);
    // Equal objects in both overlays.
    let date = "2001-02-03T04:05:06Z";
    command.env("GIT_AUTHOR_DATE", date).env("GIT_COMMITTER_DATE", date);
    command
}

/// The first address with `suite` in a file of apt's sources, of either format.
fn mirror_of(text: &str, suite: &str) -> Option<String> {
    let lines = text.lines().map(str::trim).filter(|line| !line.starts_with('#'));
    let of_line = |line: &str| {
        let rest = line.strip_prefix("deb ")?.trim_start();
        let rest = match rest.strip_prefix('[') {
            Some(options) => options.split_once(']')?.1,
            None => rest,
        };
        let mut words = rest.split_whitespace();
        let address = words.next()?;
        (words.next()? == suite).then(|| address.to_owned())
    };
    if let Some(address) = lines.clone().find_map(of_line) {
        return Some(address);
    }
    let lines: Vec<_> = lines.collect();
    lines.split(|line| line.is_empty()).find_map(|stanza| {
        let field = |name| {
            let value = stanza.iter().find_map(|line| line.strip_prefix(name));
            value.map(|value| value.split_whitespace().collect::<Vec<_>>())
        };
        let has = |name, word| field(name).is_some_and(|words| words.contains(&word));
        let fits = has("Types:", "deb") && has("Suites:", suite);
        fits.then(|| field("URIs:")?.first().map(|address| (*address).to_owned())).flatten()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_formats_of_sources_are_read() {
        let lines = "# deb http://a.example suite main\ndeb http://b.example other main\n\
            deb [arch=amd64 signed-by=/k] http://c.example/debian suite main contrib\n";
        assert_eq!(mirror_of(lines, "suite").unwrap(), "http://c.example/debian");
        assert_eq!(mirror_of(lines, "none"), None);
        let stanzas = "Types: deb\n# a comment\nURIs: http://d.example\nSuites: x-security\n\n\
            Types: deb deb-src\nURIs: http://e.example/debian http://f.example\n\
            Suites: suite suite-updates\nComponents: main\n";
        assert_eq!(mirror_of(stanzas, "suite").unwrap(), "http://e.example/debian");
        assert_eq!(mirror_of(stanzas, "x-security").unwrap(), "http://d.example");
        assert_eq!(mirror_of(stanzas, "main"), None);
    }
}
