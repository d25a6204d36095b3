//! `trim`: a file is small afterwards, and its contents are the same.

use super::{Image, shell};
use nextent_testkit::{Access, KernelMount, e2fs, need};
use std::os::unix::fs::MetadataExt;

/// Bytes that the host has allocated to the image.
fn allocated(image: &Image) -> u64 {
    let file = std::fs::File::open(image.path()).unwrap();
    // The host may decide on blocks when it writes them.
    file.sync_all().unwrap();
    file.metadata().unwrap().blocks() * 512
}

/// Bytes of the volume's used blocks.
fn used(image: &Image) -> u64 {
    let text = image.ok(&["fsck", "-n", "-f", "--json", "IMAGE"]);
    let json: serde_json::Value = serde_json::from_str(&text).unwrap();
    json["blocks_used"].as_u64().unwrap() * 1024
}

/// Fills a volume, removes most of it, and trims.
#[test]
fn free_blocks_become_holes() {
    let image = Image::new();
    shell(
        &image,
        "mkdir s; head -c 30000000 /dev/urandom > s/big; head -c 3000000 /dev/urandom > s/kept; \
         $N mkfs -q -b 1024 -d s $i 64m; $N rm $i:/big",
    );
    let before = allocated(&image);
    assert!(before > 30_000_000, "{before}");
    let said = image.ok(&["trim", "IMAGE"]);
    let free: u64 = said.split(' ').rev().nth(2).unwrap().parse().unwrap();
    let (used, after) = (used(&image), allocated(&image));
    assert_eq!(free + used, 64 << 20, "{said}");
    // Blocks of the host are larger than those of the volume.
    assert!(after <= used + (1 << 20) && after + 25_000_000 < before, "{after} of {used}");
    e2fs::assert_clean(&image.path());
    shell(&image, "$N cp -q $i:/kept out; cmp out s/kept; rm out");
    let mount = need!(KernelMount::new(&image.path(), Access::ReadOnly));
    let kept = std::fs::read(mount.join("kept")).unwrap();
    mount.unmount();
    assert!(kept == std::fs::read(image.dir.path().join("s/kept")).unwrap());
}

#[test]
fn options_are_those_of_fstrim() {
    let image = Image::new();
    let trimmed = |args: &[&str]| -> u64 {
        let text = image.ok(&[&["trim", "--json"], args, &["IMAGE"]].concat());
        let json: serde_json::Value = serde_json::from_str(&text).unwrap();
        json["trimmed"].as_u64().unwrap()
    };
    let all = trimmed(&[]);
    let half = trimmed(&["-o", "32m"]);
    assert!(half > 0 && half < all);
    assert_eq!(trimmed(&["-o", "0", "-l", "32m"]) + half, all);
    assert_eq!(trimmed(&["-o", "1g"]), 0);
    assert_eq!(trimmed(&["-m", "1g"]), 0);
    assert_eq!(image.ok(&["trim", "-q", "IMAGE"]), "");
    image.fails(&["trim", "-m", "x", "IMAGE"], 2);
    image.fails(&["trim", "/dev/null"], 1);
    e2fs::assert_clean(&image.path());
}
