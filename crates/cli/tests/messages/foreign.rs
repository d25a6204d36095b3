//! Every command that opens an image names the format of a file that is not an ext file system.

use crate::{run, shell, works};
use std::path::Path;

/// Files: name, shell line that makes it, and words of the message about it.
const FILES: &[(&str, &str, &[&str])] = &[
    ("empty", ": > empty", &["empty", "nextent mkfs"]),
    ("short", "printf hello > short", &["5 bytes", "too few"]),
    ("zeros", "truncate -s 4m zeros", &["superblock is zero", "fsck -b"]),
    ("noise", "head -c 1m /dev/zero | tr '\\0' x > noise", &["magic number is 0x7878"]),
    ("gz", "gzip -c good > gz", &["gzip", "gunzip"]),
    ("bz2", "bzip2 -c good > bz2", &["bzip2"]),
    ("xz", "xz -0 -c good > xz", &["xz", "xz -d"]),
    ("zst", "zstd -q -c good > zst", &["zstd"]),
    ("lz4", "lz4 -q -c good > lz4", &["lz4"]),
    ("tar", "tar -c -f tar good", &["tar archive", "mkfs -d"]),
    ("v7.tar", "tar --format=v7 -c -f v7.tar good", &["tar archive", "mkfs -d"]),
    ("swap", "truncate -s 4m swap; chmod 600 swap; mkswap -q swap 2> /dev/null", &["swap"]),
    (
        "qcow2",
        "printf 'QFI\\373\\0\\0\\0\\3' > qcow2; truncate -s 1m qcow2",
        &["qcow2", "qemu-img"],
    ),
    ("vmdk", "printf 'KDMV\\1\\0\\0\\0' > vmdk; truncate -s 1m vmdk", &["VMDK", "qemu-img"]),
    ("vhdx", "printf vhdxfile > vhdx; truncate -s 1m vhdx", &["VHDX", "qemu-img"]),
    ("simg", "printf '\\072\\377\\046\\355' > simg; truncate -s 1m simg", &["sparse", "simg2img"]),
    (
        "vdi",
        "{ printf '<<< Oracle VM VirtualBox Disk Image >>>\\n'; head -c 24 /dev/zero; \
         printf '\\177\\020\\332\\276\\1\\0\\1\\0'; } > vdi; truncate -s 1m vdi",
        &["VDI", "qemu-img"],
    ),
    (
        "iso",
        "truncate -s 32k iso; printf '\\1CD001\\1\\0' >> iso; truncate -s 1m iso",
        &["ISO 9660", "mount(8)"],
    ),
    (
        "btrfs",
        "truncate -s 65600 btrfs; printf _BHRfS_M >> btrfs; truncate -s 1m btrfs",
        &["btrfs", "mount(8)"],
    ),
    (
        "erofs",
        "truncate -s 1k erofs; printf '\\342\\341\\365\\340' >> erofs; truncate -s 1m erofs",
        &["erofs", "mount(8)"],
    ),
    (
        "f2fs",
        "truncate -s 1k f2fs; printf '\\020\\040\\365\\362' >> f2fs; truncate -s 1m f2fs",
        &["f2fs", "mount(8)"],
    ),
    ("luks", "printf 'LUKS\\272\\276' > luks; truncate -s 1m luks", &["LUKS", "cryptsetup"]),
    ("squash", "printf hsqs > squash; truncate -s 1m squash", &["squashfs"]),
    ("fat", "truncate -s 4m fat; mkfs.vfat fat > /dev/null", &["FAT"]),
    ("xfs", "printf XFSB > xfs; truncate -s 1m xfs", &["XFS"]),
    (
        "gpt",
        "truncate -s 16m gpt; printf 'start=2048, size=8192, name=\"ro\\033ot\"\\n' \
         | sfdisk -q -X gpt gpt; dd if=good of=gpt bs=1M seek=1 conv=notrunc 2> /dev/null",
        &["GPT", "at byte 1048576", "use gpt@1"],
    ),
    (
        "mbr",
        "truncate -s 16m mbr; printf 'start=2048, size=8192\\n' | sfdisk -q -X dos mbr",
        &["MBR", "partition 1 at byte 1048576", "none has an ext file system", "mkfs mbr@1`"],
    ),
    (
        "journal",
        "mke2fs -q -F -O journal_dev journal 4m",
        &["external journal", "not a file system"],
    ),
    (
        "headless",
        "$N mkfs -q -b 1024 headless 32m; dd if=/dev/zero of=headless bs=1k seek=1 count=1 \
         conv=notrunc 2> /dev/null",
        &["superblock is zero", "e2fsck -b 8193 -B 1024"],
    ),
];

/// Every command that opens an image, with its exit code.
const COMMANDS: &[(&[&str], i32)] = &[
    (&["ls", "X:/"], 1),
    (&["ls", "-l", "X:/a"], 1),
    (&["tree", "X:/"], 1),
    (&["cat", "X:/a"], 1),
    (&["stat", "X:/a"], 1),
    (&["mkdir", "X:/a"], 1),
    (&["rm", "X:/a"], 1),
    (&["mv", "X:/a", "X:/b"], 1),
    (&["ln", "-s", "a", "X:/b"], 1),
    (&["chmod", "700", "X:/a"], 1),
    (&["chown", "0:0", "X:/a"], 1),
    (&["truncate", "-s", "1", "X:/a"], 1),
    (&["fallocate", "-l", "1", "X:/a"], 1),
    (&["cp", "good", "X:/"], 1),
    (&["cp", "X:/a", "out"], 1),
    (&["tar", "-c", "X:/"], 1),
    (&["tar", "-x", "X:/"], 1),
    (&["replay", "X"], 1),
    (&["info", "X"], 1),
    (&["tune", "-L", "x", "X"], 1),
    (&["resize", "X", "32m"], 1),
    (&["fsck", "X"], 8),
    (&["fsck", "-n", "X"], 8),
    (&["fsck", "-n", "--json", "X"], 8),
    (&["mount", "-f", "X", "point"], 32),
];

/// Runs a command on `name`; its message.
#[track_caller]
fn line(dir: &Path, name: &str, (args, code): (&[&str], i32)) -> String {
    let args: Vec<String> = args.iter().map(|arg| arg.replace('X', name)).collect();
    let args: Vec<&str> = args.iter().map(String::as_str).collect();
    let output = run(dir, &args);
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(code), "{args:?}: {said}");
    assert_eq!(said.lines().count(), 1, "{args:?}: {said}");
    said
}

#[test]
fn each_format_is_named() {
    let dir = tempfile::tempdir().expect("a temporary directory");
    let dir = dir.path();
    works(dir, &["mkfs", "-q", "good", "4m"]);
    std::fs::create_dir(dir.join("point")).expect("as above");
    for (name, make, words) in FILES {
        // The tool may be missing.
        let made = run_shell(dir, make);
        if !made {
            println!("skipped: {name}, for want of a tool");
            continue;
        }
        let before = std::fs::read(dir.join(name)).expect("it was made");
        for (args, code) in COMMANDS {
            let rescued = *name == "headless" && matches!(args[0], "fsck" | "info")
                // It shows the partitions.
                || matches!(*name, "gpt" | "mbr") && args[0] == "info";
            if rescued || (args[0] == "mount" && !can_mount()) {
                continue;
            }
            let said = line(dir, name, (args, *code));
            assert!(said.contains(name) && !said.contains("orrupt"), "{said}");
            for word in *words {
                assert!(said.contains(word), "{name}: {said}");
            }
        }
        assert!(
            before == std::fs::read(dir.join(name)).expect("it was made"),
            "{name} was changed"
        );
    }
}

fn run_shell(dir: &Path, line: &str) -> bool {
    let mut command = std::process::Command::new("bash");
    command.env("N", env!("CARGO_BIN_EXE_nextent")).current_dir(dir);
    command.args(["-e", "-o", "pipefail", "-c", line]).output().is_ok_and(|o| o.status.success())
}

fn can_mount() -> bool {
    std::fs::File::options().read(true).write(true).open("/dev/fuse").is_ok()
}

#[test]
fn paths_that_are_not_files_are_named() {
    let dir = tempfile::tempdir().expect("a temporary directory");
    let dir = dir.path();
    std::fs::write(dir.join("good"), "x").expect("as above");
    for name in ["point", "folder"] {
        std::fs::create_dir(dir.join(name)).expect("as above");
    }
    for (args, code) in COMMANDS.iter().filter(|(args, _)| args[0] != "mount" || can_mount()) {
        let said = line(dir, "none", (args, *code));
        assert!(said.contains("none: No such file"), "{said}");
        let said = line(dir, "folder", (args, *code));
        assert!(said.contains("folder: is a directory"), "{said}");
    }
    let said = line(dir, "/dev/null", (&["info", "X"], 1));
    assert!(said.contains("is a character device"), "{said}");
}

/// As with mke2fs, a file of another format is overwritten without a question if there is no
/// terminal.
#[test]
fn mkfs_overwrites_without_a_terminal() {
    let dir = tempfile::tempdir().expect("a temporary directory");
    shell(
        dir.path(),
        "head -c 4m /dev/zero | gzip -1 > x; truncate -s 4m x; $N mkfs -q x < /dev/null",
    );
    nextent_testkit::e2fs::assert_clean(&dir.path().join("x"));
}

/// A user at a terminal is asked, and the name in the question is escaped.
#[test]
fn mkfs_asks_at_a_terminal() {
    let dir = tempfile::tempdir().expect("a temporary directory");
    let dir = dir.path();
    if std::process::Command::new("script").arg("-V").output().is_err() {
        return println!("skipped: no script(1)");
    }
    shell(
        dir,
        "head -c 4m /dev/zero | gzip -1 > gz; truncate -s 4m gz; \
         truncate -s 4m empty; $N mkfs -q ext 4m; printf '\\033[2J' \
         | dd of=ext bs=1 seek=$((1024 + 0x78)) conv=notrunc 2> /dev/null",
    );
    let ask = |name: &str, answer: &str| {
        shell(dir, &format!("echo {answer} | script -qec '$N mkfs -q {name}' /dev/null; true"))
    };
    let before = std::fs::read(dir.join("gz")).expect("it was made");
    let said = ask("gz", "n");
    assert!(said.contains("gz contains gzip-compressed data") && said.contains("(y,N)"), "{said}");
    assert!(said.contains("left unchanged"), "{said}");
    assert!(before == std::fs::read(dir.join("gz")).expect("as above"));
    let said = ask("ext", "n");
    assert!(said.contains("labelled '\\u{1b}[2J'"), "{said}");
    assert!(!ask("empty", "n").contains("(y,N)"));
    ask("gz", "y");
    for made in ["gz", "empty"] {
        nextent_testkit::e2fs::assert_clean(&dir.join(made));
    }
}
