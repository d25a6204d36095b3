//! `e2mmpstatus`, and `-m` of dumpe2fs: whether another node has the volume, by its block of
//! multiple mount protection. Nothing is written.

use super::fields;
use super::{Call, misused, overview, spec, split, to_stderr, version};
use crate::failure::{Failure, Result, say};
use crate::show;
use nextent::check::{At, Overview};
use nextent::{Error, MultiMountUse, multi_mount_use};
use nextent_device::{BlockDevice, FileOptions};
use nextent_ondisk::Incompat;
use nextent_ondisk::mmp::MmpBlock;
use nextent_sync::Arc;
use std::ffi::OsStr;
use std::process::ExitCode;

const USAGE: &str = "Usage: e2mmpstatus [-iV] [-o superblock=number] [-o blocksize=bytes] device";
/// Another node may have the volume.
const IN_USE: u8 = 1;
/// The state cannot be found out.
const UNKNOWN: u8 = 2;

/// Prints what e2mmpstatus prints.
pub(super) fn run(call: &Call) -> Result<ExitCode> {
    let words = split(call, "imhbfgxVo:", USAGE)?;
    if words.has('V') {
        to_stderr(&version(&call.name));
        return Ok(ExitCode::SUCCESS);
    }
    let [image] = &words.operands[..] else { return Err(misused(USAGE, 1)) };
    let at = super::dumpe2fs::backup(&words)?;
    status(call, image, at, words.has('i'))
}

/// Prints the block with `shows`, else whether the volume is safe to mount.
pub(super) fn status(call: &Call, image: &OsStr, at: Option<At>, shows: bool) -> Result<ExitCode> {
    let volume = overview(image, at).map_err(|failure| failure.with_code(UNKNOWN))?;
    if !volume.geometry().features.has(Incompat::MMP) {
        return Err(Failure::new("MMP feature not enabled.").with_code(UNKNOWN));
    }
    match shows {
        true => show_block(image, &volume),
        false => judge(call, image, &volume),
    }
}

fn show_block(image: &OsStr, volume: &Overview) -> Result<ExitCode> {
    let no = volume.superblock().mmp_block.get();
    match volume.multi_mount() {
        Some(block) => say!("{}    mmp_block_number: {no}", fields::multi_mount(&block)),
        None => {
            let name = show::path(image);
            let text = format!("MMP: block {no} of '{name}' has a wrong magic number or checksum");
            crate::failure::complain(&text);
            say!("    mmp_block_number: {no}");
        }
    }
    Ok(ExitCode::SUCCESS)
}

fn judge(call: &Call, image: &OsStr, volume: &Overview) -> Result<ExitCode> {
    let name = show::path(image);
    let how = FileOptions::new().read_only(true).unlocked(true);
    let device = spec(image)?.open(how).map_err(|failure| failure.to_string());
    let device = device.map_err(|text| Failure::new(text).with_code(UNKNOWN))?;
    let device: Arc<dyn BlockDevice> = Arc::new(device);
    let (state, block) = match multi_mount_use(&device, volume.superblock()) {
        Ok(found) => found,
        Err(Error::Corrupt(_)) => {
            let text = format!("MMP: invalid magic number while trying to open {name}");
            return Err(Failure::new(text).with_code(UNKNOWN));
        }
        Err(error) => return Err(Failure::new(format!("{name}: {error}")).with_code(UNKNOWN)),
    };
    let why = match state {
        MultiMountUse::Free => {
            say!("{}: it is safe to mount '{name}', MMP is clean", call.name);
            return Ok(ExitCode::SUCCESS);
        }
        MultiMountUse::Active => "MMP: device currently active",
        MultiMountUse::Check => "MMP: e2fsck being run",
        MultiMountUse::WrongChecksum => "MMP block checksum does not match",
        MultiMountUse::Unknown => "MMP: undergoing an unknown operation",
    };
    crate::failure::complain(&format!("{why} while trying to open {name}"));
    Err(Failure::new(writer(&block)).with_code(IN_USE))
}

/// The line about the node that wrote the block. e2mmpstatus puts no space between the names.
fn writer(block: &MmpBlock) -> String {
    let (node, device) = (show::name(block.node()), show::name(block.device()));
    format!("MMP update by '{node}{device}' at {}", fields::time(block.time.get()))
}
