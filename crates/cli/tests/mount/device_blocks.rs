//! Where blocks of files lie on the mounted block device: `FIBMAP`, and swap files.

use crate::support::*;
use nextent_testkit::{Skip, e2fs, need};
use std::fs::{File, OpenOptions};
use std::os::fd::AsRawFd;
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt};
use std::path::Path;
use std::process::{Command, Output};

/// Features of the volume, its block size, and bytes on the device before it.
const VOLUMES: [(&str, u64, u64); 3] = [
    ("^inline_data", 4096, 0),
    ("^inline_data", 1024, 0),
    ("^inline_data,^extent,^64bit", 4096, 1 << 20),
];

const FILES: [&str; 5] = ["whole", "sparse", "allocated", "direct", "tiny"];

/// `FIBMAP` of a block, or for `FIGETBSZ` the unit of blocks.
fn fibmap(file: &File, block: Option<u64>) -> u64 {
    let mut number = block.map_or(0, |block| i32::try_from(block).unwrap());
    let call = if block.is_some() { 1 } else { 2 };
    // SAFETY: the descriptor is open, and both calls read and write an int.
    let done = unsafe { libc::ioctl(file.as_raw_fd(), call, &mut number) };
    assert_eq!(done, 0, "{}", std::io::Error::last_os_error());
    u64::try_from(number).unwrap()
}

fn create(path: &Path, flags: i32) -> File {
    let mut how = OpenOptions::new();
    how.read(true).write(true).create(true).custom_flags(flags).open(path).unwrap()
}

/// Makes [`FILES`].
fn make_files(mount: &Mount) {
    let at = |name: &str| mount.join(name);
    std::fs::write(at("whole"), pattern(50_000, 1)).unwrap();
    std::fs::write(at("tiny"), pattern(30, 2)).unwrap();
    let sparse = create(&at("sparse"), 0);
    for piece in [0, 3, 4, 20, 100] {
        sparse.write_all_at(&pattern(4096, piece as u8), piece * 4096).unwrap();
    }
    for (name, flags) in [("allocated", 0), ("direct", libc::O_DIRECT)] {
        let file = create(&at(name), flags);
        let all = rustix::fs::FallocateFlags::empty();
        if let Err(error) = rustix::fs::fallocate(&file, all, 0, 200_704) {
            assert_eq!(error, rustix::io::Errno::OPNOTSUPP);
        }
        let mut room = vec![0; 5 * 4096];
        let from = room.as_ptr().align_offset(4096);
        room[from..from + 16_384].copy_from_slice(&pattern(16_384, 5));
        file.write_all_at(&room[from..from + 16_384], 65_536).unwrap();
    }
}

fn pattern(len: usize, seed: u8) -> Vec<u8> {
    (0..len).map(|n| (n as u8).wrapping_mul(31) ^ (n >> 8) as u8 ^ seed).collect()
}

/// The blocks of `name` by debugfs, in units of the volume's blocks; 0 for unwritten ones.
fn expected(image: &Path, name: &str, blocks: u64) -> Result<Vec<u64>, Skip> {
    let asks: Vec<String> = (0..blocks).map(|n| format!("bmap /{name} {n}")).collect();
    let said = e2fs::debugfs(image, false, &asks.iter().map(String::as_str).collect::<Vec<_>>())?;
    let lines = said.lines().filter(|line| line.starts_with(|c: char| c.is_ascii_digit()));
    let number = |line: &str| match line.contains("uninit") {
        true => 0,
        false => line.trim().parse().unwrap_or_else(|_| panic!("{line}")),
    };
    Ok(lines.map(number).collect())
}

/// The numbers of [`expected`] in units of `unit` bytes on the device.
fn in_units(volume: &[u64], block: u64, unit: u64, before: u64) -> Vec<u64> {
    let bytes = |block_number: u64| before + block_number * block;
    if unit <= block {
        let parts = block / unit;
        let part = |at: u64, n: u64| if at == 0 { 0 } else { bytes(at) / unit + n };
        let all = |at: &u64| (0..parts).map(|n| part(*at, n)).collect::<Vec<_>>();
        return volume.iter().flat_map(all).collect();
    }
    let whole = |run: &[u64]| {
        let adjacent = run.windows(2).all(|pair| pair[1] == pair[0] + 1);
        let fits = run[0] != 0 && adjacent && bytes(run[0]).is_multiple_of(unit);
        if fits { bytes(run[0]) / unit } else { 0 }
    };
    volume.chunks_exact((unit / block) as usize).map(whole).collect()
}

#[test]
fn blocks_on_the_device_are_those_of_debugfs() {
    for (features, block, before) in VOLUMES {
        let what = format!("{features}, {block}, {before}");
        let dir = tempfile::tempdir().unwrap();
        let (image, disk) = (dir.path().join("image"), dir.path().join("disk"));
        let size = block.to_string();
        need!(e2fs::mke2fs(&image, 16 << 20, &["-t", "ext4", "-b", &size, "-O", features]));
        let bytes = [vec![0; before as usize], std::fs::read(&image).unwrap()].concat();
        std::fs::write(&disk, bytes).unwrap();
        let device = need!(LoopDevice::attach(&disk));
        // Only the call makes the files durable.
        let mount = need!(Mount::new(&device.0, &format!("offset={before},commit=3600")));
        make_files(&mount);
        let mut found = Vec::new();
        for name in FILES {
            let file = File::open(mount.join(name)).unwrap();
            let unit = fibmap(&file, None);
            let units = file.metadata().unwrap().len().div_ceil(unit.max(block)) + 1;
            let units = units * unit.max(block) / unit;
            let blocks: Vec<u64> = (0..units).map(|n| fibmap(&file, Some(n))).collect();
            // The device has the contents.
            let contents = std::fs::read(mount.join(name)).unwrap();
            for (n, at) in blocks.iter().enumerate().filter(|(_, at)| **at != 0) {
                let wanted = &contents[n * unit as usize..];
                let mut bytes = vec![0; wanted.len().min(unit as usize)];
                File::open(&disk).unwrap().read_exact_at(&mut bytes, at * unit).unwrap();
                assert_eq!(bytes, wanted[..bytes.len()], "{what}: {name}, {n}");
            }
            found.push((name, unit, units, blocks));
        }
        mount.unmount();
        drop(device);
        std::fs::write(&image, &std::fs::read(&disk).unwrap()[before as usize..]).unwrap();
        e2fs::assert_clean(&image);
        for (name, unit, units, blocks) in found {
            let volume = need!(expected(&image, name, units * unit / block));
            assert_eq!(blocks, in_units(&volume, block, unit, before), "{what}: {name}");
            assert!(unit > block || blocks.iter().any(|at| *at != 0), "{what}: {name}");
        }
    }
}

#[test]
fn contents_in_the_inode_have_no_block() {
    let dir = tempfile::tempdir().unwrap();
    let image = dir.path().join("image");
    need!(e2fs::mke2fs(&image, 16 << 20, &["-t", "ext4", "-b", "4096", "-O", "inline_data"]));
    std::fs::write(dir.path().join("text"), "text").unwrap();
    let from = dir.path().join("text");
    need!(e2fs::debugfs(&image, true, &[&format!("write {} tiny", text(&from))]));
    let device = need!(LoopDevice::attach(&image));
    let mount = need!(Mount::new(&device.0, "ro"));
    let file = File::open(mount.join("tiny")).unwrap();
    assert_eq!(file.metadata().unwrap().blocks(), 0);
    assert_eq!(fibmap(&file, Some(0)), 0);
    drop(file);
    mount.unmount();
    drop(device);
    e2fs::assert_clean(&image);
}

fn run_tool(tool: &str, file: &Path) -> Output {
    let path = "/usr/sbin:/sbin:/usr/bin:/bin";
    Command::new(tool).arg(file).env("PATH", path).env("LC_ALL", "C").output().unwrap()
}

/// Ends the use of a swap file, also if the test fails.
struct Swap<'p>(&'p Path);

impl Drop for Swap<'_> {
    fn drop(&mut self) {
        let ended = run_tool("swapoff", self.0);
        assert!(ended.status.success() || std::thread::panicking(), "{ended:?}");
    }
}

#[test]
fn a_swap_file_is_used_on_the_device() {
    let dir = tempfile::tempdir().unwrap();
    let image = mkfs(dir.path(), "32m");
    let device = need!(LoopDevice::attach(&image));
    let mount = need!(Mount::new(&device.0, "commit=3600"));
    let (written, allocated) = (mount.join("written"), mount.join("allocated"));
    std::fs::write(&written, vec![0; 1 << 20]).unwrap();
    let all = rustix::fs::FallocateFlags::empty();
    rustix::fs::fallocate(File::create(&allocated).unwrap(), all, 0, 1 << 20).unwrap();
    for file in [&written, &allocated] {
        rustix::fs::chmod(file, 0o600.into()).unwrap();
        let made = run_tool("mkswap", file);
        assert!(made.status.success(), "{made:?}");
    }
    let started = run_tool("swapon", &written);
    let said = String::from_utf8_lossy(&started.stderr);
    if said.contains("not permitted") || said.contains("not implemented") {
        Skip::missing("swapon(2)").note();
    } else {
        assert!(started.status.success(), "{said}");
        let swap = Swap(&written);
        // The kernel keeps the blocks in place.
        let denied = |done: std::io::Result<()>| done.unwrap_err().raw_os_error().unwrap();
        assert_eq!(denied(std::fs::remove_file(&written)), libc::EPERM);
        assert_eq!(denied(std::fs::write(&written, "text")), libc::ETXTBSY);
        drop(swap);
        // It has unwritten blocks, which for this call are holes.
        let refused = run_tool("swapon", &allocated);
        assert!(!refused.status.success(), "{refused:?}");
    }
    std::fs::remove_file(&written).unwrap();
    mount.unmount();
    drop(device);
    e2fs::assert_clean(&image);
}
