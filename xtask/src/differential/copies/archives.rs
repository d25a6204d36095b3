//! Random archives, read and written.

use super::Case;
use super::paths::path;
use super::step::{Line, Step, TreePath, Word};
use crate::differential::cases::Rng;

/// The archive, relative to the directories in which commands run.
const ARCHIVE: &str = "../../a.tar";
const SECOND: &str = "../../b.tar";
/// The size of this program's images, which is that of the peer's.
const SIZE: &str = "192m";
/// The flags for GNU tar to extract as root.
const EXTRACT: &[&str] = &[
    "tar",
    "-x",
    "-p",
    "--same-owner",
    "--numeric-owner",
    "--acls",
    "--xattrs",
    "--xattrs-include=*",
    // Otherwise a directory with later entries has the time of the extraction.
    "--delay-directory-restore",
];

fn text(word: impl AsRef<[u8]>) -> Word {
    Word::Text(word.as_ref().to_vec())
}

/// GNU tar or bsdtar, with flags.
fn writer(rng: &mut Rng, with_bsdtar: bool) -> Vec<&'static str> {
    if with_bsdtar && rng.chance(35) { bsdtar(rng) } else { gnu_tar(rng) }
}

/// An archive of some sources, made by `writer`.
///
/// If a directory comes twice, or after an entry in it, GNU tar mixes the attributes of both
/// entries. So all entries of an archive are made with the same flags, parents first.
fn pack(rng: &mut Rng, case: &Case, archive: &'static str, writer: &[&str]) -> Vec<Line> {
    let mut names: Vec<Vec<u8>> = Vec::new();
    for _ in 0..rng.count(1, 3) {
        let name = if rng.chance(40) { b".".to_vec() } else { whole_path(rng, case) };
        let deep = name.split(|byte| *byte == b'/').filter(|part| !part.is_empty()).count() > 1;
        if !deep || names.is_empty() {
            names.push(name);
        }
        if deep {
            break;
        }
    }
    let write = |how: &str, names: Vec<Vec<u8>>| {
        let names = [text(b"--")].into_iter().chain(names.into_iter().map(text));
        Line::new(writer).and([how, "-f", archive].map(text)).and(names)
    };
    let deep = names.iter().any(|name| name.contains(&b'/'));
    let mut lines = vec![write("-c", names)];
    if !deep
        && writer[0] == "tar"
        && rng.chance(25)
        && !writer.contains(&"--listed-incremental=/dev/null")
    {
        // Some names come twice.
        lines.push(write("-r", vec![whole_path(rng, case)]));
    }
    lines
}

/// A path of a source. GNU tar leaves out attributes of a directory that is named with `/.`.
fn whole_path(rng: &mut Rng, case: &Case) -> Vec<u8> {
    let path = path(rng, &case.source, |_| true);
    if path.ends_with(b".") { b".".to_vec() } else { path }
}

fn gnu_tar(rng: &mut Rng) -> Vec<&'static str> {
    let formats = ["gnu", "pax", "pax", "pax", "ustar", "v7", "oldgnu"];
    let format = match *rng.pick(&formats) {
        "gnu" => "--format=gnu",
        "pax" => "--format=pax",
        "ustar" => "--format=ustar",
        "v7" => "--format=v7",
        _ => "--format=oldgnu",
    };
    let mut line = vec!["tar", format, "--sort=name", "--numeric-owner"];
    if format == "--format=pax" {
        line.push("--acls");
        line.extend(["--xattrs", "--xattrs-include=*"]);
    }
    if rng.chance(15) {
        line.push("--hard-dereference");
    }
    if rng.chance(30) && format != "--format=v7" && format != "--format=ustar" {
        line.push("--sparse");
        if format == "--format=pax" {
            line.push(*rng.pick(&[
                "--sparse-version=0.0",
                "--sparse-version=0.1",
                "--sparse-version=1.0",
            ]));
        }
    }
    if rng.chance(10) && (format == "--format=gnu" || format == "--format=oldgnu") {
        line.push("--listed-incremental=/dev/null");
    }
    line
}

fn bsdtar(rng: &mut Rng) -> Vec<&'static str> {
    let format = *rng.pick(&["--format=pax", "--format=ustar", "--format=gnutar"]);
    let mut line = vec!["bsdtar", format, "--numeric-owner"];
    if format == "--format=pax" {
        line.extend(["--acls", "--xattrs"]);
    }
    line
}

/// A step with `tar -x` of a random archive into an image.
pub(super) fn extract(rng: &mut Rng, case: &Case, with_bsdtar: bool) -> Step {
    let writer = writer(rng, with_bsdtar);
    let mut prepare = pack(rng, case, ARCHIVE, &writer);
    if rng.chance(20) {
        prepare = vec![Line::new(&writer).and(["-c", "-f", ARCHIVE, "."].map(text))];
        prepare.extend(pack(rng, case, SECOND, &writer));
        prepare.push(Line::new(&["tar", "-A", "-f", ARCHIVE, SECOND]));
    }
    let into = match rng.chance(60) {
        true => Vec::new(),
        false => path(rng, &case.images[0], |what| matches!(what, super::entry::What::Dir)),
    };
    let into = Word::At(TreePath::Image(0, into));
    let theirs = Line::new(EXTRACT).and(["-f", ARCHIVE, "-C"].map(text)).and([into.clone()]);
    let mut ours = Line::new(&["nextent", "tar", "-q", "-x"]).and([into]);
    ours.input = Some(ARCHIVE);
    Step { prepare, keeps: true, ..Step::new(theirs, ours) }
}

/// A step with `tar -c` of an image, read by GNU tar or bsdtar, compared with a copy by cp(1).
pub(super) fn create(rng: &mut Rng, case: &Case, with_bsdtar: bool) -> Step {
    let from = match rng.chance(60) {
        true => Vec::new(),
        false => path(rng, &case.images[0], |what| matches!(what, super::entry::What::Dir)),
    };
    let from = || Word::At(TreePath::Image(0, from.clone()));
    let by_bsdtar = with_bsdtar && rng.chance(50);
    let reader: Vec<&str> = match by_bsdtar {
        true => vec!["bsdtar", "-x", "-p", "--numeric-owner", "--acls", "--xattrs"],
        false => EXTRACT.to_vec(),
    };
    let read = Line::new(&reader).and(["-f", SECOND, "-C", "unpacked"].map(text));
    let make = || Line::new(&["mkdir", "unpacked"]);
    let copy = Line::new(&["cp", "-a", "--preserve=xattr", "--"]);
    let mut copied = from();
    if let Word::At(TreePath::Image(_, path)) = &mut copied {
        path.extend(if path.is_empty() { &b"."[..] } else { b"/." });
    }
    let copy = copy.and([copied, text("unpacked/.")]);
    let mut ours = Line::new(&["nextent", "tar", "-q", "-c"]).and([from()]);
    ours.output = Some(SECOND);
    let mut step = Step::new(make(), make());
    step.keeps = true;
    // bsdtar leaves the time of the directory that it extracts into.
    let touch = || Line::new(&["touch", "-d", "@0", "unpacked"]);
    step.theirs.extend([copy, touch()]);
    step.ours.extend([ours, read, touch()]);
    if by_bsdtar {
        // bsdtar does not restore the default access list of the directory that it extracts into,
        // from its own archives neither.
        let remove = || Line::new(&["setfacl", "-k", "unpacked"]);
        step.theirs.push(remove());
        step.ours.push(remove());
    }
    step
}

/// A step with `mkfs -d` of a directory or an archive, compared with a new image filled by
/// coreutils or tar.
pub(super) fn fill(rng: &mut Rng, case: &Case, with_bsdtar: bool) -> Step {
    let whole = || Word::At(TreePath::Image(1, Vec::new()));
    let make = ["nextent", "mkfs", "-q", "-F", "-b", "4096", "-d"];
    let mut step = if rng.chance(50) {
        let from = |end: &[u8]| Word::At(TreePath::Source(end.to_vec()));
        let theirs = Line::new(&["cp", "-a", "--"]).and([from(b"."), whole()]);
        Step::new(theirs, Line::new(&make).and([from(b""), Word::File(1), text(SIZE)]))
    } else {
        let writer = writer(rng, with_bsdtar);
        let prepare = pack(rng, case, ARCHIVE, &writer);
        let theirs = Line::new(EXTRACT).and(["-f", ARCHIVE, "-C"].map(text)).and([whole()]);
        let ours = Line::new(&make).and([text(ARCHIVE), Word::File(1), text(SIZE)]);
        Step { prepare, ..Step::new(theirs, ours) }
    };
    step.keeps = true;
    step
}
