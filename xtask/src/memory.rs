//! Measures the memory of long runs: `memory [FILES]`, about six minutes for the default of a
//! million files.
//!
//! - A mount serves a walk over all files within a control group of 128 MiB. It is measured again
//!   after the kernel has dropped its caches. Needs root and `/dev/fuse`. Without control groups
//!   the limit is not set, and only the figures count.
//! - A fallocate of 8 TiB on a sparse image.
//!
//! Prints one line for each figure; an error if a figure exceeds its limit.

use crate::setup::is_root;
use crate::shell::{cargo, command, root, shown};
use std::fs;
use std::io::{BufWriter, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

const FILES: usize = 1_000_000;
/// Files of one directory.
const IN_DIR: usize = 1000;
/// The limit of the mount's control group, in bytes.
const LIMIT: u64 = 128 << 20;
/// The limit after `drop_caches`, in MiB.
const LEFT: f64 = 64.0;
/// The limit of a fallocate of 8 TiB, in MiB: 64 for groups, 64 for metadata blocks, and the block
/// images of a third of a journal of 1 GiB.
const FALLOCATE: f64 = 512.0;

struct Row {
    name: &'static str,
    mebibytes: f64,
    most: f64,
}

/// Builds the command, measures, and prints the table.
pub(crate) fn run(args: &[String]) -> Result<(), String> {
    let files = match args {
        [] => FILES,
        [files] => files.parse().map_err(|_| "usage: cargo xtask memory [FILES]".to_owned())?,
        _ => return Err("usage: cargo xtask memory [FILES]".into()),
    };
    if !shown(cargo(["build", "-p", "nextent-cli"])).success {
        return Err("the command did not build".into());
    }
    let target =
        std::env::var_os("CARGO_TARGET_DIR").map_or_else(|| root().join("target"), PathBuf::from);
    let tool = target.join("debug/nextent");
    let dir = tempfile::tempdir().map_err(|error| error.to_string())?;
    let mut rows = vec![fallocate(&tool, dir.path())?];
    if is_root() && Path::new("/dev/fuse").exists() {
        rows.extend(walk(&tool, dir.path(), files)?);
    } else {
        println!("skipped: no root or /dev/fuse for a mount");
    }
    println!("{:<32} {:>8} {:>8}", "resident memory, MiB", "most", "limit");
    for row in &rows {
        println!("{:<32} {:>8.1} {:>8.1}", row.name, row.mebibytes, row.most);
    }
    match rows.iter().find(|row| row.mebibytes > row.most) {
        Some(row) => Err(format!("{} takes too much", row.name)),
        None => Ok(()),
    }
}

fn text(path: &Path) -> String {
    path.display().to_string()
}

fn done(mut command: Command) -> Result<(), String> {
    let status = command.status().map_err(|error| error.to_string())?;
    if status.success() { Ok(()) } else { Err(format!("{command:?}: {status}")) }
}

/// A figure of a process's memory in MiB; none when it has ended.
fn memory(process: u32, field: &str) -> Option<f64> {
    let status = fs::read_to_string(format!("/proc/{process}/status")).ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix(field))?;
    let kibibytes: f64 = line.trim().trim_end_matches(" kB").parse().ok()?;
    Some(kibibytes / 1024.0)
}

fn fallocate(tool: &Path, dir: &Path) -> Result<Row, String> {
    let image = dir.join("vast.img");
    let sparse = fs::File::create(&image).and_then(|file| file.set_len(9 << 40));
    sparse.map_err(|error| format!("a sparse file of 9 TiB: {error}"))?;
    let (tool, file) = (text(tool), format!("{}:/file", image.display()));
    done(command(&tool, ["mkfs", "-q", &text(&image)]))?;
    let mut child = command(&tool, ["fallocate", "-l", "8t", &file]);
    let mut child = child.spawn().map_err(|error| error.to_string())?;
    let mut peak = 0.0;
    while child.try_wait().map_err(|error| error.to_string())?.is_none() {
        peak = memory(child.id(), "VmHWM:").unwrap_or(peak);
        sleep(Duration::from_millis(20));
    }
    fs::remove_file(&image).map_err(|error| error.to_string())?;
    Ok(Row { name: "fallocate of 8 TiB, peak", mebibytes: peak, most: FALLOCATE })
}

/// A tar header of an empty file.
fn header(name: &str) -> [u8; 512] {
    let mut bytes = [0; 512];
    let fields: [(usize, &[u8]); 8] = [
        (0, name.as_bytes()),
        (100, b"0000644\0"),
        (108, b"0000000\0"),
        (116, b"0000000\0"),
        (124, b"00000000000\0"),
        (136, b"14524770400\0"),
        (148, b"        0"),
        (257, b"ustar\x0000"),
    ];
    for (at, field) in fields {
        bytes[at..at + field.len()].copy_from_slice(field);
    }
    let sum: u32 = bytes.iter().map(|byte| u32::from(*byte)).sum();
    bytes[148..156].copy_from_slice(format!("{sum:06o}\0 ").as_bytes());
    bytes
}

fn fill(tool: &Path, image: &Path, files: usize) -> Result<(), String> {
    let (inodes, text_of) = ((files + files / 100 + 1000).to_string(), text(image));
    done(command(&text(tool), ["mkfs", "-q", "-N", &inodes, &text_of, "1g"]))?;
    let mut tar = command(&text(tool), ["tar", "-q", "-x", &format!("{text_of}:/")]);
    let mut tar = tar.stdin(Stdio::piped()).spawn().map_err(|error| error.to_string())?;
    let mut pipe = BufWriter::new(tar.stdin.take().ok_or("no pipe")?);
    let written = (0..files)
        .try_for_each(|n| pipe.write_all(&header(&format!("dir{:05}/file{n:07}", n / IN_DIR))));
    written.and_then(|()| pipe.write_all(&[0; 1024])).map_err(|error| error.to_string())?;
    drop(pipe);
    let status = tar.wait().map_err(|error| error.to_string())?;
    if status.success() { Ok(()) } else { Err(format!("tar: {status}")) }
}

/// A control group with a limit, of version 1 or 2; removed when dropped.
struct Group(PathBuf);

impl Group {
    fn new() -> Option<Self> {
        let name = format!("nextent-memory-{}", std::process::id());
        let homes =
            [("/sys/fs/cgroup/memory", "memory.limit_in_bytes"), ("/sys/fs/cgroup", "memory.max")];
        homes.into_iter().find_map(|(home, limit)| {
            let group = Path::new(home).join(&name);
            fs::create_dir(&group).ok()?;
            let group = Self(group);
            fs::write(group.0.join(limit), LIMIT.to_string()).ok()?;
            Some(group)
        })
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        let _ = fs::remove_dir(&self.0);
    }
}

/// A mount, unmounted when dropped.
struct Mount {
    server: Child,
    point: PathBuf,
}

impl Drop for Mount {
    fn drop(&mut self) {
        let _ = command("umount", [&self.point]).status();
        let _ = self.server.wait();
    }
}

fn mount(tool: &Path, image: &Path, point: &Path, group: Option<&Group>) -> Result<Mount, String> {
    fs::create_dir(point).map_err(|error| error.to_string())?;
    let joined = group.map_or_else(|| "/dev/null".into(), |group| group.0.join("cgroup.procs"));
    let script = "echo $$ > \"$0\" && exec \"$@\"";
    let words = [text(&joined), text(tool), "mount".into(), text(image), text(point), "-f".into()];
    let mut server = command("sh", ["-c", script]);
    let server = server.args(words).spawn().map_err(|error| error.to_string())?;
    let mount = Mount { server, point: point.into() };
    let begin = Instant::now();
    let there = || {
        let table = fs::read_to_string("/proc/self/mountinfo").unwrap_or_default();
        table.contains(&text(point))
    };
    while !there() {
        if begin.elapsed() > Duration::from_secs(60) {
            return Err("the mount does not come".into());
        }
        sleep(Duration::from_millis(20));
    }
    Ok(mount)
}

/// Reads the attributes of all files; their number.
fn stat_all(point: &Path) -> std::io::Result<usize> {
    let mut found = 0;
    for dir in fs::read_dir(point)? {
        let dir = dir?;
        if dir.file_name() != "lost+found" && dir.file_type()?.is_dir() {
            for file in fs::read_dir(dir.path())? {
                found += usize::from(file?.metadata()?.is_file());
            }
        }
    }
    Ok(found)
}

fn walk(tool: &Path, dir: &Path, files: usize) -> Result<[Row; 2], String> {
    let (image, point) = (dir.join("many.img"), dir.join("point"));
    fill(tool, &image, files)?;
    let group = Group::new();
    if group.is_none() {
        println!("no control groups for memory: without a limit");
    }
    let mount = mount(tool, &image, &point, group.as_ref())?;
    let found = stat_all(&point).map_err(|error| format!("the walk: {error}"))?;
    if found != files {
        return Err(format!("{found} files of {files}"));
    }
    let server = mount.server.id();
    let peak = memory(server, "VmHWM:").ok_or("the mount was killed")?;
    fs::write("/proc/sys/vm/drop_caches", "2").map_err(|error| error.to_string())?;
    // Wait for the kernel's forgets and a few periods of the mount's memory thread.
    sleep(Duration::from_secs(20));
    let left = memory(server, "VmRSS:").ok_or("the mount was killed")?;
    drop(mount);
    let most = f64::from(u32::try_from(LIMIT >> 20).unwrap_or(u32::MAX));
    Ok([
        Row { name: "walk over all files, peak", mebibytes: peak, most },
        Row { name: "the same after drop_caches", mebibytes: left, most: LEFT },
    ])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tar_reads_the_headers() {
        let mut archive = header("dir/file").to_vec();
        archive.extend([0; 1024]);
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("archive");
        fs::write(&path, archive).unwrap();
        let listed = command("tar", ["-tf", &text(&path)]).output().unwrap();
        assert_eq!(listed.stdout, b"dir/file\n");
    }
}
