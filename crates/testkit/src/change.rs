//! Every kind of change of a file, each followed by an fsync, with marks for the crash explorer.
//!
//! One thread takes each of a few files through a sequence of steps that depends on its number.
//! After a step's fsync has returned, the thread records a mark. After a crash the file is in the
//! state after the last marked step, or between that and the state after the next step.

use crate::{CutInfo, PosixFs, RenameFlags, Rng, XattrFlags};
use nextent_device::{BlockDevice, RecordingDevice};
use std::collections::BTreeMap;

/// The bit that distinguishes these marks from others.
const MARK: u64 = 1 << 63;
/// The unit of collapse and insert: whole blocks.
const UNIT: usize = 4096;
/// The longest file, in bytes.
const MOST: usize = 60_000;
/// An attribute whose value needs an attribute block, and one that fits in the inode.
const ATTRIBUTES: [(&str, usize); 2] = [("user.large", 600), ("user.small", 8)];

/// A file after some step.
#[derive(Clone, Debug, PartialEq, Eq)]
struct FileState {
    /// Whether it has the second of its two names.
    other: bool,
    bytes: Vec<u8>,
    attributes: [Option<u8>; 2],
}

#[derive(Clone, Copy, Debug)]
enum Step {
    Append(usize, u8),
    Write(usize, usize, u8),
    Attribute(usize, u8),
    /// Removes an attribute.
    Bare(usize),
    /// Adds the other name, then removes the current one.
    Relink,
    Rename,
    Mode(u32),
    Resize(usize),
    Punch(usize, usize),
    Zero(usize, usize),
    Collapse(usize),
    Insert(usize),
    /// Renames another file over it.
    Replace(usize, u8),
}

fn name(file: u32, other: bool) -> String {
    format!("/change{file}{}", if other { "b" } else { "a" })
}

impl FileState {
    fn step(&self, rng: &mut Rng) -> Step {
        let len = self.bytes.len();
        let value = 1 + rng.below(250) as u8;
        let at = |rng: &mut Rng, end: usize| rng.below(end.max(1) as u64) as usize;
        match rng.below(17) {
            _ if len > MOST => Step::Resize(at(rng, 3 * UNIT)),
            _ if len < UNIT => Step::Append(3 * UNIT + at(rng, 5000), value),
            0..3 => Step::Append(1 + at(rng, 5000), value),
            3 => Step::Write(at(rng, len), 1 + at(rng, 3000), value),
            4 | 5 => Step::Attribute(0, value),
            6 => Step::Attribute(1, value),
            7 => match self.attributes.iter().position(Option::is_some) {
                Some(which) => Step::Bare(which),
                None => Step::Attribute(0, value),
            },
            8 | 9 => Step::Relink,
            10 => Step::Rename,
            11 => Step::Mode(0o600 | rng.below(64) as u32),
            12 => Step::Resize(at(rng, len + 9000)),
            13 => Step::Punch(at(rng, len), 1 + at(rng, 9000)),
            14 => Step::Zero(at(rng, len), 1 + at(rng, 9000)),
            15 if len > 2 * UNIT => Step::Collapse(at(rng, len / UNIT - 1) * UNIT),
            15 => Step::Insert(0),
            _ if rng.percent(50) => Step::Insert(at(rng, len / UNIT) * UNIT),
            _ => Step::Replace(1 + at(rng, 9000), value),
        }
    }

    fn zero(&mut self, at: usize, len: usize) {
        let end = (at + len).min(self.bytes.len());
        self.bytes[at.min(end)..end].fill(0);
    }

    /// The state after the step.
    fn after(&self, step: Step) -> Self {
        let mut next = self.clone();
        let bytes = &mut next.bytes;
        match step {
            Step::Append(len, value) => bytes.resize(bytes.len() + len, value),
            Step::Write(at, len, value) => {
                bytes.resize(bytes.len().max(at + len), 0);
                bytes[at..at + len].fill(value);
            }
            Step::Attribute(which, value) => next.attributes[which] = Some(value),
            Step::Bare(which) => next.attributes[which] = None,
            Step::Relink | Step::Rename => next.other = !next.other,
            Step::Mode(_) => {}
            Step::Resize(len) => bytes.resize(len, 0),
            Step::Punch(at, len) | Step::Zero(at, len) => next.zero(at, len),
            Step::Collapse(at) => drop(bytes.drain(at..at + UNIT)),
            Step::Insert(at) => drop(bytes.splice(at..at, [0; UNIT])),
            Step::Replace(len, value) => {
                *bytes = vec![value; len];
                next.attributes = [None; 2];
            }
        }
        next
    }
}

/// The steps of a file, and the states before and after each.
fn story(file: u32, steps: usize) -> (Vec<Step>, Vec<FileState>) {
    let mut rng = Rng::new(u64::from(file) ^ 0xc4a9_6e05);
    let mut states = vec![FileState { other: false, bytes: Vec::new(), attributes: [None; 2] }];
    let mut taken = Vec::new();
    for n in 0..steps {
        let step = states[n].step(&mut rng);
        states.push(states[n].after(step));
        taken.push(step);
    }
    (taken, states)
}

fn perform(
    fs: &(impl PosixFs + ?Sized),
    file: u32,
    step: Step,
    before: &FileState,
) -> Result<(), i32> {
    let (path, other) = (name(file, before.other), name(file, !before.other));
    let path = path.as_str();
    let at = |n: usize| n as u64;
    match step {
        Step::Append(len, value) => fs.write(path, at(before.bytes.len()), &vec![value; len]),
        Step::Write(start, len, value) => fs.write(path, at(start), &vec![value; len]),
        Step::Attribute(which, value) => {
            let (attribute, len) = ATTRIBUTES[which];
            fs.set_xattr(path, attribute, &vec![value; len], XattrFlags::Any)
        }
        Step::Bare(which) => fs.remove_xattr(path, ATTRIBUTES[which].0),
        Step::Relink => fs.link(path, &other).and_then(|()| fs.unlink(path)),
        Step::Rename => fs.rename(path, &other, RenameFlags::NoReplace),
        Step::Mode(mode) => fs.chmod(path, mode),
        Step::Resize(len) => fs.truncate(path, at(len)),
        Step::Punch(start, len) => fs.punch(path, at(start), at(len)),
        Step::Zero(start, len) => fs.zero(path, at(start), at(len), true),
        Step::Collapse(start) => fs.collapse(path, at(start), UNIT as u64),
        Step::Insert(start) => fs.insert(path, at(start), UNIT as u64),
        Step::Replace(len, value) => {
            let temporary = format!("/temporary{file}");
            fs.create(&temporary, 0o600)?;
            fs.write(&temporary, 0, &vec![value; len])?;
            fs.rename(&temporary, path, RenameFlags::Replace)
        }
    }
}

/// Makes an empty file, syncs it, and takes it through `steps` steps with an fsync and a mark after
/// each. The file system must use extents.
///
/// # Errors
/// The errno of the first failed call.
pub fn change_with_promises<D: BlockDevice>(
    fs: &(impl PosixFs + ?Sized),
    device: &RecordingDevice<D>,
    file: u32,
    steps: usize,
) -> Result<(), i32> {
    let (taken, states) = story(file, steps);
    fs.create(&name(file, false), 0o644)?;
    fs.fsync(&name(file, false))?;
    for (n, step) in taken.into_iter().enumerate() {
        perform(fs, file, step, &states[n])?;
        fs.fsync(&name(file, states[n + 1].other))?;
        device.mark(MARK | u64::from(file) << 32 | (n as u64 + 1));
    }
    Ok(())
}

/// Checks, in a recovered file system, the last marked state of each file before the cut; each file
/// had `steps` steps.
///
/// # Errors
/// A line that names the file and its actual state.
pub fn check_changes(
    fs: &(impl PosixFs + ?Sized),
    info: &CutInfo,
    steps: usize,
) -> Result<(), String> {
    let mut promised: BTreeMap<u32, usize> = BTreeMap::new();
    for mark in info.marks.iter().filter(|mark| *mark & MARK != 0) {
        promised.insert((mark >> 32) as u32 & 0x7fff_ffff, *mark as u32 as usize);
    }
    for (file, n) in promised {
        let (taken, states) = story(file, steps);
        let next = states.get(n + 1).unwrap_or(&states[n]);
        let wrong =
            |text| format!("{}, step {n}, then {:?}: {text}", name(file, false), taken.get(n));
        check_one(fs, file, &states[n], next).map_err(wrong)?;
    }
    Ok(())
}

fn check_one(
    fs: &(impl PosixFs + ?Sized),
    file: u32,
    now: &FileState,
    next: &FileState,
) -> Result<(), String> {
    let read = |other| fs.read(&name(file, other), 0, 2 * MOST);
    let found = [read(now.other), read(!now.other)];
    let (bytes, other) = match (&found[0], &found[1]) {
        (Ok(bytes), Err(_)) => (bytes, now.other),
        (Err(_), Ok(bytes)) if next.other != now.other => (bytes, next.other),
        (Ok(bytes), Ok(_)) if next.other != now.other => (bytes, now.other),
        (one, another) => {
            let there = [one.is_ok(), another.is_ok()];
            return Err(format!("its name and the other are there: {there:?}"));
        }
    };
    check_bytes(bytes, &now.bytes, &next.bytes)?;
    for (which, (attribute, len)) in ATTRIBUTES.into_iter().enumerate() {
        let have = match fs.get_xattr(&name(file, other), attribute) {
            Err(libc::ENODATA) => None,
            Err(errno) => return Err(format!("{attribute}: errno {errno}")),
            Ok(value) if value.len() == len && value.iter().all(|b| *b == value[0]) => {
                Some(value[0])
            }
            Ok(value) => return Err(format!("{attribute} is {value:?}")),
        };
        let may = [now.attributes[which], next.attributes[which]];
        if !may.contains(&have) {
            return Err(format!("{attribute} is {have:?}, not one of {may:?}"));
        }
    }
    Ok(())
}

/// Checks that `have` is between two states of the contents: a byte that the step changes may be
/// old, new or zero.
fn check_bytes(have: &[u8], now: &[u8], next: &[u8]) -> Result<(), String> {
    if now == next {
        let differ = have.iter().zip(now).position(|(a, b)| a != b);
        let same = have == now;
        let text = format!("{} bytes of {}, differs at {differ:?}", have.len(), now.len());
        return if same { Ok(()) } else { Err(text) };
    }
    let (least, most) = (now.len().min(next.len()), now.len().max(next.len()));
    if !(least..=most).contains(&have.len()) {
        return Err(format!("{} bytes, not {least} to {most}", have.len()));
    }
    let fits = |at: usize, byte: u8| {
        let at = [now.get(at), next.get(at), Some(&0)];
        at.contains(&Some(&byte))
    };
    // Bytes of both states must be there, except where the step moves everything after an offset.
    let kept = |at: usize, byte: u8| match (now.get(at), next.get(at)) {
        (Some(a), Some(b)) if a == b && now.len() == next.len() => byte == *a,
        _ => fits(at, byte),
    };
    match have.iter().enumerate().find(|(at, byte)| !kept(*at, **byte)) {
        None => Ok(()),
        Some((at, byte)) => Err(format!("byte {at} of {} is {byte}", have.len())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ModelFs;

    /// A model file system has the same states after each step.
    #[test]
    fn states_match_the_model() {
        for file in 0..6 {
            let fs = ModelFs::new(1024);
            let (taken, states) = story(file, 120);
            fs.create(&name(file, false), 0o644).unwrap();
            for (n, step) in taken.into_iter().enumerate() {
                perform(&fs, file, step, &states[n]).unwrap();
                check_one(&fs, file, &states[n + 1], &states[n + 1])
                    .unwrap_or_else(|text| panic!("{file}, {n}, {step:?}: {text}"));
            }
        }
    }
}
