//! Decodes a request and dispatches it to the part of the server that answers it.

use nextent_fuse_sys::OP;
use nextent_num::to_usize;
use nextent_sync::Instant;
use zerocopy::{FromBytes, Immutable, IntoBytes};

use super::layout::{
    BatchForgetIn, ForgetIn, ForgetOne, InHeader, Opcode, SetXattrIn, follows_an_open,
};
use crate::Server;
use crate::errno::{Errno, Result};
use crate::server::Caller;

/// A request that is being answered.
pub(crate) struct Call<'a> {
    pub(crate) server: &'a Server,
    pub(crate) who: Caller,
    /// The calling thread.
    pub(crate) pid: u32,
    pub(crate) node: u64,
    op: &'a [u8; OP],
    /// The rest of the request, in its first `len` bytes, and then the answer.
    pub(crate) body: &'a mut [u8],
    pub(crate) len: usize,
}

/// Answers a request whose rest is the first `len` bytes of `body`. Writes the answer into `body`
/// and returns its length; without [`is_answered`] the kernel expects none. The caller counts the
/// request by its final answer ([`count`]).
pub(crate) fn answer(
    server: &Server,
    header: &InHeader,
    op: &[u8; OP],
    (body, len): (&mut [u8], usize),
) -> Result<usize> {
    let Some(opcode) = Opcode::of(header.opcode) else {
        return Err(Errno(libc::ENOSYS));
    };
    let destroys = opcode == Opcode::Destroy;
    // A request after which the server ends has none to wait for.
    let _entered = match destroys {
        true => None,
        false => Some(server.in_flight.enter().ok_or(Errno(libc::EIO))?),
    };
    let who = Caller { uid: header.uid, gid: header.gid };
    let mut call = Call { server, who, pid: header.pid, node: header.node, op, body, len };
    call.dispatch(opcode)
}

/// Counts a request that was read at `begin`, with a rest of `len` bytes. Called once, with the
/// final answer: a request that found no space may have run several times.
pub(crate) fn count(
    server: &Server,
    number: u32,
    begin: Instant,
    (len, answered): (usize, &Result<usize>),
) {
    let Some(opcode) = Opcode::of(number) else { return };
    let bytes = match (opcode, answered) {
        (Opcode::Write, Ok(_)) => len,
        (Opcode::Read, Ok(read)) => *read,
        _ => 0,
    };
    server.counts.count(number, begin.elapsed(), answered.is_ok(), bytes);
}

/// Splits a message: the common header, the argument structure, and the offset of the rest. Setting
/// an extended attribute has a shorter structure if `short_setxattr`.
pub(crate) fn split(message: &[u8], short_setxattr: bool) -> Result<(InHeader, [u8; OP], usize)> {
    let short = || Errno(libc::EINVAL);
    let (header, rest) = InHeader::read_from_prefix(message).map_err(|_| short())?;
    let own = match Opcode::of(header.opcode) {
        Some(Opcode::SetXattr) if short_setxattr => SetXattrIn::SHORT,
        opcode => opcode.map_or(0, Opcode::own).min(OP),
    };
    let mut op = [0; OP];
    op[..own].copy_from_slice(rest.get(..own).ok_or_else(short)?);
    Ok((header, op, size_of::<InHeader>() + own))
}

impl Call<'_> {
    /// Calls the part of the server that answers `opcode`.
    fn dispatch(&mut self, opcode: Opcode) -> Result<usize> {
        let admission = self.server.admission();
        if !admission.admits(self.who.uid, follows_an_open(opcode)) {
            return Err(Errno(libc::EACCES));
        }
        let ends = matches!(
            opcode,
            Opcode::Release | Opcode::Forget | Opcode::BatchForget | Opcode::Destroy
        );
        if self.server.is_shut_down() && !ends {
            return Err(Errno(libc::EIO));
        }
        match opcode {
            Opcode::Lookup => self.lookup(),
            Opcode::MkNod => self.mknod(),
            Opcode::MkDir => self.mkdir(),
            Opcode::SymLink => self.symlink(),
            Opcode::Link => self.link(),
            Opcode::Create => self.create(),
            Opcode::TmpFile => self.tmpfile(),
            Opcode::Unlink => self.unlink(),
            Opcode::RmDir => self.rmdir(),
            Opcode::Rename | Opcode::Rename2 => self.rename(opcode),
            Opcode::Open => self.open(),
            Opcode::Release => self.release(),
            Opcode::Read => self.read(),
            Opcode::Write => self.write(),
            Opcode::Fsync | Opcode::FsyncDir => self.fsync(),
            Opcode::Fallocate => self.fallocate(),
            Opcode::Lseek => self.lseek(),
            Opcode::Bmap => self.bmap(),
            Opcode::CopyFileRange => self.copy_file_range(),
            Opcode::GetAttr => self.getattr(),
            Opcode::Statx => self.statx(),
            Opcode::SetAttr => self.setattr(),
            Opcode::ReadLink => self.readlink(),
            Opcode::StatFs => self.statfs(),
            Opcode::SetXattr => self.setxattr(),
            Opcode::GetXattr => self.getxattr(),
            Opcode::ListXattr => self.listxattr(),
            Opcode::RemoveXattr => self.removexattr(),
            Opcode::Ioctl => self.ioctl(),
            Opcode::ReadDir => self.readdir(),
            Opcode::ReadDirPlus => self.readdirplus(),
            Opcode::Forget => self.forget(),
            Opcode::BatchForget => self.batch_forget(),
            Opcode::SyncFs => self.server.sync().map(|()| 0),
            Opcode::Destroy => {
                // The caller of `Server::end` reports the error.
                let _ = self.server.end();
                Ok(0)
            }
            // Admitted above.
            Opcode::Access if admission.asks() => Ok(0),
            Opcode::OpenDir if admission.asks() || self.server.sees_reads() => self.opendir(),
            Opcode::ReleaseDir if admission.asks() || self.server.sees_reads() => Ok(0),
            // The kernel sends its cache before a flush. It opens directories by itself and caches
            // their entries. It asks for access only where every user has all rights. After ENOSYS
            // it does not ask for any of these again.
            Opcode::Flush | Opcode::OpenDir | Opcode::ReleaseDir | Opcode::Access => {
                Err(Errno(libc::ENOSYS))
            }
            // No operation can be interrupted.
            Opcode::Init | Opcode::Interrupt => Err(Errno(libc::ENOSYS)),
        }
    }

    /// The argument structure.
    pub(crate) fn arg<T: FromBytes>(&self) -> Result<T> {
        Ok(T::read_from_prefix(self.op).map_err(|_| Errno(libc::EINVAL))?.0)
    }

    /// The rest: names and data.
    pub(crate) fn rest(&self) -> Result<&[u8]> {
        self.body.get(..self.len).ok_or(Errno(libc::EINVAL))
    }

    /// The rest as a name.
    pub(crate) fn name(&self) -> Result<&[u8]> {
        Ok(text(self.rest()?)?.0)
    }

    /// The rest as two names.
    pub(crate) fn two_names(&self) -> Result<(&[u8], &[u8])> {
        let (first, rest) = text(self.rest()?)?;
        Ok((first, text(rest)?.0))
    }

    /// Answers with one structure.
    pub(crate) fn put<T: IntoBytes + Immutable>(&mut self, answer: &T) -> Result<usize> {
        self.put_bytes(answer.as_bytes())
    }

    /// Answers with bytes.
    pub(crate) fn put_bytes(&mut self, bytes: &[u8]) -> Result<usize> {
        let room = self.body.get_mut(..bytes.len()).ok_or(Errno(libc::ERANGE))?;
        room.copy_from_slice(bytes);
        Ok(bytes.len())
    }

    fn forget(&mut self) -> Result<usize> {
        let forget: ForgetIn = self.arg()?;
        self.server.forget(self.node, forget.times);
        Ok(0)
    }

    fn batch_forget(&mut self) -> Result<usize> {
        let batch: BatchForgetIn = self.arg()?;
        let each = self.rest()?.chunks_exact(size_of::<ForgetOne>()).take(to_usize(batch.count));
        for bytes in each {
            let one = ForgetOne::read_from_bytes(bytes).map_err(|_| Errno(libc::EINVAL))?;
            self.server.forget(one.node, one.times);
        }
        Ok(0)
    }
}

/// Whether the kernel expects an answer.
pub(crate) fn is_answered(opcode: u32) -> bool {
    let unanswered = [Opcode::Forget, Opcode::BatchForget, Opcode::Interrupt];
    !Opcode::of(opcode).is_some_and(|opcode| unanswered.contains(&opcode))
}

/// The bytes before the first zero, and the bytes after it.
pub(crate) fn text(bytes: &[u8]) -> Result<(&[u8], &[u8])> {
    let end = bytes.iter().position(|byte| *byte == 0).ok_or(Errno(libc::EINVAL))?;
    Ok((&bytes[..end], &bytes[end + 1..]))
}
