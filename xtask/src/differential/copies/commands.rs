//! Random command lines of coreutils.

use super::Case;
use super::entry::{Spec, What};
use super::paths::{join, name, path};
use super::step::{Line, Step, TreePath, Word};
use crate::differential::cases::Rng;

fn text(word: impl AsRef<[u8]>) -> Word {
    Word::Text(word.as_ref().to_vec())
}

fn any(_: &What) -> bool {
    true
}

fn is_dir(what: &What) -> bool {
    matches!(what, What::Dir)
}

/// Whether the file can be read without waiting for a writer.
fn readable(what: &What) -> bool {
    matches!(what, What::Dir | What::File(..) | What::Symlink(_) | What::Link(_))
}

/// Draws a command line of any kind.
pub(super) fn step(rng: &mut Rng, case: &Case) -> Step {
    match rng.below(100) {
        0..45 => cp(rng, case),
        45..57 => mv(rng, case),
        57..64 => rm(rng, case),
        64..74 => ln(rng, case),
        74..82 => chmod(rng, case),
        82..88 => chown(rng, case),
        88..94 => truncate(rng, case),
        _ => mkdir(rng, case),
    }
}

/// Draws the target of a command: a directory, another existing file, or a new name.
fn target(rng: &mut Rng, spec: &Spec) -> Vec<u8> {
    match rng.below(10) {
        0..5 => path(rng, spec, is_dir),
        5..7 => path(rng, spec, readable),
        7 => Vec::new(),
        _ => {
            let dirs: Vec<_> = spec.iter().filter(|entry| is_dir(&entry.what)).collect();
            let above = match dirs.is_empty() || rng.chance(40) {
                true => Vec::new(),
                false => rng.pick(&dirs).path.clone(),
            };
            let mut path = join(&above, &name(rng, &What::Dir));
            if rng.chance(20) {
                path.push(b'/');
            }
            path
        }
    }
}

const CP: &[&[&str]] = &[&[], &["-r"], &["-R"], &["-p"], &["-a"], &["-a"], &["-a"], &["-r", "-p"]];

fn cp(rng: &mut Rng, case: &Case) -> Step {
    let flags = *rng.pick(CP);
    let recursive = flags.iter().any(|flag| matches!(*flag, "-r" | "-R" | "-a"));
    let wanted = if recursive { any } else { readable };
    let to_host = rng.chance(30);
    let mut places = Vec::new();
    for _ in 0..rng.count(1, 3) {
        places.push(match (to_host, rng.below(10)) {
            (false, 0..6) => TreePath::Source(path(rng, &case.source, wanted)),
            (_, 0..8) => TreePath::Image(0, path(rng, &case.images[0], wanted)),
            _ => TreePath::Image(1, path(rng, &case.images[1], wanted)),
        });
    }
    places.push(match to_host {
        true => TreePath::Host(target(rng, &case.host)),
        false => TreePath::Image(0, target(rng, &case.images[0])),
    });
    if let Some(TreePath::Host(path)) = places.last_mut()
        && path.is_empty()
    {
        path.push(b'.');
    }
    let places = places.into_iter().map(Word::At);
    let preserves = flags.iter().any(|flag| matches!(*flag, "-p" | "-a"));
    let mut theirs = Line::new(&["cp"]).and(flags.iter().map(text));
    if preserves {
        // This program's `-p` keeps attributes, too, and cp(1)'s `-a` ignores failures to do so.
        theirs.words.push(text("--preserve=xattr"));
    }
    let ours = Line::new(&["nextent", "cp", "-q"]).and(flags.iter().map(text));
    let theirs = theirs.and([text("--")]).and(places.clone());
    let mut step = Step::new(theirs, ours.and([text("--")]).and(places));
    (step.keeps_access, step.keeps) = (preserves, preserves);
    step
}

/// A step with the same words for both programs, after their names.
fn alike(words: &[&str], places: Vec<Word>) -> Step {
    let ours = [&["nextent"], words].concat();
    let places = || places.iter().cloned();
    Step::new(
        Line::new(words).and([text("--")]).and(places()),
        Line::new(&ours).and([text("--")]).and(places()),
    )
}

fn within(path: Vec<u8>) -> Word {
    Word::At(TreePath::Image(0, path))
}

fn several(rng: &mut Rng, spec: &Spec, wanted: fn(&What) -> bool) -> Vec<Word> {
    (0..rng.count(1, 3)).map(|_| within(path(rng, spec, wanted))).collect()
}

fn mv(rng: &mut Rng, case: &Case) -> Step {
    let spec = &case.images[0];
    let count = if rng.chance(70) { 1 } else { 2 };
    let mut places: Vec<Word> = (0..count).map(|_| within(path(rng, spec, any))).collect();
    places.push(within(if rng.chance(20) { path(rng, spec, any) } else { target(rng, spec) }));
    alike(&["mv"], places)
}

fn rm(rng: &mut Rng, case: &Case) -> Step {
    let words: &[&str] = match rng.below(4) {
        0 => &["rm"],
        1 => &["rm", "-f"],
        2 => &["rm", "-r"],
        _ => &["rm", "-r", "-f"],
    };
    alike(words, several(rng, &case.images[0], any))
}

fn ln(rng: &mut Rng, case: &Case) -> Step {
    let spec = &case.images[0];
    if rng.chance(40) {
        let words = [text(path(rng, spec, any)), within(target(rng, spec))];
        return alike(&["ln", "-s"], words.to_vec());
    }
    alike(&["ln"], vec![within(path(rng, spec, any)), within(target(rng, spec))])
}

const MODES: &[&str] = &[
    "0",
    "644",
    "755",
    "4755",
    "2775",
    "1777",
    "00755",
    "02750",
    "u+x",
    "go-w",
    "+x",
    "-w",
    "+w",
    "a=rX",
    "u=g",
    "g+s",
    "u+s,g-s",
    "+t",
    "o=u-w",
    "a-x+w",
    "=",
    "=rw",
    "u=rwx,g=rx,o=",
    "g=u",
    "ug+rwX,o-rwx",
    "a+st",
    "-x+X",
    "u-s",
    "o+t",
    "=777",
    "+111",
    "-022",
];

fn chmod(rng: &mut Rng, case: &Case) -> Step {
    let recursive: &[&str] = if rng.chance(30) { &["-R"] } else { &[] };
    let mode = *rng.pick(MODES);
    let places = several(rng, &case.images[0], any);
    alike_after(&["chmod"], recursive, mode, places)
}

/// `TOOL FLAGS -- WORD PLACES`.
fn alike_after(tool: &[&str], flags: &[&str], word: &str, places: Vec<Word>) -> Step {
    let words = [tool, flags].concat();
    alike(&words, [vec![text(word)], places].concat())
}

fn chown(rng: &mut Rng, case: &Case) -> Step {
    let flags: &[&str] = match rng.below(4) {
        0 => &["-R"],
        1 => &["--no-dereference"],
        _ => &[],
    };
    let owner =
        *rng.pick(&["1000", "1000:1000", ":100", "0:0", "70000:4294967294", "daemon:", "0:"]);
    alike_after(&["chown"], flags, owner, several(rng, &case.images[0], any))
}

fn truncate(rng: &mut Rng, case: &Case) -> Step {
    let sizes =
        ["0", "1", "100", "4096", "+4K", "-4K", "<100", ">100", "/4K", "%4K", "10M", "+1", "-1"];
    let size = *rng.pick(&sizes);
    let mut words = vec!["truncate", "-s", size];
    if rng.chance(20) {
        words.insert(1, "-c");
    }
    alike(&words, several(rng, &case.images[0], readable))
}

fn mkdir(rng: &mut Rng, case: &Case) -> Step {
    let spec = &case.images[0];
    let words: &[&str] = match rng.below(6) {
        0 | 1 => &["mkdir"],
        2 | 3 => &["mkdir", "-p"],
        4 => &["mkdir", "-m", "2750"],
        _ => &["mkdir", "-p", "-m", "700"],
    };
    let mut places = Vec::new();
    for _ in 0..rng.count(1, 2) {
        let mut path = target(rng, spec);
        for _ in 0..rng.below(3) {
            path = join(&path, &name(rng, &What::Dir));
        }
        places.push(within(path));
    }
    alike(words, places)
}
