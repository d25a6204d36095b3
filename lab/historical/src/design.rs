//! Designs: the block allocator, the locks of direct writes and the journal's gate, chosen when a
//! volume is opened.
//!
//! A [`Design`] consists of strategies: exclusion between threads, the start of a search, its order
//! of the groups, the counts of free space, the records of freed blocks, the journal's admission,
//! and the locks of direct writes. Each preset is a design of ext3 or ext4, or one that was
//! proposed for them, except `nextent`, the default. Designs differ in their locks, never in the
//! format on disk, so each can open the volumes of all others.
//!
//! A name is that of a preset, optionally followed by options, each after a slash:
//!
//! | option | effect |
//! |---|---|
//! | `/s0`, `/s1` | `mb_optimize_scan` off and on; the default is on for 16 groups or more, as in Linux |
//! | `/acqrel`, `/relaxed` | memory ordering of the goal's word (default: relaxed) |
//! | `/gate-slots`, `/gate-2.6.33`, `/gate-2.6.33-hack`, `/gate-2.6.36` | another gate of the journal than the preset's |

use crate::{allocator, direct, gates};
use nextent::OpenOptions;
use nextent::lab_seams::alloc::AllocatorChoice;
use nextent::lab_seams::{DirectChoice, Replacements};
use nextent_sync::{Arc, LockKind};
use std::fmt;

/// The gate of the journal: the locks that the start and the stop of a handle take.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Admission {
    /// The caller's slot: no lock, and no cache line that another core stores to.
    #[default]
    Slots,
    /// jbd2 until 2.6.34: two nested locks at the start and at the stop.
    StateLock,
    /// The same without the outer lock at the stop, as in a hack of 2010.
    StateLockHack,
    /// jbd2 from 2.6.36 on: a reader-writer lock at the start, none at the stop, and shared atomic
    /// counts.
    RwLock,
}

/// What keeps two allocations from taking the same block.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Exclusion {
    /// Regions that a slot leases, each with a lock that other slots seldom take.
    Leases,
    /// One lock of the volume, held during every allocation and every free.
    Superblock,
    /// Atomic test-and-set of bits in the bitmap. A thread that loses a bit continues in the next
    /// group.
    Bits,
    /// As `Bits`, but a thread that loses a bit continues in the group. It reads the journal's copy
    /// of the bitmap under the buffer's lock.
    BitsAndBuffer,
    /// Locks hashed by group; a search waits for them.
    Groups,
    /// Locks hashed by group; a search skips groups with a held lock, except in its last pass.
    TryGroups,
}

/// Where the search for a large file's next blocks begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Goal {
    /// In the caller's leased regions.
    Lease,
    /// At the requested block.
    Request,
    /// The last allocation of any large file: group and start, under a lock of the volume.
    Shared,
    /// The last allocation of this file: group and start, in the inode.
    Inode,
    /// The group of the last allocation of any large file, in an atomic word.
    Word(GoalOrder),
    /// As `Word`, with several words, chosen by the inode number.
    Words(GoalOrder),
}

/// The memory ordering of a goal's words.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum GoalOrder {
    /// Relaxed loads and stores.
    Relaxed,
    /// Acquire loads and release stores.
    AcqRel,
}

/// The order in which a search visits the groups.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Scan {
    /// Leased regions.
    Regions,
    /// From the goal's group around the volume, by bitmaps.
    Bitmaps,
    /// From the goal's group around the volume, by buddies, stricter passes first.
    Linear,
    /// By lists of groups for each order, from the head, each under a reader-writer lock.
    Lists,
    /// By bitmaps of groups for each order, read without a lock. One order after another, each from
    /// the goal's group around the volume.
    Maps,
    /// As `Maps`, but first all orders from the goal's group on, then all orders before that group.
    MapsInTurn,
}

/// How free blocks are counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Count {
    /// By an escrow of each slot; exact near the end of space.
    Escrow,
    /// Under the volume's lock, which the caller holds.
    Superblock,
    /// Under one lock for all groups and the volume. The reserve is checked without that lock, so
    /// each concurrent thread may exceed it by one allocation.
    OneLock,
    /// The groups' counts under hashed locks, the volume's by per-CPU counters.
    PerCpu,
}

/// How freed blocks are withheld until the free is durable.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Freed {
    /// By the images of the transactions that are not durable.
    Images,
    /// By a copy of the bitmap as of the last commit, in which freed bits are set.
    CommittedCopy,
    /// By records in a tree for each group and in a list for each of two transactions. One lock
    /// guards the lists, the number of their blocks and the shared goal.
    Listed,
    /// As `Listed`, with the number in an atomic.
    ListedAtomicCount,
    /// As `ListedAtomicCount`. A run next to a record of the tree extends that record, without the
    /// lock.
    MergedFirst,
}

/// The locks of direct writes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum DirectWrites {
    /// Overwrites of one run of written blocks hold the file's lock shared, all other writes hold
    /// it exclusively. Unwritten extents are split before the data is written and converted after
    /// it.
    ExclusiveUnlessWritten,
    /// Aligned overwrites of allocated blocks hold the lock shared. Unwritten extents are split
    /// before the data is written and converted after it.
    SharedIfAllocated,
    /// As `SharedIfAllocated`, but overwrites of written blocks need no alignment. Unwritten
    /// extents are split and converted after the data is written, and no handle starts before it.
    SplitAfter,
    /// In-flight I/O counts per slot. Writes to holes and of whole blocks past the end are counted,
    /// too. Writes that finish at the same time are converted together.
    InFlightCounts,
}

/// Whether searches use the orders of groups, if the design has them (`mb_optimize_scan`).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum OptimizeScan {
    /// On volumes of at least 16 groups.
    BySize,
    /// Never.
    Off,
    /// Always.
    On,
}

/// A design; see the module.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Design {
    name: &'static str,
    /// Its date: a year, or year and month.
    pub date: &'static str,
    /// Its source.
    pub source: &'static str,
    /// A description of one line.
    pub about: &'static str,
    /// The exclusion between threads.
    pub exclusion: Exclusion,
    /// The start of a search for a large file.
    pub goal: Goal,
    /// The order of the groups in a search.
    pub scan: Scan,
    /// The counts of free blocks.
    pub count: Count,
    /// How freed blocks are withheld.
    pub freed: Freed,
    /// Whether a pass for slightly shorter runs precedes the slow passes.
    pub trims_length: bool,
    /// Whether bitmap checksums are computed under the group's lock.
    pub sums_bitmaps: bool,
    /// Whether searches use the orders of groups.
    pub optimize_scan: OptimizeScan,
    /// The journal's gate.
    pub gate: Admission,
    /// The locks of direct writes.
    pub direct: DirectWrites,
    /// How historical locks wait. The name does not include it.
    pub locks: LockKind,
}

/// A gate of the journal, and the option that chooses it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Gate {
    /// The option, without its slash.
    pub option: &'static str,
    /// The gate.
    pub admission: Admission,
    /// Its date.
    pub date: &'static str,
    /// A description of one line.
    pub about: &'static str,
}

/// The gates that can be chosen, by date.
pub static GATES: [Gate; 4] = [
    Gate {
        option: "gate-2.6.33",
        admission: Admission::StateLock,
        date: "2010-02",
        about: "start and stop take the journal's lock and under it the transaction's",
    },
    Gate {
        option: "gate-2.6.33-hack",
        admission: Admission::StateLockHack,
        date: "2010-04",
        about: "the same, but stop without the journal's lock; for measuring only",
    },
    Gate {
        option: "gate-2.6.36",
        admission: Admission::RwLock,
        date: "2010-10",
        about: "start holds the journal's lock shared, counts are atomic, stop takes no lock",
    },
    Gate {
        option: "gate-slots",
        admission: Admission::Slots,
        date: "2026",
        about: "start and stop store to the thread's slot; a commit reads all slots",
    },
];

/// No design has this name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UnknownDesign(String);

const BITMAPS: Design = Design {
    name: "",
    date: "",
    source: "",
    about: "",
    exclusion: Exclusion::Superblock,
    goal: Goal::Request,
    scan: Scan::Bitmaps,
    count: Count::Superblock,
    freed: Freed::CommittedCopy,
    trims_length: false,
    sums_bitmaps: false,
    optimize_scan: OptimizeScan::BySize,
    gate: Admission::StateLock,
    direct: DirectWrites::ExclusiveUnlessWritten,
    locks: LockKind::Sleep,
};

const MBALLOC: Design = Design {
    exclusion: Exclusion::Groups,
    goal: Goal::Shared,
    scan: Scan::Lists,
    count: Count::PerCpu,
    freed: Freed::Listed,
    trims_length: true,
    sums_bitmaps: true,
    gate: Admission::RwLock,
    ..BITMAPS
};

/// mballoc of 2010.
const EARLY: Design = Design {
    scan: Scan::Linear,
    trims_length: false,
    sums_bitmaps: false,
    gate: Admission::StateLock,
    ..MBALLOC
};

/// The first of a series of 17 patches.
const SERIES: Design = Design {
    date: "2025-07",
    source: "\"ext4: better scalability for ext4 block allocation\", third version, Li",
    exclusion: Exclusion::TryGroups,
    direct: DirectWrites::SharedIfAllocated,
    ..MBALLOC
};

const MANY_GOALS: Goal = Goal::Words(GoalOrder::Relaxed);

/// All presets, by date.
static ALL: [Design; 19] = [
    Design {
        name: "ext3-2002",
        date: "2002",
        source: "ext3 before \"concurrent block allocation for ext3\"",
        about: "one lock of the volume, held during every allocation and every free",
        ..BITMAPS
    },
    Design {
        name: "ext3-2003",
        date: "2003-03",
        source: "\"concurrent block allocation for ext3\", Tomas",
        about: "bits by test-and-set, one lock for all counters, the reserve checked without it",
        exclusion: Exclusion::Bits,
        count: Count::OneLock,
        ..BITMAPS
    },
    Design {
        name: "ext3-final",
        date: "2003-07",
        source: "ext3 as merged, after the review's proposal",
        about: "bits by test-and-set, group counts under hashed locks, per-CPU free counts",
        exclusion: Exclusion::BitsAndBuffer,
        count: Count::PerCpu,
        ..BITMAPS
    },
    Design {
        name: "ext4-2.6.33",
        date: "2010-02",
        source: "Linux 2.6.33",
        about: "a buddy for each group under hashed locks; one lock for goal and freed lists",
        ..EARLY
    },
    Design {
        name: "ext4-2.6.33-hack",
        date: "2010-04",
        source: "\"ext4 dbench performance with CONFIG_PREEMPT_RT\", Stultz",
        about: "as ext4-2.6.33, but handles stop without the journal's lock; for measuring only",
        gate: Admission::StateLockHack,
        ..EARLY
    },
    Design {
        name: "ext4-2.6.36",
        date: "2010-10",
        source: "Linux 2.6.36",
        about: "as ext4-2.6.33, but handles start under a reader lock, and counts are atomic",
        gate: Admission::RwLock,
        ..EARLY
    },
    Design {
        name: "ext4-6.2",
        date: "2023-02",
        source: "Linux 6.2",
        about: "as ext4-6.16, but direct writes to unwritten blocks are exclusive",
        ..MBALLOC
    },
    Design {
        name: "ext4-6.3",
        date: "2023-04",
        source: "\"ext4: dio take shared inode lock when overwriting preallocated blocks\", Zhang",
        about: "as ext4-6.2, but direct writes to allocated blocks share the file; splits first",
        direct: DirectWrites::SharedIfAllocated,
        ..MBALLOC
    },
    Design {
        name: "ext4-6.16",
        date: "2025",
        source: "Linux 6.16",
        about: "searches wait for group locks; one lock for goal and freed lists; orders as lists",
        direct: DirectWrites::SharedIfAllocated,
        ..MBALLOC
    },
    Design {
        name: "ext4-2025-v1",
        date: "2025-05",
        source: "\"ext4: better scalability for ext4 block allocation\", first version, Li",
        about: "searches try group locks and do not wait; each inode has its goal",
        exclusion: Exclusion::TryGroups,
        goal: Goal::Inode,
        direct: DirectWrites::SharedIfAllocated,
        ..MBALLOC
    },
    Design { name: "v3-01", about: "searches try group locks and do not wait", ..SERIES },
    Design {
        name: "v3-04",
        about: "as v3-01, and the goal of large files is an atomic word",
        goal: Goal::Word(GoalOrder::Relaxed),
        ..SERIES
    },
    Design {
        name: "v3-05",
        about: "as v3-04, with several goals, chosen by inode number",
        goal: MANY_GOALS,
        ..SERIES
    },
    Design {
        name: "v3-08",
        about: "as v3-05, and the count of freed blocks is atomic",
        goal: MANY_GOALS,
        freed: Freed::ListedAtomicCount,
        ..SERIES
    },
    Design {
        name: "v3-09",
        about: "as v3-08, and freed runs are merged before they are listed",
        goal: MANY_GOALS,
        freed: Freed::MergedFirst,
        ..SERIES
    },
    Design {
        name: "v3-15",
        about: "as v3-09, and orders are bitmaps that searches read without a lock",
        goal: MANY_GOALS,
        freed: Freed::MergedFirst,
        scan: Scan::Maps,
        ..SERIES
    },
    Design {
        name: "ext4-6.17",
        date: "2025-09",
        source: "Linux 6.17",
        about: "as v3-15, but all orders after the goal precede all before it",
        goal: MANY_GOALS,
        freed: Freed::MergedFirst,
        scan: Scan::MapsInTurn,
        ..SERIES
    },
    Design {
        name: "ext4-7.0-dio",
        date: "2026-01",
        source: "\"ext4: defer unwritten splitting until I/O completion\", Zhang; Linux 7.0",
        about: "as ext4-6.17, but direct writes split and convert after the data is written",
        goal: MANY_GOALS,
        freed: Freed::MergedFirst,
        scan: Scan::MapsInTurn,
        direct: DirectWrites::SplitAfter,
        ..SERIES
    },
    Design {
        name: "nextent",
        date: "2026",
        source: "this project",
        about: "leased regions, escrow counters, no list of freed blocks, a gate with slots, \
                in-flight counts for direct writes",
        exclusion: Exclusion::Leases,
        goal: Goal::Lease,
        scan: Scan::Regions,
        count: Count::Escrow,
        freed: Freed::Images,
        gate: Admission::Slots,
        direct: DirectWrites::InFlightCounts,
        ..BITMAPS
    },
];

impl Design {
    /// All presets, by date. The last is the default.
    #[must_use]
    pub fn all() -> &'static [Self] {
        &ALL
    }

    /// The design `name`: a preset's name, optionally followed by options, each after a slash.
    ///
    /// # Errors
    /// [`UnknownDesign`], whose text lists all names and options.
    pub fn named(name: &str) -> Result<Self, UnknownDesign> {
        let unknown = || UnknownDesign(name.to_owned());
        let mut parts = name.split('/');
        let preset = parts.next().unwrap_or_default();
        let mut design = *ALL.iter().find(|one| one.name == preset).ok_or_else(unknown)?;
        for option in parts {
            if let Some(gate) = GATES.iter().find(|gate| gate.option == option) {
                design.gate = gate.admission;
                continue;
            }
            if !design.choices().contains(&option) {
                return Err(unknown());
            }
            design.set(option);
        }
        Ok(design)
    }

    /// The preset's name, without options. [`Display`](fmt::Display) writes it with them.
    #[must_use]
    pub fn preset(&self) -> &'static str {
        self.name
    }

    /// The design with historical locks that wait as `kind` says.
    #[must_use]
    pub fn with_locks(self, kind: LockKind) -> Self {
        Self { locks: kind, ..self }
    }

    /// The option that chooses the design's gate.
    #[must_use]
    pub fn gate_option(&self) -> &'static str {
        let gate = GATES.iter().find(|gate| gate.admission == self.gate);
        gate.expect("every gate is in the table").option
    }

    /// Whether the design has historical locks.
    #[must_use]
    pub fn has_historical_locks(&self) -> bool {
        self.exclusion != Exclusion::Leases || self.gate != Admission::Slots
    }

    /// Whether a crash may damage a volume of this design, so that it is only for measuring.
    #[must_use]
    pub fn is_for_measuring_only(&self) -> bool {
        self.gate == Admission::StateLockHack
    }

    /// The replacements that make a volume use this design.
    #[must_use]
    pub fn replacements(&self) -> Replacements {
        let rule: Option<&'static direct::Rule> = match self.direct {
            DirectWrites::InFlightCounts => None,
            DirectWrites::ExclusiveUnlessWritten => Some(&direct::EXCLUSIVE_UNLESS_WRITTEN),
            DirectWrites::SharedIfAllocated => Some(&direct::SHARED_IF_ALLOCATED),
            DirectWrites::SplitAfter => Some(&direct::SPLIT_AFTER),
        };
        Replacements {
            blocks: self.allocator(),
            direct: rule.map_or_else(DirectChoice::default, |rule| DirectChoice::replaced(rule)),
            admission: gates::factory(self.gate, self.locks),
        }
    }

    /// The choice of this design's allocator.
    #[must_use]
    pub fn allocator(&self) -> AllocatorChoice {
        match self.exclusion {
            Exclusion::Leases => AllocatorChoice::default(),
            _ => AllocatorChoice::replaced(Arc::new(allocator::Maker(*self))),
        }
    }

    /// The default options for opening a volume of this design.
    pub fn options(&self) -> OpenOptions {
        OpenOptions::new().replacements(self.replacements())
    }

    /// The options of the preset, without those of the gate, which every preset has.
    #[must_use]
    pub fn choices(&self) -> &'static [&'static str] {
        let by_order = matches!(self.scan, Scan::Lists | Scan::Maps | Scan::MapsInTurn);
        let has_goal_words = matches!(self.name, "v3-04" | "v3-05");
        match (by_order, has_goal_words) {
            (false, _) => &[],
            (true, false) => &["s0", "s1"],
            (true, true) => &["s0", "s1", "relaxed", "acqrel"],
        }
    }

    fn set(&mut self, option: &str) {
        let order = match option {
            "s0" | "s1" => {
                let off = option == "s0";
                self.optimize_scan = if off { OptimizeScan::Off } else { OptimizeScan::On };
                return;
            }
            "acqrel" => GoalOrder::AcqRel,
            _ => GoalOrder::Relaxed,
        };
        match &mut self.goal {
            Goal::Word(which) | Goal::Words(which) => *which = order,
            _ => {}
        }
    }
}

impl Default for Design {
    fn default() -> Self {
        ALL[ALL.len() - 1]
    }
}

impl fmt::Display for Design {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name)?;
        if let Goal::Word(GoalOrder::AcqRel) | Goal::Words(GoalOrder::AcqRel) = self.goal {
            f.write_str("/acqrel")?;
        }
        match self.optimize_scan {
            OptimizeScan::BySize => {}
            OptimizeScan::Off => f.write_str("/s0")?,
            OptimizeScan::On => f.write_str("/s1")?,
        }
        let default_gate =
            ALL.iter().find(|preset| preset.name == self.name).map(|preset| preset.gate);
        if default_gate == Some(self.gate) { Ok(()) } else { write!(f, "/{}", self.gate_option()) }
    }
}

impl std::str::FromStr for Design {
    type Err = UnknownDesign;

    fn from_str(name: &str) -> Result<Self, UnknownDesign> {
        Self::named(name)
    }
}

impl fmt::Display for UnknownDesign {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "no design is called {:?}; the designs are", self.0)?;
        for (i, design) in ALL.iter().enumerate() {
            write!(f, "{} {}", if i == 0 { "" } else { "," }, design.name)?;
            if !design.choices().is_empty() {
                write!(f, "[/{}]", design.choices().join("][/"))?;
            }
        }
        f.write_str("; and for each")?;
        GATES.iter().try_for_each(|gate| write!(f, " [/{}]", gate.option))
    }
}

impl std::error::Error for UnknownDesign {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_round_trip() {
        for design in Design::all() {
            assert_eq!(Design::named(design.preset()).as_ref(), Ok(design));
            assert_eq!(design.to_string(), design.preset());
            for option in design.choices() {
                let name = format!("{design}/{option}");
                let with = Design::named(&name).unwrap();
                assert!(with.to_string() == name || with == *design, "{name}");
            }
            for gate in GATES {
                let with = Design::named(&format!("{design}/{}", gate.option)).unwrap();
                assert_eq!(Design::named(&with.to_string()), Ok(with));
                assert!(with.gate == gate.admission && with.preset() == design.preset());
            }
            assert!(!design.date.is_empty() && !design.source.is_empty());
        }
        assert_eq!(Design::default().preset(), "nextent");
    }

    #[test]
    fn one_gate_is_for_measuring_only() {
        for (name, only) in
            [("ext4-2.6.33-hack", true), ("nextent/gate-2.6.33-hack", true), ("nextent", false)]
        {
            assert_eq!(Design::named(name).unwrap().is_for_measuring_only(), only, "{name}");
        }
    }

    #[test]
    fn unknown_names_list_all_designs() {
        for name in ["", "ext5", "nextent/s0", "ext3-2002/", "ext3-2002/acqrel"] {
            let text = Design::named(name).unwrap_err().to_string();
            assert!(text.contains("ext3-2002, ext3-2003") && !text.contains('\n'), "{text}");
        }
    }
}
