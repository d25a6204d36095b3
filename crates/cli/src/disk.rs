//! The device of an image: a file, a block device, an export of an NBD server, an overlay, or a
//! part of one of these.

use nextent_device::{
    BlockDevice, DeltaFile, DevicePart, FileDevice, NbdAddress, NbdDevice, NbdOptions,
    forward_block_device,
};
use nextent_sync::Duration;
use std::ffi::OsStr;
use std::fs::File;
use std::io;
use std::path::PathBuf;

/// An open device.
pub(crate) enum Disk {
    File(FileDevice),
    Nbd(Box<DevicePart<NbdDevice>>),
    Overlay(Box<DevicePart<DeltaFile<Disk>>>),
    /// The base of an overlay whose delta does not exist, for reading.
    Base(Box<DevicePart<Disk>>),
}

forward_block_device!([] Disk, |this| this.device());

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

    /// The delta, if it is an overlay and there is one.
    pub(crate) fn delta(&self) -> Option<&DeltaFile<Disk>> {
        match self {
            Self::Overlay(part) => Some(part.inner()),
            _ => None,
        }
    }

    fn device(&self) -> &dyn BlockDevice {
        match self {
            Self::File(file) => file,
            Self::Nbd(part) => &**part,
            Self::Overlay(part) => &**part,
            Self::Base(part) => &**part,
        }
    }

    /// Bytes of a sector of a block device, if it is one or an overlay of one.
    pub(crate) fn sector_size(&self) -> Option<u64> {
        match self {
            Self::File(file) => file.sector_size(),
            Self::Nbd(_) => None,
            Self::Overlay(part) => part.inner().base().sector_size(),
            Self::Base(part) => part.inner().sector_size(),
        }
    }

    /// The kernel's device for a partition, if there is one.
    pub(crate) fn partition_device(&self, offset: u64, size: u64) -> Option<PathBuf> {
        match self {
            Self::File(file) => file.partition_device(offset, size),
            _ => None,
        }
    }

    /// The block size for the kernel's cache of a block device, if it is one.
    pub(crate) fn cache_block_size(&self) -> Option<u32> {
        match self {
            Self::File(file) => file.cache_block_size(),
            _ => None,
        }
    }

    /// Changes the length of a regular file.
    pub(crate) fn set_len(&mut self, bytes: u64) -> io::Result<()> {
        match self {
            Self::File(file) => file.set_len(bytes),
            _ => Err(io::ErrorKind::Unsupported.into()),
        }
    }

    /// The claim of a block device, which keeps other mounts away.
    pub(crate) fn take_claim(&mut self) -> Option<File> {
        match self {
            Self::File(file) => file.take_claim(),
            _ => None,
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
            Self::Overlay(part) => {
                let delta = part.inner();
                delta.store().allow_writes().map_err(|error| error.to_string())?;
                delta.allow_writes().map_err(|error| format!("its delta {error}"))
            }
            Self::Base(_) => Err("its delta does not exist; a mount for writing makes it".into()),
        }
    }
}
