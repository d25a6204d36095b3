//! Random trees and command lines: coreutils, GNU tar and bsdtar in a directory, and this program
//! on an image. Exit codes and trees with all attributes must be equal, and e2fsck must find no
//! errors in this program's images.
//!
//! A case is drawn from a seed and a number. A case that differs is reduced, by removing steps and
//! entries while it still differs, and shown as command lines.

mod archives;
mod commands;
mod entry;
mod exceptions;
mod listing;
mod paths;
mod rng;
mod step;
mod world;

use super::cases::Rng;
use entry::{Spec, SpecEntry};
use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::Path;
use std::time::{Duration, Instant};
use step::Step;
use world::{Verdict, World};

/// mke2fs's options for the images; most cases use the first.
const FORMATS: [&str; 5] = [
    "-b 4096",
    "-b 1024",
    "-O ^has_journal",
    "-O ^extents,^64bit -b 1024",
    "-O fast_commit -b 2048",
];
/// The most runs for reducing a case.
const REDUCTIONS: u32 = 60;

/// One comparison.
#[derive(Clone, Debug)]
struct Case {
    source: Spec,
    host: Spec,
    images: [Spec; 2],
    steps: Vec<Step>,
    umask: u16,
    format: &'static str,
}

impl Case {
    fn new(rng: &mut Rng, with_bsdtar: bool) -> Self {
        let count = rng.count(3, 25);
        let (source, mut host) = (entry::tree(rng, count), entry::tree(rng, count / 2));
        host.iter_mut().for_each(SpecEntry::own_name_of_link);
        let images = [entry::tree(rng, count), entry::tree(rng, count / 2)];
        let umask = *rng.pick(&[0o022, 0o022, 0o022, 0o077, 0o002, 0]);
        let format = if rng.chance(60) { FORMATS[0] } else { *rng.pick(&FORMATS) };
        let mut case = Self { source, host, images, steps: Vec::new(), umask, format };
        match rng.below(10) {
            0..6 => {
                for _ in 0..rng.count(1, 4) {
                    case.steps.push(commands::step(rng, &case));
                }
            }
            6 | 7 => case.steps.push(archives::extract(rng, &case, with_bsdtar)),
            8 => {
                // An archive has no sockets.
                case.images[0].retain(|entry| !matches!(entry.what, entry::What::Socket));
                case.images[0].iter_mut().for_each(SpecEntry::for_bsdtar);
                case.steps.push(archives::create(rng, &case, with_bsdtar));
            }
            _ => {
                case.images[1].clear();
                // mkfs ignores the umask.
                (case.umask, case.format) = (0o022, FORMATS[0]);
                case.steps.push(archives::fill(rng, &case, with_bsdtar));
            }
        }
        case
    }

    fn uses(&self, image: usize) -> bool {
        self.steps.iter().any(|step| step.uses(image))
    }

    fn trees(&mut self) -> [&mut Spec; 4] {
        let [first, second] = &mut self.images;
        [&mut self.source, &mut self.host, first, second]
    }
}

/// Whether `case` differs.
fn differs(world: &mut World, case: &Case) -> Result<Option<String>, String> {
    Ok(match world.judge(case)? {
        Verdict::Differs(text) => Some(text),
        Verdict::Alike | Verdict::Excepted(_) => None,
    })
}

/// Removes steps and entries that the difference does not need.
fn reduce(world: &mut World, case: Case, text: String) -> Result<(Case, String), String> {
    let (mut case, mut text, mut left) = (case, text, REDUCTIONS);
    let mut attempt = |smaller: Case, case: &mut Case| -> Result<bool, String> {
        if left == 0 {
            return Ok(false);
        }
        left -= 1;
        let found = differs(world, &smaller)?;
        let fits = found.is_some();
        if let Some(found) = found {
            (*case, text) = (smaller, found);
        }
        Ok(fits)
    };
    let mut at = case.steps.len();
    while at > 0 && case.steps.len() > 1 {
        at -= 1;
        let mut smaller = case.clone();
        smaller.steps.remove(at);
        attempt(smaller, &mut case)?;
    }
    for tree in 0..4 {
        let mut size = case.trees()[tree].len();
        while size > 0 {
            // First halves, then single entries.
            let mut end = case.trees()[tree].len();
            while end > 0 {
                let mut smaller = case.clone();
                let start = end.saturating_sub(size);
                smaller.trees()[tree].drain(start..end);
                attempt(smaller, &mut case)?;
                end = start.min(case.trees()[tree].len());
            }
            size /= 2;
        }
    }
    Ok((case, text))
}

fn shown(case: &Case) -> String {
    let mut text = format!("umask {:o}; mke2fs {}\n", case.umask, case.format);
    for (name, spec) in [("src", &case.source), ("host", &case.host)]
        .into_iter()
        .chain([("image 0", &case.images[0]), ("image 1", &case.images[1])])
    {
        for entry in spec {
            let path = paths::quoted(&entry.path);
            let what = format!("{:?}", entry.what);
            let what: String = what.chars().take(90).collect();
            let (uid, gid) = entry.owner;
            let _ = write!(text, "  {name}: {path} {what} {:o} {uid}:{gid}", entry.mode);
            let _ = write!(text, " {:?}", entry.times[1]);
            for (name, value) in &entry.xattrs {
                let value: Vec<u8> = value.iter().copied().take(44).collect();
                let _ = write!(text, " {name}={}", value.escape_ascii());
            }
            text.push('\n');
        }
    }
    for (n, step) in case.steps.iter().enumerate() {
        let _ = writeln!(text, "  step {n}: {step}");
    }
    text
}

/// Compares until `limit` or `cases` is reached, from the case `first` of `seed`.
pub(super) fn run(
    program: &Path,
    (limit, cases): (Duration, u64),
    (seed, first): (u64, u64),
) -> Result<(), String> {
    if let Some(what) = world::missing() {
        println!("skipped: no {what}");
        return Ok(());
    }
    let with_bsdtar = crate::shell::has("bsdtar");
    if !with_bsdtar {
        println!("skipped: no bsdtar; its archives are left out");
    }
    let mut world = World::new(program)?;
    let began = Instant::now();
    let mut counts: BTreeMap<&'static str, u64> = BTreeMap::new();
    let (mut wrong, mut most) = (0, 20);
    for n in first..first.saturating_add(cases) {
        if began.elapsed() >= limit || most == 0 {
            break;
        }
        let case = Case::new(&mut Rng::new(seed, n), with_bsdtar);
        match world.judge(&case).map_err(|text| format!("case {n} of seed {seed}: {text}"))? {
            Verdict::Alike => *counts.entry("alike").or_default() += 1,
            Verdict::Excepted(name) => *counts.entry(name).or_default() += 1,
            Verdict::Differs(text) => {
                (wrong, most) = (wrong + 1, most - 1);
                let (case, text) = reduce(&mut world, case, text)?;
                print!("case {n} of seed {seed}: {}{text}", shown(&case));
            }
        }
    }
    println!("copies, seed {seed}, {} s:", began.elapsed().as_secs());
    for (name, count) in &counts {
        println!("{count:>6} {name}");
    }
    if wrong == 0 { Ok(()) } else { Err(format!("{wrong} cases of copies differ")) }
}
