//! The one place where errors become numbers.

use fuser::Errno;
use nextent::Error;

/// What the kernel is told.
pub(crate) fn errno(error: &Error) -> Errno {
    match error {
        Error::Io(_) => Errno::EIO,
        // What ext4 answers to damage.
        Error::Corrupt(_) => Errno::from_i32(libc::EUCLEAN),
        Error::NoSpace => Errno::ENOSPC,
        Error::Aborted(_) | Error::ReadOnly => Errno::EROFS,
        Error::NotFound => Errno::ENOENT,
        Error::Exists => Errno::EEXIST,
        Error::NotDir => Errno::ENOTDIR,
        Error::IsDir => Errno::EISDIR,
        Error::NotEmpty => Errno::ENOTEMPTY,
        Error::Access => Errno::EACCES,
        Error::Perm => Errno::EPERM,
        Error::NameTooLong => Errno::ENAMETOOLONG,
        Error::Loop => Errno::ELOOP,
        Error::CrossDevice => Errno::EXDEV,
        Error::TooBig => Errno::EFBIG,
        Error::Invalid => Errno::EINVAL,
        Error::NoData => Errno::from_i32(libc::ENODATA),
        Error::Range => Errno::ERANGE,
        Error::Busy => Errno::EBUSY,
        Error::TooManyLinks => Errno::EMLINK,
        Error::WouldBlock => Errno::EAGAIN,
        Error::Unsupported(_) | Error::NotSupported => Errno::EOPNOTSUPP,
        _ => Errno::EIO,
    }
}

/// What fsync tells of a journal that stopped: the data is not safe.
pub(crate) fn errno_of_sync(error: &Error) -> Errno {
    match error {
        Error::Aborted(_) => Errno::EIO,
        other => errno(other),
    }
}
