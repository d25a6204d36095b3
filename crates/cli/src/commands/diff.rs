//! `diff`.

use crate::failure::{Failure, Result, complain};
use crate::image::{Image, Purpose, at, cred};
use crate::location::{Inside, Location};
use crate::show;
use crate::target::ImageSpec;
use nextent_image::EntryError;
use nextent_image::diff::{Change, Compared, Difference, Ignored, Side, diff};
use nextent_image::transfer::{HostNode, HostSource, ImageNode, ImageSource};
use serde_json::{Value, json};
use std::ffi::OsString;
use std::io::{BufWriter, Write};
use std::process::ExitCode;

#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Print only whether they differ
    #[arg(short, long, conflicts_with = "json")]
    quiet: bool,
    /// What is not compared: modes, owners, times, xattrs, links
    #[arg(long, value_delimiter = ',', value_name = "WHAT,...")]
    ignore: Vec<Attribute>,
    /// Print JSON
    #[arg(long)]
    json: bool,
    /// An image, IMAGE:/PATH, or a directory
    left: OsString,
    /// Another
    right: OsString,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
enum Attribute {
    Modes,
    Owners,
    Times,
    Xattrs,
    Links,
}

/// `nextent diff`.
pub(crate) fn run(args: &Args) -> Result<ExitCode> {
    let has = |what| args.ignore.contains(&what);
    let ignored = Ignored {
        modes: has(Attribute::Modes),
        owners: has(Attribute::Owners),
        times: has(Attribute::Times),
        xattrs: has(Attribute::Xattrs),
        links: has(Attribute::Links),
    };
    let trouble = |failure: Failure| failure.with_code(2);
    let sides = [&args.left, &args.right];
    let places = [place(sides[0]).map_err(trouble)?, place(sides[1]).map_err(trouble)?];
    let out = BufWriter::new(std::io::stdout().lock());
    let all = args.json.then(Vec::new);
    let (quiet, names) = (args.quiet, sides.map(show::path));
    let mut printer = Printer { out, all, quiet, names, differ: false, failed: false, lost: None };
    compare(&places, ignored, &mut printer).map_err(trouble)?;
    printer.end()
}

/// A tree to compare.
enum Place {
    Host(HostNode),
    Image(Box<Image>, Inside),
}

/// A directory of the host, or a path in an image; an image alone stands for its root.
fn place(arg: &OsString) -> Result<Place> {
    let inside = match Location::parse(arg)? {
        Location::Image(inside) => inside,
        Location::Host(path) if path.is_dir() => {
            return Ok(Place::Host(HostNode::top(&path, true)));
        }
        Location::Host(_) => {
            let image = ImageSpec::parse(arg).map_err(Failure::usage)?;
            Inside { image, path: b"/".to_vec() }
        }
    };
    Ok(Place::Image(Box::new(Image::of(&inside, Purpose::Read)?), inside))
}

fn compare(places: &[Place; 2], ignored: Ignored, to: &mut Printer<'_>) -> Result<()> {
    let host = HostSource::new(true, Vec::new());
    match places {
        [Place::Host(left), Place::Host(right)] => {
            diff((&host, left.clone()), (&host, right.clone()), ignored, to);
        }
        [Place::Host(left), Place::Image(image, inside)] => {
            let (source, top) = of_image((image, inside), 0)?;
            diff((&host, left.clone()), (&source, top), ignored, to);
        }
        [Place::Image(image, inside), Place::Host(right)] => {
            let (source, top) = of_image((image, inside), 0)?;
            diff((&source, top), (&host, right.clone()), ignored, to);
        }
        [Place::Image(one, inside), Place::Image(other, there)] => {
            let (left, left_top) = of_image((one, inside), 0)?;
            let (right, right_top) = of_image((other, there), 1)?;
            diff((&left, left_top), (&right, right_top), ignored, to);
        }
    }
    Ok(())
}

/// The files of an image, and the one at its path.
fn of_image<'v>(
    (image, inside): (&'v Image, &Inside),
    tag: u64,
) -> Result<(ImageSource<'v>, ImageNode)> {
    let top = at("diff", inside, image.volume.resolve(&cred(), &inside.path, true))?;
    let source = ImageSource::new(&image.volume, &show::path(&inside.image), tag, true);
    Ok((source, ImageNode::top(top.ino, &inside.path)))
}

struct Printer<'o> {
    out: BufWriter<std::io::StdoutLock<'o>>,
    /// For JSON.
    all: Option<Vec<Value>>,
    quiet: bool,
    names: [String; 2],
    differ: bool,
    failed: bool,
    /// The error of standard output.
    lost: Option<std::io::Error>,
}

impl Printer<'_> {
    fn end(mut self) -> Result<ExitCode> {
        if let Some(error) = self.lost {
            return Err(error.into());
        }
        if let Some(all) = self.all {
            writeln!(self.out, "{:#}", Value::Array(all))?;
        }
        self.out.flush()?;
        Ok(ExitCode::from(match (self.failed, self.differ) {
            (true, _) => 2,
            (false, true) => 1,
            (false, false) => 0,
        }))
    }

    fn name(&self, side: Side) -> &str {
        match side {
            Side::Left => &self.names[0],
            Side::Right => &self.names[1],
        }
    }
}

fn shown(path: &[u8]) -> String {
    format!("/{}", show::name(path))
}

impl Compared for Printer<'_> {
    fn differs(&mut self, path: &[u8], difference: &Difference) -> bool {
        self.differ = true;
        if self.quiet {
            return false;
        }
        let path = shown(path);
        if let Some(all) = &mut self.all {
            all.push(value(&path, difference));
            return true;
        }
        let line = match difference {
            Difference::Only { side, kind } => {
                format!("only in {}: {path} ({kind})", self.name(*side))
            }
            Difference::Changed(changes) => {
                let changes: Vec<_> = changes.iter().map(words).collect();
                format!("{path}: {}", changes.join("; "))
            }
            _ => path,
        };
        self.lost = writeln!(self.out, "{line}").err();
        self.lost.is_none()
    }

    fn fails(&mut self, path: &[u8], side: Side, error: &EntryError) {
        self.failed = true;
        complain(&format!("diff {}: {}: {error}", self.name(side), shown(path)));
    }
}

/// A change, for people.
fn words(change: &Change) -> String {
    match change {
        Change::Kind(a, b) => format!("{a}, {b}"),
        Change::Size(a, b) => format!("{a} bytes, {b} bytes"),
        Change::Contents(at) => format!("contents differ at byte {at}"),
        Change::Target(a, b) => format!("to {}, to {}", show::name(a), show::name(b)),
        Change::Device => "device numbers differ".to_owned(),
        Change::Mode(a, b) => format!("mode {a:04o}, {b:04o}"),
        Change::Owner(a, b) => format!("owner {}:{}, {}:{}", a.0, a.1, b.0, b.1),
        Change::Time => "times differ".to_owned(),
        Change::Xattr(name) => format!("attribute {} differs", show::name(name)),
        Change::Links => "linked to other names".to_owned(),
        _ => "differs".to_owned(),
    }
}

fn value(path: &str, difference: &Difference) -> Value {
    match difference {
        Difference::Only { side, kind } => {
            let side = if *side == Side::Left { "left" } else { "right" };
            json!({ "path": path, "only": side, "kind": kind })
        }
        Difference::Changed(changes) => {
            let changes: Vec<_> = changes.iter().map(change_value).collect();
            json!({ "path": path, "changes": changes })
        }
        _ => json!({ "path": path }),
    }
}

fn change_value(change: &Change) -> Value {
    let of = |what: &str, a: Value, b: Value| json!({ "what": what, "left": a, "right": b });
    match change {
        Change::Kind(a, b) => of("kind", json!(a), json!(b)),
        Change::Size(a, b) => of("size", json!(a), json!(b)),
        Change::Contents(at) => json!({ "what": "contents", "first": at }),
        Change::Target(a, b) => of("target", json!(show::name(a)), json!(show::name(b))),
        Change::Device => json!({ "what": "device" }),
        Change::Mode(a, b) => of("mode", json!(a), json!(b)),
        Change::Owner(a, b) => of("owner", json!([a.0, a.1]), json!([b.0, b.1])),
        Change::Time => json!({ "what": "time" }),
        Change::Xattr(name) => json!({ "what": "xattr", "name": show::name(name) }),
        Change::Links => json!({ "what": "links" }),
        _ => json!({ "what": "other" }),
    }
}
