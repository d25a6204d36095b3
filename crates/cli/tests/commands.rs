//! The small commands, as a person types them, each judged by e2fsck.

use nextent_testkit::e2fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

struct Image {
    dir: tempfile::TempDir,
}

impl Image {
    fn new() -> Self {
        let image = Self { dir: tempfile::tempdir().unwrap() };
        image.ok(&["mkfs", "-q", "IMAGE", "64m"]);
        image
    }

    fn path(&self) -> PathBuf {
        self.dir.path().join("image")
    }

    /// Runs a command; `IMAGE` stands for the image's path.
    fn run(&self, args: &[&str]) -> Output {
        let path = self.path().display().to_string();
        let args = args.iter().map(|arg| arg.replace("IMAGE", &path));
        Command::new(env!("CARGO_BIN_EXE_nextent")).args(args).output().unwrap()
    }

    #[track_caller]
    fn ok(&self, args: &[&str]) -> String {
        let output = self.run(args);
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        assert!(output.status.success(), "{args:?}: {}", String::from_utf8_lossy(&output.stderr));
        text
    }

    /// Runs a command that must fail with `code`, one line, and no change.
    #[track_caller]
    fn fails(&self, args: &[&str], code: i32) -> String {
        let before = std::fs::read(self.path()).unwrap();
        let output = self.run(args);
        let text = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(code), "{args:?}: {text}");
        assert_eq!(text.lines().count(), 1, "{text}");
        assert!(before == std::fs::read(self.path()).unwrap(), "{args:?} changed the image");
        text
    }
}

fn fsck_code(image: &Image, path: &Path) -> Option<i32> {
    let args = ["fsck".into(), "-n".into(), "-f".into(), path.display().to_string()];
    image.run(&args.each_ref().map(String::as_str)).status.code()
}

#[test]
fn changes_are_there_and_clean() {
    let image = Image::new();
    image.ok(&["mkdir", "-p", "IMAGE:/a/b/c"]);
    image.ok(&["truncate", "-s", "5m", "IMAGE:/a/hole"]);
    image.ok(&["fallocate", "-l", "3m", "IMAGE:/a/full"]);
    image.ok(&["fallocate", "-p", "-o", "1m", "-l", "1m", "IMAGE:/a/full"]);
    image.ok(&["ln", "-s", "../hole", "IMAGE:/a/b/link"]);
    image.ok(&["ln", "IMAGE:/a/full", "IMAGE:/a/b/twin"]);
    image.ok(&["chmod", "-R", "g+w,o-r", "IMAGE:/a"]);
    image.ok(&["chown", "-R", "7:8", "IMAGE:/a"]);
    image.ok(&["mv", "IMAGE:/a/b", "IMAGE:/moved"]);
    let stat: serde_json::Value =
        serde_json::from_str(&image.ok(&["stat", "--json", "IMAGE:/moved/twin"])).unwrap();
    let stat = &stat[0];
    assert_eq!((&stat["size"], &stat["links"]), (&(3 << 20).into(), &2.into()));
    assert_eq!((&stat["uid"], &stat["gid"]), (&7.into(), &8.into()));
    assert_eq!(image.ok(&["ls", "IMAGE:/moved"]), "c\nlink\ntwin\n");
    assert_eq!(image.ok(&["cat", "IMAGE:/moved/twin"]).len(), 3 << 20);
    assert!(image.ok(&["tree", "IMAGE:/"]).contains("link -> ../hole"));
    e2fs::assert_clean(&image.path());
    image.ok(&["rm", "-r", "IMAGE:/a", "IMAGE:/moved"]);
    assert_eq!(image.ok(&["ls", "IMAGE:/"]), "lost+found\n");
    e2fs::assert_clean(&image.path());
    assert!(image.ok(&["replay", "IMAGE"]).contains("nothing to recover"));
}

#[test]
fn refusals_are_one_line_and_change_nothing() {
    let image = Image::new();
    assert!(image.fails(&["cat", "IMAGE:/none"], 1).contains("/none"));
    image.fails(&["cat", "IMAGE:/lost+found"], 1);
    image.fails(&["ls", "IMAGE"], 2);
    image.fails(&["frob"], 2);
    image.fails(&["fsck"], 16);
    image.fails(&["fsck", "-n", "/dev/null"], 8);
    image.fails(&["ls", "nbd://host/export"], 2);
}

#[test]
fn fsck_and_info_see_what_e2fsck_sees() {
    let image = Image::new();
    image.ok(&["mkdir", "IMAGE:/d"]);
    image.ok(&["truncate", "-s", "1m", "IMAGE:/d/f"]);
    assert_eq!(fsck_code(&image, &image.path()), Some(0));
    let info: serde_json::Value =
        serde_json::from_str(&image.ok(&["info", "--json", "IMAGE"])).unwrap();
    assert!(info.is_object());
    let text = image.ok(&["info", "IMAGE"]);
    assert!(text.contains("Inode count:") && text.contains("has_journal"), "{text}");
    let Ok(_) = e2fs::debugfs(&image.path(), true, &["clri /d/f", "setb 30000"]) else { return };
    let theirs = e2fs::e2fsck(&image.path()).unwrap();
    assert!(!theirs.is_clean());
    assert_eq!(fsck_code(&image, &image.path()), Some(4));
}
