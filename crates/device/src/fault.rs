//! A device that fails according to a plan.
//!
//! A plan is a list of [`Rule`]s. For each operation, the first rule that matches and fires
//! decides. If no rule fires, the operation goes to the inner device. All random choices come from
//! the seed, so a run with one thread is repeatable.

use crate::queue::{DeviceQueue, faulty::Faulty};
use crate::{BlockDevice, SECTOR, range};
use nextent_num::{to_u64, to_usize};
use nextent_sync::{Duration, LockClass, Mutex, thread};
use std::io;
use std::ops::Range;

static PLAN: LockClass = LockClass::new("device.fault", 870);

/// The operations that a rule can match.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum OpKind {
    /// `read_at`.
    Read,
    /// `write_at`, `write_vectored_at`, `write_zeroes` and `discard`.
    Write,
    /// `flush`.
    Flush,
}

/// The effect of a rule on an operation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Fault {
    /// The operation has no effect and fails with this errno (`libc::EIO`, `libc::ENOSPC`).
    Error(i32),
    /// The first sectors of a write reach the inner device, then it fails with `EIO`.
    Torn {
        /// The number of whole sectors.
        sectors: usize,
    },
    /// A write or flush reports success without any effect.
    Lost,
    /// The operation is delayed and then succeeds.
    Delay(Duration),
}

/// The condition for a fault.
#[derive(Clone, Debug)]
pub struct Rule {
    kind: Option<OpKind>,
    range: Range<u64>,
    skip: u64,
    times: u64,
    chance: u32,
    fault: Fault,
}

impl Rule {
    /// Fires for every operation of `kind`.
    pub fn on(kind: OpKind, fault: Fault) -> Self {
        Self { kind: Some(kind), range: 0..u64::MAX, skip: 0, times: u64::MAX, chance: 1000, fault }
    }

    /// Fires for every operation.
    pub fn always(fault: Fault) -> Self {
        Self { kind: None, ..Self::on(OpKind::Read, fault) }
    }

    /// Restricts the rule to operations that overlap `range`. A flush overlaps every range.
    pub fn within(mut self, range: Range<u64>) -> Self {
        self.range = range;
        self
    }

    /// Ignores the first `count` matching operations.
    pub fn after(mut self, count: u64) -> Self {
        self.skip = count;
        self
    }

    /// Limits the rule to `count` faults.
    pub fn times(mut self, count: u64) -> Self {
        self.times = count;
        self
    }

    /// Sets the probability of a fault, in thousandths.
    pub fn per_mille(mut self, chance: u32) -> Self {
        self.chance = chance;
        self
    }

    fn matches(&self, kind: OpKind, at: &Range<u64>) -> bool {
        let touches = at.start < self.range.end && self.range.start < at.end;
        self.kind.is_none_or(|own| own == kind) && (kind == OpKind::Flush || touches)
    }
}

struct Plan {
    rules: Vec<Rule>,
    random: u64,
    struck: u64,
}

impl Plan {
    /// SplitMix64: the next pseudo-random number of the seed's sequence.
    fn random(&mut self) -> u64 {
        self.random = self.random.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.random;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    fn decide(&mut self, kind: OpKind, at: &Range<u64>) -> Option<Fault> {
        for n in 0..self.rules.len() {
            if !self.rules[n].matches(kind, at) {
                continue;
            }
            if self.rules[n].skip > 0 {
                self.rules[n].skip -= 1;
                continue;
            }
            let chance = u64::from(self.rules[n].chance);
            if self.rules[n].times == 0 || (chance < 1000 && self.random() % 1000 >= chance) {
                continue;
            }
            self.rules[n].times -= 1;
            self.struck += 1;
            return Some(self.rules[n].fault.clone());
        }
        None
    }
}

/// Passes operations to the inner device unless a rule fires.
pub struct FaultDevice<D> {
    inner: D,
    /// [plan] Never held during an operation of the inner device.
    plan: Mutex<Plan>,
}

impl<D: BlockDevice> FaultDevice<D> {
    /// A device with an empty plan.
    pub fn new(inner: D, seed: u64) -> Self {
        let plan = Plan { rules: Vec::new(), random: seed, struck: 0 };
        Self { inner, plan: Mutex::new(&PLAN, plan) }
    }

    /// The inner device.
    pub fn inner(&self) -> &D {
        &self.inner
    }

    /// Appends a rule to the plan.
    pub fn add(&self, rule: Rule) {
        self.plan.lock().rules.push(rule);
    }

    /// Removes all rules.
    pub fn clear(&self) {
        self.plan.lock().rules.clear();
    }

    /// The number of faults so far, including delays.
    pub fn struck(&self) -> u64 {
        self.plan.lock().struck
    }

    /// The fault for an operation that starts now.
    pub(crate) fn strike(&self, kind: OpKind, offset: u64, len: u64) -> Option<Fault> {
        self.plan.lock().decide(kind, &(offset..offset.saturating_add(len)))
    }

    /// The fault for an operation. It performs a delay itself and returns `None` for it.
    fn decide(&self, kind: OpKind, offset: u64, len: u64) -> Option<Fault> {
        let fault = self.strike(kind, offset, len);
        if let Some(Fault::Delay(time)) = fault {
            thread::sleep(time);
            return None;
        }
        fault
    }

    fn write(
        &self,
        offset: u64,
        len: u64,
        part: impl FnOnce(u64) -> io::Result<()>,
    ) -> io::Result<()> {
        range::check(self.size(), offset, len)?;
        match self.decide(OpKind::Write, offset, len) {
            None | Some(Fault::Delay(_)) => part(len),
            Some(Fault::Error(errno)) => Err(io::Error::from_raw_os_error(errno)),
            Some(Fault::Lost) => Ok(()),
            Some(Fault::Torn { sectors }) => {
                part(len.min(to_u64(sectors * SECTOR)))?;
                Err(io::Error::from_raw_os_error(libc::EIO))
            }
        }
    }
}

impl<D: BlockDevice> BlockDevice for FaultDevice<D> {
    fn size(&self) -> u64 {
        self.inner.size()
    }

    fn read_at(&self, offset: u64, buf: &mut [u8]) -> io::Result<()> {
        match self.decide(OpKind::Read, offset, to_u64(buf.len())) {
            Some(Fault::Error(errno)) => Err(io::Error::from_raw_os_error(errno)),
            Some(Fault::Torn { .. }) => Err(io::Error::from_raw_os_error(libc::EIO)),
            None | Some(Fault::Delay(_) | Fault::Lost) => self.inner.read_at(offset, buf),
        }
    }

    fn write_at(&self, offset: u64, buf: &[u8]) -> io::Result<()> {
        self.write(offset, to_u64(buf.len()), |len| {
            self.inner.write_at(offset, &buf[..to_usize(len)])
        })
    }

    fn flush(&self) -> io::Result<()> {
        match self.decide(OpKind::Flush, 0, 0) {
            Some(Fault::Error(errno)) => Err(io::Error::from_raw_os_error(errno)),
            Some(Fault::Torn { .. }) => Err(io::Error::from_raw_os_error(libc::EIO)),
            Some(Fault::Lost) => Ok(()),
            None | Some(Fault::Delay(_)) => self.inner.flush(),
        }
    }

    fn discard(&self, offset: u64, len: u64) -> io::Result<()> {
        self.write(offset, len, |part| self.inner.discard(offset, part))
    }

    fn write_zeroes(&self, offset: u64, len: u64) -> io::Result<()> {
        self.write(offset, len, |part| self.inner.write_zeroes(offset, part))
    }

    fn is_read_only(&self) -> bool {
        self.inner.is_read_only()
    }

    fn next_data(&self, offset: u64) -> io::Result<Option<Range<u64>>> {
        self.inner.next_data(offset)
    }

    fn queue(&self, depth: usize) -> Box<dyn DeviceQueue + '_> {
        Box::new(Faulty::new(self, depth))
    }
}
