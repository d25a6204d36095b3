//! `resize2fs`: resize2fs's arguments, texts and order of checks.

use super::getopt::Words;
use super::{Call, misused, spec, split, to_stderr, utf8, version};
use crate::commands::resize::{Passes, Resizable, Trouble, plain};
use crate::disk::Disk;
use crate::failure::{Failure, Result, complain, say};
use crate::show;
use crate::target::{ImageSpec, Place};
use nextent::Error;
use nextent::resize::ResizeOptions;
use nextent_device::{FileOptions, MountedVolume, OpenError, drop_device_cache};
use nextent_ondisk::superblock::state;
use nextent_ondisk::{Compat, Incompat, Superblock};
use std::process::ExitCode;

const USAGE: &str = "Usage: resize2fs [-f] [-F] [-M] [-P] [-p] device [-b|-s|new_size]\n\
    Not supported: -d -S -z. `nextent resize --help` describes the others.\n";

/// Letters that cannot be honoured, and why.
const REFUSED: [(char, &str); 3] = [
    ('d', "the steps of a resize are not printed"),
    ('S', "the layout of the volume says where new bitmaps and tables are"),
    ('z', "undo files are not supported; copy the image before"),
];

/// The start of the message about an image without a superblock, which callers know.
const MAGIC: &str = "Bad magic number in super-block";

/// A call and its image.
struct Resizing {
    words: Words,
    image: ImageSpec,
    place: Place,
    /// The kernel's mount of the volume.
    mounted: Option<MountedVolume>,
}

/// Resizes as resize2fs does.
pub(super) fn run(call: &Call) -> Result<ExitCode> {
    to_stderr(&version("resize2fs"));
    let words = split(call, "d:fFhMPpS:bsz:", USAGE)?;
    if let Some((letter, why)) = REFUSED.iter().find(|(letter, _)| words.has(*letter)) {
        return Err(Failure::new(format!("-{letter} is not supported: {why}")));
    }
    let (Some(name), false, 1 | 2) = (words.operands.first(), words.has('h'), words.operands.len())
    else {
        return Err(misused(USAGE, 1));
    };
    let image = spec(name)?;
    let place = image.resolve()?;
    let is_whole = place.is_file() && place.offset == 0 && place.size.is_none();
    let mounted = is_whole.then(|| MountedVolume::of(&place.path)).flatten();
    Resizing { words, image, place, mounted }.run()
}

/// A line on standard error, which ends the call.
fn ends(line: &str) -> Failure {
    to_stderr(line);
    Failure::reported(1)
}

/// A line after the name of the program, and an empty one, which end the call.
fn refused(line: &str) -> Failure {
    complain(line);
    ends("")
}

impl Resizing {
    fn run(&self) -> Result<ExitCode> {
        let disk = self.open()?;
        let image = &self.image;
        if self.words.has('F') {
            drop_device_cache(&self.place.path).map_err(|error| {
                Failure::new(format!("{} while trying to flush {image}", plain(&error)))
            })?;
        }
        let volume = match Resizable::read(&self.place, disk) {
            Ok(volume) => volume,
            Err(error) => {
                say!("Couldn't find valid filesystem superblock.");
                let text = image.explain(&error);
                return Err(Failure::new(match error {
                    Error::Foreign(_) => format!("{MAGIC} while trying to open {image}: {text}"),
                    _ => format!("{text} while trying to open {image}"),
                }));
            }
        };
        if self.needs_check(volume.superblock()) {
            return Err(ends(&format!("Please run 'e2fsck -f {image}' first.\n")));
        }
        if self.words.has('P') {
            say!("Estimated minimum size of the filesystem: {}", self.minimum(&volume)?);
            return Ok(ExitCode::SUCCESS);
        }
        let asked = self.new_size(&volume)?;
        if self.words.has('b') || self.words.has('s') {
            return self.convert(volume);
        }
        let Some(blocks) = self.checked_size(asked, &volume)? else {
            let (blocks, kib) = (volume.blocks(), volume.block_size() / 1024);
            let text = format!("The filesystem is already {blocks} ({kib}k) blocks long.");
            to_stderr(&format!("{text}  Nothing to do!\n"));
            return Ok(ExitCode::SUCCESS);
        };
        if let Some(mounted) = &self.mounted {
            return self.grow(mounted, &volume, blocks);
        }
        let shrinks = blocks < volume.blocks();
        if shrinks && volume.superblock().features().has(Compat::STABLE_INODES) {
            let text = "Cannot shrink this filesystem because it has the stable_inodes feature";
            return Err(ends(&format!("{text} flag.")));
        }
        let kib = volume.block_size() / 1024;
        say!("Resizing the filesystem on {image} to {blocks} ({kib}k) blocks.");
        self.resize(volume, blocks, ResizeOptions::default())
    }

    /// Opens the image: for reading if it is mounted or nothing is to be changed.
    fn open(&self) -> Result<Disk> {
        let how = match &self.mounted {
            Some(_) => FileOptions::new().read_only(true).unlocked(true),
            None => FileOptions::new().read_only(self.words.has('P')),
        };
        let image = &self.image;
        self.place.open(how).map_err(|error| match error {
            OpenError::Io { source, .. } => {
                ends(&format!("open: {} while opening {image}", plain(&source)))
            }
            OpenError::NotADevice { kind, .. } => {
                ends(&format!("open: Is {kind} while opening {image}"))
            }
            error => Failure::new(error.to_string()),
        })
    }

    /// Whether the volume must be checked first: it is not clean, or is to be changed and was not
    /// checked since its last mount.
    fn needs_check(&self, sb: &Superblock) -> bool {
        let recent = self.words.has('P') || sb.checked_at() >= sb.mounted_at();
        let clean = !needs_repair(sb) && !sb.features().has(Incompat::RECOVER);
        !self.words.has('f') && self.mounted.is_none() && !(recent && clean)
    }

    fn minimum(&self, volume: &Resizable) -> Result<u64> {
        volume.minimum().map_err(|error| self.failed(&self.image.explain(&error)))
    }

    fn failed(&self, text: &str) -> Failure {
        Failure::new(format!("{text} while trying to resize {}", self.image))
    }

    /// The size that is asked for: that of `-M`, of the argument, or of the device.
    fn new_size(&self, volume: &Resizable) -> Result<u64> {
        if self.words.has('M') {
            return match &self.mounted {
                // It cannot shrink, whatever the estimate is.
                Some(_) => Ok(volume.minimum().unwrap_or(1)),
                None => self.minimum(volume),
            };
        }
        let Some(given) = self.words.operands.get(1) else {
            return Ok(volume.filled(match &self.mounted {
                Some(mounted) => self.room(mounted, volume)?,
                None => volume.room(),
            }));
        };
        let text = utf8("new_size", given)?;
        let blocks = blocks(text, volume.block_size());
        blocks.ok_or_else(|| refused(&format!("Invalid new size: {}", show::line(text))))
    }

    /// The blocks of the device of a mounted volume.
    fn room(&self, mounted: &MountedVolume, volume: &Resizable) -> Result<u64> {
        let bytes = mounted.device_size();
        let text = "while trying to determine filesystem size";
        let bytes = bytes.map_err(|error| Failure::new(format!("{} {text}", plain(&error))))?;
        Ok(bytes / volume.block_size())
    }

    /// The size that a resize to `asked` results in; `None` if the volume has it.
    fn checked_size(&self, asked: u64, volume: &Resizable) -> Result<Option<u64>> {
        let now = volume.blocks();
        let has = if self.mounted.is_some() { asked == now } else { volume.has(asked) };
        if has {
            return Ok(None);
        }
        let wide = volume.superblock().features().has(Incompat::BIT64);
        if !wide && asked > u64::from(u32::MAX) {
            return Err(refused("New size too large to be expressed in 32 bits"));
        }
        let free = self.words.has('f') || self.words.has('M') || self.mounted.is_some();
        if asked < now && !free {
            let least = self.minimum(volume)?;
            if asked < least {
                return Err(refused(&format!("New size smaller than minimum ({least})")));
            }
        }
        let room = match &self.mounted {
            Some(mounted) => Some(self.room(mounted, volume)?),
            None => volume.limit().map(|_| volume.room()),
        };
        if let Some(room) = room.filter(|room| asked > *room) {
            let kib = volume.block_size() / 1024;
            return Err(ends(&format!(
                "The containing partition (or device) is only {room} ({kib}k) blocks.\n\
                 You requested a new size of {asked} blocks.\n"
            )));
        }
        if self.mounted.is_some() {
            return Ok(Some(asked));
        }
        let size = volume.resulting(asked);
        let size = size.map_err(|error| self.failed(&self.image.explain(&error)))?;
        // The size of -M is an estimate.
        let larger = self.words.has('M') && size >= now;
        Ok(Some(size).filter(|size| !volume.has(*size) && !larger))
    }

    /// Sets or clears the feature 64bit.
    fn convert(&self, volume: Resizable) -> Result<ExitCode> {
        let wide = self.words.has('b');
        if wide && self.words.has('s') {
            return Err(ends("Cannot set and unset 64bit feature."));
        }
        let blocks = volume.blocks();
        if blocks > u64::from(u32::MAX) {
            let text = "Cannot change the 64bit feature on a filesystem that is larger than";
            return Err(ends(&format!("{text} 2^32 blocks.")));
        }
        if self.mounted.is_some() {
            let text = "Cannot change the 64bit feature while the filesystem is mounted.";
            return Err(ends(text));
        }
        let features = volume.superblock().features();
        if wide && !features.has(Incompat::EXTENTS) {
            let text = "Please enable the extents feature with tune2fs before enabling the";
            return Err(ends(&format!("{text} 64bit feature.")));
        }
        let bits = if wide { "64-bit" } else { "32-bit" };
        if features.has(Incompat::BIT64) == wide {
            to_stderr(&format!("The filesystem is already {bits}."));
            return Ok(ExitCode::SUCCESS);
        }
        say!("Converting the filesystem to {bits}.");
        let mut options = ResizeOptions::default();
        options.wide = Some(wide);
        self.resize(volume, blocks, options)
    }

    /// Changes the volume, and the length of a file to which a size was given.
    fn resize(
        &self,
        mut volume: Resizable,
        blocks: u64,
        mut options: ResizeOptions,
    ) -> Result<ExitCode> {
        options.unchecked = self.words.has('f');
        let given = self.words.has('M') || self.words.operands.len() > 1;
        let exact = given && options.wide.is_none();
        let passes = Passes::new(self.words.has('p'));
        let done = volume.resize(blocks, exact, &options, &|step| passes.show(step));
        passes.end(done.is_ok());
        match done {
            Ok(done) => self.report(done.blocks, volume.block_size()),
            Err(Trouble::File(error)) => {
                let text = format!("{} while trying to truncate {}", plain(&error), self.image);
                Err(Failure::new(text))
            }
            Err(Trouble::Volume(error)) => {
                self.failed(&self.image.explain(&error)).print();
                if volume.current().is_some_and(|sb| needs_repair(&sb)) {
                    let text = format!("Please run 'e2fsck -fy {}' to fix the", self.image);
                    to_stderr(&format!("{text} filesystem\nafter the aborted resize operation."));
                }
                Err(Failure::reported(1))
            }
        }
    }

    fn report(&self, blocks: u64, block_size: u64) -> Result<ExitCode> {
        let kib = block_size / 1024;
        say!("The filesystem on {} is now {blocks} ({kib}k) blocks long.\n", self.image);
        Ok(ExitCode::SUCCESS)
    }

    /// Grows a mounted volume.
    fn grow(&self, mounted: &MountedVolume, volume: &Resizable, blocks: u64) -> Result<ExitCode> {
        let point = show::path(mounted.point());
        say!("Filesystem at {} is mounted on {point}; on-line resizing required", self.image);
        if blocks < volume.blocks() {
            return Err(Failure::new("On-line shrinking not supported"));
        }
        let [before, after] =
            [volume.blocks(), blocks].map(|blocks| volume.descriptor_blocks(blocks));
        say!("old_desc_blocks = {before}, new_desc_blocks = {after}");
        mounted.grow(blocks).map_err(|error| match error.raw_os_error() {
            Some(libc::EPERM) => Failure::new("Permission denied to resize filesystem"),
            Some(libc::ENOTTY) => Failure::new("Kernel does not support online resizing"),
            Some(libc::EOPNOTSUPP) => Failure::new("Filesystem does not support online resizing"),
            _ => self.failed(&plain(&error)),
        })?;
        self.report(blocks, volume.block_size())
    }
}

/// Whether the superblock says that the volume was not closed, or is damaged.
fn needs_repair(sb: &Superblock) -> bool {
    let now = sb.state.get();
    now & state::VALID == 0 || now & state::ERROR != 0
}

/// The blocks that an argument names: a number as in C, of blocks, or with s (512 bytes), K, M, G
/// or T.
fn blocks(text: &str, block_size: u64) -> Option<u64> {
    let text = text.trim_ascii_start();
    let text = text.strip_prefix('+').unwrap_or(text);
    let (text, unit) = match text.char_indices().next_back()? {
        (at, 's') => (&text[..at], 512),
        (at, 'K' | 'k') => (&text[..at], 1 << 10),
        (at, 'M' | 'm') => (&text[..at], 1 << 20),
        (at, 'G' | 'g') => (&text[..at], 1 << 30),
        (at, 'T' | 't') => (&text[..at], 1 << 40),
        _ => (text, block_size),
    };
    let (digits, base) = match text.as_bytes() {
        [b'0', b'x' | b'X', ..] => (&text[2..], 16),
        [b'0', _, ..] => (&text[1..], 8),
        _ => (text, 10),
    };
    if digits.is_empty() || !digits.chars().all(|digit| digit.is_digit(base)) {
        return None;
    }
    let number = u64::from_str_radix(digits, base).unwrap_or(u64::MAX);
    let blocks = u128::from(number) * u128::from(unit) / u128::from(block_size);
    Some(u64::try_from(blocks).unwrap_or(u64::MAX)).filter(|blocks| *blocks > 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_those_of_resize2fs() {
        for (text, count) in [
            ("4096", 4096),
            ("8m", 2048),
            ("7777K", 1944),
            ("12341s", 1542),
            ("1G", 1 << 18),
            ("2t", 1 << 29),
            ("0x1000", 4096),
            ("010000", 4096),
            ("+5000", 5000),
            (" 5000", 5000),
            ("99999999999999999999999", u64::MAX),
            ("9999999999999999999T", u64::MAX),
        ] {
            assert_eq!(blocks(text, 4096), Some(count), "{text}");
        }
        for text in ["", "0", "x", "4x", "12S", "1.5M", "16MB", "5000 ", "4096K0", "-5", "s", "08"]
        {
            assert_eq!(blocks(text, 4096), None, "{text}");
        }
    }
}
