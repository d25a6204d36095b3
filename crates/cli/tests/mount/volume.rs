//! What a mount does to the volume as a whole: discarding, the label, a backup of the superblock.

use crate::support::*;
use nextent_testkit::{Skip, e2fs, need};
use std::fs::File;
use std::os::fd::AsRawFd;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::process::Command;
use std::thread;
use std::time::{Duration, Instant};

const GET_LABEL: libc::c_ulong = 0x8100_9431;
const SET_LABEL: libc::c_ulong = 0x4100_9432;
const TRIM: libc::c_ulong = 0xc018_5879;

const MIB: u64 = 1 << 20;

/// A call on a directory, with an argument of as many bytes as its number says.
#[allow(unsafe_code)]
fn ioctl(path: &Path, number: libc::c_ulong, argument: &mut [u8]) -> Result<(), i32> {
    assert_eq!(number as usize >> 16 & 0x3fff, argument.len());
    let file = File::open(path).unwrap();
    // SAFETY: the number has the length of the argument, which the kernel reads and writes.
    let done = unsafe { libc::ioctl(file.as_raw_fd(), number as _, argument.as_mut_ptr()) };
    if done == 0 { Ok(()) } else { Err(std::io::Error::last_os_error().raw_os_error().unwrap()) }
}

/// Bytes that the host has allocated for the image.
fn allocated(image: &Path) -> u64 {
    File::open(image).unwrap().sync_all().unwrap();
    std::fs::metadata(image).unwrap().blocks() * 512
}

/// Writes and removes a file of 16 MiB, and makes both durable.
fn use_and_free(mount: &Mount) {
    std::fs::write(mount.join("live"), vec![3; MIB as usize]).unwrap();
    let file = File::create(mount.join("file")).unwrap();
    std::io::Write::write_all(&mut &file, &vec![7; 16 << 20]).unwrap();
    file.sync_all().unwrap();
    drop(file);
    let used = free_bytes(mount);
    std::fs::remove_file(mount.join("file")).unwrap();
    // The kernel sends the close of the file later, without waiting for the answer.
    let deadline = Instant::now() + Duration::from_secs(60);
    while free_bytes(mount) < used + 16 * MIB {
        assert!(Instant::now() < deadline, "the blocks of a removed file are not freed");
        thread::sleep(Duration::from_millis(10));
    }
    File::create(mount.join("mark")).unwrap().sync_all().unwrap();
}

fn free_bytes(mount: &Mount) -> u64 {
    let stat = rustix::fs::statvfs(mount.path()).unwrap();
    stat.f_bfree * stat.f_frsize
}

fn trim(mount: &Mount, start: u64, len: u64, min: u64) -> Result<u64, i32> {
    let mut range = [start, len, min].map(u64::to_ne_bytes).concat();
    ioctl(mount.path(), TRIM, &mut range)?;
    Ok(u64::from_ne_bytes(range[8..16].try_into().unwrap()))
}

/// Whether holes can be punched into files of the temporary directory.
fn can_punch() -> Result<(), Skip> {
    let file = tempfile::NamedTempFile::new().unwrap();
    let args = ["--punch-hole", "--offset", "0", "--length", "4096", text(file.path())];
    let done = Command::new("fallocate").args(args).output();
    let punched = done.is_ok_and(|output| output.status.success());
    if punched { Ok(()) } else { Err(Skip::missing("holes in files")) }
}

#[test]
fn freed_blocks_become_holes_with_discard_or_trim() {
    need!(can_punch());
    for options in ["discard", "discard,nodiscard"] {
        let dir = tempfile::tempdir().unwrap();
        let image = mkfs(dir.path(), "64m");
        let mount = need!(Mount::new(&image, options));
        use_and_free(&mount);
        if options != "discard" {
            let full = allocated(&image);
            assert!(full > 16 * MIB, "{full}");
            let trimmed = trim(&mount, 0, u64::MAX, 0).unwrap();
            assert!(trimmed > 32 * MIB && trimmed < 64 * MIB, "{trimmed}");
            assert_eq!(trim(&mount, 0, 1024, 0), Err(libc::EINVAL), "less than a block");
            assert_eq!(trim(&mount, 64 * MIB, u64::MAX, 0), Err(libc::EINVAL), "past the end");
            assert_eq!(trim(&mount, 0, u64::MAX, 256 * MIB), Err(libc::EINVAL), "a long run");
            assert!(trim(&mount, 8 * MIB, 8 * MIB, 4096).unwrap() <= 8 * MIB);
        }
        let left = allocated(&image);
        assert!(left < 12 * MIB, "{options}: {left}");
        assert!(std::fs::read(mount.join("live")).unwrap() == vec![3; MIB as usize]);
        mount.unmount();
        e2fs::assert_clean(&image);
    }
}

#[test]
fn only_root_trims_and_labels() {
    let dir = tempfile::tempdir().unwrap();
    let image = mkfs(dir.path(), "64m");
    let mount = need!(Mount::new(&image, "allow_other"));
    let trims = |who: &[&str]| {
        let mut command = Command::new("setpriv");
        command.args(who).args(["fstrim", "-v", text(mount.path())]);
        command.output().unwrap()
    };
    if !Command::new("fstrim").arg("--version").output().is_ok_and(|o| o.status.success()) {
        Skip::missing("fstrim").note();
        return mount.unmount();
    }
    let ours = trims(&[]);
    let text_of = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    assert!(ours.status.success(), "{}", text_of(&ours.stderr));
    assert!(text_of(&ours.stdout).contains("trimmed"), "{}", text_of(&ours.stdout));
    let theirs = trims(&["--reuid", "4242", "--regid", "4242", "--clear-groups"]);
    assert!(text_of(&theirs.stderr).contains("not permitted"), "{}", text_of(&theirs.stderr));
    mount.unmount();
    e2fs::assert_clean(&image);
}

#[test]
fn the_label_is_read_and_changed() {
    let dir = tempfile::tempdir().unwrap();
    let image = mkfs(dir.path(), "64m");
    let mount = need!(Mount::new(&image, ""));
    let mut label = [1; 256];
    ioctl(mount.path(), GET_LABEL, &mut label).unwrap();
    assert_eq!(label, [0; 256]);
    for (name, done) in [(&b"sixteen bytes ok"[..], Ok(())), (&[b'a'; 17], Err(libc::EINVAL))] {
        let mut label = [0; 256];
        label[..name.len()].copy_from_slice(name);
        assert_eq!(ioctl(mount.path(), SET_LABEL, &mut label), done);
    }
    ioctl(mount.path(), GET_LABEL, &mut label).unwrap();
    assert_eq!(&label[..17], b"sixteen bytes ok\0");
    mount.unmount();
    e2fs::assert_clean(&image);
    let text = need!(e2fs::dumpe2fs(&image, true));
    assert!(text.contains("Filesystem volume name:   sixteen bytes ok\n"), "{text}");

    let mount = Mount::new(&image, "ro").unwrap();
    assert_eq!(ioctl(mount.path(), SET_LABEL, &mut label), Err(libc::EROFS));
    assert_eq!(trim(&mount, 0, u64::MAX, 0), Err(libc::EROFS));
    mount.unmount();
    e2fs::assert_clean(&image);
}

#[test]
fn a_backup_of_the_superblock_is_mounted_read_only() {
    let dir = tempfile::tempdir().unwrap();
    let image = mkfs(dir.path(), "300m");
    let mount = need!(Mount::new(&image, ""));
    std::fs::write(mount.join("file"), "text").unwrap();
    mount.unmount();
    let mut bytes = std::fs::read(&image).unwrap();
    bytes[1024..8192].fill(0);
    std::fs::write(&image, &bytes).unwrap();
    let mount = Mount::new(&image, "sb=131072").unwrap();
    assert_eq!(std::fs::read(mount.join("file")).unwrap(), b"text");
    let error = std::fs::write(mount.join("new"), "").unwrap_err();
    assert_eq!(error.raw_os_error(), Some(libc::EROFS));
    mount.unmount();
    assert!(bytes == std::fs::read(&image).unwrap(), "the image is unchanged");
    let point = dir.path().join("point");
    std::fs::create_dir(&point).unwrap();
    let refused = run(&["mount", "-f", "-o", "sb=131073", text(&image), text(&point)]);
    assert_eq!(refused.status.code(), Some(32));
    let text = String::from_utf8_lossy(&refused.stderr).into_owned();
    assert!(text.contains("holds no backup of the superblock"), "{text}");
    need!(e2fs::run("e2fsck", ["-fy", "-b", "32768", "-B", "4096", image.to_str().unwrap()]));
    e2fs::assert_clean(&image);
}
