//! Installs the tools that tests need beyond cargo, or names the missing ones.

use crate::shell::{cargo, command, has};
use std::process::Stdio;

/// Tools of the oracles and the Debian package of each.
const TOOLS: [(&str, &str); 21] = [
    ("e2fsck", "e2fsprogs"),
    ("mke2fs", "e2fsprogs"),
    ("debugfs", "e2fsprogs"),
    ("dumpe2fs", "e2fsprogs"),
    ("mount", "mount"),
    ("valgrind", "valgrind"),
    ("fusermount3", "fuse3"),
    ("setpriv", "util-linux"),
    ("fincore", "util-linux-extra"),
    ("setfattr", "attr"),
    ("setfacl", "acl"),
    ("bsdtar", "libarchive-tools"),
    ("rsync", "rsync"),
    ("fakeroot", "fakeroot"),
    ("genext2fs", "genext2fs"),
    ("skopeo", "skopeo"),
    ("umoci", "umoci"),
    ("nbdkit", "nbdkit"),
    ("qemu-nbd", "qemu-utils"),
    ("nbdinfo", "libnbd-bin"),
    ("openssl", "openssl"),
];

/// Installs the oracles' tools, or prints the missing ones.
pub(crate) fn oracles() {
    let mut packages: Vec<&str> =
        TOOLS.iter().filter(|(tool, _)| !has(tool)).map(|(_, package)| *package).collect();
    packages.dedup();
    if packages.is_empty() {
        return;
    }
    if is_root() && has("apt-get") {
        let _ = quiet("apt-get", &["update", "-qq"]);
        let mut args = vec!["install", "-y", "-qq", "--no-install-recommends"];
        args.extend(&packages);
        if quiet("apt-get", &args) {
            return;
        }
    }
    println!("not installed: {}; tests that need them are skipped", packages.join(", "));
}

/// Whether cargo has `fmt` or `clippy`; installs the component if rustup can.
pub(crate) fn component(name: &str, package: &str) -> bool {
    let there = || {
        let mut asked = cargo([name, "--version"]);
        asked.stdout(Stdio::null()).stderr(Stdio::null()).status().is_ok_and(|s| s.success())
    };
    there() || (quiet("rustup", &["component", "add", package]) && there())
}

pub(crate) fn is_root() -> bool {
    let output = command("id", ["-u"]).output();
    output.is_ok_and(|output| output.stdout == b"0\n")
}

fn quiet(tool: &str, args: &[&str]) -> bool {
    let mut command = command(tool, args);
    command.env("DEBIAN_FRONTEND", "noninteractive");
    command.stdout(Stdio::null()).status().is_ok_and(|status| status.success())
}
