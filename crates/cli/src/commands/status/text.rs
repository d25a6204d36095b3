//! The status of a mount as text for people.

use crate::show;
use nextent::DiskTime;
use nextent_fuse::BOUNDS;
use serde_json::Value;
use std::fmt::Write;

/// A line for each part of the status, and a table of the operations.
pub(super) fn format(status: &Value) -> String {
    let mut out = String::new();
    let mut line = |name: &str, text: String| {
        // Writing to a string cannot fail.
        let _ = writeln!(out, "{name:<10}{}", show::line(&text));
    };
    line("image", text(&status["image"]));
    line("mount", mount(status));
    line("space", space(&status["space"]));
    line("errors", errors(&status["errors"]));
    line("journal", journal(&status["journal"]));
    // Only of a volume with multiple mount protection that is mounted for writing.
    if status["multi_mount"].is_object() {
        line("mmp", multi_mount(&status["multi_mount"]));
    }
    line("caches", caches(&status["caches"]));
    out + &operations(&status["operations"])
}

fn mount(status: &Value) -> String {
    let way = if status["read_only"] == true { "read-only" } else { "read and write" };
    let point = text(&status["mountpoint"]);
    let transport = text(&status["transport"]);
    let since = time(number(&status["uptime_seconds"]));
    format!("{point}, {way}, over {transport}, for {since}, process {}", status["pid"])
}

fn space(space: &Value) -> String {
    let block = number(&space["block_size"]);
    let (free, all) = (number(&space["free_blocks"]), number(&space["blocks"]));
    format!(
        "{} of {} free ({}), {} of {} inodes free",
        bytes(free * block),
        bytes(all * block),
        share(free, all),
        space["free_inodes"],
        space["inodes"]
    )
}

fn errors(errors: &Value) -> String {
    let recorded = match errors["recorded"].as_u64() {
        Some(0) | None => "none".to_owned(),
        Some(count) => format!("{count} recorded in the superblock; unmount and run fsck"),
    };
    match errors["journal"].as_str() {
        Some(cause) => format!("{recorded}; the journal has stopped: {cause}"),
        None => recorded,
    }
}

fn journal(journal: &Value) -> String {
    let commits = number(&journal["commits"]);
    if number(&journal["log_blocks"]) == 0.0 {
        return "none".to_owned();
    }
    let mut text = format!("{commits} commits and {} fast commits", journal["fast_commits"]);
    if commits > 0.0 {
        let mean = time(number(&journal["seconds"]) / commits);
        let longest = time(number(&journal["longest_seconds"]));
        let blocks = number(&journal["blocks"]) / commits;
        // Writing to a string cannot fail.
        let _ = write!(text, ", of {blocks:.0} blocks and {mean} on average, at most {longest}");
    }
    let used = share(number(&journal["log_used_blocks"]), number(&journal["log_blocks"]));
    format!("{text}; {used} of the log in use")
}

fn multi_mount(state: &Value) -> String {
    let time = |seconds| show::calendar(DiskTime { seconds, nanos: 0 });
    let updated = state["updated"].as_i64().map_or("?".to_owned(), time);
    format!(
        "node {}, device {}, sequence {}, updated {updated}, every {} s",
        text(&state["node"]),
        text(&state["device"]),
        state["sequence"],
        state["interval_seconds"]
    )
}

fn caches(caches: &Value) -> String {
    format!(
        "{} inodes ({}), {} more known to the kernel, blocks {}, {} groups ({})",
        caches["inodes"],
        bytes(number(&caches["inode_bytes"])),
        caches["pinned_inodes"],
        bytes(number(&caches["block_bytes"])),
        caches["groups"],
        bytes(number(&caches["group_bytes"]))
    )
}

/// A row for each operation, the one that took most time first.
fn operations(operations: &Value) -> String {
    let mut all: Vec<&Value> = operations.as_array().into_iter().flatten().collect();
    all.sort_by(|a, b| number(&b["seconds"]).total_cmp(&number(&a["seconds"])));
    let row = |cells: [String; 6]| {
        let [name, count, errors, mean, most, bytes] = cells;
        format!("{name:<16}{count:>12}{errors:>10}{mean:>11}{most:>11}{bytes:>12}\n")
    };
    let head = ["operation", "requests", "errors", "mean", "99 % in", "bytes"];
    let mut out = format!("\n{}", row(head.map(str::to_owned)));
    for operation in all {
        let count = number(&operation["count"]);
        let moved = number(&operation["bytes"]);
        out += &row([
            show::line(&text(&operation["operation"])),
            operation["count"].to_string(),
            operation["errors"].to_string(),
            time(number(&operation["seconds"]) / count.max(1.0)),
            most(&operation["buckets"]),
            if moved > 0.0 { bytes(moved) } else { "-".to_owned() },
        ]);
    }
    out
}

/// The time within which 99 of 100 requests were answered, as a bound of a bucket.
fn most(buckets: &Value) -> String {
    let counts: Vec<f64> = buckets.as_array().into_iter().flatten().map(number).collect();
    let all: f64 = counts.iter().sum();
    let mut sum = 0.0;
    for (count, bound) in counts.iter().zip(BOUNDS) {
        sum += count;
        if sum >= all * 0.99 {
            return time(microseconds(bound));
        }
    }
    format!("> {}", time(microseconds(BOUNDS[BOUNDS.len() - 1])))
}

/// Microseconds in seconds.
fn microseconds(count: u64) -> f64 {
    nextent_sync::Duration::from_micros(count).as_secs_f64()
}

fn text(value: &Value) -> String {
    value.as_str().unwrap_or("?").to_owned()
}

fn number(value: &Value) -> f64 {
    value.as_f64().unwrap_or(0.0)
}

fn share(part: f64, all: f64) -> String {
    format!("{:.0} %", 100.0 * part / all.max(1.0))
}

/// A time with a unit that suits it.
fn time(seconds: f64) -> String {
    match seconds {
        s if s < 1e-3 => format!("{:.1} us", s * 1e6),
        s if s < 1.0 => format!("{:.1} ms", s * 1e3),
        s if s < 120.0 => format!("{s:.1} s"),
        s if s < 7200.0 => format!("{:.0} min", s / 60.0),
        s => format!("{:.1} h", s / 3600.0),
    }
}

/// Bytes with a unit that suits them.
fn bytes(count: f64) -> String {
    let units = ["KiB", "MiB", "GiB", "TiB", "PiB"];
    let (mut count, mut unit) = (count / 1024.0, 0);
    while count >= 1024.0 && unit + 1 < units.len() {
        (count, unit) = (count / 1024.0, unit + 1);
    }
    format!("{count:.1} {}", units[unit])
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn units_suit_the_amount() {
        assert_eq!(
            [2e-6, 0.0123, 3.0, 600.0, 9000.0].map(time).join(),
            "2.0 us12.3 ms3.0 s10 min2.5 h"
        );
        assert_eq!([512.0, 1_048_576.0, 6e15].map(bytes).join(), "0.5 KiB1.0 MiB5.3 PiB");
    }

    trait Join {
        fn join(&self) -> String;
    }

    impl<const N: usize> Join for [String; N] {
        fn join(&self) -> String {
            self.concat()
        }
    }

    #[test]
    fn most_requests_are_within_the_bound_of_a_bucket() {
        assert_eq!(most(&json!([0, 99, 0, 1])), "4.0 us");
        assert_eq!(most(&json!([0, 98, 0, 2])), "64.0 us");
        assert_eq!(most(&json!([0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1])), "> 4.2 s");
    }

    #[test]
    fn an_answer_that_lacks_everything_is_shown() {
        let shown = format(&json!({"image": "a\u{1b}[2Jb"}));
        assert!(shown.contains("a\\u{1b}[2Jb") && shown.contains("operation"), "{shown}");
    }
}
