//! The library as a target, by its public calls.

use super::{Done, OpError, Session, Space, Stat, Target, WriteQueue, remove_tree};
use crate::failure::Failure;
use nextent::inodes::{
    Access, Attached, Attr, Buffer, Done as Written, FallocateMode, InodeNo, Inodes, OpenFile,
    Queue, ROOT_INO, RenameMode, SetAttr, SetTime, Wait,
};
use nextent::lab_seams::HandleProbe;
use nextent::{Cred, Error, FileType};
use std::ffi::CStr;

/// The name of a run's directory.
const OWN: &CStr = c"nextent-bench";

/// A volume and the directory in it in which workloads run.
pub(crate) struct Engine<'v> {
    volume: &'v Inodes,
    root: InodeNo,
}

impl<'v> Engine<'v> {
    /// Works in the directory `root` of `volume`.
    pub(crate) fn new(volume: &'v Inodes, root: InodeNo) -> Self {
        Self { volume, root }
    }

    /// Creates a directory and works in it. Real and simulated runs both start so, since the
    /// allocator spreads children of the root over groups and keeps deeper directories together.
    ///
    /// # Errors
    /// The directory exists or cannot be created.
    pub(crate) fn in_own_directory(volume: &'v Inodes) -> Result<Self, Failure> {
        let made = volume.mkdir(&Cred::root(), ROOT_INO, OWN.to_bytes(), 0o755);
        match made {
            Ok(made) => Ok(Self::new(volume, made.ino)),
            Err(error) => Err(Failure::usage(format!("{}: {error}", OWN.to_string_lossy()))),
        }
    }

    /// Removes the directory of [`Self::in_own_directory`] with its contents.
    pub(crate) fn remove_own_directory(volume: &Inodes) -> Done<()> {
        remove_tree(&Engine::new(volume, ROOT_INO).session()?, &ROOT_INO, OWN)
    }
}

impl Target for Engine<'_> {
    type Session<'t>
        = EngineSession<'t>
    where
        Self: 't;

    fn session(&self) -> Done<EngineSession<'_>> {
        Ok(EngineSession { volume: self.volume, root: self.root, cred: Cred::root() })
    }
}

/// One thread's view.
pub(crate) struct EngineSession<'t> {
    volume: &'t Inodes,
    root: InodeNo,
    cred: Cred,
}

fn failed(error: Error) -> OpError {
    match error {
        Error::NoSpace | Error::NoInodes => OpError::Full,
        Error::NotFound | Error::NotDir => OpError::NotFound,
        Error::Exists => OpError::Exists,
        other => OpError::Other(other.to_string().into()),
    }
}

fn stat_of(attr: &Attr) -> Stat {
    Stat { size: attr.size, is_dir: attr.kind == FileType::Directory }
}

/// An open file or directory.
pub(crate) enum Opened<'t> {
    File(OpenFile<'t>),
    Directory(InodeNo),
}

impl<'t> Opened<'t> {
    #[inline]
    fn file(&self) -> Done<&OpenFile<'t>> {
        match self {
            Self::File(file) => Ok(file),
            Self::Directory(_) => Err(OpError::Other("is a directory".into())),
        }
    }

    fn ino(&self) -> InodeNo {
        match self {
            Self::File(file) => file.ino(),
            Self::Directory(ino) => *ino,
        }
    }
}

impl<'t> Session for EngineSession<'t> {
    type Dir = InodeNo;
    type File = Opened<'t>;
    type Probe = HandleProbe<'t>;
    type Queue = EngineQueue<'t>;

    fn root(&self) -> &InodeNo {
        &self.root
    }

    fn ensure_dir(&self, parent: &InodeNo, name: &CStr) -> Done<InodeNo> {
        match self.volume.mkdir(&self.cred, *parent, name.to_bytes(), 0o755) {
            Err(Error::Exists) => self.volume.lookup(&self.cred, *parent, name.to_bytes()),
            made => made,
        }
        .map(|attr| attr.ino)
        .map_err(failed)
    }

    fn open_dir(&self, parent: &InodeNo, name: &CStr) -> Done<InodeNo> {
        let found = self.volume.lookup(&self.cred, *parent, name.to_bytes()).map_err(failed)?;
        if found.kind == FileType::Directory { Ok(found.ino) } else { Err(OpError::NotFound) }
    }

    fn make_dir(&self, parent: &InodeNo, name: &CStr) -> Done<()> {
        let made = self.volume.mkdir(&self.cred, *parent, name.to_bytes(), 0o755);
        made.map(drop).map_err(failed)
    }

    fn remove_dir(&self, parent: &InodeNo, name: &CStr) -> Done<()> {
        self.volume.rmdir(&self.cred, *parent, name.to_bytes()).map_err(failed)
    }

    fn create(&self, dir: &InodeNo, name: &CStr) -> Done<Opened<'t>> {
        let made = self.volume.create_file(&self.cred, *dir, name.to_bytes(), 0o644);
        made.map(Opened::File).map_err(failed)
    }

    fn open(&self, dir: &InodeNo, name: &CStr) -> Done<Opened<'t>> {
        let found = self.volume.lookup(&self.cred, *dir, name.to_bytes()).map_err(failed)?;
        if found.kind == FileType::Directory {
            let opened = self.volume.open_file(&self.cred, found.ino, Access::READ);
            return opened.map(|()| Opened::Directory(found.ino)).map_err(failed);
        }
        let opened = self.volume.file(&self.cred, found.ino, Access::READ_WRITE);
        opened.map(Opened::File).map_err(failed)
    }

    fn close(&self, file: Opened<'t>) -> Done<()> {
        match file {
            Opened::File(file) => {
                drop(file);
                Ok(())
            }
            Opened::Directory(ino) => self.volume.release(ino).map_err(failed),
        }
    }

    fn unlink(&self, dir: &InodeNo, name: &CStr) -> Done<()> {
        self.volume.unlink(&self.cred, *dir, name.to_bytes()).map_err(failed)
    }

    fn rename(&self, from: (&InodeNo, &CStr), to: (&InodeNo, &CStr)) -> Done<()> {
        let (from, to) = ((*from.0, from.1.to_bytes()), (*to.0, to.1.to_bytes()));
        self.volume.rename(&self.cred, from, to, RenameMode::Replace).map_err(failed)
    }

    fn stat(&self, dir: &InodeNo, name: &CStr) -> Done<Stat> {
        let found = self.volume.lookup(&self.cred, *dir, name.to_bytes());
        found.map(|attr| stat_of(&attr)).map_err(failed)
    }

    fn stat_open(&self, file: &Opened<'t>) -> Done<Stat> {
        match file {
            Opened::File(file) => Ok(stat_of(&file.attr())),
            Opened::Directory(ino) => {
                self.volume.getattr(*ino).map(|attr| stat_of(&attr)).map_err(failed)
            }
        }
    }

    fn touch(&self, file: &Opened<'t>) -> Done<()> {
        let now = Some(SetTime::Now);
        let set = SetAttr { atime: now, mtime: now, ..SetAttr::default() };
        self.volume.setattr(&self.cred, file.ino(), &set).map(drop).map_err(failed)
    }

    #[inline]
    fn fallocate(&self, file: &Opened<'t>, offset: u64, len: u64) -> Done<()> {
        file.file()?.fallocate(FallocateMode::Allocate, offset, len).map_err(failed)
    }

    #[inline]
    fn truncate(&self, file: &Opened<'t>, len: u64) -> Done<()> {
        file.file()?.set_len(len).map_err(failed)
    }

    fn write(&self, file: &Opened<'t>, offset: u64, data: &[u8]) -> Done<()> {
        match file.file()?.write(offset, data) {
            Ok(written) if written < data.len() => Err(OpError::Full),
            done => done.map(drop).map_err(failed),
        }
    }

    fn open_direct(&self, dir: &InodeNo, name: &CStr) -> Done<Opened<'t>> {
        self.open(dir, name)
    }

    #[inline]
    fn write_direct(&self, file: &Opened<'t>, offset: u64, data: &[u8]) -> Done<()> {
        match file.file()?.write_direct(offset, data, Wait::Allowed) {
            Ok(written) if written < data.len() => Err(OpError::Full),
            done => done.map(drop).map_err(failed),
        }
    }

    fn queue(&self, file: Opened<'t>, depth: usize) -> Done<EngineQueue<'t>> {
        let Opened::File(file) = file else { return Err(OpError::Other("is a directory".into())) };
        let mut queue = self.volume.queue(depth);
        let file = queue.attach(file);
        Ok(EngineQueue { queue, file, done: Vec::with_capacity(depth) })
    }

    fn read(&self, file: &Opened<'t>, offset: u64, buf: &mut [u8]) -> Done<usize> {
        file.file()?.read(offset, buf).map_err(failed)
    }

    fn fsync(&self, file: &Opened<'t>) -> Done<()> {
        match file {
            Opened::File(file) => file.sync(),
            Opened::Directory(ino) => self.volume.fsync(*ino),
        }
        .map_err(failed)
    }

    fn lock(&self, _: &Opened<'t>, _: bool) -> Done<()> {
        Ok(())
    }

    fn space(&self) -> Done<Space> {
        let found = self.volume.statfs().map_err(failed)?;
        let size = u64::from(found.block_size);
        Ok(Space {
            bytes: found.blocks * size,
            free_bytes: found.blocks_available * size,
            free_inodes: found.files_free,
        })
    }

    fn list(&self, dir: &InodeNo, each: &mut dyn FnMut(&[u8]) -> bool) -> Done<()> {
        let found = self.volume.readdir(*dir, 0, &mut |entry| match entry.name {
            b"." | b".." => true,
            name => each(name),
        });
        found.map_err(failed)
    }

    fn locate<R>(&self, path: &CStr, then: impl FnOnce(&InodeNo, &CStr) -> Done<R>) -> Done<R> {
        let whole = path.to_bytes();
        let parent = self.volume.resolve_parent_from(&self.cred, self.root, whole);
        let (dir, name) = parent.map_err(failed)?;
        let name = &path.to_bytes_with_nul()[whole.len() - name.len()..];
        then(&dir, CStr::from_bytes_with_nul(name).expect("the end of a C string is one"))
    }

    fn probe(&self, dir: &InodeNo) -> Done<HandleProbe<'t>> {
        self.volume.handle_probe(*dir).map_err(failed)
    }

    #[inline]
    fn handle(&self, probe: &HandleProbe<'t>, credits: u32, touches: bool) -> Done<()> {
        if touches { probe.touch(credits) } else { probe.pass(credits) }.map_err(failed)
    }

    fn extents(&self, file: &Opened<'t>) -> Option<u64> {
        let found = self.volume.fiemap(file.ino(), 0, u64::MAX, usize::MAX).ok()?;
        Some(found.len() as u64)
    }
}

/// The library's queue, with one file attached.
pub(crate) struct EngineQueue<'t> {
    queue: Queue<'t>,
    file: Attached,
    done: Vec<Written>,
}

impl WriteQueue for EngineQueue<'_> {
    #[inline]
    fn write(&mut self, offset: u64, buffer: Buffer) -> Done<()> {
        let begun = self.queue.write(self.file, offset, buffer, 0, Wait::Allowed);
        begun.map_err(|refused| failed(refused.error))
    }

    #[inline]
    fn complete(&mut self, least: usize, spare: &mut Vec<Buffer>) -> Done<()> {
        self.queue.complete(least, &mut self.done);
        for written in self.done.drain(..) {
            let len = written.buffer.len();
            spare.push(written.buffer);
            if written.result.map_err(failed)? < len {
                return Err(OpError::Full);
            }
        }
        Ok(())
    }

    fn end(mut self) -> Done<()> {
        self.complete(usize::MAX, &mut Vec::new())
    }
}
