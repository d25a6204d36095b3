//! The sources of a new image's contents.

use super::BuildError;
use super::attributes::Adjuster;
use super::scratch::ScratchDevice;
use super::tape::Tape;
use super::transfer::{
    FillSink, HostSource, ImageDir, Report, Unpacking, host_id, measure, plan, unpack,
};
use nextent::inodes::{Inodes, ROOT_INO, SetAttr};
use nextent::mkfs::{Filling, MkfsOptions, Needs, Plan};
use nextent::{Cred, OpenOptions};
use nextent_device::{BlockDevice, FileDevice};
use nextent_sync::Arc;
use std::fmt;
use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};

/// What a new image contains.
pub struct Contents<'a>(From<'a>);

enum From<'a> {
    Directory(PathBuf),
    Tar { tape: Tape<'a>, name: String },
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
            return Ok(Self(From::Directory(std::fs::canonicalize(path).map_err(at)?)));
        }
        let tape = File::open(path).and_then(Tape::file).map_err(at)?;
        Ok(Self(From::Tar { tape, name: crate::escape::path(path) }))
    }

    /// The entries of a tar stream; `name` stands for it in messages. If the size of the image
    /// follows from them, they are kept in a file without a name in the image's directory.
    pub fn tar(input: impl Read + 'a, name: impl Into<String>) -> Self {
        Self(From::Tar { tape: Tape::stream(input), name: name.into() })
    }
}

impl Contents<'_> {
    /// Whether it is a directory of the host.
    pub(super) fn is_directory(&self) -> bool {
        matches!(self.0, From::Directory(_))
    }

    /// Its name for messages.
    pub(super) fn name(&self) -> String {
        match &self.0 {
            From::Directory(path) => crate::escape::path(path),
            From::Tar { name, .. } => name.clone(),
        }
    }
}

impl fmt::Debug for Contents<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.0 {
            From::Directory(path) => f.debug_tuple("Directory").field(path).finish(),
            From::Tar { name, .. } => f.debug_tuple("Tar").field(name).finish(),
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
        (plan, device, image): (Plan, &Arc<FileDevice>, &Path),
        contents: &mut Contents<'_>,
        report: &Report<'_>,
    ) -> Result<(), BuildError> {
        match &mut contents.0 {
            From::Directory(dir) => self.directory((plan, device, image), dir, report),
            From::Tar { tape, name } => {
                plan.write(&**device)?;
                let device: Arc<dyn BlockDevice> = Arc::<FileDevice>::clone(device);
                let how = (false, report);
                tape.read(|input| self.tar(device, how, (input, name)))?.map(drop)
            }
        }
    }

    /// The blocks and inodes that `contents` take in a volume with these options, counted in one
    /// of so many blocks. The file at `image`, which may exist, is not part of them.
    pub(super) fn measure(
        &self,
        (options, blocks): (&MkfsOptions, u64),
        image: &Path,
        contents: &mut Contents<'_>,
        report: &Report<'_>,
    ) -> Result<Needs, BuildError> {
        match &mut contents.0 {
            From::Directory(dir) => {
                let filling = Filling::measuring(options, blocks)?;
                let source = Self::source(image);
                let dir = (&source, dir.clone());
                let how = (self.threads, self.skip_unreadable);
                let mut needs = measure(dir, filling, report, how, &self.adjuster);
                if let Some(attributes) = self.adjuster.attributes {
                    let (blocks, inodes) = attributes.most_added();
                    (needs.blocks, needs.inodes) = (needs.blocks + blocks, needs.inodes + inodes);
                }
                Ok(needs)
            }
            From::Tar { tape, name } => {
                let parent = image.parent().filter(|dir| !dir.as_os_str().is_empty());
                let dir = parent.unwrap_or(Path::new("."));
                let at = |source| BuildError::Scratch { path: dir.to_owned(), source };
                let plan = Plan::measuring(options, blocks)?;
                let device = ScratchDevice::new(dir, super::builder::bytes(&plan)).map_err(at)?;
                plan.write(&device)?;
                let device = Arc::new(device);
                let how = (true, report);
                let read = |input: &mut dyn Read| self.tar(device, how, (input, name));
                tape.keep(dir).map_err(at)?;
                tape.read(read)?
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
        (new, device, image): (Plan, &Arc<FileDevice>, &Path),
        dir: &Path,
        report: &Report<'_>,
    ) -> Result<(), BuildError> {
        let source = Self::source(image);
        let filling = Filling::new(new, &**device)?;
        let how = (self.threads, self.one_writer, self.skip_unreadable);
        match plan((&source, dir.to_owned()), filling, report, how, &self.adjuster) {
            // The error that stopped it was reported.
            Err(_) if report.stopped() => Ok(()),
            done => {
                done?;
                self.finish(device, report)
            }
        }
    }

    /// Applies the attributes that need the filled volume.
    fn finish(&self, device: &Arc<FileDevice>, report: &Report<'_>) -> Result<(), BuildError> {
        let attributes = self.adjuster.attributes.filter(|attributes| attributes.needs_finish());
        let Some(attributes) = attributes.filter(|_| !report.failed()) else {
            return Ok(());
        };
        let volume = self.open(Arc::<FileDevice>::clone(device))?;
        attributes.finish(&volume)?;
        Ok(volume.close()?)
    }

    /// Opens the new volume to change it.
    fn open(&self, device: Arc<dyn BlockDevice>) -> Result<Inodes, BuildError> {
        let open = OpenOptions::new().now(self.adjuster.latest).bypass_journal(true);
        Ok(Inodes::open(device, &open)?)
    }

    /// Unpacks a stream into the volume on `device`. With `measures` it writes no data of files,
    /// and returns the blocks and inodes that were taken.
    fn tar(
        &self,
        device: Arc<dyn BlockDevice>,
        (measures, report): (bool, &Report<'_>),
        (input, name): (&mut dyn Read, &str),
    ) -> Result<Needs, BuildError> {
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
        };
        if let Err(error) = unpack(&unpacking, ImageDir(ROOT_INO), input) {
            report.fail(name, &error);
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
        }
        let after = volume.statfs()?;
        volume.close()?;
        needs.blocks = before.blocks_free.saturating_sub(after.blocks_free);
        needs.inodes = before.files_free.saturating_sub(after.files_free);
        needs.split = true;
        Ok(needs)
    }
}
