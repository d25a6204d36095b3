//! `nextent mount`: the same oracles as for the library, through the kernel.

use nextent_sync::{Duration, thread};
use nextent_testkit::tree::{Compare, HostDir, assert_same, walk};
use nextent_testkit::{
    Access, HostFs, KernelMount, ModelFs, Op, Skip, TreeMaker, e2fs, need, same_result, sample_ops,
};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use tempfile::TempDir;

const NEXTENT: &str = env!("CARGO_BIN_EXE_nextent");

/// An image served in front by a process of ours.
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
        command.args(["mount", "-f", "--announce"]).args(options).arg(Self::image(&dir)).arg(&at);
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

    /// Unmounts, waits for the server, and has e2fsck look.
    #[track_caller]
    fn end(mut self) -> TempDir {
        let unmounted = e2fs::run("umount", [self.at()]).unwrap();
        assert!(unmounted.status.success(), "{unmounted:?}");
        assert!(self.server.wait().unwrap().success());
        e2fs::assert_clean(&Self::image(&self.dir));
        std::mem::replace(&mut self.dir, tempfile::tempdir().unwrap())
    }

    /// Kills the server as a crash would, and takes the dead mount away.
    fn kill(mut self) -> TempDir {
        self.server.kill().unwrap();
        self.server.wait().unwrap();
        let unmounted = Command::new("umount").arg("-l").arg(self.at()).status().unwrap();
        assert!(unmounted.success());
        std::mem::replace(&mut self.dir, tempfile::tempdir().unwrap())
    }
}

impl Drop for Served {
    fn drop(&mut self) {
        // Whatever became of the test: no mount stays behind.
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

fn without_times() -> Compare {
    Compare { times: false, root: false, ..Compare::default() }
}

/// What the kernel's ext4 finds in the image.
fn assert_kernel_agrees(dir: &TempDir, model: &ModelFs) {
    let mount = match KernelMount::new(&Served::image(dir), Access::ReadOnly) {
        Ok(mount) => mount,
        Err(skip) => return skip.note(),
    };
    let found = walk(&HostDir::new(mount.path())).unwrap();
    assert_same(&walk(model).unwrap(), &found, &without_times());
    mount.unmount();
}

/// Operations that the kernel passes on to a FUSE server.
fn ops_of_fuse(seed: u64, count: usize) -> impl Iterator<Item = Op> {
    let ops = sample_ops(seed, count).into_iter();
    ops.filter(|op| !matches!(op, Op::Collapse { .. } | Op::Insert { .. }))
}

#[test]
fn every_operation_does_what_it_does_elsewhere() {
    let served = need!(Served::new(&["-t", "ext4"], &[]));
    let (model, host) = (ModelFs::new(4096), HostFs::new(served.at()));
    for op in ops_of_fuse(7, 1500) {
        same_result(&op, &model, &host).unwrap_or_else(|text| panic!("{text}"));
    }
    let found = walk(&HostDir::new(served.at())).unwrap();
    assert_same(&walk(&model).unwrap(), &found, &without_times());
    assert_kernel_agrees(&served.end(), &model);
}

#[test]
fn many_threads_of_many_requests() {
    let served = need!(Served::new(&["-t", "ext4", "-b", "1024"], &["--threads", "4"]));
    thread::scope(|scope| {
        for n in 0..6 {
            let own = served.at().join(format!("t{n}"));
            scope.spawn(move || {
                std::fs::create_dir(&own).unwrap();
                let (model, host) = (ModelFs::new(1024), HostFs::new(&own));
                for op in ops_of_fuse(n, 400) {
                    same_result(&op, &model, &host).unwrap_or_else(|text| panic!("{n}: {text}"));
                }
                let found = walk(&HostDir::new(&own)).unwrap();
                assert_same(&walk(&model).unwrap(), &found, &without_times());
            });
        }
    });
    served.end();
}

#[test]
fn trees_from_several_processes_come_back() {
    let served = need!(Served::new(&["-t", "ext4"], &[]));
    let source = tempfile::tempdir().unwrap();
    TreeMaker::default().make(source.path()).unwrap();
    let copy = |n: usize| {
        let to = served.at().join(format!("copy{n}"));
        Command::new("cp").arg("-a").arg(source.path()).arg(to).spawn().unwrap()
    };
    let copies: Vec<Child> = (0..4).map(copy).collect();
    copies.into_iter().for_each(|mut child| assert!(child.wait().unwrap().success()));
    let original = walk(&HostDir::new(source.path())).unwrap();
    let same = |at: &Path| {
        for n in 0..4 {
            let found = walk(&HostDir::new(at.join(format!("copy{n}")))).unwrap();
            assert_same(&original, &found, &Compare::default());
        }
    };
    same(&served.at());
    let dir = served.end();
    let mount = need!(KernelMount::new(&Served::image(&dir), Access::ReadOnly));
    same(mount.path());
    mount.unmount();
}

#[test]
fn what_was_synced_outlives_a_server_that_is_killed() {
    let mut dir = None;
    for round in 0..3u64 {
        let served = match dir.take() {
            Some(dir) => Served::again(dir, &[]),
            None => need!(Served::new(&["-t", "ext4"], &[])),
        };
        let at = served.at();
        let write = |n: u64| {
            let path = at.join(format!("file{round}-{n}"));
            let mut file = std::fs::File::create(&path).unwrap();
            file.write_all(&vec![n as u8; 5000 + n as usize]).unwrap();
            file.sync_all().unwrap();
            // The name is the directory's.
            std::fs::File::open(&at).unwrap().sync_all().unwrap();
        };
        (0..20).for_each(write);
        // And things under way that nobody waited for.
        for n in 0..50 {
            std::fs::write(at.join(format!("loose{round}-{n}")), [1; 9000]).unwrap();
        }
        let left = served.kill();
        let replayed = Command::new(NEXTENT).arg("replay").arg(Served::image(&left)).output();
        assert!(replayed.unwrap().status.success());
        e2fs::assert_clean(&Served::image(&left));
        let mount = need!(KernelMount::new(&Served::image(&left), Access::ReadOnly));
        for n in 0..20u64 {
            let bytes = std::fs::read(mount.join(format!("file{round}-{n}"))).unwrap();
            assert_eq!(bytes, vec![n as u8; 5000 + n as usize]);
        }
        mount.unmount();
        dir = Some(left);
    }
}

#[test]
fn a_file_without_names_lives_until_its_last_close() {
    use std::os::unix::fs::{FileExt, MetadataExt};
    let served = need!(Served::new(&["-t", "ext4"], &[]));
    let path = served.at().join("file");
    let file = std::fs::File::create_new(&path).unwrap();
    std::fs::remove_file(&path).unwrap();
    file.write_all_at(b"still here", 100_000).unwrap();
    file.sync_all().unwrap();
    let mut bytes = [0; 10];
    let again = std::fs::File::options().read(true).open(format!("/proc/self/fd/{}", fd(&file)));
    again.unwrap().read_exact_at(&mut bytes, 100_000).unwrap();
    assert_eq!(&bytes, b"still here");
    assert_eq!(file.metadata().unwrap().nlink(), 0);
    drop(file);
    served.end();
}

fn fd(file: &std::fs::File) -> i32 {
    std::os::fd::AsRawFd::as_raw_fd(file)
}

#[test]
fn signals_unmount() {
    for signal in ["-TERM", "-INT"] {
        let mut served = need!(Served::new(&["-t", "ext4"], &[]));
        std::fs::write(served.at().join("file"), b"text").unwrap();
        let pid = served.server.id().to_string();
        assert!(Command::new("kill").args([signal, &pid]).status().unwrap().success());
        assert!(served.server.wait().unwrap().success());
        let image = Served::image(&served.dir);
        e2fs::assert_clean(&image);
        let inside = format!("{}:/file", image.display());
        let cat = Command::new(NEXTENT).args(["cat", &inside]).output().unwrap();
        assert_eq!(cat.stdout, b"text");
    }
}

#[test]
fn in_the_background_and_by_its_other_names() {
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
    // Nobody else may have the image meanwhile.
    let second = run(&["mount"], &[&image, &at]);
    assert_eq!(second.status.code(), Some(32));
    let unmounted = Command::new(unmount).arg(&at).status().unwrap();
    assert!(unmounted.success());
    // At once: it waited for the server.
    e2fs::assert_clean(&image);
}

fn run(args: &[&str], paths: &[&Path]) -> Output {
    Command::new(NEXTENT).args(args).args(paths).output().unwrap()
}

#[test]
fn what_cannot_be_mounted_is_told_in_one_line() {
    let dir = tempfile::tempdir().unwrap();
    let (image, at) = (Served::image(&dir), dir.path().join("at"));
    std::fs::create_dir(&at).unwrap();
    need!(e2fs::mke2fs(&image, 16 << 20, &["-t", "ext4"]));
    let (noise, nowhere) = (dir.path().join("noise"), dir.path().join("nowhere"));
    std::fs::write(&noise, [7; 100_000]).unwrap();
    let cases: [(&[&str], &Path, &Path, i32, &str); 8] = [
        (&["mount"], &nowhere, &at, 32, "nowhere"),
        (&["mount"], &noise, &at, 32, "noise"),
        (&["mount"], &image, &nowhere, 32, "nowhere"),
        (&["mount"], &image, &noise, 32, "not a directory"),
        (&["mount", "-o", "rw,quux"], &image, &at, 1, "quux"),
        (&["mount", "-o", "norecovery"], &image, &at, 1, "norecovery"),
        (&["mount", "--design", "ext9"], &image, &at, 32, "ext9"),
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
fn for_reading_only_nothing_changes() {
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
fn a_failing_program_leaves_nothing_behind() {
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
