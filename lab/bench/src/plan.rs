//! A checked request: the words of the command line as typed values.

use crate::designs::{self, Design};
use crate::failure::Failure;
use crate::target::{Directory, ImageSpec, Medium};
use crate::workload::Params;
use crate::workload::dbench::Load;
use crate::workloads::Workload;
use nextent_sync::{Arc, Duration, LockKind, stats};
use std::path::PathBuf;

/// Default size of an image in bytes.
const IMAGE: u64 = 8 << 30;
/// Default size of a file of `append` and of `frag`, in bytes.
const APPENDED: u64 = 16 << 20;
const FRAGMENTED: u64 = 1 << 30;
/// The most threads. A larger number is probably a typing error.
const THREADS: usize = 4096;

/// Workloads with a `--file-size`.
const GROWS: [Workload; 5] = [
    Workload::Frag,
    Workload::Append,
    Workload::Fsync,
    Workload::DioOverwrite,
    Workload::DioRewrite,
];
/// Workloads with a `--shared` directory.
const SHARES: [Workload; 3] = [Workload::Churn, Workload::Fallocate2, Workload::Fallocate1];
/// Workloads of direct writes.
const DIRECT: [Workload; 2] = [Workload::DioOverwrite, Workload::DioRewrite];

/// Whether this build has the counted copy of the engine.
const COUNTS: bool = cfg!(feature = "counting");

/// A request, as the user wrote it.
#[derive(Clone, Debug)]
pub struct Request {
    /// The workload's name.
    pub workload: String,
    /// `engine` or `dir:PATH`; `engine` if empty.
    pub targets: Vec<String>,
    /// Names of designs; the default one if empty.
    pub designs: Vec<String>,
    /// Numbers of threads.
    pub threads: Vec<usize>,
    /// Seconds timed in a run.
    pub seconds: f64,
    /// Number of rounds.
    pub repeat: usize,
    /// Bytes of a new image.
    pub image_size: Option<u64>,
    /// An image file to use instead of one in memory.
    pub image: Option<PathBuf>,
    /// How historical locks wait: `sleep` (the default) or `spin`.
    pub lock_kind: Option<String>,
    /// Pin each thread to a core of its own, from this core on.
    pub pin: Option<usize>,
    /// Count lock statistics in a separate round.
    pub lockstat: bool,
    /// One directory for all threads.
    pub shared: bool,
    /// dbench's load file.
    pub loadfile: Option<PathBuf>,
    /// Size of files in bytes.
    pub file_size: Option<u64>,
    /// Sizes of direct writes; 4096 if empty.
    pub bs: Vec<u64>,
    /// Direct writes in flight of each thread.
    pub depth: Option<usize>,
    /// Delay added to each answer of the device.
    pub latency: Option<Duration>,
}

/// The target of a column.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Location {
    Engine,
    Directory(PathBuf),
}

/// A column of the report: a target and, for the library, a design.
#[derive(Clone, Debug)]
pub(crate) struct Column {
    pub(crate) location: Location,
    /// `engine` or `dir:PATH`.
    pub(crate) target: String,
    pub(crate) design: Option<Design>,
    /// Bytes of a direct write.
    pub(crate) bs: Option<u64>,
    /// The name of the column for people.
    pub(crate) label: String,
}

/// A checked request.
pub struct Plan {
    pub(crate) workload: Workload,
    pub(crate) columns: Vec<Column>,
    pub(crate) threads: Vec<usize>,
    pub(crate) seconds: Duration,
    pub(crate) repeat: usize,
    pub(crate) pin: Option<usize>,
    pub(crate) lockstat: bool,
    pub(crate) params: Params,
    /// Direct writes in flight of each thread.
    pub(crate) depth: usize,
    pub(crate) request: Request,
    image_bytes: u64,
    /// Whether there are counting runs.
    pub(crate) counts: bool,
}

impl Plan {
    /// Checks a request.
    ///
    /// # Errors
    /// [`Failure::Usage`], saying what is allowed.
    pub fn new(request: &Request) -> Result<Self, Failure> {
        let workload = workload(&request.workload)?;
        numbers(request)?;
        options(workload, request)?;
        let columns = columns(workload, request)?;
        let file_bytes = request.file_size.unwrap_or(match workload {
            Workload::Frag | Workload::DioOverwrite | Workload::DioRewrite => FRAGMENTED,
            _ => APPENDED,
        });
        let load = match (&request.loadfile, workload) {
            (Some(path), _) => Some(Arc::new(load(path)?)),
            (None, Workload::Dbench) => {
                let hint = "dbench's client.txt, of Debian in /usr/share/dbench";
                return Err(Failure::usage(format!("dbench needs --loadfile FILE: {hint}")));
            }
            (None, _) => None,
        };
        let most = request.threads.iter().copied().max().unwrap_or(1);
        // Metadata, the journal and the reserve need an eighth. `frag` gets twice its size, since
        // extents on a nearly full volume say little about a design.
        let room = workload.required_bytes(most, file_bytes);
        let room = if workload == Workload::Frag { room * 2 } else { room / 8 * 9 };
        let image_bytes = request.image_size.unwrap_or(IMAGE.max(room + (1 << 30)));
        Ok(Self {
            workload,
            columns,
            threads: request.threads.clone(),
            seconds: Duration::from_secs_f64(request.seconds),
            repeat: request.repeat,
            pin: request.pin,
            lockstat: request.lockstat,
            params: Params { shared: request.shared, file_bytes, bs: 4096, depth: 1, load },
            depth: request.depth.unwrap_or(1),
            request: request.clone(),
            image_bytes,
            counts: COUNTS,
        })
    }

    /// The warm-up before `seconds` are timed.
    pub(crate) fn warm_up(&self, seconds: Duration) -> Duration {
        (seconds / 5).min(Duration::from_millis(500))
    }

    /// The image for the library.
    pub(crate) fn image_spec(&self) -> ImageSpec {
        let medium = self.request.image.clone().map_or(Medium::Memory, Medium::File);
        let bytes_per_inode = self.workload.wants_inodes().then_some(4096);
        let latency = self.request.latency.unwrap_or_default();
        ImageSpec { medium, bytes: self.image_bytes, bytes_per_inode, latency }
    }

    /// Whether the image is kept after a run.
    pub(crate) fn keeps_image(&self) -> bool {
        self.request.image.is_some()
    }

    /// The request for a single design and number of threads.
    pub(crate) fn only(&self, column: &Column, design: Design, threads: usize) -> Request {
        let mut request = self.request.clone();
        // The timed runs have created the image file.
        let made = request.image.as_ref().is_some_and(|path| path.exists());
        request.image_size = Some(self.image_bytes).filter(|_| !made);
        request.lock_kind = request.lock_kind.filter(|_| design.has_historical_locks());
        Request {
            targets: vec!["engine".to_owned()],
            designs: vec![design.to_string()],
            threads: vec![threads],
            repeat: 1,
            bs: column.bs.into_iter().collect(),
            ..request
        }
    }

    /// As [`only`](Self::only), with at most `seconds` and smaller files.
    pub(crate) fn briefly(
        &self,
        column: &Column,
        design: Design,
        threads: usize,
        seconds: f64,
    ) -> Request {
        let mut request = self.only(column, design, threads);
        request.seconds = request.seconds.min(seconds);
        if self.workload == Workload::Frag {
            let whole = self.params.file_bytes;
            request.file_size = Some((whole / 16).max(1 << 20).min(whole));
        }
        request
    }

    /// The number of timed runs.
    #[must_use]
    pub fn runs(&self) -> usize {
        self.columns.len() * self.threads.len() * self.repeat
    }
}

pub(crate) fn workload(name: &str) -> Result<Workload, Failure> {
    Workload::named(name).ok_or_else(|| {
        let all: Vec<&str> = Workload::all().map(Workload::name).collect();
        Failure::usage(format!("{name}: no such workload; there are {}", all.join(", ")))
    })
}

fn numbers(request: &Request) -> Result<(), Failure> {
    let wrong = |text: &str| Err(Failure::usage(text));
    if request.threads.is_empty() || request.threads.iter().any(|n| *n == 0 || *n > THREADS) {
        return Err(Failure::usage(format!("--threads: numbers from 1 to {THREADS}")));
    }
    if !(request.seconds >= 0.01 && request.seconds <= 86_400.0) {
        return wrong("--seconds: from 0.01 to 86400");
    }
    if request.repeat == 0 || request.repeat > 1000 {
        return wrong("--repeat: from 1 to 1000");
    }
    let unfit = |bs: &u64| !bs.is_multiple_of(512) || !(512..=1 << 24).contains(bs);
    if request.bs.iter().any(unfit) {
        return wrong("--bs: multiples of 512 up to 16m");
    }
    if request.depth.is_some_and(|depth| depth == 0 || depth > 1024) {
        return wrong("--depth: from 1 to 1024");
    }
    if request.latency.is_some_and(|latency| latency > Duration::from_secs(1)) {
        return wrong("--latency: at most 1s");
    }
    if request.file_size.is_some_and(|size| !(4096..=1 << 43).contains(&size)) {
        return wrong("--file-size: from 4k to 8t");
    }
    if request.image_size.is_some_and(|size| size > 1 << 50) {
        return wrong("--image-size: at most 1024t");
    }
    Ok(())
}

/// Refuses options that have no effect on the workload.
fn options(workload: Workload, request: &Request) -> Result<(), Failure> {
    let only = |given: bool, option: &str, allowed: &[Workload]| {
        if !given || allowed.contains(&workload) {
            return Ok(());
        }
        let names: Vec<&str> = allowed.iter().map(|one| one.name()).collect();
        Err(Failure::usage(format!("{option} is for {} only", names.join(", "))))
    };
    only(request.shared, "--shared", &SHARES)?;
    only(request.loadfile.is_some(), "--loadfile", &[Workload::Dbench])?;
    only(request.file_size.is_some(), "--file-size", &GROWS)?;
    only(!request.bs.is_empty(), "--bs", &DIRECT)?;
    only(request.depth.is_some(), "--depth", &DIRECT)?;
    if request.lockstat && !COUNTS && !stats::AVAILABLE {
        return Err(Failure::usage("--lockstat: this program was built without lock statistics"));
    }
    if request.image.as_ref().is_some_and(|path| path.exists()) && request.image_size.is_some() {
        return Err(Failure::usage("--image-size: the image exists and is used as it is"));
    }
    Ok(())
}

fn lock_kind(request: &Request) -> Result<LockKind, Failure> {
    let Some(word) = &request.lock_kind else { return Ok(LockKind::default()) };
    word.parse().map_err(|why| Failure::usage(format!("--lock-kind {why}")))
}

fn columns(workload: Workload, request: &Request) -> Result<Vec<Column>, Failure> {
    let mut columns = Vec::new();
    let engine = ["engine".to_owned()];
    let targets = if request.targets.is_empty() { &engine[..] } else { &request.targets };
    let mut on_engine = false;
    for target in targets {
        if target == "engine" {
            on_engine = true;
            columns.extend(designs(request)?.into_iter().map(|design| Column {
                location: Location::Engine,
                target: target.clone(),
                label: match design.locks {
                    LockKind::Spin => format!("engine {design}, spinning"),
                    LockKind::Sleep => format!("engine {design}"),
                },
                design: Some(design),
                bs: None,
            }));
            continue;
        }
        let path =
            target.strip_prefix("dir:").filter(|path| !path.is_empty()).ok_or_else(|| {
                Failure::usage(format!("{target}: no such target; there are engine and dir:PATH"))
            })?;
        if workload == Workload::Handles {
            let why = "no system call starts a handle; it is for --target engine only";
            return Err(Failure::usage(format!("{target}: handles: {why}")));
        }
        let path = PathBuf::from(path);
        if !path.is_dir() {
            let why = "a target is a directory that exists and may be written";
            return Err(Failure::usage(format!("{target}: no such directory; {why}")));
        }
        // Report an unusable directory before the first run.
        Directory::at(&path)?;
        let (location, label) = (Location::Directory(path), target.clone());
        columns.push(Column { location, target: target.clone(), design: None, bs: None, label });
    }
    let unused = [
        (!request.designs.is_empty(), "--design"),
        (request.image.is_some(), "--image"),
        (request.image_size.is_some(), "--image-size"),
        (request.lock_kind.is_some(), "--lock-kind"),
        (request.latency.is_some(), "--latency"),
    ];
    match unused.iter().find(|(given, _)| *given && !on_engine) {
        Some((_, option)) => Err(Failure::usage(format!("{option} is for --target engine only"))),
        None => Ok(by_size(workload, request, columns)),
    }
}

/// The columns for each size of direct writes.
fn by_size(workload: Workload, request: &Request, columns: Vec<Column>) -> Vec<Column> {
    if !workload.is_direct() {
        return columns;
    }
    let sizes = if request.bs.is_empty() { &[4096][..] } else { &request.bs };
    let shown = |bs: u64| match bs % 1024 {
        0 => format!("{}k", bs / 1024),
        _ => bs.to_string(),
    };
    let of = |bs: u64| {
        columns.iter().cloned().map(move |column| Column {
            label: format!("{}, {}", column.label, shown(bs)),
            bs: Some(bs),
            ..column
        })
    };
    sizes.iter().flat_map(|bs| of(*bs)).collect()
}

fn designs(request: &Request) -> Result<Vec<Design>, Failure> {
    let kind = lock_kind(request)?;
    let chosen: Vec<Design> = match &request.designs[..] {
        [] => vec![Design::default()],
        names => names.iter().map(|name| designs::named(name)).collect::<Result<_, _>>()?,
    };
    if request.lock_kind.is_some() && !chosen.iter().any(Design::has_historical_locks) {
        let why = "no chosen design has historical locks, as ext4-2.6.33 has";
        return Err(Failure::usage(format!("--lock-kind: {why}")));
    }
    match chosen.iter().find(|design| design.is_for_measuring_only()) {
        Some(design) if request.image.is_some() => Err(Failure::usage(format!(
            "--image: {design} is for measuring only, on fresh images in memory"
        ))),
        // The option does not concern designs without historical locks.
        _ => Ok(chosen
            .into_iter()
            .map(
                |design| {
                    if design.has_historical_locks() { design.with_locks(kind) } else { design }
                },
            )
            .collect()),
    }
}

fn load(path: &std::path::Path) -> Result<Load, Failure> {
    let shown = path.display();
    let text = std::fs::read_to_string(path);
    let text = text.map_err(|error| Failure::usage(format!("--loadfile {shown}: {error}")))?;
    let wrong =
        |why| format!("--loadfile {shown}: {why} (a load file looks like dbench's client.txt)");
    Load::parse(&text).map_err(|why| Failure::usage(wrong(why)))
}
