//! The device of an image: a file, a block device, or an export of an NBD server, or a part of it.

use nextent_device::queue::DeviceQueue;
use nextent_device::{BlockDevice, DevicePart, FileDevice, NbdAddress, NbdDevice, NbdOptions};
use nextent_sync::Duration;
use std::ffi::OsStr;
use std::fs::File;
use std::io::{self, IoSlice};
use std::ops::Range;
use std::path::PathBuf;

/// An open device.
pub(crate) enum Disk {
    File(FileDevice),
    Nbd(Box<DevicePart<NbdDevice>>),
}

/// How to open an export of a server.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct RemoteOptions {
    pub(crate) read_only: bool,
    /// For how long a lost connection is made again.
    pub(crate) reconnect: Duration,
    /// After which time without progress a server counts as lost, instead of that of the address.
    pub(crate) timeout: Option<Duration>,
}

/// The export that an argument names, if it names one.
///
/// # Errors
/// It begins as an address of an export does, and is none.
pub(crate) fn address(text: &OsStr) -> std::result::Result<Option<NbdAddress>, String> {
    let address = text.to_str().filter(|text| NbdAddress::is_address(text));
    address.map(NbdAddress::parse).transpose()
}

/// Whether an argument begins as the address of an export does.
pub(crate) fn is_address(text: &OsStr) -> bool {
    text.to_str().is_some_and(NbdAddress::is_address)
}

impl Disk {
    /// Opens the bytes from `offset` on of an export; without a size all of them.
    pub(crate) fn open_remote(
        address: &NbdAddress,
        offset: u64,
        size: Option<u64>,
        how: &RemoteOptions,
    ) -> io::Result<Self> {
        let mut options = NbdOptions::new().read_only(how.read_only).reconnect(how.reconnect);
        if let Some(timeout) = how.timeout {
            options = options.timeout(timeout);
        }
        let device = NbdDevice::open(address, &options)?;
        let end = match size {
            Some(size) => offset.saturating_add(size),
            None => device.size().max(offset),
        };
        Ok(Self::Nbd(Box::new(DevicePart::new(device, offset..end)?)))
    }

    fn device(&self) -> &dyn BlockDevice {
        match self {
            Self::File(file) => file,
            Self::Nbd(part) => &**part,
        }
    }

    /// Bytes of a sector of a block device, if it is one.
    pub(crate) fn sector_size(&self) -> Option<u64> {
        match self {
            Self::File(file) => file.sector_size(),
            Self::Nbd(_) => None,
        }
    }

    /// The kernel's device for a partition, if there is one.
    pub(crate) fn partition_device(&self, offset: u64, size: u64) -> Option<PathBuf> {
        match self {
            Self::File(file) => file.partition_device(offset, size),
            Self::Nbd(_) => None,
        }
    }

    /// The block size for the kernel's cache of a block device, if it is one.
    pub(crate) fn cache_block_size(&self) -> Option<u32> {
        match self {
            Self::File(file) => file.cache_block_size(),
            Self::Nbd(_) => None,
        }
    }

    /// The claim of a block device, which keeps other mounts away.
    pub(crate) fn take_claim(&mut self) -> Option<File> {
        match self {
            Self::File(file) => file.take_claim(),
            Self::Nbd(_) => None,
        }
    }

    /// Allows writes to a device that was opened for reading; `mounted`: the kernel has claimed it
    /// for the mount.
    pub(crate) fn allow_writes(&self, mounted: bool) -> std::result::Result<(), String> {
        match self {
            Self::File(file) => match mounted {
                true => file.allow_writes_for_mount(),
                false => file.allow_writes(),
            }
            .map_err(|error| error.to_string()),
            Self::Nbd(part) => part.inner().allow_writes().map_err(|error| error.to_string()),
        }
    }
}

impl BlockDevice for Disk {
    fn size(&self) -> u64 {
        self.device().size()
    }

    fn read_at(&self, offset: u64, buf: &mut [u8]) -> io::Result<()> {
        self.device().read_at(offset, buf)
    }

    fn write_at(&self, offset: u64, buf: &[u8]) -> io::Result<()> {
        self.device().write_at(offset, buf)
    }

    fn write_vectored_at(&self, offset: u64, bufs: &[IoSlice<'_>]) -> io::Result<()> {
        self.device().write_vectored_at(offset, bufs)
    }

    fn flush(&self) -> io::Result<()> {
        self.device().flush()
    }

    fn discard(&self, offset: u64, len: u64) -> io::Result<()> {
        self.device().discard(offset, len)
    }

    fn write_zeroes(&self, offset: u64, len: u64) -> io::Result<()> {
        self.device().write_zeroes(offset, len)
    }

    fn is_read_only(&self) -> bool {
        self.device().is_read_only()
    }

    fn next_data(&self, offset: u64) -> io::Result<Option<Range<u64>>> {
        self.device().next_data(offset)
    }

    fn queue(&self, depth: usize) -> Box<dyn DeviceQueue + '_> {
        self.device().queue(depth)
    }
}
