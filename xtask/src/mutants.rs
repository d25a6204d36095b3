//! Random schedules and injected bugs: builds `nextent-lab mutants` and runs it.

use crate::shell::{cargo, command, root, shown};

/// The program, built with all assertions and with bugs that can be injected.
const PROGRAM: &str = "target/mutants/nextent-lab";

/// Runs all bugs, or one schedule.
pub(crate) fn run(args: &[String]) -> Result<(), String> {
    let schedule: Vec<&str> = match args {
        [] => Vec::new(),
        [word, seed] if word == "replay" => vec!["--seed", seed],
        [word, seed, bug] if word == "replay" => vec!["--seed", seed, "--bug", bug],
        _ => return Err("usage: cargo xtask mutants [replay SEED [BUG]]".into()),
    };
    let package = ["-p", "nextent-lab", "--no-default-features", "--features", "mutants"];
    let build = [&["build", "--profile", "mutants"], &package[..]].concat();
    if !shown(cargo(build)).success {
        return Err("nextent-lab does not build with the feature `mutants`".into());
    }
    let program = root().join(PROGRAM).display().to_string();
    let finished = shown(command(&program, ["mutants"].into_iter().chain(schedule)));
    match (finished.success, args.is_empty()) {
        (true, _) => Ok(()),
        (false, true) => Err("injected bugs: unexpected results, see above".into()),
        (false, false) => Err("this schedule fails".into()),
    }
}
