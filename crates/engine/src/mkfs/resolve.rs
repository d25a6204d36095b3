//! From options to definite values: every default filled in, every range checked.

use nextent_num::must_fit;
use nextent_ondisk::{Features, Incompat};
use nextent_sync::unix_time;
use uuid::Uuid;

use super::error::MkfsError;
use super::options::{CreatorOs, MkfsOptions};
use super::profile;
use super::shape::{Request, Shape};

const DEFAULT_FLEX_GROUPS: u32 = 16;

/// Bytes of a page, on every machine alike.
const PAGE: u32 = 4096;

/// The options with nothing left open.
#[derive(Clone, Debug)]
pub(super) struct Resolved {
    pub(super) shape: Shape,
    pub(super) block_size: u32,
    pub(super) inode_size: u32,
    pub(super) desc_size: u16,
    pub(super) log_flex: u8,
    pub(super) uuid: Uuid,
    pub(super) hash_seed: Uuid,
    pub(super) clock: u64,
    pub(super) warnings: Vec<String>,
}

impl Resolved {
    /// Without flexible groups, with group descriptors of 32 bytes.
    fn new(options: &MkfsOptions, shape: Shape, (block_size, inode_size): (u32, u32)) -> Self {
        let mut warnings = Vec::new();
        if options.label.len() > 16 {
            warnings.push("label too long; cut to 16 bytes".into());
        }
        Self {
            log_flex: 0,
            desc_size: 32,
            shape,
            block_size,
            inode_size,
            uuid: options.uuid.unwrap_or_else(Uuid::new_v4),
            hash_seed: options.extended.hash_seed.unwrap_or_else(Uuid::new_v4),
            clock: options.clock.unwrap_or_else(|| unix_time().as_secs()),
            warnings,
        }
    }
}

fn check_block_size(size: u32) -> Result<u32, MkfsError> {
    if !size.is_power_of_two() || !(1024..=65536).contains(&size) {
        let text = format!("invalid block size {size}: a power of two from 1024 to 65536");
        return Err(MkfsError::option(text));
    }
    Ok(size)
}

/// The size of the blocks of a volume of `bytes`.
///
/// # Errors
///
/// A size that blocks cannot have.
pub(super) fn block_size(options: &MkfsOptions, bytes: u64) -> Result<u32, MkfsError> {
    let profile = profile::profile(options, bytes);
    check_block_size(options.block_size.unwrap_or(profile.block_size))
}

fn check_inode_size(size: u32, block_size: u32) -> Result<u32, MkfsError> {
    // The superblock has 16 bits for it.
    let most = block_size.min(1 << 15);
    if !size.is_power_of_two() || size < 128 || size > most {
        let text = format!("invalid inode size {size}: a power of two from 128 to {most}");
        return Err(MkfsError::option(text));
    }
    Ok(size)
}

fn desc_size(options: &MkfsOptions, features: &Features) -> Result<u16, MkfsError> {
    match options.extended.desc_size {
        None if features.has(Incompat::BIT64) => Ok(64),
        None => Ok(32),
        Some(_) if !features.has(Incompat::BIT64) => {
            Err(MkfsError::option("desc_size needs the 64bit feature"))
        }
        Some(size) if size.is_power_of_two() && (64..=1024).contains(&size) => Ok(size),
        Some(size) => Err(MkfsError::option(format!("invalid descriptor size {size}"))),
    }
}

fn inode_count(
    options: &MkfsOptions,
    ratio: u64,
    blocks: u64,
    (block_size, inode_size): (u32, u32),
    features: &Features,
) -> Result<u64, MkfsError> {
    let bytes = blocks * u64::from(block_size);
    if let Some(ratio) = options.bytes_per_inode
        && !(1024..=64 << 20).contains(&ratio)
    {
        let text = format!("invalid inode ratio {ratio}: from 1024 to 67108864");
        return Err(MkfsError::option(text));
    }
    let most = u64::from(u32::MAX);
    let count = match options.inode_count.filter(|count| *count > 0) {
        Some(count) => count,
        None => {
            // One a block at most, but where more are asked for.
            let ratio = options.bytes_per_inode.unwrap_or(ratio.max(block_size.into()));
            let count = match bytes / ratio {
                count if features.has(Incompat::BIT64) => count.min(most),
                count => count,
            };
            match options.fitted {
                Some(fitted) if fitted.exact && options.bytes_per_inode.is_none() => fitted.inodes,
                Some(fitted) => count.max(fitted.inodes),
                None => count,
            }
        }
    };
    if count > most {
        return Err(MkfsError::option(format!("invalid number of inodes {count}")));
    }
    if count * u64::from(inode_size) >= bytes {
        let text = format!(
            "{count} inodes of {inode_size} bytes are too many for {blocks} blocks; \
             raise -i or lower -N"
        );
        return Err(MkfsError::option(text));
    }
    Ok(count)
}

fn block_count(bytes: u64, block_size: u32, features: &mut Features) -> Result<u64, MkfsError> {
    let mut blocks = bytes / u64::from(block_size);
    let limit = u64::from(u32::MAX);
    if blocks > limit && !features.has(Incompat::BIT64) {
        if blocks == limit + 1 {
            blocks = limit;
        } else {
            let text = format!("{blocks} blocks of {block_size} bytes need the 64bit feature");
            return Err(MkfsError::option(text));
        }
    }
    if blocks > limit {
        // Growth through reserved descriptors ends at 32-bit block numbers.
        features.set(nextent_ondisk::Compat::RESIZE_INODE, false);
    }
    Ok(blocks)
}

fn check_extended(options: &MkfsOptions) -> Result<(), MkfsError> {
    let extended = &options.extended;
    if extended.stride > u32::from(u16::MAX) {
        return Err(MkfsError::option(format!("invalid stride {}", extended.stride)));
    }
    if extended.backup_supers > 2 {
        return Err(MkfsError::option("num_backup_sb must be 0, 1 or 2"));
    }
    if !(0.0..=50.0).contains(&options.reserved_percent) {
        let text = format!("invalid reserved blocks percent {}", options.reserved_percent);
        return Err(MkfsError::option(text));
    }
    Ok(())
}

fn log_flex(options: &MkfsOptions, features: &Features) -> Result<u8, MkfsError> {
    if !features.has(Incompat::FLEX_BG) {
        return Ok(0);
    }
    let groups = options.flex_groups.unwrap_or(DEFAULT_FLEX_GROUPS);
    if !groups.is_power_of_two() {
        return Err(MkfsError::option("the flex group size must be a power of two"));
    }
    Ok(must_fit(groups.ilog2()))
}

/// A size that the caller did not choose is a multiple of a page, as with mke2fs.
pub(super) fn whole_pages(blocks: u64, block_size: u32) -> u64 {
    blocks - blocks % u64::from((PAGE / block_size).max(1))
}

/// The values of a superblock that describes no volume, on a device of `bytes`.
///
/// # Errors
///
/// Options out of range.
pub(super) fn without_volume(
    options: &MkfsOptions,
    bytes: u64,
    shape: Shape,
    block_size: u32,
) -> Result<Resolved, MkfsError> {
    check_extended(options)?;
    let inode_size = profile::profile(options, bytes).inode_size;
    let inode_size = check_inode_size(options.inode_size.unwrap_or(inode_size), block_size)?;
    Ok(Resolved::new(options, shape, (block_size, inode_size)))
}

/// Decides everything about a volume on a device of `device_bytes`.
///
/// # Errors
///
/// Options out of range or at odds, or no room.
pub(super) fn resolve(options: &MkfsOptions, device_bytes: u64) -> Result<Resolved, MkfsError> {
    check_extended(options)?;
    let bytes = options.size.unwrap_or(device_bytes);
    if bytes > device_bytes {
        let text = format!("{bytes} bytes were asked for, the device has {device_bytes}");
        return Err(MkfsError::TooSmall(text));
    }
    let mut warnings = Vec::new();
    let profile = profile::profile(options, bytes);
    let mut features = profile::features(options)?;
    let block_size = block_size(options, bytes)?;
    let inode_size = if options.revision_0 {
        128
    } else {
        check_inode_size(options.inode_size.unwrap_or(profile.inode_size), block_size)?
    };
    if options.creator_os == CreatorOs::Hurd && inode_size != 128 {
        return Err(MkfsError::option("the Hurd supports inodes of 128 bytes only"));
    }
    if inode_size == 128 && !options.revision_0 && options.creator_os != CreatorOs::Hurd {
        warnings.push("128-byte inodes cannot handle dates beyond 2038 and are deprecated".into());
    }
    let mut blocks_count = block_count(bytes, block_size, &mut features)?;
    if options.size.is_none() {
        blocks_count = whole_pages(blocks_count, block_size);
    }
    let sizes = (block_size, inode_size);
    let inodes = inode_count(options, profile.inode_ratio, blocks_count, sizes, &features)?;
    let request = Request {
        blocks_count,
        block_size,
        inode_size,
        desc_size: desc_size(options, &features)?,
        inodes,
        blocks_per_group: options.blocks_per_group,
        resize: options.extended.resize,
        reserved_percent: options.reserved_percent,
        backup_supers: options.extended.backup_supers,
        fitted: options.fitted.is_some(),
        features,
    };
    let shape = request.solve()?;
    let mut resolved = Resolved::new(options, shape, (block_size, inode_size));
    resolved.log_flex = log_flex(options, &resolved.shape.features)?;
    resolved.desc_size = request.desc_size;
    warnings.append(&mut resolved.warnings);
    resolved.warnings = warnings;
    Ok(resolved)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// As many inodes as have numbers, where the default ratio asks for more.
    #[test]
    fn inodes_end_at_32_bits() {
        let resolved = resolve(&MkfsOptions::default(), 300 << 40).expect("it is decided");
        assert!(resolved.shape.inodes_count > 4_000_000_000, "{:?}", resolved.shape);
        let features = "^64bit".to_owned();
        let options = MkfsOptions { features, block_size: Some(65536), ..Default::default() };
        let options = MkfsOptions { bytes_per_inode: Some(1024), ..options };
        assert!(resolve(&options, 200 << 40).is_err(), "they have no numbers");
    }
}
