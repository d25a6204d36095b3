//! Preloaded libraries that fake owners, modes and devices of host files: fakeroot, pseudo and
//! fakechroot, which build images without root.
//!
//! They replace functions of libc, so this program calls the system through libc (the feature
//! `use-libc` of rustix). rustix's `fchmod` and `fchown` do not use libc, so the writer of files
//! calls other functions. Then the faked attributes go into an image. A static program loads no
//! such library: it would see the real owners, and empty files for devices. The packages have a
//! dynamically linked program for this case, which [`hand_over`] runs. Without that program,
//! commands that depend on owners, modes or devices are refused.

use std::env::{args_os, current_exe, var_os};
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::process::CommandExt;
use std::process::Command;

/// A tool, the start of its library's name, and environment variables that show that it is active.
const TOOLS: [(&str, &str, &[&str]); 3] = [
    ("fakeroot", "libfakeroot", &["FAKEROOTKEY"]),
    ("pseudo", "libpseudo", &["PSEUDO_PREFIX", "PSEUDO_LOCALSTATEDIR"]),
    ("fakechroot", "libfakechroot", &["FAKECHROOT_BASE"]),
];

/// The dynamically linked program of the packages, from the directory of the static one.
const DYNAMIC: &str = "../lib/nextent/nextent";

/// Runs the dynamically linked program in place of this one, with the same arguments, if a tool is
/// active whose library this process has not loaded. Returns if there is no such program.
pub(crate) fn hand_over() {
    if !TOOLS.iter().any(|tool| at_work(tool) && !is_loaded(tool.1)) {
        return;
    }
    let own = current_exe().ok();
    // Next to that program there is no other one: it cannot run itself again.
    let program = own.and_then(|own| Some(own.parent()?.join(DYNAMIC)));
    if let Some(program) = program.filter(|program| program.is_file()) {
        let mut args = args_os();
        // The name selects the command.
        let name = args.next().unwrap_or_default();
        // It returns only if it failed. Then `check` refuses what depends on the library.
        let _ = Command::new(program).arg0(name).args(args).exec();
    }
}

/// Fails if such a tool is active but this process has not loaded its library: then no command that
/// depends on owners, modes or devices may run.
pub(crate) fn check() -> Result<(), String> {
    let Some((tool, _, _)) = TOOLS.iter().find(|tool| at_work(tool) && !is_loaded(tool.1)) else {
        return Ok(());
    };
    let why = if cfg!(target_feature = "crt-static") {
        "it is statically linked"
    } else {
        "the library was not loaded"
    };
    Err(format!(
        "{tool} is at work, but this program cannot see the owners, modes and devices that \
         {tool} shows: {why}; use `{tool} tar -c . | nextent mkfs -d - IMAGE`, or \
         `unshare --map-auto --map-root-user` in place of {tool}"
    ))
}

/// Whether the environment shows that a tool is active.
fn at_work((tool, library, variables): &(&str, &str, &[&str])) -> bool {
    let set = |name: &str| var_os(name).is_some_and(|value| !value.is_empty());
    // These switch pseudo off, but its other variables stay.
    let off = |name: &str| var_os(name).is_some_and(|value| !value.is_empty() && value != "0");
    if *tool == "pseudo" && (off("PSEUDO_DISABLED") || set("PSEUDO_UNLOAD")) {
        return false;
    }
    let preloaded = var_os("LD_PRELOAD").is_some_and(|list| contains(&list, library));
    preloaded || variables.iter().any(|name| set(name))
}

/// Whether this process has loaded the library.
fn is_loaded(library: &str) -> bool {
    match std::fs::read("/proc/self/maps") {
        Ok(maps) => contains(OsStr::from_bytes(&maps), library),
        Err(_) => !cfg!(target_feature = "crt-static"),
    }
}

fn contains(text: &OsStr, word: &str) -> bool {
    text.as_bytes().windows(word.len()).any(|window| window == word.as_bytes())
}
