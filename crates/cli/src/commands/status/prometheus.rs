//! The status of a mount in Prometheus's text exposition format, version 0.0.4.
//!
//! Every sample has the label `mountpoint`. Times are in seconds, sizes in bytes, as Prometheus's
//! naming rules ask.

use nextent_fuse::BOUNDS;
use serde_json::Value;
use std::fmt::Write;

/// A metric of one sample: its name, its type, its help, and where the status has it.
type Metric = (&'static str, &'static str, &'static str, &'static str);

const METRICS: [Metric; 20] = [
    ("uptime_seconds", "gauge", "Time since the mount began.", "/uptime_seconds"),
    ("read_only", "gauge", "Whether changes fail.", "/read_only"),
    ("block_size_bytes", "gauge", "Size of a block.", "/space/block_size"),
    ("blocks", "gauge", "Blocks of the file system.", "/space/blocks"),
    ("free_blocks", "gauge", "Free blocks.", "/space/free_blocks"),
    ("reserved_blocks", "gauge", "Blocks that only root may use.", "/space/reserved_blocks"),
    ("inodes", "gauge", "Inodes of the file system.", "/space/inodes"),
    ("free_inodes", "gauge", "Free inodes.", "/space/free_inodes"),
    ("errors_recorded", "gauge", "Errors in the superblock.", "/errors/recorded"),
    ("journal_commits_total", "counter", "Whole transactions.", "/journal/commits"),
    ("journal_fast_commits_total", "counter", "Fast commits.", "/journal/fast_commits"),
    ("journal_blocks_total", "counter", "Blocks in whole transactions.", "/journal/blocks"),
    ("journal_commit_seconds_total", "counter", "Time of all commits.", "/journal/seconds"),
    ("journal_commit_seconds_max", "gauge", "The longest commit.", "/journal/longest_seconds"),
    ("journal_log_blocks", "gauge", "Blocks of the log.", "/journal/log_blocks"),
    ("journal_log_used_blocks", "gauge", "Blocks of the log in use.", "/journal/log_used_blocks"),
    ("cached_inodes", "gauge", "Inodes in memory.", "/caches/inodes"),
    ("cached_inode_bytes", "gauge", "Memory of these inodes.", "/caches/inode_bytes"),
    ("cached_block_bytes", "gauge", "Memory of metadata blocks.", "/caches/block_bytes"),
    ("cached_group_bytes", "gauge", "Memory of allocation groups.", "/caches/group_bytes"),
];

/// All metrics of a status.
pub(super) fn format(status: &Value) -> String {
    let point = status["mountpoint"].as_str().unwrap_or_default();
    let label = format!("mountpoint=\"{}\"", escaped(point));
    let mut out = String::new();
    for (name, kind, help, place) in METRICS {
        head(&mut out, name, kind, help);
        let value = status.pointer(place).map_or(0.0, number);
        put(&mut out, name, &label, value);
    }
    head(&mut out, "journal_stopped", "gauge", "Whether the journal has stopped after an error.");
    let stopped = status.pointer("/errors/journal").is_some_and(Value::is_string);
    put(&mut out, "journal_stopped", &label, f64::from(u8::from(stopped)));
    multi_mount(&mut out, &status["multi_mount"], &label);
    operations(&mut out, status, &label);
    out
}

/// The heartbeat of a volume with multiple mount protection.
fn multi_mount(out: &mut String, state: &Value, label: &str) {
    if !state.is_object() {
        return;
    }
    let name = |key: &str| escaped(state[key].as_str().unwrap_or_default());
    let label = format!("{label},node=\"{}\",device=\"{}\"", name("node"), name("device"));
    for (metric, kind, help, key) in [
        ("mmp_sequence", "gauge", "The number of the last heartbeat.", "sequence"),
        ("mmp_updated_seconds", "gauge", "Time of the last heartbeat since 1970.", "updated"),
        ("mmp_interval_seconds", "gauge", "Time between heartbeats.", "interval_seconds"),
    ] {
        head(out, metric, kind, help);
        put(out, metric, &label, number(&state[key]));
    }
}

/// Counters and a histogram of the operations.
fn operations(out: &mut String, status: &Value, label: &str) {
    let all: Vec<_> = status["operations"].as_array().into_iter().flatten().collect();
    let label = |operation: &Value| {
        let name = escaped(operation["operation"].as_str().unwrap_or_default());
        format!("{label},operation=\"{name}\"")
    };
    for (name, help, field) in [
        ("request_errors_total", "Requests answered with an error number.", "errors"),
        ("request_bytes_total", "Bytes of contents read or written.", "bytes"),
    ] {
        head(out, name, "counter", help);
        for operation in &all {
            put(out, name, &label(operation), number(&operation[field]));
        }
    }
    head(out, "request_seconds", "histogram", "Latency of requests in the server.");
    for operation in &all {
        histogram(out, operation, &label(operation));
    }
}

fn histogram(out: &mut String, operation: &Value, label: &str) {
    let mut sum = 0.0;
    let counts: Vec<f64> =
        operation["buckets"].as_array().into_iter().flatten().map(number).collect();
    for (n, count) in counts.iter().enumerate() {
        sum += count;
        let bound = BOUNDS.get(n).map_or("+Inf".to_owned(), |bound| {
            nextent_sync::Duration::from_micros(*bound).as_secs_f64().to_string()
        });
        put(out, "request_seconds_bucket", &format!("{label},le=\"{bound}\""), sum);
    }
    put(out, "request_seconds_sum", label, number(&operation["seconds"]));
    put(out, "request_seconds_count", label, sum);
}

/// Writing to a string cannot fail.
fn head(out: &mut String, name: &str, kind: &str, help: &str) {
    let _ = writeln!(out, "# HELP nextent_{name} {help}\n# TYPE nextent_{name} {kind}");
}

fn put(out: &mut String, name: &str, label: &str, value: f64) {
    let _ = writeln!(out, "nextent_{name}{{{label}}} {value}");
}

fn number(value: &Value) -> f64 {
    match value {
        Value::Bool(yes) => f64::from(u8::from(*yes)),
        other => other.as_f64().unwrap_or(0.0),
    }
}

/// A label's value: backslash, quote and line feed are escaped.
fn escaped(text: &str) -> String {
    text.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n")
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_histogram_is_cumulative_and_ends_with_infinity() {
        let mut buckets = vec![0; 13];
        (buckets[0], buckets[2], buckets[12]) = (3, 4, 1);
        let read = json!({"operation": "read", "errors": 2, "bytes": 10, "seconds": 1.5,
            "buckets": buckets});
        let shown = format(&json!({"mountpoint": "/a\"b", "operations": [read]}));
        let label = "{mountpoint=\"/a\\\"b\",operation=\"read\"";
        for line in [
            format!("nextent_request_errors_total{label}}} 2"),
            format!("nextent_request_seconds_bucket{label},le=\"0.000001\"}} 3"),
            format!("nextent_request_seconds_bucket{label},le=\"0.000016\"}} 7"),
            format!("nextent_request_seconds_bucket{label},le=\"4.194304\"}} 7"),
            format!("nextent_request_seconds_bucket{label},le=\"+Inf\"}} 8"),
            format!("nextent_request_seconds_sum{label}}} 1.5"),
            format!("nextent_request_seconds_count{label}}} 8"),
        ] {
            assert!(shown.lines().any(|shown| shown == line), "{line}\n{shown}");
        }
    }

    #[test]
    fn every_metric_has_a_type_before_its_samples() {
        let shown = format(&json!({"mountpoint": "/m"}));
        let mut typed = String::new();
        for line in shown.lines() {
            if let Some(rest) = line.strip_prefix("# TYPE ") {
                typed = rest.split(' ').next().unwrap_or_default().to_owned();
            } else if !line.starts_with('#') {
                assert!(line.starts_with(&format!("{typed}{{")), "{line}");
            }
        }
    }
}
