//! The program as resize2fs: streams, exit codes, counts and lengths of files are those of
//! resize2fs with the same arguments on the same images.

use crate::called::{Said, called};
use crate::works;
use nextent_testkit::{Access, KernelMount, Skip, e2fs, need};
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};

/// Kinds of volumes, in blocks of 1 KiB, and arguments that change them; IMAGE is appended unless
/// it is there.
const CHANGES: &[(&str, &[&str])] = &[
    (
        "-t ext4",
        &[
            "IMAGE 20M",
            "IMAGE 40M",
            "-p IMAGE 61441",
            "IMAGE 10M",
            "-f IMAGE 5000",
            "IMAGE 16385",
            "IMAGE 0x2001",
            "IMAGE 20000s",
            "-s IMAGE",
        ],
    ),
    ("-t ext4 -O ^64bit,^resize_inode,meta_bg", &["IMAGE 30M", "IMAGE 9000"]),
    ("-t ext4 -O ^64bit", &["-b IMAGE", "-b IMAGE 10M", "IMAGE 1g"]),
    ("-t ext3", &["IMAGE 30M", "IMAGE 9000"]),
    ("-t ext2 -O ^resize_inode", &["IMAGE 300M", "IMAGE 6M"]),
];

/// Arguments that change nothing, or are refused.
const UNCHANGED: &[&str] = &[
    "IMAGE",
    "-f IMAGE",
    "-p IMAGE 16M",
    "IMAGE 16384",
    "IMAGE 0x4000",
    "IMAGE 32768s",
    "-- IMAGE",
    "-F IMAGE",
    "-P -F IMAGE",
    "-P IMAGE",
    "-P -f IMAGE x",
    "-PM IMAGE",
    "IMAGE 5x",
    "IMAGE x",
    "IMAGE 0",
    "IMAGE 12000S",
    "IMAGE 16MB",
    "-b IMAGE x",
    "-b IMAGE 5",
    "-b IMAGE",
    "-s -b IMAGE",
    "IMAGE 1",
    "IMAGE 1M",
    "IMAGE 5 6",
    "-q IMAGE",
    "-h IMAGE",
    "-V",
    "-M",
    "-S",
    "none",
    "none 5x",
    "/",
];

fn real(args: &[&str]) -> Result<Said, Skip> {
    Ok(Said::of(&e2fs::run("resize2fs", args)?))
}

/// Both runs on copies of an image.
struct Both {
    dir: tempfile::TempDir,
}

impl Both {
    /// An image of 16 MiB.
    fn new(kind: &str) -> Result<Self, Skip> {
        let both = Self { dir: tempfile::tempdir().unwrap() };
        let words: Vec<&str> = kind.split(' ').chain(["-b", "1024"]).collect();
        e2fs::mke2fs(&both.at("made"), 16 << 20, &words)?;
        Ok(both)
    }

    fn at(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    /// A copy of the image, with holes. It is not locked: a process that another test starts would
    /// hold the lock, too, until it executes.
    fn copy(&self, name: &str) -> PathBuf {
        const CHUNK: usize = 4096;
        let (path, bytes) = (self.at(name), std::fs::read(self.at("made")).unwrap());
        let file = std::fs::File::create(&path).unwrap();
        file.set_len(bytes.len().try_into().unwrap()).unwrap();
        for (n, chunk) in bytes.chunks(CHUNK).enumerate().filter(|(_, chunk)| *chunk != [0; CHUNK])
        {
            file.write_all_at(chunk, (n * CHUNK).try_into().unwrap()).unwrap();
        }
        path
    }

    /// Calls both on copies; the results without the version and without the names of the images.
    fn call(&self, line: &str) -> Result<[Said; 2], Skip> {
        let copy = |name: &str| -> Vec<String> {
            let path = self.copy(name);
            line.split(' ').map(|word| word.replace("IMAGE", path.to_str().unwrap())).collect()
        };
        let (ours, theirs) = (copy("ours"), copy("theirs"));
        let theirs: Vec<&str> = theirs.iter().map(String::as_str).collect();
        let said = [called("resize2fs", &ours), real(&theirs)?];
        Ok(said.map(|said| Said { out: self.plain(&said.out), err: self.plain(&said.err), ..said }))
    }

    /// The lines without version, usage, progress and the number of an estimate.
    fn plain(&self, text: &str) -> String {
        let other = ["resize2fs 1.47.0 (", "Usage: ", "Not supported: ", "Begin pass", "---"];
        let lines = text.lines().filter(|line| !other.iter().any(|word| line.contains(word)));
        let mut text: String = lines.map(|line| format!("{line}\n")).collect();
        for name in ["ours", "theirs"] {
            text = text.replace(self.at(name).to_str().unwrap(), "IMAGE");
        }
        for start in ["minimum (", "minimum size of the filesystem: "] {
            if let Some(at) = text.find(start).map(|at| at + start.len()) {
                let end = text[at..].find(|c: char| !c.is_ascii_digit()).unwrap_or(0);
                text.replace_range(at..at + end, "N");
            }
        }
        text
    }

    /// The superblock of an image and the lines of its groups, without times and checksums.
    fn counts(&self, name: &str) -> Vec<String> {
        let text = e2fs::dumpe2fs(&self.at(name), true).unwrap();
        let kept = ["count:", "Free ", "Block size", "per group", "Filesystem features", "GDT"];
        let lines = text.lines().filter(|line| kept.iter().any(|word| line.contains(word)));
        lines.filter(|line| !line.starts_with("Mount")).map(str::to_owned).collect()
    }

    fn length(&self, name: &str) -> u64 {
        std::fs::metadata(self.at(name)).unwrap().len()
    }
}

#[test]
fn changes_are_those_of_resize2fs() {
    for (kind, lines) in CHANGES {
        let both = need!(Both::new(kind));
        for line in *lines {
            let [ours, theirs] = need!(both.call(line));
            let what = format!("{kind}: {line}");
            assert!(theirs.code == 0, "{what}: {theirs:?}");
            assert_eq!(ours, theirs, "{what}");
            e2fs::assert_clean(&both.at("ours"));
            assert_eq!(both.counts("ours"), both.counts("theirs"), "{what}");
            assert_eq!(both.length("ours"), both.length("theirs"), "{what}");
        }
    }
}

#[test]
fn refusals_are_those_of_resize2fs() {
    let both = need!(Both::new("-t ext4"));
    let before = std::fs::read(both.at("made")).unwrap();
    for line in UNCHANGED {
        let [ours, theirs] = need!(both.call(line));
        assert_eq!(ours, theirs, "{line}");
        assert!(before == std::fs::read(both.at("ours")).unwrap(), "{line} wrote something");
    }
    let image = both.at("ours");
    let image = image.to_str().unwrap();
    for letter in ["-d1", "-S4", "-zundo"] {
        let said = called("resize2fs", &[letter, image, "10M"]);
        let text = format!("resize2fs: {} is not supported: ", &letter[..2]);
        assert!(said.code == 1 && said.err.contains(&text), "{said:?}");
    }
    let usage = called("nextent", &["resize2fs"]);
    let text = "resize2fs 1.47.0 (nextent ";
    assert!(usage.err.starts_with(text) && usage.err.contains("\nUsage: resize2fs "), "{usage:?}");
    assert!(before == std::fs::read(image).unwrap(), "a refused call wrote something");
    // No ext file system.
    std::fs::write(both.at("made"), vec![0; 100_000]).unwrap();
    for line in ["IMAGE", "-P IMAGE", "IMAGE 1M"] {
        let [ours, theirs] = need!(both.call(line));
        assert_eq!((ours.code, &ours.out), (theirs.code, &theirs.out), "{line}");
        let text = theirs.err.trim_end();
        assert!(ours.err.starts_with(text) && text.contains("Bad magic number"), "{ours:?}");
    }
}

/// A volume that may be damaged, or was not checked since its last mount.
#[test]
fn a_check_is_asked_for_as_by_resize2fs() {
    for (lines, kind) in [
        (&["ssv lastcheck 20200101", "ssv mtime 20210101"][..], "not checked"),
        (&["ssv state 0"], "not clean"),
        (&["ssv state 3"], "errors"),
        (&["feature needs_recovery"], "recovery"),
    ] {
        let both = need!(Both::new("-t ext4"));
        need!(e2fs::debugfs(&both.at("made"), true, lines));
        let before = std::fs::read(both.at("made")).unwrap();
        for line in ["IMAGE", "IMAGE 10M", "-P IMAGE", "-Pf IMAGE", "-M IMAGE", "-b IMAGE"] {
            let [ours, theirs] = need!(both.call(line));
            assert_eq!(ours, theirs, "{kind}: {line}");
            assert!(before == std::fs::read(both.at("ours")).unwrap(), "{kind}: {line}: changed");
        }
        let [ours, theirs] = need!(both.call("-f IMAGE 20M"));
        assert_eq!((ours.code, &ours.out), (0, &theirs.out), "{kind}: {ours:?}");
    }
}

/// libguestfs' and e2b's calls: the image becomes small, and its tree stays the same.
#[test]
fn a_tree_survives_the_smallest_size() {
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path();
    crate::shell(
        dir,
        "mkdir -p tree/d/e; seq 60000 > tree/d/numbers; ln tree/d/numbers tree/link; \
         ln -s d/numbers tree/symbolic; mkfifo tree/d/pipe; \
         for n in $(seq 300); do echo $n > tree/d/e/$n; done; head -c 3000000 /dev/zero > tree/z",
    );
    for (kind, block) in [("-t ext4", 1024), ("-t ext4 -I 128 -O ^extent,^64bit", 4096)] {
        let options = format!("mkfs -q -b {block} {kind} -d tree image 48m");
        works(dir, &options.split(' ').collect::<Vec<_>>());
        std::fs::copy(dir.join("image"), dir.join("before")).unwrap();
        let path = dir.join("image");
        let image = path.to_str().unwrap();
        let estimate = called("resize2fs", &["-P", "-f", image]);
        let text = "Estimated minimum size of the filesystem: ";
        let blocks = estimate.out.trim_end().strip_prefix(text).map(str::parse::<u64>);
        let blocks = blocks.unwrap().unwrap();
        let said = called("resize2fs", &["-M", image]);
        let text = format!("is now {blocks} ({}k) blocks long.\n\n", block / 1024);
        assert!(said.code == 0 && said.out.ends_with(&text), "{kind}: {said:?}");
        let meta = std::fs::metadata(&path).unwrap();
        assert_eq!(meta.len(), blocks * block, "{kind}");
        assert!(meta.len() < 24 << 20, "{kind}: {}", meta.len());
        e2fs::assert_clean(&path);
        works(dir, &["diff", "before:/", "image:/"]);
        let said = called("resize2fs", &[image, "64M"]);
        assert_eq!(said.code, 0, "{kind}: {said:?}");
        e2fs::assert_clean(&path);
        works(dir, &["diff", "before:/", "image:/"]);
        let meta = std::fs::metadata(&path).unwrap();
        assert!(meta.len() == 64 << 20 && meta.blocks() * 512 < 32 << 20, "{kind}: {meta:?}");
        if let Ok(mount) = KernelMount::new(&path, Access::ReadWrite) {
            assert_eq!(std::fs::read(mount.join("d/e/7")).unwrap(), b"7\n");
            std::fs::write(mount.join("new"), vec![1; 20 << 20]).unwrap();
            mount.unmount();
            e2fs::assert_clean(&path);
        }
    }
}

/// A loop device, attached until dropped.
struct LoopDevice(String);

impl LoopDevice {
    fn new(image: &Path) -> Result<Self, Skip> {
        let output = e2fs::run("losetup", ["-f", "--show", image.to_str().unwrap()])?;
        let name = String::from_utf8_lossy(&output.stdout).trim().to_owned();
        match output.status.success() {
            true => Ok(Self(name)),
            false => Err(Skip::missing("loop devices")),
        }
    }
}

impl Drop for LoopDevice {
    fn drop(&mut self) {
        let _ = e2fs::run("losetup", ["-d", &self.0]);
    }
}

/// The size of a device limits the volume, and stays.
#[test]
fn a_device_keeps_its_size() {
    let both = need!(Both::new("-t ext4"));
    for line in ["DEVICE 17M", "DEVICE 9000", "DEVICE 16M", "DEVICE", "-F DEVICE 10M"] {
        let mut said = Vec::new();
        for name in ["ours", "theirs"] {
            let path = both.copy(name);
            let device = need!(LoopDevice::new(&path));
            let args: Vec<String> =
                line.split(' ').map(|word| word.replace("DEVICE", &device.0)).collect();
            let args: Vec<&str> = args.iter().map(String::as_str).collect();
            let one = if name == "ours" { called("resize2fs", &args) } else { need!(real(&args)) };
            let plain = |text: &str| both.plain(text).replace(&device.0, "DEVICE");
            said.push(Said { out: plain(&one.out), err: plain(&one.err), ..one });
        }
        assert_eq!(said[0], said[1], "{line}");
        assert_eq!(both.length("ours"), 16 << 20, "{line}");
        assert_eq!(both.counts("ours"), both.counts("theirs"), "{line}");
        e2fs::assert_clean(&both.at("ours"));
    }
}

/// A volume that the kernel has mounted grows by the kernel, and cannot shrink.
#[test]
fn a_mounted_volume_grows_as_by_resize2fs() {
    let both = need!(Both::new("-t ext4"));
    let mut all = Vec::new();
    for name in ["ours", "theirs"] {
        let path = both.copy(name);
        let mount = need!(KernelMount::new(&path, Access::ReadWrite));
        let attached = ["-n", "-O", "NAME", "-j", path.to_str().unwrap()];
        let device = need!(e2fs::run("losetup", attached));
        let device = String::from_utf8_lossy(&device.stdout).trim().to_owned();
        let mut said = Vec::new();
        for line in ["DEV", "DEV 10M", "-M DEV", "-b DEV", "-P DEV", "DEV 17M", "DEV", "-p DEV"] {
            if said.len() == 6 {
                let file = std::fs::File::options().write(true).open(&path).unwrap();
                file.set_len(40 << 20).unwrap();
                need!(e2fs::run("losetup", ["-c", &device]));
            }
            let args = line.split(' ').map(|word| if word == "DEV" { &device } else { word });
            let args: Vec<&str> = args.collect();
            let one = if name == "ours" { called("resize2fs", &args) } else { need!(real(&args)) };
            let point = mount.path().to_str().unwrap();
            let plain =
                |text: &str| both.plain(text).replace(point, "POINT").replace(&device, "DEV");
            said.push(Said { out: plain(&one.out), err: plain(&one.err), ..one });
        }
        mount.unmount();
        e2fs::assert_clean(&path);
        all.push(said);
    }
    assert_eq!(all[0], all[1]);
    assert!(all[0].iter().any(|said| said.err.contains("On-line shrinking not supported")));
    assert_eq!(both.counts("ours"), both.counts("theirs"));
}
