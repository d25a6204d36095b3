//! Begin and end of mounts: the program's names, refusals, read-only mounts, killed programs.
#![cfg(all(feature = "mount", target_os = "linux"))]

use nextent_sync::{Duration, thread};
use nextent_testkit::{Skip, e2fs, need};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use tempfile::TempDir;

const NEXTENT: &str = env!("CARGO_BIN_EXE_nextent");

/// An image served by a process in the foreground.
struct Served {
    dir: TempDir,
    server: Child,
}

impl Served {
    fn image(dir: &TempDir) -> PathBuf {
        dir.path().join("image")
    }

    /// Makes an image and serves it.
    fn new(mkfs: &[&str], options: &[&str]) -> Result<Self, Skip> {
        can_mount()?;
        let dir = tempfile::tempdir().unwrap();
        e2fs::mke2fs(&Self::image(&dir), 256 << 20, mkfs)?;
        Ok(Self::again(dir, options))
    }

    /// Serves the image in `dir`, at its directory `at`.
    fn again(dir: TempDir, options: &[&str]) -> Self {
        let at = dir.path().join("at");
        let _ = std::fs::create_dir(&at);
        let mut command = Command::new(NEXTENT);
        command
            .args(["mount", "-f", "--notify-when-mounted"])
            .args(options)
            .arg(Self::image(&dir))
            .arg(&at);
        let mut server = command.stdout(Stdio::piped()).spawn().unwrap();
        let mut line = String::new();
        let out = server.stdout.take().unwrap();
        std::io::BufRead::read_line(&mut std::io::BufReader::new(out), &mut line).unwrap();
        assert_eq!(line, "mounted\n");
        Self { dir, server }
    }

    fn at(&self) -> PathBuf {
        self.dir.path().join("at")
    }

    /// Unmounts, waits for the server, and runs e2fsck.
    #[track_caller]
    fn end(mut self) -> TempDir {
        let unmounted = e2fs::run("umount", [self.at()]).unwrap();
        assert!(unmounted.status.success(), "{unmounted:?}");
        assert!(self.server.wait().unwrap().success());
        e2fs::assert_clean(&Self::image(&self.dir));
        std::mem::replace(&mut self.dir, tempfile::tempdir().unwrap())
    }
}

impl Drop for Served {
    fn drop(&mut self) {
        // No mount is left, also after a failed test.
        let _ = Command::new("umount").arg("-l").arg(self.at()).stderr(Stdio::null()).status();
        let _ = self.server.kill();
        let _ = self.server.wait();
    }
}

fn can_mount() -> Result<(), Skip> {
    if !rustix::process::geteuid().is_root() {
        return Err(Skip::missing("root"));
    }
    let opened = std::fs::File::options().read(true).write(true).open("/dev/fuse");
    opened.map(drop).map_err(|_| Skip::missing("FUSE"))
}

#[test]
fn mounts_in_the_background_by_its_other_names() {
    need!(can_mount());
    let dir = tempfile::tempdir().unwrap();
    let (image, at) = (Served::image(&dir), dir.path().join("at"));
    need!(e2fs::mke2fs(&image, 16 << 20, &["-t", "ext4"]));
    std::fs::create_dir(&at).unwrap();
    let by_name = |name: &str| {
        let path = dir.path().join(name);
        std::os::unix::fs::symlink(NEXTENT, &path).unwrap();
        path
    };
    let (mount, unmount) = (by_name("mount.fuse.nextent"), by_name("umount.fuse.nextent"));
    let options = ["-o", "rw,dev,allow_other,default_permissions"];
    let mounted = Command::new(mount).arg(&image).arg(&at).args(options).status().unwrap();
    assert!(mounted.success());
    std::fs::write(at.join("file"), b"text").unwrap();
    let table = std::fs::read_to_string("/proc/mounts").unwrap();
    assert!(
        table.lines().any(|l| l.contains(&*at.to_string_lossy()) && l.contains("fuse.nextent"))
    );
    // The image is in use meanwhile.
    let second = run(&["mount"], &[&image, &at]);
    assert_eq!(second.status.code(), Some(32));
    let unmounted = Command::new(unmount).arg(&at).status().unwrap();
    assert!(unmounted.success());
    // At once, since umount has waited for the server.
    e2fs::assert_clean(&image);
}

fn run(args: &[&str], paths: &[&Path]) -> Output {
    Command::new(NEXTENT).args(args).args(paths).output().unwrap()
}

#[test]
fn a_refused_mount_prints_one_line() {
    let dir = tempfile::tempdir().unwrap();
    let (image, at) = (Served::image(&dir), dir.path().join("at"));
    std::fs::create_dir(&at).unwrap();
    need!(e2fs::mke2fs(&image, 16 << 20, &["-t", "ext4"]));
    let (noise, nowhere) = (dir.path().join("noise"), dir.path().join("nowhere"));
    std::fs::write(&noise, [7; 100_000]).unwrap();
    let cases: [(&[&str], &Path, &Path, i32, &str); 7] = [
        (&["mount"], &nowhere, &at, 32, "nowhere"),
        (&["mount"], &noise, &at, 32, "noise"),
        (&["mount"], &image, &nowhere, 32, "nowhere"),
        (&["mount"], &image, &noise, 32, "not a directory"),
        (&["mount", "-o", "rw,quux"], &image, &at, 1, "quux"),
        (&["mount", "-o", "ro,no_default_opts"], &image, &at, 1, "no_default_opts"),
        (&["mount", "--threads", "0"], &image, &at, 1, "threads"),
    ];
    let before = std::fs::read(&image).unwrap();
    for (args, image, at, code, word) in cases {
        let output = run(args, &[image, at]);
        let text = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(code), "{args:?}: {text}");
        assert!(text.contains(word) && text.lines().count() == 1, "{text}");
    }
    assert_eq!(std::fs::read(&image).unwrap(), before);
}

#[test]
fn a_read_only_mount_changes_nothing() {
    let served = need!(Served::new(&["-t", "ext4"], &[]));
    std::fs::write(served.at().join("file"), b"text").unwrap();
    let dir = served.end();
    let before = std::fs::read(Served::image(&dir)).unwrap();
    let served = Served::again(dir, &["-o", "ro"]);
    assert_eq!(std::fs::read(served.at().join("file")).unwrap(), b"text");
    assert!(std::fs::write(served.at().join("other"), b"x").is_err());
    let dir = served.end();
    assert_eq!(std::fs::read(Served::image(&dir)).unwrap(), before);
}

#[test]
fn a_killed_program_leaves_no_open_files() {
    let served = need!(Served::new(&["-t", "ext4"], &[]));
    let script =
        "while :; do for i in 1 2 3; do head -c 70000 /dev/zero > f$i; mv f$i g$i; done; done";
    let mut busy =
        Command::new("sh").args(["-c", script]).current_dir(served.at()).spawn().unwrap();
    thread::sleep(Duration::from_millis(300));
    busy.kill().unwrap();
    busy.wait().unwrap();
    // The last child of the shell may still hold a file for a moment.
    for _ in 0..200 {
        if Command::new("umount").arg(served.at()).stderr(Stdio::null()).status().unwrap().success()
        {
            break;
        }
        thread::sleep(Duration::from_millis(20));
    }
    let mut served = served;
    assert!(served.server.wait().unwrap().success());
    e2fs::assert_clean(&Served::image(&served.dir));
}
