//! The system's memory, as reported by Linux.

use std::fs::{File, read_to_string};
use std::io::Write;
use std::path::{Path, PathBuf};

/// Where control groups of version 2 are mounted: by themselves, or beside those of version 1.
const UNIFIED: [&str; 2] = ["/sys/fs/cgroup", "/sys/fs/cgroup/unified"];
/// Where the memory controller of version 1 is.
const LEGACY: &str = "/sys/fs/cgroup/memory";

pub(crate) fn available_memory() -> Option<u64> {
    let system = read_to_string("/proc/meminfo").ok().and_then(|text| available(&text));
    let groups = read_to_string("/proc/self/cgroup").unwrap_or_default();
    let limits = limits(&groups);
    let numbers = limits.iter().filter_map(|path| read_to_string(path).ok()?.trim().parse().ok());
    system.into_iter().chain(numbers).min()
}

/// The available memory by `/proc/meminfo`, in bytes.
fn available(text: &str) -> Option<u64> {
    let line = text.lines().find_map(|line| line.strip_prefix("MemAvailable:"))?;
    let kibibytes: u64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    kibibytes.checked_mul(1024)
}

/// The files that may limit the process, by `/proc/self/cgroup`. The limits of a group and of all
/// groups above it apply. In a container the path may exist on the host only; the root of the
/// mounted hierarchy is the container's group then.
fn limits(groups: &str) -> Vec<PathBuf> {
    let mut files = Vec::new();
    for line in groups.lines() {
        let mut fields = line.splitn(3, ':').skip(1);
        let (Some(controllers), Some(path)) = (fields.next(), fields.next()) else { continue };
        if controllers.is_empty() {
            for root in UNIFIED {
                files.extend(above(root, path, "memory.max"));
                files.extend(above(root, path, "memory.high"));
            }
        } else if controllers.split(',').any(|one| one == "memory") {
            files.extend(above(LEGACY, path, "memory.limit_in_bytes"));
        }
    }
    files
}

/// `name` in the group `path` and in all groups above it.
fn above(root: &str, path: &str, name: &str) -> Vec<PathBuf> {
    let path = Path::new(path.trim_start_matches('/'));
    path.ancestors().map(|group| Path::new(root).join(group).join(name)).collect()
}

/// Triggers for pressure. Users without privileges may use a window of two seconds only.
const TRIGGERS: [&[u8]; 2] = [b"some 100000 1000000\0", b"some 200000 2000000\0"];
const SYSTEM_PRESSURE: &str = "/proc/pressure/memory";

pub(crate) fn memory_pressure() -> Option<File> {
    let groups = read_to_string("/proc/self/cgroup").unwrap_or_default();
    let own = groups.lines().find_map(|line| line.strip_prefix("0::/")).unwrap_or_default();
    // The root group has the system's pressure, which is the last choice.
    let files = UNIFIED.iter().filter(|_| !own.is_empty());
    let files = files.map(|root| Path::new(root).join(own).join("memory.pressure"));
    files.chain([PathBuf::from(SYSTEM_PRESSURE)]).find_map(|path| trigger(&path))
}

/// Registers a trigger.
fn trigger(path: &Path) -> Option<File> {
    TRIGGERS.iter().find_map(|trigger| {
        // An open file takes one trigger.
        let mut file = File::options().read(true).write(true).open(path).ok()?;
        file.write_all(trigger).ok()?;
        Some(file)
    })
}

#[cfg(all(target_os = "linux", target_env = "gnu"))]
pub(crate) fn release_memory() {
    // SAFETY: a number; the call takes the allocator's locks.
    unsafe {
        libc::malloc_trim(0);
    }
}

#[cfg(not(all(target_os = "linux", target_env = "gnu")))]
pub(crate) fn release_memory() {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn limits_of_both_versions() {
        let groups = "4:pids,memory:/a/b\n3:cpu:/x\n0::/user.slice/c\n";
        let found = limits(groups);
        let has = |path: &str| found.iter().any(|file| file == Path::new(path));
        assert!(has("/sys/fs/cgroup/memory/a/b/memory.limit_in_bytes"));
        assert!(has("/sys/fs/cgroup/memory/memory.limit_in_bytes"));
        assert!(has("/sys/fs/cgroup/user.slice/c/memory.max"));
        assert!(has("/sys/fs/cgroup/unified/user.slice/memory.high"));
        assert!(has("/sys/fs/cgroup/memory.max"));
        assert!(!found.iter().any(|file| file.to_string_lossy().contains("cpu")));
    }

    #[test]
    fn kibibytes_are_bytes() {
        let text = "MemTotal:  24684548 kB\nMemAvailable:   23772556 kB\n";
        assert_eq!(available(text), Some(23_772_556 << 10));
        assert_eq!(available("MemTotal: 1 kB\n"), None);
    }
}
