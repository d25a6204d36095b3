//! Brings a directory of an image to a directory of the host, writing only what differs.
//!
//! | module | does |
//! |---|---|
//! | `compare` | walks both trees on all cores and plans the changes; writes nothing |
//! | `links` | decides which names of files with several names stay |
//! | `write` | makes the changes, through the journal; a name leads to an old file or a new one |
//! | `remove` | removes entries that the source lacks |
//! | `counting` | counts the blocks that the device gets |
//!
//! Invariants:
//!
//! - The image is open for reading only until all differences are known. Without any, nothing is
//!   written to it, not even a superblock.
//! - Nothing is removed after an entry of the source could not be read.
//! - What is compared is what is set, as exactly as the image can hold it. So a second run finds no
//!   difference.
//! - The image must not be reachable below the source.

mod attributes;
mod compare;
mod counting;
mod item;
mod links;
mod plan;
mod remove;
mod write;

pub use item::{Action, Differs, Item, SyncObserver};

use self::compare::{Comparison, Trees};
use self::counting::Counting;
use self::links::Claims;
use self::plan::Plan;
use self::write::{Counts, Writer};
use super::attributes::{Attributes, IdMap};
use super::entry::{FileId, Kind};
use super::host_source::{HostNode, HostSource, id};
use super::{EntryError, Report, Source, escape};
use nextent::inodes::{InodeNo, Inodes};
use nextent::{Cred, Error, FileType, OpenOptions};
use nextent_device::BlockDevice;
use nextent_num::to_u64;
use nextent_sync::Arc;
use std::path::{Path, PathBuf};

/// Brings a directory of an image to a directory of the host: the parameters of
/// [`run`](Self::run).
///
/// After it the two have the same names, types, contents, modes, owners, times of the last change
/// of contents, hard links, access lists and extended attributes. The directory `lost+found` of the
/// image stays.
///
/// ```
/// use nextent::device::{FileDevice, FileOptions};
/// use nextent::mkfs::MkfsOptions;
/// use nextent_image::sync::TreeSync;
/// use nextent_image::{Contents, ImageBuilder};
/// use std::sync::Arc;
///
/// # let dir = tempfile::tempdir()?;
/// # let (source, image) = (dir.path().join("tree"), dir.path().join("disk.img"));
/// # std::fs::create_dir(&source)?;
/// # let mut options = MkfsOptions::default();
/// # options.size = Some(16 << 20);
/// ImageBuilder::new(options).contents(Contents::open(&source)?).build(&image, &())?;
/// std::fs::write(source.join("hello"), "world")?;
///
/// let sync = TreeSync::new(&source).image_file(&image);
/// let open = || FileDevice::open(&image, &FileOptions::new());
/// let first = sync.run(Arc::new(open()?), b"/", &())?;
/// assert_eq!((first.created, first.failed), (1, 0));
/// let second = sync.run(Arc::new(open()?), b"/", &())?;
/// assert_eq!(second.blocks, 0);
///
/// let volume = nextent::Volume::open(&image)?;
/// assert_eq!(volume.read("/hello")?, b"world");
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
pub struct TreeSync {
    source: PathBuf,
    owners: Attributes,
    checksum: bool,
    dry_run: bool,
    image: Option<PathBuf>,
    name: String,
    threads: usize,
}

/// What a synchronisation has done.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Synced {
    /// Entries that were made.
    pub created: u64,
    /// Entries that were replaced, linked or given other attributes.
    pub updated: u64,
    /// Entries that were removed.
    pub removed: u64,
    /// Blocks of the image that were written, those of the journal included.
    pub blocks: u64,
    /// Failures, each of which the observer got.
    pub failed: u64,
    /// Names that the source lacks and that stay because of failures. A directory counts once.
    pub kept: u64,
}

/// Why nothing was synchronised, or the image could not be closed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SyncError {
    /// The source is no directory that can be read.
    #[error("{}: {error}", crate::escape::path(path))]
    Source {
        /// The source.
        path: PathBuf,
        /// What is wrong with it.
        error: EntryError,
    },
    /// The image is a file below the source, which it would have to contain.
    #[error("{}: the image that is written lies in this directory", crate::escape::path(.0))]
    ImageInSource(PathBuf),
    /// The image cannot be opened.
    #[error(transparent)]
    Open(Error),
    /// The directory of the image cannot be used.
    #[error("{path}: {error}")]
    Directory {
        /// Its path in the image.
        path: String,
        /// What is wrong with it.
        error: EntryError,
    },
    /// The image has differences, and cannot be changed.
    #[error("cannot be changed: {0}")]
    ReadOnly(String),
    /// The image could not be closed. The next program that recovers it completes what was
    /// committed.
    #[error("close: {0}")]
    Close(Error),
}

/// The directory of the image.
enum Top {
    Present(InodeNo),
    /// It is missing in this directory, and gets this name.
    Missing(InodeNo, Vec<u8>),
}

impl TreeSync {
    /// A synchronisation from the directory at `source`. Links in this path are followed.
    pub fn new(source: &Path) -> Self {
        Self {
            source: source.to_owned(),
            owners: Attributes::new(),
            checksum: false,
            dry_run: false,
            image: None,
            name: "image".to_owned(),
            threads: nextent_sync::available_cores(),
        }
    }

    /// Reads also files of the same length and time. Otherwise their contents are taken as equal.
    pub fn checksum(mut self, yes: bool) -> Self {
        self.checksum = yes;
        self
    }

    /// Changes nothing, and only reports.
    pub fn dry_run(mut self, yes: bool) -> Self {
        self.dry_run = yes;
        self
    }

    /// Gives every entry this owner and this group. Replaces [`mapped`](Self::mapped).
    pub fn owner(mut self, uid: u32, gid: u32) -> Self {
        self.owners = Attributes::new().owner(uid, gid);
        self
    }

    /// Maps the numbers of users and groups, as [`Attributes::mapped`]. Replaces
    /// [`owner`](Self::owner).
    pub fn mapped(mut self, users: IdMap, groups: IdMap) -> Self {
        self.owners = Attributes::new().mapped(users, groups);
        self
    }

    /// The host's file that has the image. It must not lie below the source.
    pub fn image_file(mut self, path: &Path) -> Self {
        self.image = Some(path.to_owned());
        self.name = escape::path(path);
        self
    }

    /// How many threads compare; by default as many as there are cores.
    pub fn threads(mut self, threads: usize) -> Self {
        self.threads = threads;
        self
    }

    /// Brings the directory `dir` of the image on `device` to the source. `dir` is made if only its
    /// last name is missing; links in it are followed. The device must allow writing, except in a
    /// dry run. A journal that needs recovery is recovered when the first difference is written.
    ///
    /// `observer` gets the failures of entries, which do not end the synchronisation.
    ///
    /// # Errors
    /// See [`SyncError`]. Without [`SyncError::Close`] nothing was written.
    pub fn run(
        &self,
        device: Arc<dyn BlockDevice>,
        dir: &[u8],
        observer: &dyn SyncObserver,
    ) -> Result<Synced, SyncError> {
        let source = HostSource::new(true, self.image_id().into_iter().collect());
        let node = self.check_source(&source)?;
        let counting = Counting::new(device);
        let device: Arc<dyn BlockDevice> = counting.clone();
        let options = OpenOptions::new().read_only(true);
        let volume = Inodes::open(Arc::clone(&device), &options).map_err(SyncError::Open)?;
        counting.set_block_size(u64::from(volume.geometry().block_size));
        let top = find(&volume, dir)?;
        let report = Report::new(observer);
        let (mut plan, mut claims) = (Plan::default(), Claims::new());
        if let Top::Present(ino) = top {
            let trees = self.trees(&source, &volume, dir);
            let mut comparison = Comparison::new(&trees, &report, self.checksum);
            plan = comparison.run(node.clone(), ino, self.threads);
            claims = links::resolve(&mut plan, |name| comparison.names_differ(name));
            plan.sort();
        }
        // What the source seems to lack may be what could not be read.
        let mut kept = 0;
        if report.failed() {
            kept = to_u64(std::mem::take(&mut plan.removals).len());
        }
        if matches!(top, Top::Present(_)) && plan.changes.is_empty() && plan.removals.is_empty() {
            volume.close().map_err(SyncError::Close)?;
            let (blocks, failed) = (counting.written(), report.failures());
            return Ok(Synced { blocks, failed, kept, ..Synced::default() });
        }
        let volume = if self.dry_run { volume } else { writable(volume, device)? };
        let trees = self.trees(&source, &volume, dir);
        let mut writer = Writer::new(&trees, &report, observer, claims, self.dry_run);
        if let Top::Missing(parent, name) = &top {
            writer.make_top(&node, *parent, name);
        }
        writer.run(plan.changes, plan.removals);
        let Counts { created, updated, removed } = writer.counts;
        kept += to_u64(writer.left());
        volume.close().map_err(SyncError::Close)?;
        let (blocks, failed) = (counting.written(), report.failures());
        Ok(Synced { created, updated, removed, blocks, failed, kept })
    }

    fn trees<'t>(&'t self, source: &'t HostSource, volume: &'t Inodes, dir: &[u8]) -> Trees<'t> {
        let name = format!("{}:{}", self.name, escape::name(dir));
        Trees { source, owners: &self.owners, volume, cred: Cred::root(), name }
    }

    /// The identity of the image's file.
    fn image_id(&self) -> Option<FileId> {
        let meta = std::fs::metadata(self.image.as_ref()?).ok()?;
        Some(id(&meta))
    }

    /// The top of the source.
    fn check_source(&self, source: &HostSource) -> Result<HostNode, SyncError> {
        let failed = |error| SyncError::Source { path: self.source.clone(), error };
        let node = HostNode::top(&self.source, true);
        if source.meta(&node).map_err(failed)?.kind != Kind::Dir {
            return Err(failed(EntryError::new("is not a directory")));
        }
        let image = self.image.as_ref().and_then(|image| image.canonicalize().ok());
        if let Some(image) = image.filter(|image| image.is_file())
            && let Ok(top) = self.source.canonicalize()
            && image.starts_with(&top)
        {
            return Err(SyncError::ImageInSource(self.source.clone()));
        }
        Ok(node)
    }
}

/// Finds the directory `path` of the image.
fn find(volume: &Inodes, path: &[u8]) -> Result<Top, SyncError> {
    let failed = |error| SyncError::Directory { path: escape::name(path), error };
    let cred = Cred::root();
    match volume.resolve(&cred, path, true) {
        Ok(attr) if attr.kind == FileType::Directory => Ok(Top::Present(attr.ino)),
        Ok(_) => Err(failed(EntryError::new("is not a directory"))),
        Err(Error::NotFound) => {
            let (parent, name) =
                volume.resolve_parent(&cred, path).map_err(|error| failed(error.into()))?;
            match volume.lookup(&cred, parent, name) {
                Err(Error::NotFound) => Ok(Top::Missing(parent, name.to_vec())),
                _ => Err(failed(EntryError::new("is a dangling link"))),
            }
        }
        Err(error) => Err(failed(error.into())),
    }
}

/// Makes the volume writable. One whose journal was replayed in memory, or that has deletions to
/// complete, is opened again: numbers of inodes with names stay the same.
fn writable(volume: Inodes, device: Arc<dyn BlockDevice>) -> Result<Inodes, SyncError> {
    match volume.make_writable() {
        Ok(()) => return Ok(volume),
        Err(Error::StaysReadOnly(_)) => {}
        Err(error) => return Err(SyncError::Open(error)),
    }
    volume.close().map_err(SyncError::Open)?;
    drop(volume);
    let volume = Inodes::open(device, &OpenOptions::new()).map_err(SyncError::Open)?;
    if volume.is_read_only() {
        let why = volume.read_only_reason().unwrap_or("it is read-only");
        return Err(SyncError::ReadOnly(why.to_owned()));
    }
    Ok(volume)
}
