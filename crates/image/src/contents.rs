//! The sources of a new image's contents.

use super::BuildError;
use super::attributes::Adjuster;
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
use std::io::{BufReader, Read};
use std::path::{Path, PathBuf};

/// Bytes of the buffer for reading a tar stream.
const BUFFER: usize = 1 << 20;

/// What a new image contains.
pub struct Contents<'a>(From<'a>);

enum From<'a> {
    Directory(PathBuf),
    Tar { input: Box<dyn Read + 'a>, name: String },
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
        let file = File::open(path).map_err(at)?;
        Ok(Self::tar(file, crate::escape::path(path)))
    }

    /// The entries of a tar stream; `name` stands for it in messages.
    pub fn tar(input: impl Read + 'a, name: impl Into<String>) -> Self {
        let input = Box::new(BufReader::with_capacity(BUFFER, input));
        Self(From::Tar { input, name: name.into() })
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
            From::Tar { input, name } => {
                plan.write(&**device)?;
                self.tar(Arc::clone(device), (input, name), report)
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
            From::Tar { .. } => Err(BuildError::NoSize),
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

    fn tar(
        &self,
        device: Arc<FileDevice>,
        (input, name): (&mut dyn Read, &str),
        report: &Report<'_>,
    ) -> Result<(), BuildError> {
        let volume = self.open(device)?;
        let sink = FillSink::new(&volume);
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
        Ok(volume.close()?)
    }
}
