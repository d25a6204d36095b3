//! Man pages and completions: they are written, bash accepts them, and they know the words.
#![cfg(all(feature = "generate", feature = "measure"))]

use std::process::Command;

#[test]
fn pages_and_completions_are_written() {
    let dir = tempfile::tempdir().expect("a temporary directory");
    let mut command = Command::new(env!("CARGO_BIN_EXE_nextent-lab"));
    let status = command.arg("generate").arg(dir.path()).status().expect("it runs");
    assert!(status.success());
    for page in ["", "-bench", "-simulate", "-designs", "-mutants"] {
        let path = dir.path().join(format!("man1/nextent-lab{page}.1"));
        let text = std::fs::read_to_string(&path).expect("the page is written");
        assert!(text.contains(".SH SYNOPSIS"), "{path:?}");
    }
    let completions = dir.path().join("completions");
    let bash = completions.join("nextent-lab.bash");
    let accepted = Command::new("bash").arg("-n").arg(&bash).status().expect("bash runs");
    assert!(accepted.success());
    for file in ["nextent-lab.bash", "_nextent-lab", "nextent-lab.fish"] {
        let text = std::fs::read_to_string(completions.join(file)).expect("it is written");
        for word in ["fallocate2", "ext4-6.16", "kunpeng920", "spin"] {
            assert!(text.contains(word), "{file}: {word}");
        }
    }
}
