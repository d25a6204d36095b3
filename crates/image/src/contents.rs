//! The sources of a new image's contents.

use super::attributes::Adjuster;
use super::image_device::ImageDevice;
use super::oci::Blob;
use super::scratch::ScratchDevice;
use super::superseded::{EntryLog, Superseded, Track};
use super::tape::Tape;
use super::transfer::{
    FillSink, HostNode, HostSource, ImageDir, KeptListings, Packing, Report, Unpacking, host_id,
    measure, pack, plan,
};
use super::untar::unpack_tracked;
use super::{BuildError, EntryError};
use nextent::inodes::{Inodes, ROOT_INO, SetAttr};
use nextent::mkfs::{Filling, MkfsOptions, Needs, Plan};
use nextent::{Cred, OpenOptions};
use nextent_device::BlockDevice;
use nextent_sync::{Arc, thread};
use std::fmt;
use std::fs::File;
use std::io::{BufReader, BufWriter, Read, Write};
use std::path::{Path, PathBuf};

/// Bytes of the buffers for packing a directory.
const BUFFER: usize = 1 << 20;

/// What a new image contains.
pub struct Contents<'a>(From<'a>);

enum From<'a> {
    /// A directory, and its listings once it was measured.
    Directory(PathBuf, KeptListings),
    /// Streams that are unpacked one after the other.
    Streams {
        streams: Vec<Stream<'a>>,
        /// Whether they are layers, in which later ones may remove names.
        layers: bool,
        /// Entries without effect, once they were measured.
        superseded: Superseded,
    },
}

impl<'a> Contents<'a> {
    /// The tree of a directory, or the entries of a tar file. A symbolic link at `path` is
    /// followed.
    ///
    /// # Errors
    ///
    /// [`BuildError::Contents`] if it cannot be opened.
    pub fn open(path: impl AsRef<Path>) -> Result<Self, BuildError> {
        let path = path.as_ref();
        let at = |source| BuildError::Contents { path: path.to_owned(), source };
        if std::fs::metadata(path).map_err(at)?.is_dir() {
            let path = std::fs::canonicalize(path).map_err(at)?;
            return Ok(Self(From::Directory(path, KeptListings::default())));
        }
        let tape = File::open(path).and_then(Tape::file).map_err(at)?;
        Ok(Self::streams(Stream::Tar { tape, name: crate::escape::path(path) }))
    }

    /// The entries of a tar stream; `name` stands for it in messages. If the size of the image
    /// follows from them, they are kept in a file without a name in the image's directory.
    pub fn tar(input: impl Read + 'a, name: impl Into<String>) -> Self {
        Self::streams(Stream::Tar { tape: Tape::stream(input), name: name.into() })
    }

    fn streams(stream: Stream<'a>) -> Self {
        Self::of(vec![stream], false)
    }

    fn of(streams: Vec<Stream<'a>>, layers: bool) -> Self {
        Self(From::Streams { streams, layers, superseded: Superseded::default() })
    }

    /// Several contents in order, as layers of the image of a container: a file of a later one
    /// takes the place of what has its name, also of a directory; a directory is joined with an
    /// earlier one; `.wh.NAME` removes NAME, and `.wh..wh..opq` all earlier contents of its
    /// directory.
    ///
    /// ```
    /// use nextent::mkfs::MkfsOptions;
    /// use nextent_image::{Contents, ImageBuilder};
    ///
    /// # let dir = tempfile::tempdir()?;
    /// # let (base, top) = (dir.path().join("base"), dir.path().join("top"));
    /// # let image = dir.path().join("disk.img");
    /// # std::fs::create_dir_all(&base)?;
    /// # std::fs::create_dir_all(&top)?;
    /// std::fs::write(base.join("old"), "1")?;
    /// std::fs::write(base.join("kept"), "2")?;
    /// std::fs::write(top.join(".wh.old"), "")?;
    /// let layers = [Contents::open(&base)?, Contents::open(&top)?];
    /// ImageBuilder::new(MkfsOptions::default())
    ///     .contents(Contents::layers(layers))
    ///     .build(&image, &())?;
    /// let volume = nextent::Volume::open(&image)?;
    /// assert!(volume.metadata("/old").is_err() && volume.metadata("/kept").is_ok());
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn layers(layers: impl IntoIterator<Item = Self>) -> Self {
        let streams = layers.into_iter().flat_map(|contents| match contents.0 {
            From::Directory(path, _) => vec![Stream::Directory(path)],
            From::Streams { streams, .. } => streams,
        });
        Self::of(streams.collect(), true)
    }

    /// The layers of the image of a container: an OCI layout in a directory or in a tar file, or an
    /// archive of `docker save`. `reference` is the name of one of several images. Each layer is
    /// compared with its digest.
    ///
    /// # Errors
    ///
    /// [`BuildError::Layout`].
    pub fn oci(path: impl AsRef<Path>, reference: Option<&str>) -> Result<Self, BuildError> {
        let path = path.as_ref();
        let found = crate::oci::layers(path, reference);
        let layers = found.map_err(|source| BuildError::Layout { path: path.into(), source })?;
        Ok(Self::of(layers.into_iter().map(Stream::Layer).collect(), true))
    }
}

impl Contents<'_> {
    /// Whether it is a directory of the host.
    pub(super) fn is_directory(&self) -> bool {
        matches!(self.0, From::Directory(..))
    }

    /// Its name for messages.
    pub(super) fn name(&self) -> String {
        match &self.0 {
            From::Directory(path, _) => crate::escape::path(path),
            From::Streams { streams, .. } => {
                streams.iter().map(Stream::name).collect::<Vec<_>>().join(", ")
            }
        }
    }
}

impl fmt::Debug for Contents<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.0 {
            From::Directory(path, _) => f.debug_tuple("Directory").field(path).finish(),
            From::Streams { .. } => f.debug_tuple("Streams").field(&self.name()).finish(),
        }
    }
}

/// One of several sources.
enum Stream<'a> {
    Tar { tape: Tape<'a>, name: String },
    Directory(PathBuf),
    Layer(Blob),
}

impl Stream<'_> {
    /// Its name for messages.
    fn name(&self) -> String {
        match self {
            Self::Tar { name, .. } => name.clone(),
            Self::Directory(path) => crate::escape::path(path),
            Self::Layer(blob) => blob.shown(),
        }
    }

    /// Reads it as a tar stream, from its start.
    fn read<R>(
        &mut self,
        packing: &Packing<'_, HostSource>,
        read: impl FnOnce(&mut dyn Read) -> R,
    ) -> std::io::Result<R> {
        match self {
            Self::Tar { tape, .. } => tape.read(read),
            Self::Directory(path) => packed_directory(path, packing, read),
            Self::Layer(blob) => blob.read(read),
        }
    }
}

/// Packs a directory in a thread of its own, and reads the stream.
fn packed_directory<R>(
    path: &Path,
    packing: &Packing<'_, HostSource>,
    read: impl FnOnce(&mut dyn Read) -> R,
) -> std::io::Result<R> {
    let (input, output) = std::io::pipe()?;
    thread::scope(|scope| {
        scope.spawn(|| {
            let mut output = BufWriter::with_capacity(BUFFER, output);
            let packed = pack(packing, &HostNode::top(path, true), &mut output);
            if let Err(error) = packed.and_then(|()| Ok(output.flush()?)) {
                packing.report.fail(&crate::escape::path(path), &error);
            }
        });
        Ok(read(&mut BufReader::with_capacity(BUFFER, input)))
    })
}

/// How streams are unpacked.
struct How<'a> {
    /// No data of files is written.
    measures: bool,
    layers: bool,
    report: &'a Report<'a>,
    /// Where directories are read.
    source: HostSource,
}

/// What is known of entries without effect.
enum Tracking<'t> {
    Log(EntryLog),
    Found(Superseded),
    Skip(&'t Superseded),
}

impl Tracking<'_> {
    /// For the stream with this number.
    fn of_stream(&mut self, number: usize) -> Track<'_> {
        match self {
            Self::Log(log) => {
                log.next_stream();
                Track::Log(log)
            }
            Self::Skip(superseded) => Track::Skip(superseded, number),
            Self::Found(_) => Track::None,
        }
    }

    /// All streams are in `volume`.
    fn finish(&mut self, volume: &Inodes) {
        if let Self::Log(log) = self {
            *self = Self::Found(std::mem::take(log).finish(volume));
        }
    }

    fn into_superseded(self) -> Superseded {
        match self {
            Self::Found(superseded) => superseded,
            _ => Superseded::default(),
        }
    }
}

/// How contents are copied.
pub(super) struct Filler<'a> {
    pub(super) threads: usize,
    /// The host lets one thread at a time write to the image.
    pub(super) one_writer: bool,
    pub(super) adjuster: Adjuster<'a>,
    /// Entries that this process may not read are left out.
    pub(super) skip_unreadable: bool,
}

impl Filler<'_> {
    /// Makes the volume of `plan` on `device`, the file at `image`, with `contents`. Entries that
    /// fail go to `report`.
    pub(super) fn fill(
        &self,
        (plan, device, image): (Plan, &ImageDevice, &Path),
        contents: &mut Contents<'_>,
        report: &Report<'_>,
    ) -> Result<(), BuildError> {
        match &mut contents.0 {
            From::Directory(dir, kept) => {
                let kept = std::mem::take(kept);
                self.directory((plan, device, image), (dir, kept), report)
            }
            From::Streams { streams, layers, superseded } => {
                plan.write(device.get())?;
                let device = device.share();
                let source = Self::source(image);
                let how = How { measures: false, layers: *layers, report, source };
                self.streams(device, &how, streams, &mut Tracking::Skip(superseded)).map(drop)
            }
        }
    }

    /// The blocks and inodes that `contents` take in a volume with these options, counted in one
    /// of so many blocks. The file at `image`, which may exist, is not part of them.
    ///
    /// Directories in which later layers remove names count with the blocks of these names, unless
    /// the result is to be `exact`, which takes longer.
    pub(super) fn measure(
        &self,
        (options, blocks, exact): (&MkfsOptions, u64, bool),
        image: &Path,
        contents: &mut Contents<'_>,
        report: &Report<'_>,
    ) -> Result<Needs, BuildError> {
        match &mut contents.0 {
            From::Directory(dir, kept) => {
                let filling = Filling::measuring(options, blocks)?;
                let source = Self::source(image);
                let dir = (&source, dir.clone());
                let how = (self.threads, self.skip_unreadable);
                let mut needs;
                (needs, *kept) = measure(dir, filling, report, how, &self.adjuster);
                if let Some(attributes) = self.adjuster.attributes {
                    let (blocks, inodes) = attributes.most_added();
                    (needs.blocks, needs.inodes) = (needs.blocks + blocks, needs.inodes + inodes);
                }
                Ok(needs)
            }
            From::Streams { streams, layers, superseded } => {
                let parent = image.parent().filter(|dir| !dir.as_os_str().is_empty());
                let dir = parent.unwrap_or(Path::new("."));
                let at = |source| BuildError::Scratch { path: dir.to_owned(), source };
                for stream in streams.iter_mut() {
                    if let Stream::Tar { tape, .. } = stream {
                        tape.keep(dir).map_err(at)?;
                    }
                }
                let source = Self::source(image);
                let how = How { measures: true, layers: *layers, report, source };
                let mut measure = |tracking: &mut Tracking<'_>| {
                    let plan = Plan::measuring(options, blocks)?;
                    let device = ScratchDevice::new(dir, super::builder::bytes(&plan));
                    let device = device.map_err(at)?;
                    plan.write(&device)?;
                    self.streams(Arc::new(device), &how, streams, tracking)
                };
                let mut tracking = Tracking::Log(EntryLog::default());
                let needs = measure(&mut tracking)?;
                *superseded = tracking.into_superseded();
                match exact && !superseded.is_empty() {
                    true => measure(&mut Tracking::Skip(superseded)),
                    false => Ok(needs),
                }
            }
        }
    }

    /// The host's files but `image`, which the directory may contain.
    fn source(image: &Path) -> HostSource {
        let image = std::fs::metadata(image).map(|meta| host_id(&meta));
        HostSource::new(true, image.into_iter().collect())
    }

    fn directory(
        &self,
        (new, device, image): (Plan, &ImageDevice, &Path),
        (dir, kept): (&Path, KeptListings),
        report: &Report<'_>,
    ) -> Result<(), BuildError> {
        let source = Self::source(image);
        let filling = Filling::new(new, device.get())?;
        let how = (self.threads, self.one_writer, self.skip_unreadable);
        match plan((&source, dir.to_owned(), kept), filling, report, how, &self.adjuster) {
            // The error that stopped it was reported.
            Err(_) if report.stopped() => Ok(()),
            done => {
                done?;
                self.finish(device, report)
            }
        }
    }

    /// Applies the attributes that need the filled volume.
    fn finish(&self, device: &ImageDevice, report: &Report<'_>) -> Result<(), BuildError> {
        let attributes = self.adjuster.attributes.filter(|attributes| attributes.needs_finish());
        let Some(attributes) = attributes.filter(|_| !report.failed()) else {
            return Ok(());
        };
        let volume = self.open(device.share())?;
        attributes.finish(&volume)?;
        Ok(volume.close()?)
    }

    /// Opens the new volume to change it.
    fn open(&self, device: Arc<dyn BlockDevice>) -> Result<Inodes, BuildError> {
        let open = OpenOptions::new().now(self.adjuster.latest).bypass_journal(true);
        Ok(Inodes::open(device, &open)?)
    }

    /// Unpacks streams into the volume on `device`, and returns the blocks and inodes that were
    /// taken.
    fn streams(
        &self,
        device: Arc<dyn BlockDevice>,
        how: &How<'_>,
        streams: &mut [Stream<'_>],
        tracking: &mut Tracking<'_>,
    ) -> Result<Needs, BuildError> {
        let (measures, report) = (how.measures, how.report);
        let volume = self.open(device)?;
        let before = volume.statfs()?;
        let sink = match measures {
            true => FillSink::measuring(&volume),
            false => FillSink::new(&volume),
        };
        let unpacking = Unpacking {
            sink: &sink,
            report,
            workers: self.threads,
            // Independent of the umask: the same stream makes the same image.
            implied: 0o755,
            adjust: &self.adjuster,
            layer: how.layers,
        };
        let packing = Packing {
            source: &how.source,
            report,
            workers: self.threads,
            skip_unreadable: self.skip_unreadable,
        };
        for (number, stream) in streams.iter_mut().enumerate() {
            if report.stopped() {
                break;
            }
            let (track, top) = (tracking.of_stream(number), ImageDir(ROOT_INO));
            let unpack = |input: &mut dyn Read| unpack_tracked(&unpacking, top, input, track);
            let done = stream.read(&packing, unpack);
            if let Err(error) = done.map_err(EntryError::from).flatten() {
                report.fail(&stream.name(), &error);
            }
        }
        let Adjuster { root_owner, root_mode, .. } = self.adjuster;
        if root_owner.is_some() || root_mode.is_some() {
            let (uid, gid) = (root_owner.map(|owner| owner.uid), root_owner.map(|owner| owner.gid));
            let set = SetAttr { uid, gid, mode: root_mode, ..SetAttr::default() };
            volume.setattr(&Cred::root(), ROOT_INO, &set)?;
        }
        if let Some(attributes) = self.adjuster.attributes
            && !report.failed()
        {
            attributes.finish(&volume)?;
        }
        let mut needs = Needs::default();
        if measures {
            // Freed blocks count once that is committed.
            volume.sync()?;
            tracking.finish(&volume);
        }
        let after = volume.statfs()?;
        volume.close()?;
        needs.blocks = before.blocks_free.saturating_sub(after.blocks_free);
        needs.inodes = before.files_free.saturating_sub(after.files_free);
        needs.split = true;
        Ok(needs)
    }
}
