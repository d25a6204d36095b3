//! Makes an image and fills it.
//!
//! [`ImageBuilder::prepare`] opens the image and plans the file system; nothing is written yet.
//! [`Draft::write`] writes and fills it. A failure leaves no image that looks finished: a file that
//! did not exist before is removed, another image is marked as one with errors.

use super::attributes::{Adjuster, Attributes};
use super::contents::{Contents, Filler};
use super::{BuildError, Observer, Report};
use nextent::DiskTime;
use nextent::mkfs::{MkfsOptions, Owner, Plan};
use nextent_device::{BlockDevice, FileDevice, FileOptions};
use nextent_ondisk::superblock::{SUPER_OFFSET, SUPER_SIZE, state};
use nextent_ondisk::{Geometry, Superblock};
use std::fmt;
use std::path::{Path, PathBuf};

/// Makes images; the parameters of [`build`](Self::build).
///
/// ```
/// use nextent::mkfs::MkfsOptions;
/// use nextent_image::{Contents, ImageBuilder};
///
/// # let dir = tempfile::tempdir()?;
/// # let (source, image) = (dir.path().join("tree"), dir.path().join("disk.img"));
/// # std::fs::create_dir(&source)?;
/// std::fs::write(source.join("hello"), "world")?;
/// let mut options = MkfsOptions::default();
/// options.size = Some(16 << 20);
/// options.label = "root".into();
/// let made = ImageBuilder::new(options)
///     .contents(Contents::open(&source)?)
///     .root_owner(0, 0)
///     .build(&image, &())?;
/// assert_eq!(made.superblock().label(), "root");
///
/// let volume = nextent::Volume::open(&image)?;
/// assert_eq!(volume.read("/hello")?, b"world");
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
pub struct ImageBuilder<'a> {
    options: MkfsOptions,
    contents: Option<Contents<'a>>,
    attributes: Option<Attributes>,
    skip_unreadable: bool,
    offset: u64,
    direct: bool,
    root_owner: Option<Owner>,
    threads: usize,
}

impl<'a> ImageBuilder<'a> {
    /// A builder of empty file systems. [`MkfsOptions::size`] is needed for images that do not
    /// exist yet. [`MkfsOptions::clock`] is the latest time that copied files get.
    pub fn new(options: MkfsOptions) -> Self {
        let threads = nextent_sync::available_cores();
        let (contents, attributes, root_owner) = (None, None, None);
        Self {
            options,
            contents,
            attributes,
            skip_unreadable: false,
            offset: 0,
            direct: false,
            root_owner,
            threads,
        }
    }

    /// Fills the file system.
    pub fn contents(mut self, contents: Contents<'a>) -> Self {
        self.contents = Some(contents);
        self
    }

    /// What entries get in place of the attributes that the contents give them.
    pub fn attributes(mut self, attributes: Attributes) -> Self {
        self.attributes = Some(attributes);
        self
    }

    /// Leaves out files of a directory that this process may not read, and what is in directories
    /// that it may not read. Each goes to the observer as a note; [`Built::skipped`] counts them.
    /// By default they fail.
    pub fn skip_unreadable(mut self, skip: bool) -> Self {
        self.skip_unreadable = skip;
        self
    }

    /// The byte of the file or device at which the file system begins; 0 by default.
    pub fn offset(mut self, bytes: u64) -> Self {
        self.offset = bytes;
        self
    }

    /// Whether the host's page cache is bypassed.
    pub fn direct(mut self, direct: bool) -> Self {
        self.direct = direct;
        self
    }

    /// The owner of the root directory. By default it is that of the contents.
    pub fn root_owner(mut self, uid: u32, gid: u32) -> Self {
        self.root_owner = Some(Owner { uid, gid });
        self
    }

    /// Threads that copy contents, at least one; one for each core by default. The image does not
    /// depend on their number.
    pub fn threads(mut self, threads: usize) -> Self {
        self.threads = threads.max(1);
        self
    }

    /// Makes the image at `path`, a file or a block device.
    ///
    /// # Errors
    ///
    /// [`BuildError`]. Entries that cannot be copied go to `observer`, and the rest is copied; then
    /// the error is [`BuildError::Incomplete`].
    pub fn build(
        self,
        path: impl AsRef<Path>,
        observer: &dyn Observer,
    ) -> Result<Built, BuildError> {
        self.prepare(path)?.write(observer)
    }

    /// Opens `path`, creates it if it does not exist, and plans the file system.
    ///
    /// # Errors
    ///
    /// The image cannot be opened or is in use, or the options do not fit it.
    pub fn prepare(self, path: impl AsRef<Path>) -> Result<Draft<'a>, BuildError> {
        let path = path.as_ref();
        if let Some(contents) = &self.contents
            && self.attributes.as_ref().is_some_and(Attributes::needs_host)
            && !contents.is_directory()
        {
            return Err(BuildError::NoHostFiles { contents: contents.name() });
        }
        let exists = path.exists();
        let mut how = FileOptions::new().direct(self.direct).offset(self.offset);
        match self.options.size {
            Some(size) => how = how.create(!exists || path.is_file()).size(size),
            None if !exists => return Err(BuildError::NoSize),
            None => {}
        }
        let device = FileDevice::open(path, &how)?;
        let new = NewFile((!exists).then(|| path.to_owned()));
        let plan = Plan::new(&self.options, device.size())?;
        Ok(Draft { builder: self, path: path.to_owned(), device, plan, new })
    }
}

/// An open image and the plan of its file system.
pub struct Draft<'a> {
    builder: ImageBuilder<'a>,
    path: PathBuf,
    device: FileDevice,
    plan: Plan,
    new: NewFile,
}

impl Draft<'_> {
    /// The device, with its old contents.
    pub fn device(&self) -> &FileDevice {
        &self.device
    }

    /// The planned file system, with warnings about it.
    pub fn plan(&self) -> &Plan {
        &self.plan
    }

    /// Writes the file system with its contents.
    ///
    /// # Errors
    ///
    /// As [`ImageBuilder::build`].
    pub fn write(self, observer: &dyn Observer) -> Result<Built, BuildError> {
        let Self { builder, path, device, plan, new } = self;
        let offset = builder.offset;
        let Some(contents) = builder.contents else {
            plan.write(&device)?;
            new.keep();
            let geometry = plan.geometry().clone();
            return Ok(Built { superblock: plan.superblock().clone(), geometry, skipped: 0 });
        };
        let report = Report::new(observer);
        let clock = builder.options.clock;
        let filler = Filler {
            report: &report,
            threads: builder.threads,
            skip_unreadable: builder.skip_unreadable,
            // The host's page cache lets one thread at a time write to a file.
            one_writer: !builder.direct && path.is_file(),
            adjuster: Adjuster {
                attributes: builder.attributes.as_ref(),
                root_owner: builder.root_owner,
                latest: clock.map(|at| DiskTime::new(i64::try_from(at).unwrap_or(i64::MAX), 0)),
            },
        };
        let filled = filler.fill((plan, device, &path), contents);
        let done = filled.and_then(|()| match report.failures() {
            0 => Ok(()),
            failures => Err(BuildError::Incomplete { failures }),
        });
        if let Err(error) = done {
            let marked = if new.0.is_some() { Ok(()) } else { mark_as_damaged(&path, offset) };
            return Err(match (error, marked) {
                (BuildError::Incomplete { .. }, Err(unmarked)) => unmarked,
                (error, _) => error,
            });
        }
        new.keep();
        Built::read(&path, offset, report.skipped())
    }
}

impl fmt::Debug for Draft<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Draft").field("path", &self.path).finish_non_exhaustive()
    }
}

/// A finished image.
#[derive(Debug)]
pub struct Built {
    superblock: Superblock,
    geometry: Geometry,
    skipped: u64,
}

impl Built {
    /// The superblock as it was written.
    pub fn superblock(&self) -> &Superblock {
        &self.superblock
    }

    /// How many entries were left out because this process may not read them.
    pub fn skipped(&self) -> u64 {
        self.skipped
    }

    /// Sizes and features of the file system.
    pub fn geometry(&self) -> &Geometry {
        &self.geometry
    }

    /// Reads it from the image.
    fn read(path: &Path, offset: u64, skipped: u64) -> Result<Self, BuildError> {
        let how = FileOptions::new().read_only(true).unlocked(true).offset(offset);
        let mut bytes = [0; SUPER_SIZE];
        FileDevice::open(path, &how)?.read_at(SUPER_OFFSET, &mut bytes)?;
        let superblock = Superblock::read(&bytes)?;
        let geometry = superblock.check(u64::MAX)?;
        Ok(Self { superblock, geometry, skipped })
    }
}

/// The path of a file that was created; it is removed on drop.
struct NewFile(Option<PathBuf>);

impl NewFile {
    fn keep(mut self) {
        self.0 = None;
    }
}

impl Drop for NewFile {
    fn drop(&mut self) {
        // The error that ends the build is returned, not that of removing the file.
        let _ = self.0.take().map(std::fs::remove_file);
    }
}

/// Sets the error flag, so that the next check examines the whole image.
fn mark_as_damaged(path: &Path, offset: u64) -> Result<(), BuildError> {
    let device = FileDevice::open(path, &FileOptions::new().offset(offset))?;
    let mut bytes = [0; SUPER_SIZE];
    device.read_at(SUPER_OFFSET, &mut bytes)?;
    // Without a superblock there is no file system to mark.
    let Ok(mut sb) = Superblock::read(&bytes) else { return Ok(()) };
    sb.state.set(sb.state.get() & !state::VALID | state::ERROR);
    sb.seal();
    device.write_at(SUPER_OFFSET, sb.bytes())?;
    Ok(device.flush()?)
}
