//! Answers to requests: the error numbers of Linux.

use nextent::Error;

/// An error number of Linux.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Errno(pub i32);

/// The result of a request.
pub(crate) type Result<T> = std::result::Result<T, Errno>;

impl From<Error> for Errno {
    fn from(error: Error) -> Self {
        Self(error.errno())
    }
}

/// The error of a request about a node, which the kernel names by number. If the node is gone the
/// kernel is to look the name up again.
pub(crate) fn of_node(error: Error) -> Errno {
    match error {
        Error::NotFound => Errno(libc::ESTALE),
        error => error.into(),
    }
}

/// The error of a request to make data durable. If the journal stopped, written data is lost, which
/// EROFS would not say.
pub(crate) fn of_sync(error: Error) -> Errno {
    match error {
        Error::Aborted(_) => Errno(libc::EIO),
        error => of_node(error),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_have_their_numbers() {
        assert_eq!(Errno::from(Error::NoData), Errno(libc::ENODATA));
        assert_eq!(Errno::from(Error::NotFound), Errno(libc::ENOENT));
        for full in [Error::NoSpace, Error::NoInodes, Error::DirectoryFull, Error::AttributesFull] {
            assert_eq!(Errno::from(full), Errno(libc::ENOSPC));
        }
        assert_eq!(of_node(Error::NotFound), Errno(libc::ESTALE));
        assert_eq!(of_sync(Error::NotFound), Errno(libc::ESTALE));
        assert_eq!(of_sync(Error::Aborted(nextent::Cause::new("gone"))), Errno(libc::EIO));
        let io = Error::Io(nextent::Cause::new("gone"));
        assert_eq!(of_node(io), Errno(libc::EIO));
    }
}
