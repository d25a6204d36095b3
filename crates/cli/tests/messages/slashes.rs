//! A slash at the end of a path requires a directory. Each case runs with coreutils on a mount of
//! the kernel's ext4 and with this program on an image; success and trees are compared.

use crate::{run, shell};
use nextent_testkit::{Access, KernelMount, e2fs, need};
use std::path::Path;

/// The cases. In each, `f`, `x` and `d/g` are files, `d` and `d2` directories, `l` is a link to
/// `d`, `lf` to `f`, and `dang` is dangling. `@` begins a path on the volume, and `%` a path on the
/// host, which has the same files.
const CASES: &str = include_str!("slashes.txt");

const SETUP: &str = "echo f > f; echo x > x; mkdir d d2; echo g > d/g; ln -s d l; ln -s f lf; \
                     ln -s none dang";

/// Names, kinds, modes, owners, link counts, contents.
const LIST: &str = "find . -mindepth 2 -printf '%P %y %m %U:%G %l\\n' | grep -v 'lost+found' \
                    | sort; find . -type f -exec md5sum {} + | sort";

#[test]
fn slashes_are_handled_as_by_coreutils() {
    let dir = tempfile::tempdir().expect("a temporary directory");
    let dir = dir.path();
    let cases: Vec<&str> = CASES.lines().filter(|line| !line.is_empty()).collect();
    shell(dir, "mkdir tree");
    for n in 0..cases.len() {
        shell(dir, &format!("mkdir tree/c{n}; cd tree/c{n}; {SETUP}"));
    }
    shell(dir, "$N mkfs -q -d tree ours 64m; cp ours theirs; cp -a tree host.ours");
    shell(dir, "cp -a tree host.theirs");
    let mount = need!(KernelMount::new(&dir.join("theirs"), Access::ReadWrite));
    let mut differ = Vec::new();
    for (n, case) in cases.iter().enumerate() {
        let theirs = case.replace('@', &format!("{}/", mount.join(format!("c{n}")).display()));
        let theirs = shell_code(dir, &theirs.replace('%', &format!("host.theirs/c{n}/")));
        let words = case.replace('@', &format!("ours:/c{n}/"));
        let words = words.replace('%', &format!("host.ours/c{n}/"));
        let words: Vec<&str> = words.split(' ').collect();
        let output = run(dir, &words);
        let ours = output.status.success();
        if ours != theirs {
            let said = String::from_utf8_lossy(&output.stderr).into_owned();
            differ.push(format!("{case}: {theirs} there, {ours} here {said}"));
        }
    }
    // The host's names, after the volume's.
    let list = |top: &Path, host: &str| {
        shell(top, LIST) + &shell(&dir.join(host), LIST).replace(" ./", " host/")
    };
    let theirs = list(mount.path(), "host.theirs");
    mount.unmount();
    e2fs::assert_clean(&dir.join("ours"));
    let mount = need!(KernelMount::new(&dir.join("ours"), Access::ReadOnly));
    let ours = list(mount.path(), "host.ours");
    mount.unmount();
    let (ours, theirs): (Vec<&str>, Vec<&str>) = (ours.lines().collect(), theirs.lines().collect());
    let of = |line: &&str| -> String {
        let at = line.find('c').map_or(0, |at| at + 1);
        let number: String = line[at..].chars().take_while(char::is_ascii_digit).collect();
        number.parse::<usize>().map_or(String::new(), |n| cases.get(n).unwrap_or(&"").to_string())
    };
    let only = |these: &[&str], those: &[&str], what: &str| -> Vec<String> {
        let lines = these.iter().filter(|line| !those.contains(line));
        lines.map(|line| format!("{what}: {line} ({})", of(line))).collect()
    };
    differ.extend(only(&ours, &theirs, "only here"));
    differ.extend(only(&theirs, &ours, "only there"));
    assert!(differ.is_empty(), "{}", differ.join("\n"));
}

fn shell_code(dir: &Path, line: &str) -> bool {
    let mut command = std::process::Command::new("bash");
    command.current_dir(dir).args(["-c", line]);
    command.output().expect("there is a bash").status.success()
}
