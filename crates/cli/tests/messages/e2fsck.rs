//! The program as e2fsck and fsck.ext4: letters, streams and exit codes, compared with e2fsck.

use crate::called::{Said, called};
use nextent_testkit::{e2fs, need};
use std::process::Command;

#[test]
fn letters_and_exit_codes_are_those_of_e2fsck() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("image");
    let image = path.to_str().unwrap();
    for args in [
        &["-p"][..],
        &["-a"],
        &["-y"],
        &["-n"],
        &["-fn"],
        &["-fy"],
        &["-f", "-p", "-v"],
        &["-a", "-C0"],
        &["-fp", "-C", "1"],
        &["-n", "-b", "8193", "-B", "1024"],
        &["-pE", "nodiscard"],
        &["-q"],
        &["-p", "-n"],
        &["-p", "-a"],
    ] {
        need!(e2fs::mke2fs(&path, 16 << 20, &["-t", "ext4", "-b", "1024"]));
        let theirs = Said::of(&need!(e2fs::run("e2fsck", args.iter().chain([&image]))));
        need!(e2fs::mke2fs(&path, 16 << 20, &["-t", "ext4", "-b", "1024"]));
        let ours = called("fsck.ext4", &[args, &[image]].concat());
        // With -b, e2fsck takes the file system as damaged.
        let code = if args.contains(&"-b") { ours.code } else { theirs.code };
        assert_eq!(ours.code, code, "{args:?}: {ours:?} {theirs:?}");
        if ours.code == 0 {
            assert_eq!(ours.err.is_empty(), theirs.err.is_empty(), "{args:?}: {ours:?} {theirs:?}");
            e2fs::assert_clean(&path);
        }
    }
}

#[test]
fn damage_version_usage_and_refusals() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("image");
    let image = path.to_str().unwrap();
    need!(e2fs::mke2fs(&path, 16 << 20, &["-t", "ext4"]));
    need!(e2fs::debugfs(&path, true, &["sif <11> links_count 9", "ssv state 0"]));
    for letter in ["-p", "-a", "-y"] {
        let said = called("e2fsck", &[letter, image]);
        assert!(said.code == 4 && said.out.contains("errors remain"), "{said:?}");
        assert_eq!(said.out.lines().count(), 1, "{said:?}");
    }
    assert_eq!(called("e2fsck", &["-n", image]).code, 4);
    let version = called("e2fsck", &["-V"]);
    assert!(version.code == 0 && version.out.is_empty(), "{version:?}");
    assert!(version.err.starts_with("e2fsck 1.47.0 (nextent "), "{version:?}");
    let usage = called::<&str>("fsck.ext4", &[]);
    assert!(usage.code == 16 && usage.out.is_empty(), "{usage:?}");
    assert!(usage.err.starts_with("Usage: fsck.ext4 "), "{usage:?}");
    assert_eq!(called("nextent", &["fsck.ext4"]), usage);
    for letter in ["-c", "-D", "-llist", "-Llist", "-zundo"] {
        let said = called("e2fsck", &[letter, image]);
        let text = format!("e2fsck: {} is not supported: ", &letter[..2]);
        assert!(said.code == 16 && said.err.starts_with(&text), "{said:?}");
    }
    let none = called("e2fsck", &["-p", "/nonexistent"]);
    assert!(none.code == 8 && none.err.contains("/nonexistent"), "{none:?}");
}

/// resize2fs asks for a check since the last mount, so a check is recorded as by e2fsck.
#[test]
fn the_time_of_a_check_is_recorded() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("image");
    let image = path.to_str().unwrap();
    let old = ["ssv lastcheck 20200101", "ssv mtime 20210101", "ssv mnt_count 7"];
    let kept = || -> Vec<String> {
        let text = e2fs::dumpe2fs(&path, true).unwrap();
        let words = ["Last mount time", "Mount count", "Last checked: "];
        let lines = text.lines().filter(|line| words.iter().any(|word| line.contains(word)));
        // Both checks are of today, or of the day before and of today.
        let today = |line: &str| line.starts_with("Last checked") && !line.contains("2020");
        let lines = lines.map(|line| if today(line) { "checked now" } else { line }.to_owned());
        lines.collect()
    };
    for args in [&["-n"][..], &["-fn"], &["-p"], &["-fp"], &["-y"], &["-fy"], &["-f", "-a"]] {
        let mut all = Vec::new();
        for ours in [false, true] {
            need!(e2fs::mke2fs(&path, 8 << 20, &["-t", "ext4"]));
            need!(e2fs::debugfs(&path, true, &old));
            let args = [args, &[image]].concat();
            match ours {
                true => assert_eq!(called("e2fsck", &args).code, 0, "{args:?}"),
                false => drop(need!(e2fs::run("e2fsck", &args))),
            }
            all.push(kept());
            e2fs::assert_clean(&path);
        }
        assert_eq!(all[0], all[1], "{args:?}");
        assert_eq!(
            all[1].contains(&"checked now".to_owned()),
            args[0] != "-fn" && args[0].contains('f')
        );
    }
    // Errors remain.
    need!(e2fs::debugfs(&path, true, &["sif <11> links_count 9", "ssv lastcheck 20200101"]));
    assert_eq!(called("e2fsck", &["-fy", image]).code, 4);
    assert!(kept().iter().any(|line| line.contains("2020")), "{:?}", kept());
}

/// fsck(8) reads the progress from a descriptor.
#[test]
fn progress_goes_to_a_descriptor() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("image");
    need!(e2fs::mke2fs(&path, 16 << 20, &["-t", "ext4"]));
    let link = crate::called::links().join("fsck.ext4");
    let line = format!("{} -f -a -C7 image 7>progress", link.display());
    let output = Command::new("bash").args(["-c", &line]).current_dir(dir.path()).output().unwrap();
    assert!(output.status.success(), "{output:?}");
    let progress = std::fs::read_to_string(dir.path().join("progress")).unwrap();
    for line in progress.lines() {
        let words: Vec<&str> = line.split(' ').collect();
        assert!(words.len() == 4 && words[3] == "image", "{line}");
        let [pass, done, all] = [0, 1, 2].map(|at| words[at].parse::<u64>().unwrap());
        assert!((1..=5).contains(&pass) && done <= all, "{line}");
    }
    assert!(progress.starts_with("1 ") && progress.contains("\n5 "), "{progress}");
}
