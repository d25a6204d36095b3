//! Makes an image and fills it.
//!
//! [`ImageBuilder::prepare`] opens the image and plans the file system, for which it may measure
//! the contents ([`fitting`](super::fitting)); nothing is written yet. [`Draft::write`] writes and
//! fills it. A failure leaves no image that looks finished: a file that did not exist before is
//! removed, another image is marked as one with errors.

use super::attributes::{Adjuster, Attributes};
use super::contents::{Contents, Filler};
use super::fitting::{Fitting, ROUNDS};
use super::image_device::ImageDevice;
use super::watch::Watch;
use super::{BuildError, Observer, Report};
use nextent::DiskTime;
use nextent::mkfs::{Fit, MkfsOptions, Owner, Plan};
use nextent_device::{BlockDevice, FileDevice, FileOptions};
use nextent_ondisk::superblock::{SUPER_OFFSET, SUPER_SIZE, state};
use nextent_ondisk::{Geometry, Superblock};
use nextent_sync::Arc;
use std::fmt;
use std::io::ErrorKind;
use std::os::unix::fs::FileTypeExt;
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
    part: Option<Part>,
    direct: bool,
    root_owner: Option<Owner>,
    root_mode: Option<u16>,
    no_xattrs: bool,
    threads: usize,
    fit: Option<Fit>,
}

/// A part of a file: its name and its size in bytes.
#[derive(Debug)]
struct Part {
    name: String,
    size: Option<u64>,
}

impl<'a> ImageBuilder<'a> {
    /// A builder of empty file systems. [`MkfsOptions::clock`] is the latest time that copied files
    /// get.
    ///
    /// The file system has [`MkfsOptions::size`]. Without that it has the size of the file or
    /// device, and if there is none, the size of its contents with [`Fit::default`].
    pub fn new(options: MkfsOptions) -> Self {
        let threads = nextent_sync::available_cores();
        let (contents, attributes, root_owner, fit) = (None, None, None, None);
        Self {
            options,
            contents,
            attributes,
            skip_unreadable: false,
            offset: 0,
            part: None,
            direct: false,
            root_owner,
            root_mode: None,
            no_xattrs: false,
            threads,
            fit,
        }
    }

    /// Makes the smallest image that holds the contents and leaves the space of `fit` free,
    /// whatever [`MkfsOptions::size`] says. An existing file gets that size; a block device is
    /// refused.
    ///
    /// The contents are measured before they are copied. The first walk over a directory reads
    /// attributes and no contents. The second walk reads a directory again if it has changed since,
    /// or changed less than three seconds before; files of other directories get the attributes and
    /// the length that they had first. A tar file is read twice. Any other tar stream is kept
    /// meanwhile in a file without a name in the image's directory.
    ///
    /// ```
    /// use nextent::mkfs::{Fit, Free, MkfsOptions};
    /// use nextent_image::{Contents, ImageBuilder};
    ///
    /// # let dir = tempfile::tempdir()?;
    /// # let (source, image) = (dir.path().join("tree"), dir.path().join("disk.img"));
    /// # std::fs::create_dir(&source)?;
    /// std::fs::write(source.join("large"), vec![1; 5 << 20])?;
    /// let built = ImageBuilder::new(MkfsOptions::default())
    ///     .contents(Contents::open(&source)?)
    ///     .fit(Fit::new(Free::Percent(20.0)))
    ///     .build(&image, &())?;
    /// let free = built.superblock().free_blocks_count() as f64;
    /// let share = free / built.geometry().blocks_count as f64;
    /// assert!((0.20..0.21).contains(&share));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn fit(mut self, fit: Fit) -> Self {
        self.fit = Some(fit);
        self
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

    /// The image is a part of the file or device: `size` bytes from the offset on, or all up to the
    /// end. The file is neither created nor extended, and other parts of it may be in use. In
    /// messages the image is the path with `@` and this name.
    pub fn part(mut self, name: impl Into<String>, size: Option<u64>) -> Self {
        self.part = Some(Part { name: name.into(), size });
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

    /// The permission bits of the root directory. By default they are those of the contents.
    pub fn root_mode(mut self, mode: u16) -> Self {
        self.root_mode = Some(mode & 0o7777);
        self
    }

    /// Whether extended attributes of the contents are copied; they are by default.
    pub fn xattrs(mut self, copied: bool) -> Self {
        self.no_xattrs = !copied;
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
        self.prepare(path, observer)?.write(observer)
    }

    /// Opens `path`, creates it if it does not exist, and plans the file system. If its size
    /// follows from its contents, it measures them.
    ///
    /// # Errors
    ///
    /// The image cannot be opened or is in use, or the options do not fit it. Entries that cannot
    /// be measured go to `observer`; then the error is [`BuildError::Incomplete`], and the image
    /// is as it was.
    pub fn prepare(
        mut self,
        path: impl AsRef<Path>,
        observer: &dyn Observer,
    ) -> Result<Draft<'a>, BuildError> {
        let path = path.as_ref();
        let exists = path.exists();
        self.choose_fit(path)?;
        let mut contents = self.contents.take();
        let mut find_plan = || self.find_plan(path, contents.as_mut(), (observer, 0));
        let mut how = self.options_of_file().direct(self.direct);
        let mut plan = None;
        match self.options.size {
            Some(size) if self.part.is_some() => how = how.size(size),
            None if self.part.is_some() => {}
            Some(size) => how = how.create(!exists || path.is_file()).size(size),
            None if self.fit.is_some() && !exists => {
                let found = find_plan()?;
                how = how.create(true).size(bytes(&found));
                plan = Some(found);
            }
            None if !exists => return Err(BuildError::NoSize),
            None => {}
        }
        let device = ImageDevice::File(Arc::new(FileDevice::open(path, &how)?));
        let new = NewFile((!exists).then(|| path.to_owned()));
        let plan = match plan {
            Some(plan) => plan,
            None if self.fit.is_some() => find_plan()?,
            None => Plan::new(&self.options, device.get().size())?,
        };
        self.contents = contents;
        Ok(Draft { builder: self, path: path.to_owned(), device, plan, new })
    }

    /// Plans the file system on `device`, which has its size: that of the file system is at most as
    /// large. Neither [`offset`](Self::offset) nor [`part`](Self::part) apply.
    ///
    /// # Errors
    ///
    /// As [`prepare`](Self::prepare).
    pub fn prepare_device(self, device: Arc<dyn BlockDevice>) -> Result<Draft<'a>, BuildError> {
        let plan = self.plan_device(&*device)?;
        let device = ImageDevice::Other(device);
        Ok(Draft { builder: self, path: PathBuf::new(), device, plan, new: NewFile(None) })
    }

    /// Plans the file system on `device` as [`prepare_device`](Self::prepare_device) does, and
    /// changes nothing.
    ///
    /// # Errors
    ///
    /// As [`prepare`](Self::prepare).
    pub fn plan_device(&self, device: &dyn BlockDevice) -> Result<Plan, BuildError> {
        self.check_contents()?;
        if self.fit.is_some() {
            return Err(BuildError::FixedSize);
        }
        match self.options.size.unwrap_or(device.size()) {
            size if size > device.size() => {
                Err(BuildError::PartTooSmall { size, part: device.size() })
            }
            size => Ok(Plan::new(&self.options, size)?),
        }
    }

    /// Plans the file system of an image at `path`, and creates and changes nothing.
    ///
    /// # Errors
    ///
    /// As [`prepare`](Self::prepare).
    pub fn plan(
        mut self,
        path: impl AsRef<Path>,
        observer: &dyn Observer,
    ) -> Result<Plan, BuildError> {
        let path = path.as_ref();
        self.choose_fit(path)?;
        if self.fit.is_some() {
            let mut contents = self.contents.take();
            return self.find_plan(path, contents.as_mut(), (observer, 0));
        }
        let size = match self.options.size {
            Some(size) => size,
            None => {
                let how = self.options_of_file().read_only(true).unlocked(true);
                FileDevice::open(path, &how)?.size()
            }
        };
        Ok(Plan::new(&self.options, size)?)
    }

    /// Checks that the contents have what the attributes need.
    fn check_contents(&self) -> Result<(), BuildError> {
        if let Some(contents) = &self.contents
            && self.attributes.as_ref().is_some_and(Attributes::needs_host)
            && !contents.is_directory()
        {
            return Err(BuildError::NoHostFiles { contents: contents.name() });
        }
        Ok(())
    }

    /// Checks the source, and decides whether the size follows from it.
    fn choose_fit(&mut self, path: &Path) -> Result<(), BuildError> {
        self.check_contents()?;
        if let Some(part) = &self.part {
            let room = part.size.unwrap_or(u64::MAX);
            return match self.options.size {
                _ if self.fit.is_some() => Err(BuildError::FixedSize),
                Some(size) if size > room => Err(BuildError::PartTooSmall { size, part: room }),
                _ => Ok(()),
            };
        }
        let meta = std::fs::metadata(path);
        if self.fit.is_none() && self.options.size.is_none() && self.contents.is_some() {
            let missing = meta.as_ref().is_err_and(|error| error.kind() == ErrorKind::NotFound);
            self.fit = missing.then(Fit::default);
        }
        if self.fit.is_some() {
            if meta.is_ok_and(|meta| meta.file_type().is_block_device()) {
                return Err(BuildError::FixedSize);
            }
            self.options = self.options.pinned();
            self.options.size = None;
        }
        Ok(())
    }

    /// The options that open the bytes of the image.
    fn options_of_file(&self) -> FileOptions {
        let how = FileOptions::new().offset(self.offset);
        match &self.part {
            None => how,
            Some(Part { name, size: None }) => how.part(name),
            Some(Part { name, size: Some(size) }) => how.part(name).size(*size),
        }
    }

    /// The smallest volume that holds the contents; `round` is the number of volumes that were
    /// full.
    fn find_plan(
        &self,
        image: &Path,
        contents: Option<&mut Contents<'a>>,
        (observer, round): (&dyn Observer, u32),
    ) -> Result<Plan, BuildError> {
        let fit = self.fit.unwrap_or_default();
        let fitting = Fitting { options: &self.options, fit: &fit, image, observer, round };
        fitting.plan(contents, &self.filler(image))
    }

    fn filler(&self, image: &Path) -> Filler<'_> {
        let latest = self.options.clock;
        Filler {
            threads: self.threads,
            skip_unreadable: self.skip_unreadable,
            // The host's page cache lets one thread at a time write to a file.
            one_writer: !self.direct && image.is_file(),
            adjuster: Adjuster {
                attributes: self.attributes.as_ref(),
                root_owner: self.root_owner,
                root_mode: self.root_mode,
                no_xattrs: self.no_xattrs,
                latest: latest.map(|at| DiskTime::new(i64::try_from(at).unwrap_or(i64::MAX), 0)),
            },
        }
    }
}

/// The bytes of a planned volume.
pub(super) fn bytes(plan: &Plan) -> u64 {
    plan.geometry().blocks_count << plan.geometry().block_bits
}

/// An open image and the plan of its file system.
pub struct Draft<'a> {
    builder: ImageBuilder<'a>,
    path: PathBuf,
    device: ImageDevice,
    plan: Plan,
    new: NewFile,
}

impl Draft<'_> {
    /// The device, with its old contents.
    pub fn device(&self) -> &dyn BlockDevice {
        self.device.get()
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
        let Self { mut builder, path, mut device, plan, new } = self;
        fit_device(&builder, &mut device, &plan)?;
        let Some(mut contents) = builder.contents.take() else {
            plan.write(device.get())?;
            new.keep();
            let geometry = plan.geometry().clone();
            return Ok(Built { superblock: plan.superblock().clone(), geometry, skipped: 0 });
        };
        let done = builder.fill((plan, &mut device), &path, &mut contents, observer);
        let skipped = match done {
            Ok(skipped) => skipped,
            Err(error) => {
                let marked = if new.0.is_some() { Ok(()) } else { mark_as_damaged(device.get()) };
                return Err(match (error, marked) {
                    (BuildError::Incomplete { .. }, Err(unmarked)) => unmarked,
                    (error, _) => error,
                });
            }
        };
        new.keep();
        Built::read(device.get(), skipped)
    }
}

impl<'a> ImageBuilder<'a> {
    /// Makes the volume of `plan` with the contents. A volume whose size follows from these is
    /// made again, larger, if it gets full: they have grown since they were measured. Returns the
    /// number of entries that were left out.
    fn fill(
        &self,
        (mut plan, device): (Plan, &mut ImageDevice),
        path: &Path,
        contents: &mut Contents<'a>,
        observer: &dyn Observer,
    ) -> Result<u64, BuildError> {
        let mut round = 1;
        loop {
            let last = self.fit.is_none() || round > ROUNDS;
            let watch = Watch::copying(observer, !last);
            let report = Report::new(&watch);
            let filled = self.filler(path).fill((plan, device, path), contents, &report);
            let full = watch.is_full()
                || matches!(&filled, Err(BuildError::Volume(error)) if error.is_full_volume());
            let failures = report.failures();
            if last || !full || failures > 1 {
                watch.pass_on();
                return filled.and_then(|()| match failures {
                    0 => Ok(report.skipped()),
                    failures => Err(BuildError::Incomplete { failures }),
                });
            }
            plan = self.find_plan(path, Some(contents), (observer, round))?;
            round += 1;
            fit_device(self, device, &plan)?;
        }
    }
}

/// Gives a file the size of a volume whose size follows from its contents.
fn fit_device(
    builder: &ImageBuilder<'_>,
    device: &mut ImageDevice,
    plan: &Plan,
) -> Result<(), BuildError> {
    if builder.fit.is_some() && device.get().size() != bytes(plan) {
        device.set_len(bytes(plan))?;
    }
    Ok(())
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
    fn read(device: &dyn BlockDevice, skipped: u64) -> Result<Self, BuildError> {
        let mut bytes = [0; SUPER_SIZE];
        device.read_at(SUPER_OFFSET, &mut bytes)?;
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
fn mark_as_damaged(device: &dyn BlockDevice) -> Result<(), BuildError> {
    let mut bytes = [0; SUPER_SIZE];
    device.read_at(SUPER_OFFSET, &mut bytes)?;
    // Without a superblock there is no file system to mark.
    let Ok(mut sb) = Superblock::read(&bytes) else { return Ok(()) };
    sb.state.set(sb.state.get() & !state::VALID | state::ERROR);
    sb.seal();
    device.write_at(SUPER_OFFSET, sb.bytes())?;
    Ok(device.flush()?)
}
