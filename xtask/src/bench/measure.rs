//! Measures time and memory of a command.

use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

pub(super) fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    match values.len() {
        0 => f64::NAN,
        n if n % 2 == 1 => values[n / 2],
        n => (values[n / 2 - 1] + values[n / 2]) / 2.0,
    }
}

/// Seconds that a command takes to succeed.
pub(super) fn seconds(mut command: Command) -> Result<f64, String> {
    let began = Instant::now();
    let output = command.output().map_err(|error| error.to_string())?;
    let took = began.elapsed().as_secs_f64();
    if output.status.success() {
        return Ok(took);
    }
    let text = String::from_utf8_lossy(&output.stderr);
    let program = command.get_program().display().to_string();
    Err(format!("{program}: {}", text.lines().next().unwrap_or("failed")))
}

/// The highest memory use of a command in MiB.
///
/// It is sampled, so a peak just before the end may be missed.
pub(super) fn peak_mebibytes(mut command: Command) -> Result<f64, String> {
    command.stdout(Stdio::null()).stderr(Stdio::null());
    let mut child = command.spawn().map_err(|error| error.to_string())?;
    let status = format!("/proc/{}/status", child.id());
    let mut peak = 0.0f64;
    loop {
        let text = std::fs::read_to_string(&status).unwrap_or_default();
        let line = text.lines().find_map(|line| line.strip_prefix("VmHWM:"));
        let kib = line.and_then(|line| line.trim().trim_end_matches(" kB").parse::<f64>().ok());
        peak = peak.max(kib.unwrap_or(0.0) / 1024.0);
        match child.try_wait() {
            Ok(None) => std::thread::sleep(Duration::from_micros(200)),
            Ok(Some(status)) if status.success() => return Ok(peak),
            Ok(Some(status)) => return Err(format!("the command ended with {status}")),
            Err(error) => return Err(error.to_string()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn medians() {
        assert_eq!(median(vec![3.0, 1.0, 2.0]), 2.0);
        assert_eq!(median(vec![4.0, 1.0, 2.0, 3.0]), 2.5);
    }
}
