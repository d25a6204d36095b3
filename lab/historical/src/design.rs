//! Designs: how blocks are allocated and freed, which locks direct writes take, and what a handle
//! of the journal takes, as a value chosen when a volume is opened.
//!
//! A [`Design`] is made of a few small strategies: what excludes threads from each other, where a
//! search begins, how it goes through the groups, how free space is counted, what keeps freed
//! blocks back until that is durable, how threads get into a transaction, and which locks direct
//! writes take. Each named preset is one that ext3 or ext4 had or was offered, except `nextent`,
//! the default. Designs differ in their locks, never in the format on disk, so any of them may open
//! what another has left.
//!
//! A name is a preset's, or a preset's followed by options behind slashes:
//!
//! | option | effect |
//! |---|---|
//! | `/s0`, `/s1` | `mb_optimize_scan` off and on; without either it is on from 16 groups on, as in Linux |
//! | `/acqrel`, `/relaxed` | orders the loads and stores of the goal's word, or does not (the default) |
//! | `/gate-slots`, `/gate-2.6.33`, `/gate-2.6.33-hack`, `/gate-2.6.36` | another gate of the journal than the preset's time had |

use crate::{allocator, direct, gates};
use nextent::OpenOptions;
use nextent::lab_seams::alloc::AllocatorChoice;
use nextent::lab_seams::{DirectChoice, Replacements};
use nextent_sync::{Arc, LockKind};
use std::fmt;

/// What starting and stopping a handle takes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Admission {
    /// The caller's slot: no lock, no line that another core stores to.
    #[default]
    Slots,
    /// jbd2 until 2.6.34: two locks of the journal, one in the other, at the start and at the stop.
    StateLock,
    /// The same without the outer lock at the stop: what a hack of 2010 measured.
    StateLockHack,
    /// jbd2 from 2.6.36 on: a lock for readers and writers at the start, none at the stop, and
    /// counts that all share.
    RwLock,
}

/// What keeps two allocations from taking the same block.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Exclusion {
    /// Regions that a slot leases, each with a lock that others seldom take.
    Leases,
    /// One lock of the volume, held for the whole of allocate and free.
    Superblock,
    /// Atomic test-and-set of bits in the bitmap; the loser goes on to the next group.
    Bits,
    /// As `Bits`, but the loser goes on in its group, and looks at the copy of the bitmap that the
    /// journal keeps under the lock of its buffer.
    BitsAndBuffer,
    /// Locks hashed by group, waited for.
    Groups,
    /// Locks hashed by group; a search passes by those that are held, but for its last pass.
    TryGroups,
}

/// Where the search for a large file's next blocks begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Goal {
    /// In the caller's leased regions.
    Lease,
    /// At the place asked for.
    Request,
    /// Where the last large file of all got blocks: group and start, under a lock of the volume.
    Shared,
    /// Where this file got its last: group and start, kept in the inode.
    Inode,
    /// The group where the last large file got blocks, in one word that nothing guards.
    Word(GoalOrder),
    /// As `Word`, a word for each of a few sets of inodes.
    Words(GoalOrder),
}

/// How the words of a goal are loaded and stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum GoalOrder {
    /// Without order.
    Relaxed,
    /// Loads acquire, stores release.
    AcqRel,
}

/// How a search goes through the groups.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Scan {
    /// Through leased regions.
    Regions,
    /// From the goal's group around the volume, bit by bit.
    Bitmaps,
    /// From the goal's group around the volume, by a buddy for each, pickier passes first.
    Linear,
    /// By lists of groups for each order, from the head, each under a lock for readers and writers.
    Lists,
    /// By sets of groups for each order, read without a lock from the goal's group around the
    /// volume, one order after another.
    Maps,
    /// As `Maps`, but first all orders from the goal's group on, then all orders before it.
    MapsInTurn,
}

/// How free blocks are counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Count {
    /// By an escrow drawn by each slot, exact near the end.
    Escrow,
    /// Under the lock of the volume that is held anyway.
    Superblock,
    /// Under one lock for all groups and the volume; the reserve is checked outside of it, so
    /// threads may together take as many blocks too many as there are others.
    OneLock,
    /// The groups' under hashed locks, the volume's by a counter for each CPU.
    PerCpu,
}

/// What keeps a freed block back until no crash can bring its former use back.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Freed {
    /// The images of the transactions that are not durable.
    Images,
    /// A copy of the bitmap as the last commit left it, in which freed bits are set.
    CommittedCopy,
    /// Records in a tree for each group and a list for each of two transactions; lists and the
    /// number of blocks in them under one lock, which also guards a shared goal.
    Listed,
    /// As `Listed`, the number an atomic.
    ListedCountApart,
    /// As `ListedCountApart`; a record grows its neighbour in the tree where it can, without the
    /// lock.
    MergedFirst,
}

/// Which locks direct writes take.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum DirectWrites {
    /// Overwrites of one run of blocks that hold data share the file's lock; all else has it alone.
    /// Unwritten extents are split before the data and converted after it.
    AloneUnlessWritten,
    /// Overwrites of allocated blocks share the lock, aligned ones; unwritten extents are split
    /// before the data and converted after it.
    SharedIfAllocated,
    /// As `SharedIfAllocated`, and blocks that hold data need no alignment; unwritten extents are
    /// split and converted after the data, no handle is started before it.
    SplitAfter,
    /// References counted by slots. Writes of holes and of whole blocks past the end share the file
    /// too, and writes that finish together convert together.
    References,
}

/// Whether searches for groups go by order where the design can (`mb_optimize_scan`).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum OptimizeScan {
    /// On volumes of at least 16 groups.
    BySize,
    /// Never.
    Off,
    /// Always.
    On,
}

/// How blocks are allocated and freed; see the module.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Design {
    name: &'static str,
    /// When it was written, as year or year and month.
    pub date: &'static str,
    /// Where it is from.
    pub source: &'static str,
    /// What it is, in a line.
    pub about: &'static str,
    /// What excludes threads.
    pub exclusion: Exclusion,
    /// Where large files go on.
    pub goal: Goal,
    /// How groups are searched.
    pub scan: Scan,
    /// How free blocks are counted.
    pub count: Count,
    /// How freed blocks are kept back.
    pub freed: Freed,
    /// Whether there is a pass that takes a little less than wanted before the slow ones.
    pub trims_length: bool,
    /// Whether bitmaps are summed under the group's lock, on volumes whose metadata has checksums.
    pub sums_bitmaps: bool,
    /// Whether groups are searched by order.
    pub optimize_scan: OptimizeScan,
    /// How threads get into a transaction.
    pub gate: Admission,
    /// Which locks direct writes take.
    pub direct: DirectWrites,
    /// How the locks of the past wait; no part of the name.
    pub locks: LockKind,
}

/// A gate of the journal, as an option chooses it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Gate {
    /// The option, without its slash.
    pub option: &'static str,
    /// What it chooses.
    pub admission: Admission,
    /// When it was written.
    pub date: &'static str,
    /// What starting and stopping a handle takes.
    pub about: &'static str,
}

/// The gates that can be chosen, by date.
pub static GATES: [Gate; 4] = [
    Gate {
        option: "gate-2.6.33",
        admission: Admission::StateLock,
        date: "2010-02",
        about: "start and stop take the journal's lock and in it the transaction's",
    },
    Gate {
        option: "gate-2.6.33-hack",
        admission: Admission::StateLockHack,
        date: "2010-04",
        about: "the same, stop without the journal's lock; for measuring only",
    },
    Gate {
        option: "gate-2.6.36",
        admission: Admission::RwLock,
        date: "2010-10",
        about: "start reads under the journal's lock, counts are atomics, stop takes no lock",
    },
    Gate {
        option: "gate-slots",
        admission: Admission::Slots,
        date: "2026",
        about: "start and stop store to the own slot; a commit looks at all slots",
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
    direct: DirectWrites::AloneUnlessWritten,
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

/// The series of 17 patches, up to the first.
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
        about: "one lock of the volume, held for the whole of allocate and free",
        ..BITMAPS
    },
    Design {
        name: "ext3-2003",
        date: "2003-03",
        source: "\"concurrent block allocation for ext3\", Tomas",
        about: "bits by test-and-set, one lock for all counters, the reserve checked outside of it",
        exclusion: Exclusion::Bits,
        count: Count::OneLock,
        ..BITMAPS
    },
    Design {
        name: "ext3-final",
        date: "2003-07",
        source: "ext3 as merged, after the review's proposal",
        about: "bits by test-and-set, group counts under hashed locks, free blocks by CPU",
        exclusion: Exclusion::BitsAndBuffer,
        count: Count::PerCpu,
        ..BITMAPS
    },
    Design {
        name: "ext4-2.6.33",
        date: "2010-02",
        source: "Linux 2.6.33",
        about: "a buddy for each group under hashed locks; goal and freed lists under one lock",
        ..EARLY
    },
    Design {
        name: "ext4-2.6.33-hack",
        date: "2010-04",
        source: "\"ext4 dbench performance with CONFIG_PREEMPT_RT\", Stultz",
        about: "as ext4-2.6.33, handles stop without the journal's lock; for measuring only",
        gate: Admission::StateLockHack,
        ..EARLY
    },
    Design {
        name: "ext4-2.6.36",
        date: "2010-10",
        source: "Linux 2.6.36",
        about: "as ext4-2.6.33, handles start under a lock for readers, counts are atomics",
        gate: Admission::RwLock,
        ..EARLY
    },
    Design {
        name: "ext4-6.2",
        date: "2023-02",
        source: "Linux 6.2",
        about: "as ext4-6.16; direct writes to unwritten blocks have the file alone",
        ..MBALLOC
    },
    Design {
        name: "ext4-6.3",
        date: "2023-04",
        source: "\"ext4: dio take shared inode lock when overwriting preallocated blocks\", Zhang",
        about: "as ext4-6.2; direct writes to allocated blocks share the file, split first",
        direct: DirectWrites::SharedIfAllocated,
        ..MBALLOC
    },
    Design {
        name: "ext4-6.16",
        date: "2025",
        source: "Linux 6.16",
        about: "group locks are waited for; goal and freed lists under one lock; orders as lists",
        direct: DirectWrites::SharedIfAllocated,
        ..MBALLOC
    },
    Design {
        name: "ext4-2025-v1",
        date: "2025-05",
        source: "\"ext4: better scalability for ext4 block allocation\", first version, Li",
        about: "locks of groups are tried, not waited for; the goal of large files in each inode",
        exclusion: Exclusion::TryGroups,
        goal: Goal::Inode,
        direct: DirectWrites::SharedIfAllocated,
        ..MBALLOC
    },
    Design { name: "v3-01", about: "locks of groups are tried, not waited for", ..SERIES },
    Design {
        name: "v3-04",
        about: "as v3-01, and the goal of large files a word without a lock",
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
        about: "as v3-05, and the count of freed blocks an atomic",
        goal: MANY_GOALS,
        freed: Freed::ListedCountApart,
        ..SERIES
    },
    Design {
        name: "v3-09",
        about: "as v3-08, and freed runs merged before they are listed",
        goal: MANY_GOALS,
        freed: Freed::MergedFirst,
        ..SERIES
    },
    Design {
        name: "v3-15",
        about: "as v3-09, with orders as maps, read without a lock",
        goal: MANY_GOALS,
        freed: Freed::MergedFirst,
        scan: Scan::Maps,
        ..SERIES
    },
    Design {
        name: "ext4-6.17",
        date: "2025-09",
        source: "Linux 6.17",
        about: "as v3-15, all orders behind the goal before any in front of it",
        goal: MANY_GOALS,
        freed: Freed::MergedFirst,
        scan: Scan::MapsInTurn,
        ..SERIES
    },
    Design {
        name: "ext4-7.0-dio",
        date: "2026-01",
        source: "\"ext4: defer unwritten splitting until I/O completion\", Zhang; Linux 7.0",
        about: "as ext4-6.17; direct writes split and convert after the data, no handle before it",
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
        about: "leased regions, counters in escrow, no list of freed blocks, a gate by slot, \
                direct writes by references",
        exclusion: Exclusion::Leases,
        goal: Goal::Lease,
        scan: Scan::Regions,
        count: Count::Escrow,
        freed: Freed::Images,
        gate: Admission::Slots,
        direct: DirectWrites::References,
        ..BITMAPS
    },
];

impl Design {
    /// All presets, by date. The last is the default.
    #[must_use]
    pub fn all() -> &'static [Self] {
        &ALL
    }

    /// The design called `name`: a preset's name, with options behind slashes where the preset
    /// has any.
    ///
    /// # Errors
    /// [`UnknownDesign`], which says what there is.
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

    /// The design with locks of the past that wait as `kind` says.
    #[must_use]
    pub fn with_locks(self, kind: LockKind) -> Self {
        Self { locks: kind, ..self }
    }

    /// The option that chooses the gate it has.
    #[must_use]
    pub fn gate_option(&self) -> &'static str {
        let gate = GATES.iter().find(|gate| gate.admission == self.gate);
        gate.expect("every gate is in the table").option
    }

    /// Whether it has any locks of the past.
    #[must_use]
    pub fn has_old_locks(&self) -> bool {
        self.exclusion != Exclusion::Leases || self.gate != Admission::Slots
    }

    /// Whether it may be used only on volumes that are thrown away: a crash may damage them.
    #[must_use]
    pub fn is_for_measuring_only(&self) -> bool {
        self.gate == Admission::StateLockHack
    }

    /// What makes a volume one of this design.
    #[must_use]
    pub fn replacements(&self) -> Replacements {
        let rule: Option<&'static direct::Rule> = match self.direct {
            DirectWrites::References => None,
            DirectWrites::AloneUnlessWritten => Some(&direct::ALONE_UNLESS_WRITTEN),
            DirectWrites::SharedIfAllocated => Some(&direct::SHARED_IF_ALLOCATED),
            DirectWrites::SplitAfter => Some(&direct::SPLIT_AFTER),
        };
        Replacements {
            blocks: self.allocator(),
            direct: rule.map_or_else(DirectChoice::default, |rule| DirectChoice::replaced(rule)),
            admission: gates::factory(self.gate, self.locks),
        }
    }

    /// What makes an allocator one of this design.
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

    /// The options that the preset knows, except those of the gate, which every preset knows.
    #[must_use]
    pub fn choices(&self) -> &'static [&'static str] {
        let by_order = matches!(self.scan, Scan::Lists | Scan::Maps | Scan::MapsInTurn);
        let worded = matches!(self.name, "v3-04" | "v3-05");
        match (by_order, worded) {
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
        let own = ALL.iter().find(|preset| preset.name == self.name).map(|preset| preset.gate);
        if own == Some(self.gate) { Ok(()) } else { write!(f, "/{}", self.gate_option()) }
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
        write!(f, "no design is called {:?}; there are", self.0)?;
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
    fn names_lead_back_to_their_designs() {
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
    fn unknown_names_say_what_there_is() {
        for name in ["", "ext5", "nextent/s0", "ext3-2002/", "ext3-2002/acqrel"] {
            let text = Design::named(name).unwrap_err().to_string();
            assert!(text.contains("ext3-2002, ext3-2003") && !text.contains('\n'), "{text}");
        }
    }
}
