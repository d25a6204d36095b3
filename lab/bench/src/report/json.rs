//! The report as JSON. A key that a workload or target cannot fill is null.

use super::{Counts, Report, Run};
use crate::count::{ClassCounts, Site};
use crate::designs::Design;
use crate::kernel_names::kernel_lock;
use crate::workloads::Workload;
use serde_json::{Value, json};

impl Report {
    /// All figures.
    #[must_use]
    pub fn to_json(&self) -> Value {
        let machine = &self.machine;
        json!({
            "workload": self.workload.name(),
            "machine": {
                "cpu": machine.cpu,
                "cores": machine.cores,
                "memory_bytes": machine.memory_bytes,
                "kernel": machine.kernel,
            },
            "runs": self.runs.iter().map(|run| self.run(run)).collect::<Vec<_>>(),
        })
    }

    fn run(&self, run: &Run) -> Value {
        let column = &self.columns[run.column];
        let counts = self.counts(run.column, run.threads);
        let at = |part| run.latency.as_ref().map(|latency| latency.value_at_quantile(part));
        let locks = counts.filter(|_| self.lockstat).map(locks);
        let volume_sizes = self.volume_sizes[run.column];
        let past = column.design.filter(Design::has_historical_locks);
        let kind = past.map(|design| design.locks.to_string());
        let mb = (self.workload == Workload::Dbench).then(|| run.mb_per_s());
        json!({
            "target": column.target,
            "design": column.design.map(|design| design.to_string()),
            "lock_kind": kind,
            "threads": run.threads,
            "round": run.round,
            "seconds": run.seconds,
            "ops": run.ops,
            "ops_per_s": run.ops_per_s(),
            "per_thread": run.per_thread,
            "p50_ns": at(0.5),
            "p99_ns": at(0.99),
            "locks": locks,
            "shared_stores_per_op": counts.map(Counts::shared_stores),
            "extents_per_file": run.extents_per_file,
            "bs": column.bs,
            "mb_per_s": mb,
            "average_extent_bytes": run.average_extent,
            "free_extents": run.free_extents,
            "locks_ops": counts.filter(|_| self.lockstat).map(|counts| counts.ops),
            "image_bytes": volume_sizes.map(|volume_sizes| volume_sizes.image),
            "journal_bytes": volume_sizes.map(|volume_sizes| volume_sizes.journal),
            "clean": run.is_clean,
        })
    }
}

fn locks(counts: &Counts) -> Value {
    counts.classes.iter().map(class).collect()
}

fn class(class: &ClassCounts) -> Value {
    let holder = |site: &Site| json!({"at": site.at, "count": site.count, "wait_ns": site.wait_ns});
    json!({
        "class": class.class,
        "kernel_lock": kernel_lock(&class.class),
        "acquired": class.acquired,
        "contended": class.contended,
        "wait_ns": class.wait_ns[0],
        "hold_ns": class.hold_ns[0],
        "shared_stores": class.shared_stores,
        "top_holders": class.holders.iter().map(holder).collect::<Vec<_>>(),
    })
}
