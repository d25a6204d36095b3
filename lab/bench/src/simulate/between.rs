//! Where an operation's instructions lie: between which two operations on locks or atomics.
//!
//! How many there are the table says ([`super::instructions`]). Where they lie is found out when it
//! is asked for: one simulated core makes some operations of which each instruction is counted. In
//! a build that is not optimised they would be others, and code is taken to be spread evenly.

use super::{Machine, ask, instructions};
use crate::failure::Failure;
use nextent_bench_simulated::{Course, Span, Told};
use nextent_sync::{Arc, LockClass, Mutex};

/// Cores, of one of which is found out what it does among others, and operations of each.
const AMONG: usize = 4;
const OPERATIONS: u64 = 1024;

/// Which of those after `warm` others are stepped through: the first, and how many. The last of
/// each 128 of `fallocate2` is another than the rest, and those of `churn` are long.
fn stepped(workload: &str, warm: u64) -> [u64; 2] {
    match workload {
        _ if cfg!(debug_assertions) => [0; 2],
        "fallocate2" => [256 - warm % 128 - 12, 16],
        "churn" => [0, 4],
        _ => [0, 16],
    }
}

/// The code before an operation on a lock or atomic: picoseconds.
#[derive(Clone, Debug, Default)]
pub(super) struct Code {
    /// As if it were spread evenly.
    pub(super) step: u64,
    /// Between two places that are known.
    pub(super) between: Vec<(usize, usize, u64)>,
}

/// What was found of a workload with a design.
struct Found {
    /// One core alone.
    alone: Told,
    /// One of several: what it does where it meets others, loses to them or finds things as they
    /// have left them.
    among: Vec<Span>,
}

/// A workload with a design.
type Row = (String, String, Arc<Found>);

/// Only this module's; nothing else is taken under it.
static CLASS: LockClass = LockClass::new("codes", 1);

/// What was found out so far: the same for all machines, and for all who simulate.
#[derive(Clone)]
pub(crate) struct Codes(Arc<Mutex<Vec<Row>>>);

impl Default for Codes {
    fn default() -> Self {
        Self(Arc::new(Mutex::new(&CLASS, Vec::new())))
    }
}

impl Codes {
    /// What code costs on `machine`: an operation's instructions but for those that it tells of by
    /// itself, each `dearness` times what the machine says, and its atomic changes but for those
    /// that are simulated (references are counted, and memory is allocated).
    pub(super) fn of(
        &self,
        machine: &Machine,
        workload: &str,
        design: &str,
        dearness: f64,
    ) -> Result<Code, Failure> {
        let counted = instructions::of(workload, design)?;
        let found = self.found(machine, workload, design)?;
        let Found { alone, among } = &*found;
        let spread = (counted.instructions - alone.stretches).max(0.0);
        let unseen = (counted.changes - alone.changes).max(0.0);
        let instruction = machine.instruction_ps as f64 * dearness;
        let rmw = machine.rmw() as f64;
        let step = (spread * instruction + unseen * rmw) / alone.primitives.max(1.0);
        let between = shared_out(&alone.spans, among, spread * instruction, unseen * rmw);
        Ok(Code { step: step as u64, between })
    }

    fn found(
        &self,
        machine: &Machine,
        workload: &str,
        design: &str,
    ) -> Result<Arc<Found>, Failure> {
        let find = |row: &&Row| row.0 == workload && row.1 == design;
        if let Some((_, _, found)) = self.0.lock().iter().find(find) {
            return Ok(Arc::clone(found));
        }
        let told = |cores, course: Course| {
            let mut orders = machine.orders(workload, design, cores, course, 0);
            orders.stepped = stepped(workload, course.warm);
            ask(&orders)
        };
        let alone = told(1, instructions::course(workload))?;
        let among = match alone.spans.is_empty() {
            true => Vec::new(),
            false => told(AMONG, Course::usual(OPERATIONS))?.spans,
        };
        let found = Arc::new(Found { alone, among });
        self.0.lock().push((workload.to_owned(), design.to_owned(), Arc::clone(&found)));
        Ok(found)
    }
}

/// Shares `code` and `changes`, picoseconds of an operation, out among what lies between which
/// places: by the instructions and changes that were counted there when a core was `alone`. Where
/// it was not alone and did other things than before, they cost as much each. Nothing, where none
/// were counted.
fn shared_out(alone: &[Span], among: &[Span], code: f64, changes: f64) -> Vec<(usize, usize, u64)> {
    let sum = |of: fn(&Span) -> f64| alone.iter().map(|span| span.times * of(span)).sum::<f64>();
    let instructions = |span: &Span| span.instructions.unwrap_or(0.0);
    let (all, locked) = (sum(|span| span.instructions.unwrap_or(0.0)), sum(|span| span.changes));
    if all <= 0.0 {
        return Vec::new();
    }
    // Changes that nobody has seen are spread as code is.
    let (code, change) = match locked > 0.0 {
        true => (code / all, changes / locked),
        false => ((code + changes) / all, 0.0),
    };
    let is_new = |span: &&Span| {
        alone
            .iter()
            .all(|one| (one.from, one.to) != (span.from, span.to) || one.instructions.is_none())
    };
    let known = alone.iter().chain(among.iter().filter(is_new));
    let known = known.filter(|span| span.instructions.is_some());
    let time = |span: &Span| (instructions(span) * code + span.changes * change) as u64;
    known.map(|span| (span.from, span.to, time(span))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn span(from: usize, to: usize, times: f64, instructions: Option<f64>, changes: f64) -> Span {
        Span { from, to, times, instructions, changes }
    }

    #[test]
    fn code_goes_where_it_was_found() {
        let spans = [
            span(8, 16, 2.0, Some(100.0), 0.0),
            span(16, 24, 1.0, Some(300.0), 2.0),
            // Seen, and not stepped through.
            span(24, 8, 0.5, None, 0.0),
        ];
        assert_eq!(shared_out(&spans, &[], 1000.0, 0.0), [(8, 16, 200), (16, 24, 600)]);
        assert_eq!(shared_out(&spans, &[], 1000.0, 90.0), [(8, 16, 200), (16, 24, 690)]);
        assert_eq!(shared_out(&spans[..1], &[], 1000.0, 200.0), [(8, 16, 600)]);
        assert_eq!(shared_out(&spans[2..], &[], 1000.0, 90.0), []);
        // What it does among others only.
        let among = [
            span(8, 16, 9.0, Some(700.0), 0.0),
            span(24, 8, 9.0, Some(50.0), 0.0),
            span(24, 16, 1.0, Some(10.0), 1.0),
        ];
        let known = [(8, 16, 200), (16, 24, 690), (24, 8, 100), (24, 16, 65)];
        assert_eq!(shared_out(&spans, &among, 1000.0, 90.0), known);
    }

    #[test]
    #[cfg(all(target_arch = "x86_64", target_os = "linux"))]
    fn an_operation_is_stepped_through_once_for_all_machines() {
        let codes = Codes::default();
        let machine = |name| Machine::get(name).expect("it is there");
        let of = |name| codes.of(&machine(name), "handles", "ext4-2.6.33", 1.0).expect("it runs");
        let (near, far) = (of("kunpeng920"), of("numaq16"));
        assert_eq!(near.between.len(), far.between.len());
        assert_eq!(codes.0.lock().len(), 1);
        if cfg!(debug_assertions) {
            assert!(near.step > 0 && near.between.is_empty());
            return;
        }
        assert!(near.between.len() > 4);
        let found = codes.found(&machine("host"), "handles", "ext4-2.6.33").expect("it is there");
        let each = |span: &Span| span.times * span.instructions.unwrap_or(0.0);
        let stepped: f64 = found.alone.spans.iter().map(each).sum();
        let counted = instructions::of("handles", "ext4-2.6.33").expect("it is there");
        // Without a lock's own code, and compiled otherwise.
        let part = stepped / counted.instructions;
        assert!((0.5..3.0).contains(&part), "{stepped}");
    }
}
