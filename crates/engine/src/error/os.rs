//! Errors as the operating system's interfaces have them.
//!
//! Linux's number of each error stands in one table, [`Error::errno`]; the FUSE server and
//! [`io::Error`] take it from there.

use std::io::{self, ErrorKind};

use nextent_device::OpenError;
use nextent_store::Error as StoreError;

use super::{Cause, Error};

impl Error {
    /// Linux's number of the error, such as 2 (`ENOENT`) for [`Error::NotFound`].
    #[must_use]
    pub fn errno(&self) -> i32 {
        match self {
            Self::Perm => 1,
            Self::NotFound => 2,
            Self::Io(_) | Self::OpenDevice(_) | Self::Foreign(_) | Self::Truncated(_) => 5,
            Self::BadDescriptor => 9,
            Self::WouldBlock => 11,
            Self::Access => 13,
            Self::Busy | Self::OtherNode(_) => 16,
            Self::Exists => 17,
            Self::CrossDevice => 18,
            Self::NotDir => 20,
            Self::IsDir => 21,
            Self::Invalid => 22,
            Self::TooBig => 27,
            Self::NoSpace
            | Self::NoInodes
            | Self::DirectoryFull
            | Self::AttributesFull
            | Self::JournalTooSmall(_) => 28,
            Self::ReadOnly | Self::Aborted(_) | Self::StaysReadOnly(_) => 30,
            Self::TooManyLinks => 31,
            Self::Range => 34,
            Self::NameTooLong => 36,
            Self::NotEmpty => 39,
            Self::Loop => 40,
            Self::NoData => 61,
            Self::NotText => 84,
            Self::Unsupported(_) | Self::NotSupported => 95,
            Self::Corrupt(_) => 117,
            Self::NoKey => 126,
        }
    }

    /// The kind that [`io::Error`] has for the error.
    #[must_use]
    pub fn kind(&self) -> ErrorKind {
        match self {
            Self::Io(cause) => kind_of(cause),
            Self::OpenDevice(error) => error.kind(),
            Self::Perm | Self::Access => ErrorKind::PermissionDenied,
            Self::NotFound => ErrorKind::NotFound,
            Self::WouldBlock => ErrorKind::WouldBlock,
            Self::Busy | Self::OtherNode(_) => ErrorKind::ResourceBusy,
            Self::Exists => ErrorKind::AlreadyExists,
            Self::CrossDevice => ErrorKind::CrossesDevices,
            Self::NotDir => ErrorKind::NotADirectory,
            Self::IsDir => ErrorKind::IsADirectory,
            Self::Invalid => ErrorKind::InvalidInput,
            Self::TooBig => ErrorKind::FileTooLarge,
            Self::NoSpace
            | Self::NoInodes
            | Self::DirectoryFull
            | Self::AttributesFull
            | Self::JournalTooSmall(_) => ErrorKind::StorageFull,
            Self::ReadOnly | Self::Aborted(_) | Self::StaysReadOnly(_) => {
                ErrorKind::ReadOnlyFilesystem
            }
            Self::TooManyLinks => ErrorKind::TooManyLinks,
            Self::NameTooLong => ErrorKind::InvalidFilename,
            Self::NotEmpty => ErrorKind::DirectoryNotEmpty,
            Self::Unsupported(_) | Self::NotSupported => ErrorKind::Unsupported,
            Self::NotText | Self::Corrupt(_) | Self::Foreign(_) | Self::Truncated(_) => {
                ErrorKind::InvalidData
            }
            // The standard library has no stable kind for these.
            Self::Loop | Self::NoData | Self::Range | Self::BadDescriptor | Self::NoKey => {
                ErrorKind::Other
            }
        }
    }

    /// Whether the number says all that the text does.
    fn is_plain(&self) -> bool {
        let has_cause = std::error::Error::source(self).is_some();
        let has_text = matches!(
            self,
            Self::NoInodes
                | Self::DirectoryFull
                | Self::AttributesFull
                | Self::NotText
                | Self::Foreign(_)
                | Self::Truncated(_)
        );
        !has_cause && !has_text
    }
}

/// The kind of the device's error behind `cause`.
fn kind_of(cause: &Cause) -> ErrorKind {
    let error = cause.error();
    if let Some(error) = error.downcast_ref::<io::Error>() {
        error.kind()
    } else if let Some(StoreError::Io { source, .. }) = error.downcast_ref() {
        source.kind()
    } else if let Some(error) = error.downcast_ref::<OpenError>() {
        error.kind()
    } else {
        ErrorKind::Other
    }
}

/// On Linux an error that its number describes completely becomes that number
/// ([`io::Error::raw_os_error`]). Other errors are kept whole inside the result
/// ([`io::Error::get_ref`]), under their [`kind`](Error::kind).
impl From<Error> for io::Error {
    fn from(error: Error) -> Self {
        if cfg!(target_os = "linux") && error.is_plain() {
            Self::from_raw_os_error(error.errno())
        } else {
            Self::new(error.kind(), error)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_and_kinds_agree_with_the_standard_library() {
        use Error::*;
        let plain = [
            Perm,
            NotFound,
            WouldBlock,
            Access,
            Busy,
            Exists,
            CrossDevice,
            NotDir,
            IsDir,
            Invalid,
            TooBig,
            NoSpace,
            ReadOnly,
            TooManyLinks,
            NameTooLong,
            NotEmpty,
            NotSupported,
        ];
        for error in plain {
            let (errno, kind) = (error.errno(), error.kind());
            assert_eq!(io::Error::from_raw_os_error(errno).kind(), kind, "{error}");
            if cfg!(target_os = "linux") {
                assert_eq!(io::Error::from(error).raw_os_error(), Some(errno));
            }
        }
    }

    #[test]
    fn the_cause_is_kept() {
        let cause = io::Error::new(ErrorKind::TimedOut, "the disk sleeps");
        let error = Error::Io(Cause::new(cause));
        assert_eq!(error.kind(), ErrorKind::TimedOut);
        let error = io::Error::from(error);
        assert_eq!(error.to_string(), "input/output error: the disk sleeps");
        assert_eq!(error.kind(), ErrorKind::TimedOut);
        let inner = error.get_ref().and_then(|error| error.downcast_ref::<Error>());
        let source = inner.and_then(std::error::Error::source).expect("the cause");
        assert!(source.is::<io::Error>());
        assert_eq!(io::Error::from(Error::NoInodes).to_string(), Error::NoInodes.to_string());
    }
}
