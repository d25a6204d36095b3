//! Miri on the unsafe code of `sync`: the parts without a model under loom or shuttle.

use crate::shell::{command, shown};

/// Modules whose tests run: words and bytes in shared memory, locks, lock ranks.
const MODULES: [&str; 4] = ["words::", "bytes::", "primitive::real::", "rank::"];

/// Runs the tests. It needs the nightly toolchain with Miri.
///
/// # Errors
///
/// A test failed, or Miri found undefined behaviour.
pub(crate) fn run() -> Result<(), String> {
    let test = ["+nightly", "miri", "test", "-p", "nextent-sync", "--lib", "--"];
    let mut miri = command("cargo", test.into_iter().chain(MODULES));
    // The tests read clocks, and parking_lot turns integers into pointers.
    miri.env("MIRIFLAGS", "-Zmiri-disable-isolation -Zmiri-permissive-provenance");
    let done = shown(miri).success;
    if done { Ok(()) } else { Err("miri: failed, or not installed for nightly".into()) }
}
