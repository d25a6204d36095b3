//! Overlays of one base: commands on them, `commit-overlay` and `rebase`.

use super::Image;
use nextent_device::{DeltaFile, FileDevice, FileOptions, copy_sparse};
use nextent_sync::atomic::{AtomicUsize, Ordering};
use nextent_testkit::{DiskImage, NbdServer, Skip, e2fs, need};
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::process::{Command, Stdio};

/// A base of 16 MiB with a few files, in a directory of deltas.
fn base() -> Image {
    let image = Image { dir: tempfile::tempdir().unwrap() };
    let tree = image.dir.path().join("tree");
    std::fs::create_dir_all(tree.join("etc")).unwrap();
    std::fs::write(tree.join("etc/name"), "base\n").unwrap();
    std::fs::write(tree.join("data"), vec![7; 500_000]).unwrap();
    image.ok(&["mkfs", "-q", "-b", "1024", "-d", tree.to_str().unwrap(), "IMAGE", "16m"]);
    image
}

fn overlay(image: &Image, delta: &str) -> String {
    let at = |name: &str| image.dir.path().join(name).display().to_string();
    format!("overlay:{}+{}", at("image"), at(delta))
}

/// What the overlay reads, in a new file.
fn merged(image: &Image, delta: &str) -> std::path::PathBuf {
    let reading = FileOptions::new().read_only(true);
    let base = FileDevice::open(image.path(), &reading).unwrap();
    let path = image.dir.path().join(delta);
    let device = DeltaFile::open_file(base, &path, &reading, |_| Vec::new()).unwrap();
    let merged = image.dir.path().join(format!("{delta}.merged"));
    let file = FileOptions::new().create(true).size(16 << 20);
    copy_sparse(&device, &FileDevice::open(&merged, &file).unwrap()).unwrap();
    merged
}

#[test]
fn a_hundred_overlays_share_a_base() {
    let image = base();
    let before = std::fs::read(image.path()).unwrap();
    let next = AtomicUsize::new(0);
    nextent_sync::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                loop {
                    let n = next.fetch_add(1, Ordering::Relaxed);
                    if n >= 100 {
                        return;
                    }
                    let delta = format!("{n}.delta");
                    let overlay = overlay(&image, &delta);
                    image.ok(&["mkdir", &format!("{overlay}:/of-{n}")]);
                    let merged = merged(&image, &delta);
                    e2fs::assert_clean(&merged);
                    if n.is_multiple_of(20) {
                        let names = image.ok(&["ls", &format!("{overlay}:/")]);
                        let merged = image.ok(&["ls", &format!("{}:/", merged.display())]);
                        assert_eq!(names, merged);
                        assert!(names.contains(&format!("of-{n}\n")) && names.contains("data"));
                    }
                    std::fs::remove_file(merged).unwrap();
                    let delta = std::fs::metadata(image.dir.path().join(delta)).unwrap();
                    assert!(delta.blocks() * 512 < 1 << 20 && delta.len() > 16 << 20);
                }
            });
        }
    });
    assert!(std::fs::read(image.path()).unwrap() == before, "the base has changed");
    assert_eq!(image.ok(&["ls", "IMAGE:/"]).matches("of-").count(), 0);
    e2fs::assert_clean(&image.path());
}

#[test]
fn every_command_takes_an_overlay() {
    let image = base();
    let overlay = overlay(&image, "d+1@x");
    let path = |path: &str| format!("{overlay}:{path}");
    let delta = image.dir.path().join("d+1@x");
    // A reader makes no delta.
    assert_eq!(image.ok(&["cat", &path("/etc/name")]), "base\n");
    assert!(image.ok(&["info", &overlay]).contains("Block size:") && !delta.exists());
    let before = std::fs::read(image.path()).unwrap();
    let tree = image.dir.path().join("tree").display().to_string();
    image.ok(&["cp", "-q", "-a", &tree, &path("/copy")]);
    assert!(delta.exists());
    image.ok(&["mv", &path("/data"), &path("/moved")]);
    image.ok(&["cp", "-q", &path("/moved"), &path("/again")]);
    image.ok(&["sync", &tree, &path("/copy")]);
    image.ok(&["fsck", "-f", "-n", &overlay]);
    image.ok(&["trim", "-q", &overlay]);
    image.ok(&["diff", &path("/copy"), &tree]);
    // Its own delta is not the image of another name.
    image.ok(&["cp", "-q", &path("/moved"), &path("/copy/etc")]);
    e2fs::assert_clean(&merged(&image, "d+1@x"));
    image.ok(&["mkfs", "-q", "-b", "4096", &overlay]);
    assert_eq!(image.ok(&["ls", &path("/")]), "lost+found\n");
    e2fs::assert_clean(&merged(&image, "d+1@x"));
    assert!(std::fs::read(image.path()).unwrap() == before, "the base has changed");
}

#[test]
fn a_commit_and_a_rebase_keep_what_the_overlay_reads() {
    let image = base();
    let (one, two) = (overlay(&image, "1.delta"), overlay(&image, "2.delta"));
    image.ok(&["mkdir", &format!("{one}:/one")]);
    image.ok(&["rm", &format!("{one}:/data")]);
    image.ok(&["mkdir", &format!("{two}:/two")]);
    let other = image.dir.path().join("other");
    std::fs::copy(image.path(), &other).unwrap();
    // Before the commit the second overlay goes to a copy; a second one, of the changed copy.
    image.ok(&["rebase", "-q", "-u", &two, other.to_str().unwrap()]);
    let two = two.replace("/image+", "/other+");
    let third = image.dir.path().join("third");
    std::fs::copy(&other, &third).unwrap();
    image.ok(&["mkdir", &format!("{}:/third", third.display())]);
    let third = third.to_str().unwrap();
    let said = image.ok(&["rebase", &two, third]);
    assert!(said.contains("bytes copied into the delta"), "{said}");
    assert!(image.fails(&["ls", &format!("{two}:/")], 1).contains("belongs to another base"));
    let two = two.replace("/other+", "/third+");
    assert_eq!(image.ok(&["ls", &format!("{two}:/")]), "data\netc\nlost+found\ntwo\n");
    let wanted = merged(&image, "1.delta");
    let said = image.ok(&["commit-overlay", "--json", &one]);
    assert!(said.contains("\"committed\""), "{said}");
    assert!(std::fs::read(image.path()).unwrap() == std::fs::read(wanted).unwrap());
    e2fs::assert_clean(&image.path());
    assert_eq!(image.ok(&["ls", "IMAGE:/"]), "etc\nlost+found\none\n");
    assert!(image.ok(&["commit-overlay", &one]).contains(": 0 bytes committed"));
    image.ok(&["mkdir", &format!("{one}:/more")]);
    e2fs::assert_clean(&merged(&image, "1.delta"));
    // The base of the second overlay is committed to as well.
    image.ok(&["commit-overlay", "-q", &two]);
    e2fs::assert_clean(Path::new(third));
}

#[test]
fn wrong_overlays_are_refused_by_one_line() {
    let image = base();
    let path = |name: &str| image.dir.path().join(name);
    let good = overlay(&image, "good");
    image.ok(&["mkdir", &format!("{good}:/dir")]);
    let bytes = std::fs::read(path("good")).unwrap();
    let damaged = |name: &str, change: &dyn Fn(&mut Vec<u8>)| {
        let mut bytes = bytes.clone();
        change(&mut bytes);
        std::fs::write(path(name), &bytes).unwrap();
    };
    damaged("header", &|bytes| bytes[20] ^= 1);
    damaged("bitmap", &|bytes| bytes[4096] ^= 1);
    damaged("short", &|bytes| bytes.truncate(10 << 20));
    damaged("text", &|bytes| *bytes = b"text".to_vec());
    let changes = |overlay: &str| {
        [
            vec!["ls".to_owned(), format!("{overlay}:/")],
            vec!["mkdir".to_owned(), format!("{overlay}:/new")],
            vec!["commit-overlay".to_owned(), overlay.to_owned()],
            vec!["rebase".to_owned(), overlay.to_owned(), path("image").display().to_string()],
        ]
    };
    for (name, why) in [
        ("header", "header: is damaged: the checksum of its header is wrong"),
        ("bitmap", "is damaged: a checksum of its bitmap is wrong"),
        ("short", "short: is cut short: it has 10485760 of"),
        ("text", "text: is not a delta of nextent"),
    ] {
        let before = std::fs::read(path(name)).unwrap();
        for args in changes(&overlay(&image, name)) {
            let said = image.fails(&args.iter().map(String::as_str).collect::<Vec<_>>(), 1);
            assert!(said.contains(why), "{args:?}: {said}");
        }
        assert!(std::fs::read(path(name)).unwrap() == before, "{name} has changed");
    }
    // Another base, and the same one after a change.
    image.ok(&["mkfs", "-q", path("other").to_str().unwrap(), "16m"]);
    for args in changes(&good.replace("/image+", "/other+")) {
        let said = image.fails(&args.iter().map(String::as_str).collect::<Vec<_>>(), 1);
        assert!(said.contains("good: belongs to another base"), "{args:?}: {said}");
    }
    image.ok(&["mkdir", "IMAGE:/changed"]);
    assert!(image.fails(&["ls", &format!("{good}:/")], 1).contains("its base has changed"));
    for (args, code, why) in [
        (&["ls", "overlay:IMAGE:/"][..], 2, "an overlay is overlay:BASE+DELTA"),
        (&["commit-overlay", "IMAGE"], 2, "is no overlay"),
        (&["commit-overlay", "overlay:IMAGE+none@1"], 2, "without a part"),
        (&["commit-overlay", "overlay:IMAGE+none"], 1, "none: No such file"),
        (&["ls", "overlay:missing+none:/"], 1, "missing: No such file"),
        (&["mkdir", "overlay:IMAGE+IMAGE:/d"], 1, "in use"),
    ] {
        let said = image.fails(args, code);
        assert!(said.contains(why), "{args:?}: {said}");
    }
    assert!(!Path::new("none").exists());
    e2fs::assert_clean(&image.path());
}

/// A commit that has begun and not ended, as a crash leaves it: only reading until it is completed.
#[test]
fn an_unfinished_commit_is_completed() {
    let image = base();
    let overlay = overlay(&image, "d");
    image.ok(&["mkdir", &format!("{overlay}:/dir")]);
    let wanted = std::fs::read(merged(&image, "d")).unwrap();
    // A limit on the size of files makes the first write behind it fail.
    let script = format!("ulimit -f 4; trap '' XFSZ; exec \"$0\" commit-overlay '{overlay}'");
    let cut = Command::new("bash").args(["-c", &script, env!("CARGO_BIN_EXE_nextent")]).output();
    let said = String::from_utf8(cut.unwrap().stderr).unwrap();
    assert!(said.contains("File too large") && said.lines().count() == 1, "{said}");
    assert!(image.ok(&["ls", &format!("{overlay}:/")]).contains("dir"));
    assert!(image.ok(&["info", &overlay]).contains("being committed"));
    let refused = image.fails(&["mkdir", &format!("{overlay}:/new")], 1);
    assert!(refused.contains("d: is being committed to its base"), "{refused}");
    image.ok(&["commit-overlay", "-q", &overlay]);
    let info: serde_json::Value =
        serde_json::from_str(&image.ok(&["info", "--json", &overlay])).unwrap();
    assert_eq!((&info["delta_bytes"], &info["delta_state"]), (&0.into(), &"in use".into()));
    assert!(std::fs::read(image.path()).unwrap() == wanted);
    e2fs::assert_clean(&image.path());
    image.ok(&["mkdir", &format!("{overlay}:/new")]);
}

/// While an overlay is open, its base has no writer; a second writer of a delta is refused.
#[test]
fn an_open_overlay_is_locked() {
    let image = base();
    let overlay = overlay(&image, "d");
    let file = |name: &str, read_only| {
        FileDevice::open(image.dir.path().join(name), &FileOptions::new().read_only(read_only))
    };
    image.ok(&["mkdir", &format!("{overlay}:/dir")]);
    let delta = file("d", false).unwrap();
    assert!(image.fails(&["mkdir", &format!("{overlay}:/new")], 1).contains("d: in use by"));
    drop(delta);
    let base = file("image", true).unwrap();
    image.ok(&["mkdir", &format!("{overlay}:/new")]);
    assert!(image.fails(&["commit-overlay", &overlay], 1).contains("image: in use by"));
    drop(base);
    e2fs::assert_clean(&merged(&image, "d"));
}

#[test]
fn partitions_of_an_overlay_are_used() {
    let image = Image { dir: tempfile::tempdir().unwrap() };
    let disk = DiskImage::gpt(&image.path(), 48, 512, &[("first", 1, 16), ("root", 17, 24)]);
    image.ok(&["mkfs", "-q", "IMAGE@2"]);
    let overlay = overlay(&image, "d");
    image.ok(&["mkdir", &format!("{overlay}@2:/dir")]);
    assert!(image.ok(&["ls", &format!("{overlay}@label=root:/")]).contains("dir"));
    assert!(image.ok(&["info", &overlay]).contains("root"));
    image.ok(&["mkfs", "-q", &format!("{overlay}@1")]);
    assert!(!image.ok(&["ls", "IMAGE@2:/"]).contains("dir"));
    image.ok(&["commit-overlay", "-q", &overlay]);
    assert!(image.ok(&["ls", "IMAGE@2:/"]).contains("dir"));
    // A writer of the partition changes a sample of the base.
    image.ok(&["mkdir", &format!("{overlay}@2:/more")]);
    image.ok(&["mkdir", "IMAGE@2:/other"]);
    let said = image.fails(&["ls", &format!("{overlay}@2:/")], 1);
    assert!(said.contains("its base has changed"), "{said}");
    for (name, range) in [("first", 1 << 20..17 << 20), ("root", 17 << 20..41 << 20)] {
        let part = image.dir.path().join(name);
        disk.extract(&range, &part);
        e2fs::assert_clean(&part);
    }
}

/// The delta of one overlay is a part of the base of another.
#[test]
fn an_overlay_is_the_base_of_another() {
    let image = base();
    let below = overlay(&image, "1");
    let above = format!("overlay:{below}+{}", image.dir.path().join("2").display());
    let before = std::fs::read(image.path()).unwrap();
    image.ok(&["mkdir", &format!("{below}:/below")]);
    image.ok(&["mkdir", &format!("{above}:/above")]);
    let names = |overlay: &str| image.ok(&["ls", &format!("{overlay}:/")]);
    assert_eq!(names(&above), "above\nbelow\ndata\netc\nlost+found\n");
    assert_eq!(names(&below), "below\ndata\netc\nlost+found\n");
    image.ok(&["commit-overlay", "-q", &above]);
    assert_eq!(names(&below), names(&above));
    image.ok(&["mkdir", &format!("{below}:/changed")]);
    assert!(image.fails(&["ls", &format!("{above}:/")], 1).contains("its base has changed"));
    e2fs::assert_clean(&merged(&image, "1"));
    assert!(std::fs::read(image.path()).unwrap() == before, "the base has changed");
}

/// A base on an NBD server, and an overlay that is served itself.
#[test]
fn servers_have_bases_and_overlays() {
    let image = base();
    let server = need!(NbdServer::nbdkit(&["-r", "file", image.path().to_str().unwrap()]));
    let delta = image.dir.path().join("d").display().to_string();
    let far = format!("overlay:{}+{delta}", server.address());
    image.ok(&["mkdir", &format!("{far}:/dir")]);
    assert!(image.ok(&["ls", &format!("{far}:/")]).contains("dir"));
    image.fails(&["commit-overlay", &far], 1);
    // The base is the same file.
    let near = overlay(&image, "d");
    assert!(image.ok(&["ls", &format!("{near}:/")]).contains("dir"));
    e2fs::assert_clean(&merged(&image, "d"));
    need!(served(&image, &near));
}

/// Copies an overlay by `serve nbd` and nbdcopy, and checks the copy.
fn served(image: &Image, overlay: &str) -> Result<(), Skip> {
    let at = |name: &str| image.dir.path().join(name).display().to_string();
    let mut server = Command::new(env!("CARGO_BIN_EXE_nextent"))
        .args(["serve", "nbd", "--read-only", "-k", &at("socket"), overlay])
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut address = String::new();
    let mut lines = std::io::BufReader::new(server.stdout.as_mut().unwrap());
    std::io::BufRead::read_line(&mut lines, &mut address).unwrap();
    let copied = Command::new("nbdcopy").args([address.trim(), &at("copy")]).output();
    server.kill().unwrap();
    server.wait().unwrap();
    let copied = copied.map_err(|error| Skip::missing(format!("nbdcopy: {error}")))?;
    assert!(copied.status.success(), "{}", String::from_utf8_lossy(&copied.stderr));
    e2fs::assert_clean(Path::new(&at("copy")));
    let merged = std::fs::read(merged(image, "d")).unwrap();
    assert!(std::fs::read(at("copy")).unwrap() == merged);
    Ok(())
}
