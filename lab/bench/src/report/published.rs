//! Published figures of the designs, from other machines.
//!
//! The report shows them beside measured ones, to compare the shape of curves, not their height.

use crate::designs::Design;
use crate::workloads::Workload;
use nextent_historical::design::{Admission, OptimizeScan};

/// A figure from a mailing list.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Published {
    /// Operations a second of one container; for dbench MB/s of all clients together.
    pub(crate) value: f64,
    /// The figure of a single container on that machine, if it was published.
    pub(crate) alone: Option<f64>,
    /// The letter of the machine in [`MACHINES`].
    pub(crate) machine: char,
}

/// The machines and their letters.
pub(crate) const MACHINES: [(char, &str); 4] = [
    ('K', "Kunpeng 920"),
    ('A', "AMD EPYC 9654"),
    ('X', "IBM x440, 256 clients"),
    ('M', "a machine of 2003, 32 clients"),
];

/// Numbers of containers in the first series of 2025.
pub const COUNTS: [usize; 7] = [1, 2, 4, 8, 16, 32, 64];
/// Preset, whether the allocator searches by order, and operations for each of [`COUNTS`].
pub type Series = (&'static str, Option<bool>, [f64; 7]);
/// The first series.
pub const FIRST: [Series; 3] = [
    ("ext4-6.16", None, [295_287.0, 70_665.0, 33_865.0, 19_387.0, 10_104.0, 5_588.0, 3_588.0]),
    (
        "ext4-2025-v1",
        Some(false),
        [286_328.0, 123_102.0, 119_542.0, 90_653.0, 60_344.0, 35_302.0, 23_280.0],
    ),
    (
        "ext4-2025-v1",
        Some(true),
        [292_498.0, 133_305.0, 103_069.0, 61_727.0, 29_702.0, 16_845.0, 10_430.0],
    ),
];

/// The merged series: name, then for `optimize_scan` 0 and 1 operations of 80 containers and of one
/// on the Kunpeng, and of 96 and of one on the AMD. 0 means that there is no figure.
pub type Step = (&'static str, [(f64, f64); 2], [(f64, f64); 2]);
/// The merged series.
pub const MERGED: [Step; 9] = [
    (
        "ext4-6.16",
        [(2667.0, 314_065.0), (2643.0, 316_344.0)],
        [(3450.0, 205_851.0), (3209.0, 207_373.0)],
    ),
    ("v3-01", [(4821.0, 0.0), (4784.0, 0.0)], [(15_371.0, 0.0), (6101.0, 0.0)]),
    (
        "v3-04",
        [(9636.0, 337_597.0), (4834.0, 341_440.0)],
        [(22_341.0, 219_707.0), (9177.0, 215_732.0)],
    ),
    ("v3-04/acqrel", [(9899.0, 290_260.0), (5005.0, 307_361.0)], [(0.0, 0.0), (0.0, 0.0)]),
    (
        "v3-05",
        [(19_628.0, 320_885.0), (7129.0, 321_275.0)],
        [(53_760.0, 213_145.0), (12_716.0, 215_262.0)],
    ),
    (
        "v3-08",
        [(20_043.0, 314_331.0), (7290.0, 324_226.0)],
        [(54_999.0, 214_380.0), (13_497.0, 216_276.0)],
    ),
    (
        "v3-09",
        [(20_097.0, 316_141.0), (13_318.0, 325_273.0)],
        [(53_603.0, 214_243.0), (20_887.0, 213_632.0)],
    ),
    (
        "v3-15",
        [(19_555.0, 315_636.0), (15_496.0, 323_569.0)],
        [(53_192.0, 212_678.0), (37_636.0, 214_189.0)],
    ),
    (
        "ext4-6.17",
        [(20_049.0, 316_724.0), (19_342.0, 328_324.0)],
        [(52_125.0, 215_136.0), (50_331.0, 209_431.0)],
    ),
];

/// dbench of 2003: preset, clients, MB/s.
const DBENCH: [(&str, usize, f64, char); 4] = [
    ("ext3-2002", 32, 187.6, 'M'),
    ("ext3-2003", 32, 378.7, 'M'),
    ("ext3-2002", 256, 265.0, 'X'),
    ("ext3-2003", 256, 382.0, 'X'),
];

/// The ratios published for the journal's lock in 2010.
pub(crate) const GATES: &str = "published of ext4-2.6.33 with sleeping locks on 8 CPUs: dbench \
    loses 60 % from 4 to 8 clients, the hack makes 2.5x; locks waited for were held by a stop in \
    55 %, by a start in 45 %";

/// Whether these ratios concern the design under this workload.
pub(crate) fn of_gates(workload: Workload, design: Design) -> bool {
    let asked = matches!(workload, Workload::Dbench | Workload::Handles);
    asked && matches!(design.gate, Admission::StateLock | Admission::StateLockHack)
}

/// The published figure of a design with so many threads.
pub(crate) fn published(workload: Workload, design: Design, threads: usize) -> Option<Published> {
    // A preset with another gate was in no kernel.
    if Design::named(design.preset()).is_ok_and(|preset| preset.gate != design.gate) {
        return None;
    }
    match workload {
        Workload::Fallocate2 => fallocate(design, threads),
        Workload::Dbench => {
            let found = DBENCH.iter().find(|row| row.0 == design.preset() && row.1 == threads)?;
            Some(Published { value: found.2, alone: None, machine: found.3 })
        }
        _ => None,
    }
}

fn fallocate(design: Design, threads: usize) -> Option<Published> {
    // The default of the presets on volumes of 16 groups and more.
    let by_order = design.optimize_scan != OptimizeScan::Off;
    let first = FIRST.iter().find(|(name, scan, _)| {
        *name == design.preset() && scan.is_none_or(|scan| scan == by_order)
    });
    if let (Some((_, _, values)), Some(at)) =
        (first, COUNTS.iter().position(|count| *count == threads))
    {
        return Some(Published { value: values[at], alone: Some(values[0]), machine: 'K' });
    }
    let name = design.to_string();
    let name = name.trim_end_matches("/s0").trim_end_matches("/s1");
    let (_, kunpeng, amd) = MERGED.iter().find(|(step, ..)| *step == name)?;
    let (machine, figures) = if threads == 96 { ('A', amd) } else { ('K', kunpeng) };
    let (many, one) = figures[usize::from(by_order)];
    let value = match threads {
        1 => one,
        80 | 96 => many,
        _ => return None,
    };
    let alone = Some(one).filter(|one| *one > 0.0);
    (value > 0.0).then_some(Published { value, alone, machine })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn designs_without_a_published_figure_have_none() {
        let default = Design::default();
        assert_eq!(published(Workload::Fallocate2, default, 1), None);
        let old = Design::named("ext3-2002").expect("it is there");
        let found = published(Workload::Dbench, old, 256).expect("it is there");
        assert_eq!((found.value, found.machine), (265.0, 'X'));
        assert_eq!(published(Workload::Dbench, old, 1), None);
        for name in ["ext4-6.16", "ext4-6.17/s0"] {
            // Presets come one by one.
            let Ok(design) = Design::named(name) else { continue };
            let found = published(Workload::Fallocate2, design, 80).expect("it is there");
            assert_eq!(found.value, if name == "ext4-6.16" { 2643.0 } else { 20_049.0 });
        }
    }
}
