//! Preloaded libraries that show other owners, modes and devices than the files of the host have:
//! fakeroot, pseudo and fakechroot, with which images are built without root.
//!
//! They stand before functions of libc. This program calls the system through libc (the feature
//! `use-libc` of rustix; its `fchmod` and `fchown` call the system all the same, and the writer of
//! files takes others). So what such a library shows goes into an image. A static program has no
//! preloaded library: it would see the real owners, and empty files for devices. Then a command
//! that depends on them is refused.

use std::env::var_os;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;

/// A tool, the start of its library's name, and variables that say that it is at work.
const TOOLS: [(&str, &str, &[&str]); 3] = [
    ("fakeroot", "libfakeroot", &["FAKEROOTKEY"]),
    ("pseudo", "libpseudo", &["PSEUDO_PREFIX", "PSEUDO_LOCALSTATEDIR"]),
    ("fakechroot", "libfakechroot", &["FAKECHROOT_BASE"]),
];

/// Says why nothing that depends on owners, modes or devices may be done: such a tool is at work,
/// and this process does not have its library.
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

/// Whether the environment says that a tool is at work.
fn at_work((tool, library, variables): &(&str, &str, &[&str])) -> bool {
    let set = |name: &str| var_os(name).is_some_and(|value| !value.is_empty());
    // pseudo lets a program go, or does nothing, and leaves its other variables.
    let off = |name: &str| var_os(name).is_some_and(|value| !value.is_empty() && value != "0");
    if *tool == "pseudo" && (off("PSEUDO_DISABLED") || set("PSEUDO_UNLOAD")) {
        return false;
    }
    let preloaded = var_os("LD_PRELOAD").is_some_and(|list| contains(&list, library));
    preloaded || variables.iter().any(|name| set(name))
}

/// Whether the library is a part of this process.
fn is_loaded(library: &str) -> bool {
    match std::fs::read("/proc/self/maps") {
        Ok(maps) => contains(OsStr::from_bytes(&maps), library),
        Err(_) => !cfg!(target_feature = "crt-static"),
    }
}

fn contains(text: &OsStr, word: &str) -> bool {
    text.as_bytes().windows(word.len()).any(|window| window == word.as_bytes())
}
