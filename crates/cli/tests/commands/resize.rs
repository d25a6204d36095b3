//! `resize`: sizes, lengths of files, parts of disks, overlays, and refusals.

use super::{Image, shell};
use nextent_testkit::{Access, DiskImage, KernelMount, e2fs, need};
use serde_json::Value;
use std::os::unix::fs::MetadataExt;
use std::process::Command;

fn json(image: &Image, args: &[&str]) -> Value {
    serde_json::from_str(&image.ok(&[&["resize", "--json"], args].concat())).unwrap()
}

fn length(image: &Image) -> u64 {
    std::fs::metadata(image.path()).unwrap().len()
}

/// An image of 16 MiB in blocks of 1 KiB with a tree.
fn small() -> Image {
    let image = Image { dir: tempfile::tempdir().unwrap() };
    shell(
        &image,
        "mkdir -p s/d; seq 100000 > s/d/a; ln s/d/a s/b; for n in $(seq 100); do echo $n > s/$n; \
         done; $N mkfs -q -b 1024 -d s $i 16m; cp $i before",
    );
    image
}

#[test]
fn a_file_has_the_length_of_the_volume() {
    let image = small();
    let same = || shell(&image, "$N diff before:/ $i:/");
    for (size, bytes) in [("24m", 24 << 20), ("20000", 20_000 << 10), ("9m", 9 << 20)] {
        let result = json(&image, &["IMAGE", size]);
        assert_eq!((&result["bytes"], length(&image)), (&Value::from(bytes), bytes), "{result}");
        e2fs::assert_clean(&image.path());
        same();
    }
    let least = json(&image, &["-P", "IMAGE"]);
    assert!(length(&image) == 9 << 20, "-P changed the length");
    let said = image.ok(&["resize", "-p", "-M", "IMAGE"]);
    assert!(
        said.starts_with("Begin pass 1\n") && said.contains(": resized from 9216 to "),
        "{said}"
    );
    assert_eq!(Some(length(&image)), least["minimum_bytes"].as_u64());
    e2fs::assert_clean(&image.path());
    same();
    // Without a size the volume becomes as large as the file, in whole pages, and never smaller.
    let before = std::fs::read(image.path()).unwrap();
    assert!(image.ok(&["resize", "IMAGE"]).contains("already"));
    assert!(before == std::fs::read(image.path()).unwrap());
    shell(&image, "truncate -s 33m $i; truncate -s +1000 $i");
    assert_eq!(json(&image, &["IMAGE"])["blocks"], 33 << 10);
    assert_eq!(length(&image), (33 << 20) + 1000);
    e2fs::assert_clean(&image.path());
    same();
    let meta = std::fs::metadata(image.path()).unwrap();
    assert!(meta.blocks() * 512 < 8 << 20, "{meta:?}");
    for (letter, feature) in [("-s", "32-bit"), ("-b", "64-bit")] {
        assert!(image.ok(&["resize", letter, "IMAGE"]).contains(feature));
        e2fs::assert_clean(&image.path());
        same();
    }
    assert_eq!(length(&image), (33 << 20) + 1000);
}

#[test]
fn what_is_impossible_leaves_the_image_unchanged() {
    let image = small();
    let image_is = |args: &[&str], code, text: &str| {
        let said = image.fails(&[&["resize"], args].concat(), code);
        assert!(said.contains(text), "{args:?}: {said}");
    };
    image_is(&["IMAGE", "x"], 2, "'x' is not a size");
    image_is(&["IMAGE", "0"], 2, "less than a block");
    image_is(&["IMAGE", "1s"], 2, "less than a block");
    image_is(&["IMAGE", "99999999t"], 2, "too large");
    image_is(&["-M", "IMAGE", "5m"], 2, "cannot be used with");
    image_is(&["-b", "-s", "IMAGE"], 2, "cannot be used with");
    image_is(&["IMAGE", "1m"], 1, "the contents need more than 1048576 bytes (1024 blocks): about");
    image_is(&["none", "1m"], 1, "none: No such file");
    image_is(&["IMAGE@offset=0,size=16m", "17m"], 1, "the partition has only 16777216 bytes");
    // A file that was extended is cut again.
    need!(e2fs::mke2fs(&image.path(), 16 << 20, &["-t", "ext4", "-O", "bigalloc"]));
    image_is(&["IMAGE", "20m"], 1, "bigalloc");
    image_is(&["-P", "IMAGE"], 1, "bigalloc");
}

#[test]
fn a_partition_changes_and_no_other_byte() {
    let dir = tempfile::tempdir().unwrap();
    let parts = [("a", 1, 8), ("b", 10, 16), ("c", 27, 8)];
    let disk = DiskImage::gpt(&dir.path().join("disk"), 36, 512, &parts);
    let part = format!("{}@label=b", disk.path().display());
    let run = |args: &[&str]| {
        let output = Command::new(env!("CARGO_BIN_EXE_nextent")).args(args).output().unwrap();
        let err = String::from_utf8_lossy(&output.stderr).into_owned();
        (output.status.code(), err)
    };
    assert_eq!(run(&["mkfs", "-q", "-b", "1024", &part]).0, Some(0));
    let (_, bytes) = &disk.parts[1];
    let (outside, all) = (disk.outside(bytes), std::fs::metadata(disk.path()).unwrap().len());
    let copy = dir.path().join("part");
    for size in [&["9m"][..], &["-M"], &["12m"], &[]] {
        let (letter, size): (Vec<&str>, Vec<&str>) =
            size.iter().partition(|word| word.starts_with('-'));
        let args = [&["resize"], &letter[..], &[&part], &size[..]].concat();
        assert_eq!(run(&args).0, Some(0), "{args:?}");
        assert!(outside == disk.outside(bytes), "{args:?}: another part");
        assert_eq!(all, std::fs::metadata(disk.path()).unwrap().len(), "{args:?}");
        disk.extract(bytes, &copy);
        e2fs::assert_clean(&copy);
    }
    let text = need!(e2fs::dumpe2fs(&copy, true));
    assert!(text.contains("Block count:              16384\n"), "{text}");
    let (code, said) = run(&["resize", &part, "17m"]);
    let text = "17825792 bytes (17408 blocks) asked for, but the partition has only 16777216 bytes";
    assert!(code == Some(1) && said.contains(text), "{said}");
    assert!(outside == disk.outside(bytes));
}

#[test]
fn an_overlay_keeps_its_base() {
    let image = small();
    let overlay = format!("overlay:IMAGE+{}", image.dir.path().join("delta").display());
    let before = std::fs::read(image.path()).unwrap();
    let result = json(&image, &[&overlay, "9m"]);
    assert_eq!(result["blocks"], 9 << 10);
    let said = image.fails(&["resize", &overlay, "17m"], 1);
    assert!(said.contains("the overlay has only the 16777216 bytes of its base"), "{said}");
    shell(&image, "$N diff before:/ overlay:$i+delta:/");
    image.ok(&["fsck", "-fn", &overlay]);
    assert!(before == std::fs::read(image.path()).unwrap());
    image.ok(&["commit-overlay", &overlay]);
    e2fs::assert_clean(&image.path());
    assert_eq!(json(&image, &["IMAGE"])["blocks"], 16 << 10);
    e2fs::assert_clean(&image.path());
}

/// Mounts: only the kernel's grow, and not by all users.
#[test]
fn mounts_grow_or_are_refused() {
    let image = small();
    for (path, text) in [
        ("/proc", "a file system of type proc"),
        ("/proc/self", "is a directory, and no mount point"),
    ] {
        let said = image.fails(&["resize", path], 1);
        assert!(said.contains(text), "{said}");
    }
    let mount = need!(KernelMount::new(&image.path(), Access::ReadWrite));
    let point = mount.path().to_str().unwrap().to_owned();
    let said = image.fails(&["resize", "IMAGE", "9m"], 1);
    assert!(said.contains(&format!("mounted on {point} (ext4); unmount it first")), "{said}");
    for (args, text) in [
        (&[point.as_str(), "9m"][..], "a mounted volume can only grow, and has 16777216 bytes"),
        (&["-M", &point], "a mounted volume can only grow; unmount it"),
        (&[&point, "17m"], "but the device has only 16777216 bytes"),
    ] {
        let said = image.fails(&[&["resize"], args].concat(), 1);
        assert!(said.contains(text), "{said}");
    }
    assert!(image.ok(&["resize", &point]).contains("has 16777216 bytes (16384 blocks) already"));
    shell(&image, "truncate -s 40m $i; losetup -c $(losetup -n -O NAME -j $i)");
    let output = image.run(&["resize", &point]);
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    let blocks = match output.status.code() {
        Some(0) => 40 << 10,
        // Root in a container.
        _ => {
            assert!(said.contains("this needs root (CAP_SYS_RESOURCE)"), "{said}");
            16 << 10
        }
    };
    mount.unmount();
    e2fs::assert_clean(&image.path());
    let text = need!(e2fs::dumpe2fs(&image.path(), true));
    assert!(text.contains(&format!("Block count:              {blocks}\n")), "{text}");
}
