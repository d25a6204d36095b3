//! The machine, as the kernel describes it.

use std::path::{Path, PathBuf};

/// The machine of a measurement.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Machine {
    pub(crate) cpu: String,
    /// Cores that this process may use.
    pub(crate) cores: usize,
    pub(crate) memory_bytes: u64,
    pub(crate) kernel: String,
}

impl Machine {
    pub(crate) fn here() -> Self {
        let cpuinfo = read("/proc/cpuinfo");
        let model = cpuinfo.lines().find(|line| line.starts_with("model name"));
        let cpu = model.and_then(|line| line.split_once(':')).map_or("unknown", |(_, name)| name);
        let meminfo = read("/proc/meminfo");
        let total = meminfo.lines().find_map(|line| line.strip_prefix("MemTotal:"));
        let total = total.and_then(|text| text.trim().trim_end_matches(" kB").parse::<u64>().ok());
        Self {
            cpu: cpu.trim().to_owned(),
            cores: nextent_sync::available_cores(),
            memory_bytes: total.unwrap_or(0) << 10,
            kernel: read("/proc/sys/kernel/osrelease").trim().to_owned(),
        }
    }
}

fn read(path: &str) -> String {
    std::fs::read_to_string(path).unwrap_or_default()
}

/// The device of the file system that a directory is on, if it has one.
pub(crate) fn device_of(path: &Path) -> Option<PathBuf> {
    let path = path.canonicalize().ok()?;
    let mounts = read("/proc/self/mountinfo");
    let best = mounts.lines().filter_map(|line| {
        let (left, right) = line.split_once(" - ")?;
        let point = PathBuf::from(left.split(' ').nth(4)?);
        let source = PathBuf::from(right.split(' ').nth(1)?);
        path.starts_with(&point).then_some((point, source))
    });
    let (_, source) = best.max_by_key(|(point, _)| point.as_os_str().len())?;
    source.is_absolute().then_some(source)
}
