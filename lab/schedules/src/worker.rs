//! The calls of one thread, compared with a model of its own directory.
//!
//! Each file has a number. It is part of each of the file's names, and each byte of the file is
//! that number or zero. So the crash oracle knows which bytes a recovered file may have.

use nextent::inodes::{
    Access, FallocateMode, InodeNo, Inodes, NewNode, RenameMode, SetAttr, Wait, XattrMode,
};
use nextent::{Cred, Error};
use nextent_device::{MemoryDevice, RecordingDevice};
use nextent_sim as sim;

use crate::base_volumes::BLOCK;
use crate::durability::{self, ATTRIBUTE, ATTRIBUTE_LEN, Guarantee, Property};
use crate::linearizability::{Answer, Call, Request};
use crate::plan::{FreeSpace, Op, PREALLOCATED, THREADS, WINDOW_BLOCKS};

/// Blocks of a file that is long enough to have an allocation window.
const GROWN: usize = 125;

/// State that all threads use.
pub(crate) struct SharedState<'a> {
    pub(crate) volume: &'a Inodes,
    pub(crate) device: &'a RecordingDevice<MemoryDevice>,
    pub(crate) shared: InodeNo,
    /// The directories of the threads.
    pub(crate) own_dirs: [InodeNo; THREADS],
    pub(crate) log: InodeNo,
    /// Two files of each thread, whose access lists only that thread changes. With each of their
    /// lists a user without rights may never read the first and always the second.
    pub(crate) watched: [[InodeNo; 2]; THREADS],
    pub(crate) free_space: FreeSpace,
    /// Whether the volume is closed while the threads run.
    pub(crate) closes: bool,
}

/// A file of the thread, as the model knows it.
#[derive(Clone, Debug)]
pub(crate) struct OwnFile {
    pub(crate) number: u8,
    pub(crate) name: Vec<u8>,
    pub(crate) ino: InodeNo,
    pub(crate) bytes: Vec<u8>,
    pub(crate) attribute: Option<u8>,
    pub(crate) mode: u16,
}

/// What a thread did, and the errors it found.
#[derive(Default)]
pub(crate) struct WorkerRecord {
    pub(crate) files: Vec<OwnFile>,
    pub(crate) dirs: Vec<Vec<u8>>,
    pub(crate) calls: Vec<Call>,
    pub(crate) guarantees: Vec<Guarantee>,
    pub(crate) appended: Vec<[u8; 2]>,
    /// The file of a call that failed because the volume was closed. It may be changed in part.
    pub(crate) partly_changed: Option<u8>,
    /// Whether the thread's last call failed because the volume was closed.
    pub(crate) refused: bool,
    /// Errors.
    pub(crate) wrong: Vec<String>,
    /// A line for each call with its steps and result, for people.
    pub(crate) history: Vec<String>,
}

pub(crate) type Done<T = ()> = Result<T, Error>;

pub(crate) struct Worker<'a> {
    pub(crate) shared_state: &'a SharedState<'a>,
    pub(crate) thread: usize,
    pub(crate) own: InodeNo,
    made: u8,
    pub(crate) open: Vec<InodeNo>,
    pub(crate) pinned: Vec<InodeNo>,
    /// Open directories that were removed.
    pub(crate) removed: Vec<InodeNo>,
    /// The index of the preallocated file.
    preallocated: Option<usize>,
    pub(crate) record: WorkerRecord,
}

impl<'a> Worker<'a> {
    pub(crate) fn new(shared_state: &'a SharedState<'a>, thread: usize, own: InodeNo) -> Self {
        let record = WorkerRecord::default();
        let (open, pinned, removed) = (Vec::new(), Vec::new(), Vec::new());
        Self {
            shared_state,
            thread,
            own,
            made: 0,
            open,
            pinned,
            removed,
            preallocated: None,
            record,
        }
    }

    /// Makes the preallocated file, before the schedule becomes random.
    pub(crate) fn prepare(&mut self) -> Done {
        self.create()?;
        let at = self.record.files.len() - 1;
        self.fallocate(at, PREALLOCATED * BLOCK as u64)?;
        self.preallocated = Some(at);
        if self.shared_state.free_space == FreeSpace::Blocks(WINDOW_BLOCKS) {
            self.create()?;
            for _ in 0..GROWN {
                self.append(at + 1, BLOCK)?;
            }
        }
        self.create()?;
        let last = self.record.files.len() - 1;
        self.set_attribute(last, self.thread as u8 + 1)
    }

    /// Makes all calls, then releases and unpins.
    pub(crate) fn run(&mut self, ops: &[Op]) {
        for op in ops {
            let begin = sim::steps();
            let done = self.perform(*op);
            let (thread, end) = (self.thread, sim::steps());
            let came = done.as_ref().map_or_else(ToString::to_string, |()| "done".into());
            self.record.history.push(format!("{begin:>7}-{end:<7} {thread}: {op:?}: {came}"));
            match done {
                Ok(()) => {}
                Err(error)
                    if error.is_full_volume()
                        && self.shared_state.free_space != FreeSpace::Plenty => {}
                Err(Error::ReadOnly) if self.shared_state.closes => {
                    self.refuse(*op);
                    break;
                }
                Err(error) => self.record.wrong.push(format!("thread {thread}: {op:?}: {error}")),
            }
        }
        self.list_removed();
        let ended = self.open.iter().map(|ino| ("release", self.shared_state.volume.release(*ino)));
        let forgot =
            self.pinned.iter().map(|ino| ("unpin", self.shared_state.volume.unpin(*ino, 1)));
        for (what, done) in ended.chain(forgot) {
            match done {
                Ok(()) => {}
                Err(Error::ReadOnly) if self.shared_state.closes => {}
                Err(error) => self.record.wrong.push(format!("{what}: {error}")),
            }
        }
    }

    /// Notes that the volume was closed before `op` ended.
    fn refuse(&mut self, op: Op) {
        self.record.refused = true;
        let at = self.picked(op).filter(|_| op.has_file());
        self.record.partly_changed = at.and_then(|at| Some(self.record.files.get(at)?.number));
    }

    pub(crate) fn volume(&self) -> &'a Inodes {
        self.shared_state.volume
    }

    /// The file that a number chooses, if the thread has a file.
    fn pick(&self, n: u64) -> Option<usize> {
        let count = self.record.files.len() as u64;
        (count > 0).then(|| (n % count) as usize)
    }

    /// The file that an operation concerns. `None` if it needs one and the thread has none.
    fn picked(&self, op: Op) -> Option<usize> {
        match op {
            Op::Append(n, _) | Op::Write(n, ..) | Op::Direct(n, _) | Op::Truncate(n, _) => {
                self.pick(n)
            }
            Op::Fallocate(n, _) | Op::Rename(n) | Op::Unlink(n) | Op::UnlinkOpen(n) => self.pick(n),
            Op::Chmod(n) | Op::Read(n) | Op::Fsync(n) => self.pick(n),
            Op::Attribute(n, _) | Op::Relink(n) | Op::Punch(n, _) => self.pick(n),
            Op::Hog(_) => self.pick(0),
            Op::Complete(_) => Some(self.preallocated.unwrap_or(0)),
            _ => Some(0),
        }
    }

    fn perform(&mut self, op: Op) -> Done {
        let root = Cred::root();
        let Some(at) = self.picked(op) else { return Ok(()) };
        match op {
            Op::Create => self.create(),
            Op::Append(_, len) => self.append(at, len),
            Op::Write(_, offset, len) => self.write(at, offset, len),
            Op::Direct(_, block) => self.direct(at, block),
            Op::Complete(block) => self.complete(block),
            Op::Truncate(_, len) => self.truncate(at, len),
            Op::Fallocate(_, len) => self.fallocate(at, len),
            Op::Hog(blocks) => {
                let (ino, len) = (self.record.files[at].ino, blocks * BLOCK as u64);
                self.volume().fallocate(&root, ino, FallocateMode::KeepSize, 1 << 20, len)
            }
            Op::Rename(_) => self.rename(at),
            Op::Unlink(_) => self.unlink(at),
            Op::UnlinkOpen(_) => {
                let ino = self.record.files[at].ino;
                self.volume().open_file(&root, ino, Access::READ)?;
                self.open.push(ino);
                self.unlink(at)
            }
            Op::Tmpfile => {
                let made = self.volume().tmpfile(&root, self.own, 0o600)?;
                self.open.push(made.ino);
                self.volume().append(&root, made.ino, &[9; 100]).map(drop)
            }
            Op::Chmod(_) => self.chmod(at),
            Op::Attribute(_, value) => self.set_attribute(at, value),
            Op::Relink(_) => self.relink(at),
            Op::Punch(_, block) => self.punch(at, block),
            Op::Read(_) => {
                self.compare(at);
                Ok(())
            }
            Op::Fsync(_) => self.fsync(at),
            Op::Sync => {
                self.volume().sync()?;
                (0..self.record.files.len()).for_each(|at| self.guarantee(at));
                Ok(())
            }
            Op::Mkdir => {
                let name = format!("d{}", self.next_number()).into_bytes();
                self.volume().mkdir(&root, self.own, &name, 0o755)?;
                self.record.dirs.push(name);
                Ok(())
            }
            Op::Rmdir => match self.record.dirs.pop() {
                Some(name) => self.volume().rmdir(&root, self.own, &name),
                None => Ok(()),
            },
            Op::SharedAppend => self.shared_append(),
            Op::SharedCreate(name) => self.shared(Request::Create(name)),
            Op::SharedUnlink(name) => self.shared(Request::Unlink(name)),
            Op::SharedRename(from, to) => self.shared(Request::Rename(from, to)),
            Op::SharedLookup(name) => self.shared(Request::Lookup(name)),
            Op::ListSet(file, which) => self.set_list(file, which),
            Op::ListRemove(file) => self.remove_list(file),
            Op::ListMode(file, which) => self.set_mode(file, which),
            Op::ListMove(file, which) => {
                self.remove_list(file)?;
                self.set_list(1 - file, which)
            }
            Op::Check(thread, file) => self.check_rights(thread, file),
            Op::ByNumber(near, number, what) => self.by_number(near, number, what),
            Op::Enter(name) => self.enter(name),
            Op::RemoveOpenDir => self.remove_open_dir(),
        }
    }

    pub(crate) fn next_number(&mut self) -> u8 {
        self.made += 1;
        self.thread as u8 * 80 + self.made
    }

    fn create(&mut self) -> Done {
        let number = self.next_number();
        let name = format!("u{number}").into_bytes();
        let made = self.volume().mknod(&Cred::root(), self.own, &name, NewNode::Regular, 0o644)?;
        let (bytes, attribute, mode) = (Vec::new(), None, made.mode);
        self.record.files.push(OwnFile { number, name, ino: made.ino, bytes, attribute, mode });
        Ok(())
    }

    /// Withdraws guarantees: `what` of a file is about to change other than by growing.
    fn withdraw(&mut self, at: usize, what: Property) {
        let (file, now) = (self.record.files[at].number, self.shared_state.device.events());
        let guarantees =
            self.record.guarantees.iter_mut().filter(|guarantee| guarantee.file == file);
        guarantees.for_each(|guarantee| guarantee.withdraw(what, now));
    }

    fn guarantee(&mut self, at: usize) {
        let mark = (self.thread * 1000 + self.record.guarantees.len()) as u64;
        self.shared_state.device.mark(mark);
        self.record.guarantees.push(Guarantee::of(mark, &self.record.files[at]));
    }

    /// Updates the model after a change. If the volume was full, the model takes the file as it is.
    fn update_model(&mut self, at: usize, done: Done, offset: usize, len: usize) -> Done {
        match done {
            Ok(()) => {
                let OwnFile { number, bytes, .. } = &mut self.record.files[at];
                bytes.resize(bytes.len().max(offset + len), 0);
                bytes[offset..offset + len].fill(*number);
                Ok(())
            }
            Err(Error::NoSpace) => {
                let found = read(self.volume(), self.record.files[at].ino)?;
                self.record.files[at].bytes = found;
                Err(Error::NoSpace)
            }
            done => done,
        }
    }

    fn append(&mut self, at: usize, len: usize) -> Done {
        let OwnFile { number, ino, bytes, .. } = &self.record.files[at];
        let (ino, end, data) = (*ino, bytes.len(), vec![*number; len]);
        let done = self.volume().append(&Cred::root(), ino, &data);
        if let Ok(found) = done
            && found != end as u64
        {
            self.record.wrong.push(format!("appended at {found}, the end was {end}"));
        }
        self.update_model(at, done.map(drop), end, len)
    }

    fn write(&mut self, at: usize, offset: u64, len: usize) -> Done {
        self.withdraw(at, Property::Bytes);
        let OwnFile { number, ino, .. } = self.record.files[at];
        let done = self.volume().write(&Cred::root(), ino, offset, &vec![number; len]);
        let done = done.and_then(|n| if n == len { Ok(()) } else { Err(Error::NoSpace) });
        self.update_model(at, done, offset as usize, len)
    }

    fn direct(&mut self, at: usize, block: u64) -> Done {
        self.withdraw(at, Property::Bytes);
        let OwnFile { number, ino, .. } = self.record.files[at];
        let (root, offset) = (Cred::root(), block * BLOCK as u64);
        let done = self.volume().write_direct(&root, ino, offset, &[number; BLOCK], Wait::Allowed);
        self.update_model(at, done.map(drop), offset as usize, BLOCK)
    }

    /// Writes an allocated block and flushes it, which must not fail for lack of space.
    fn complete(&mut self, block: u64) -> Done {
        let Some(at) = self.preallocated else { return Ok(()) };
        let done = self.direct(at, block);
        // Completing the deferred conversion must find space, too.
        let done = done.and_then(|()| self.fsync(at));
        if matches!(done, Err(Error::NoSpace)) {
            let text = format!("no space to complete a write to allocated block {block}");
            self.record.wrong.push(text);
        }
        done
    }

    fn truncate(&mut self, at: usize, len: u64) -> Done {
        self.withdraw(at, Property::Bytes);
        if self.preallocated == Some(at) {
            self.preallocated = None;
        }
        let set = SetAttr { size: Some(len), ..SetAttr::default() };
        self.volume().setattr(&Cred::root(), self.record.files[at].ino, &set)?;
        self.record.files[at].bytes.resize(len as usize, 0);
        Ok(())
    }

    fn fallocate(&mut self, at: usize, len: u64) -> Done {
        let OwnFile { ino, bytes, .. } = &self.record.files[at];
        let (ino, end) = (*ino, bytes.len());
        let mode = FallocateMode::Allocate;
        let done = self.volume().fallocate(&Cred::root(), ino, mode, end as u64, len);
        if done.is_ok() {
            self.record.files[at].bytes.resize(end + len as usize, 0);
        }
        self.update_model(at, done, end, 0)
    }

    fn chmod(&mut self, at: usize) -> Done {
        self.withdraw(at, Property::Mode);
        let OwnFile { ino, mode, .. } = &mut self.record.files[at];
        *mode = if *mode == 0o640 { 0o600 } else { 0o640 };
        let set = SetAttr { mode: Some(*mode), ..SetAttr::default() };
        self.shared_state.volume.setattr(&Cred::root(), *ino, &set).map(drop)
    }

    fn set_attribute(&mut self, at: usize, value: u8) -> Done {
        self.withdraw(at, Property::Attribute);
        let OwnFile { ino, attribute, .. } = &mut self.record.files[at];
        let bytes = [value; ATTRIBUTE_LEN];
        let mode = XattrMode::Either;
        self.shared_state.volume.setxattr(&Cred::root(), *ino, ATTRIBUTE, &bytes, mode)?;
        *attribute = Some(value);
        Ok(())
    }

    /// The present name of a file, and the other one of its two.
    fn other_name(&self, at: usize) -> (Vec<u8>, Vec<u8>) {
        let old = self.record.files[at].name.clone();
        let mut new = old.clone();
        new[0] = if old[0] == b'u' { b'v' } else { b'u' };
        (old, new)
    }

    fn rename(&mut self, at: usize) -> Done {
        self.withdraw(at, Property::Name);
        let (old, new) = self.other_name(at);
        let (from, to) = ((self.own, &old[..]), (self.own, &new[..]));
        self.volume().rename(&Cred::root(), from, to, RenameMode::Replace)?;
        self.record.files[at].name = new;
        Ok(())
    }

    fn relink(&mut self, at: usize) -> Done {
        self.withdraw(at, Property::Name);
        let (old, new) = self.other_name(at);
        let (root, ino) = (Cred::root(), self.record.files[at].ino);
        self.volume().link(&root, ino, self.own, &new)?;
        self.volume().unlink(&root, self.own, &old)?;
        self.record.files[at].name = new;
        Ok(())
    }

    fn punch(&mut self, at: usize, block: u64) -> Done {
        self.withdraw(at, Property::Bytes);
        self.preallocated = self.preallocated.filter(|preallocated| *preallocated != at);
        let (ino, offset) = (self.record.files[at].ino, block * BLOCK as u64);
        let mode = FallocateMode::PunchHole;
        self.volume().fallocate(&Cred::root(), ino, mode, offset, BLOCK as u64)?;
        let bytes = &mut self.record.files[at].bytes;
        let (start, end) = (offset as usize, offset as usize + BLOCK);
        let end = end.min(bytes.len());
        bytes[start.min(end)..end].fill(0);
        Ok(())
    }

    fn unlink(&mut self, at: usize) -> Done {
        self.withdraw(at, Property::All);
        let name = self.record.files[at].name.clone();
        self.volume().unlink(&Cred::root(), self.own, &name)?;
        self.record.files.remove(at);
        self.preallocated = match self.preallocated {
            Some(preallocated) if preallocated > at => Some(preallocated - 1),
            Some(preallocated) if preallocated == at => None,
            preallocated => preallocated,
        };
        Ok(())
    }

    fn fsync(&mut self, at: usize) -> Done {
        self.volume().fsync(self.record.files[at].ino)?;
        self.guarantee(at);
        Ok(())
    }

    /// Compares a file with the model.
    pub(crate) fn compare(&mut self, at: usize) {
        let OwnFile { number, name, ino, bytes, attribute, mode } = &self.record.files[at];
        if self.record.partly_changed == Some(*number) {
            return;
        }
        let name = String::from_utf8_lossy(name);
        let text = match read(self.volume(), *ino) {
            Ok(found) if found == *bytes => {
                let have =
                    (durability::attribute(self.volume(), *ino), self.volume().getattr(*ino));
                match have {
                    (Ok(have), Ok(attr)) if have == *attribute && attr.mode == *mode => return,
                    have => format!("{name}: not attribute {attribute:?}, mode {mode:o}: {have:?}"),
                }
            }
            Ok(found) => {
                let differ = found.iter().zip(bytes).position(|(a, b)| a != b);
                let (len, want) = (found.len(), bytes.len());
                format!("{name}: {len} bytes of {want}, the first that differs: {differ:?}")
            }
            Err(error) => format!("{name}: {error}"),
        };
        self.record.wrong.push(text);
    }

    fn shared_append(&mut self) -> Done {
        let what = [b'A' + self.thread as u8, self.record.appended.len() as u8 + 1];
        let data: Vec<u8> = what.into_iter().cycle().take(64).collect();
        self.volume().append(&Cred::root(), self.shared_state.log, &data)?;
        self.record.appended.push(what);
        Ok(())
    }

    fn shared(&mut self, request: Request) -> Done {
        let (volume, dir, root) = (self.volume(), self.shared_state.shared, Cred::root());
        let name = |n: u64| format!("n{n}").into_bytes();
        let begin = sim::steps();
        let done = match request {
            Request::Create(n) => {
                volume.mknod(&root, dir, &name(n), NewNode::Regular, 0o644).map(|attr| attr.ino.0)
            }
            Request::Unlink(n) => volume.unlink(&root, dir, &name(n)).map(|()| 0),
            Request::Rename(from, to) => volume
                .rename(&root, (dir, &name(from)[..]), (dir, &name(to)[..]), RenameMode::Replace)
                .map(|()| 0),
            Request::Lookup(n) => volume.lookup(&root, dir, &name(n)).map(|attr| attr.ino.0),
        };
        let answer = match done {
            Ok(ino) => Answer::Done(ino),
            Err(Error::NotFound) => Answer::NotFound,
            Err(Error::Exists) => Answer::Exists,
            Err(Error::NoSpace | Error::NoInodes) => Answer::NoSpace,
            Err(error) => return Err(error),
        };
        self.record.calls.push(Call { begin, end: sim::steps(), request, answer });
        Ok(())
    }
}

/// Reads a whole file.
pub(crate) fn read(volume: &Inodes, ino: InodeNo) -> Done<Vec<u8>> {
    let mut bytes = vec![0; volume.getattr(ino)?.size as usize];
    let n = volume.read(ino, 0, &mut bytes)?;
    bytes.truncate(n);
    Ok(bytes)
}
