//! Trees of the host that are deeper than the longest path, or that another program changes during
//! a copy.

use crate::support::{inside, run, shell, works};
use nextent_testkit::e2fs;
use rustix::fs::{CWD, RenameFlags, renameat_with};
use std::fs;
use std::os::unix::fs::{MetadataExt, symlink};
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// A directory that rm(1) removes at the end, which handles any depth.
struct Deep(tempfile::TempDir);

impl Deep {
    fn new() -> Self {
        Self(tempfile::tempdir().expect("writable"))
    }
}

impl Drop for Deep {
    fn drop(&mut self) {
        let removed = std::process::Command::new("rm").arg("-rf").arg(self.0.path()).status();
        assert!(removed.is_ok_and(|status| status.success()));
    }
}

/// Compares names, contents, modes, owners, times and links of the trees `$A` and `$B`, by GNU tar,
/// which descends directory by directory.
const SAME: &str = "list() { (cd $1 && tar --format=gnu --sort=name --exclude=./lost+found -c .) \
    | tail -c +513 | sha256sum; }; [ \"$(list $A)\" = \"$(list $B)\" ] || echo $A $B differ";

#[test]
fn paths_may_be_longer_than_the_system_accepts() {
    let deep = Deep::new();
    let top = deep.0.path();
    let make = "python3 - <<'P'
import os
os.mkdir('src'); os.chdir('src')
for level in range(40):
    name = 'd' * 250; os.mkdir(name); os.chdir(name)
    if level % 8 == 7:
        open('leaf', 'w').write('deep' * level); os.chmod('leaf', 0o640); os.utime('leaf', (1, 2))
        os.symlink('leaf', 'link'); os.mkfifo('pipe'); os.link('leaf', 'second')
        open('big', 'w').write('x' * 300000); open('holes', 'w').truncate(1 << 20)
        os.mkdir('sub'); os.chmod('sub', 0o700); os.utime('sub', (3, 4))
P";
    shell(top, make);
    let image = top.join("i.img");
    shell(top, "$N mkfs -q -d src a.img 64m; $N mkfs -q i.img 64m");
    works(&["cp", "-q", "-a", &top.join("src/.").display().to_string(), &inside(&image, "/")]);
    shell(top, "$N mkfs -q b.img 64m; $N cp -q -a i.img:/. b.img:/; $N tar -c i.img:/ > s.tar");
    for image in ["a.img", "i.img", "b.img"] {
        e2fs::assert_clean(&top.join(image));
        shell(
            top,
            &format!("rm -rf out; mkdir out; $N cp -q -a {image}:/. out; A=src B=out; {SAME}"),
        );
        // Once more, over the existing files.
        shell(top, &format!("$N cp -q -a {image}:/. out; A=src B=out; {SAME}"));
    }
    shell(
        top,
        &format!("$N mkfs -q -d s.tar t.img 64m; $N cp -q -a t.img:/. t; A=src B=t; {SAME}"),
    );
}

/// 20,000 levels, with few descriptors: into an image, between images, and out.
#[test]
fn a_tree_of_20_000_levels() {
    let deep = Deep::new();
    let top = deep.0.path();
    let make = "python3 - <<'P'
import os
os.mkdir('src'); at = os.open('src', os.O_RDONLY)
for level in range(20000):
    if level % 100 == 0: os.close(os.open('f', os.O_WRONLY | os.O_CREAT, 0o600, dir_fd=at))
    os.mkdir('d', dir_fd=at); down = os.open('d', os.O_RDONLY, dir_fd=at); os.close(at); at = down
P";
    shell(top, make);
    let started = Instant::now();
    shell(
        top,
        "ulimit -n 40; $N mkfs -q -d src a.img 256m; $N mkfs -q b.img 256m; \
         $N cp -q -r a.img:/. b.img:/; mkdir out; $N cp -q -r b.img:/. out; \
         $N mkfs -q c.img 256m; $N cp -q -a --threads 1 out/. c.img:/",
    );
    let depth = "python3 - <<'P'
import os
at = os.open('out', os.O_RDONLY); level = files = 0
while 'd' in os.listdir(at):
    files += 'f' in os.listdir(at)
    down = os.open('d', os.O_RDONLY, dir_fd=at); os.close(at); at = down; level += 1
if (level, files) != (20000, 200): print(level, files)
P";
    shell(top, depth);
    for name in ["a.img", "b.img", "c.img"] {
        e2fs::assert_clean(&top.join(name));
    }
    assert!(started.elapsed() < Duration::from_secs(300), "{:?}", started.elapsed());
}

/// Exchanges the directory `at` with a link to `target` and back, until `end`. At any moment one of
/// the two is at `at`.
fn swap(at: &Path, target: &str, end: &AtomicBool) {
    let aside = at.with_file_name("aside");
    symlink(target, &aside).expect("writable");
    while !end.load(Ordering::Relaxed) {
        let exchange = RenameFlags::EXCHANGE;
        renameat_with(CWD, &aside, CWD, at, exchange).expect("both names stay");
        std::thread::sleep(Duration::from_micros(50));
    }
}

/// Ends the other thread when it is dropped, also when an assertion fails.
struct Ending<'a>(&'a AtomicBool);

impl Drop for Ending<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// Runs `act` repeatedly during [`swap`].
fn beside_swaps(at: &Path, target: &str, mut act: impl FnMut()) {
    let end = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| swap(at, target, &end));
        let _ending = Ending(&end);
        let started = Instant::now();
        while started.elapsed() < Duration::from_secs(3) {
            act();
        }
    });
}

/// A link that another program makes in the target during a copy is not followed: the directory
/// that it leads to gets no files and keeps its attributes.
#[test]
fn links_that_appear_in_the_target_are_not_followed() {
    let dir = tempfile::tempdir().expect("writable");
    let top = dir.path();
    shell(
        top,
        "mkdir -p src/d/sub victim; for k in $(seq 60); do echo data > src/d/f$k; \
         ln -s f$k src/d/l$k; done; for k in $(seq 20); do mkfifo -m 666 src/d/p$k; \
         mkdir -m 777 src/d/sub/d$k; done; chmod 777 src/d; chown -R 1000:1000 src/d || true; \
         touch -d 2001-01-01 src/d; chmod 700 victim; echo own > victim/f1; \
         $N mkfs -q -d src i.img 16m",
    );
    let image = top.join("i.img");
    let victim = top.join("victim");
    let before = fs::metadata(&victim).expect("it was made above");
    shell(top, "mkdir -p out/d");
    beside_swaps(&top.join("out/d"), "../victim", || {
        // It may fail with a message.
        run(&["cp", "-q", "-a", &inside(&image, "/."), &top.join("out").display().to_string()]);
    });
    shell(top, "[ \"$(ls victim)\" = f1 ] && [ \"$(cat victim/f1)\" = own ] || ls -l victim");
    let after = fs::metadata(&victim).expect("it is still there");
    assert_eq!(
        (before.uid(), before.mode(), before.mtime()),
        (after.uid(), after.mode(), after.mtime())
    );
}

/// Nor is such a link in the source.
#[test]
fn links_that_appear_in_the_source_are_not_followed() {
    let dir = tempfile::tempdir().expect("writable");
    let top = dir.path();
    shell(
        top,
        "mkdir -p src/d secret; for k in $(seq 100); do echo data > src/d/f$k; \
         echo secret > secret/f$k; done; echo secret > secret/other",
    );
    let (mut copies, src) = (0, top.join("src").display().to_string());
    beside_swaps(&top.join("src/d"), "../secret", || {
        let image = top.join("i.img");
        let _ = fs::remove_file(&image);
        let to = image.display().to_string();
        let made = if copies % 2 == 0 {
            run(&["mkfs", "-q", "-d", &src, &to, "16m"])
        } else {
            works(&["mkfs", "-q", &to, "16m"]);
            run(&["cp", "-q", "-r", &format!("{src}/."), &format!("{to}:/")])
        };
        copies += 1;
        if image.exists() {
            let bytes = fs::read(&image).expect("it was just made");
            let found = bytes.windows(7).any(|window| window == b"secret\n");
            assert!(!found, "{}", String::from_utf8_lossy(&made.stderr));
            e2fs::assert_clean(&image);
        }
    });
}
