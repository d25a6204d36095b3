//! `-I`: larger inodes.

use super::Wrong;
use crate::failure::{Context, Result, say};
use crate::image::{Purpose, device};
use crate::target::ImageSpec;
use nextent_ondisk::Superblock;

/// The size that `-I` asks for, if the volume may have it.
pub(super) fn asked(text: &str, sb: &Superblock) -> std::result::Result<u16, Wrong> {
    let size = text.parse::<u32>();
    let size = size.map_err(|_| Wrong::Value(format!("bad inode size - {text}")))?;
    if !size.is_power_of_two() {
        return Err(Wrong::Value(format!("Inode size must be a power of two- {size}")));
    }
    let now = sb.inode_size_bytes();
    let block = 1024_u32.checked_shl(sb.log_block_size.get()).unwrap_or(1024);
    let raw = |text: String| Err(Wrong::Raw(text));
    match u16::try_from(size) {
        Ok(size) if size == now => raw(format!("The inode size is already {size}")),
        Ok(size) if size < now => raw("Shrinking inode size is not supported".into()),
        Ok(fits) if size <= block => Ok(fits),
        _ => raw(format!("Invalid inode size {size} (max {block})")),
    }
}

/// Makes the inodes of an image larger.
pub(super) fn apply(size: u16, image: &ImageSpec) -> Result<()> {
    let device = device(image, Purpose::Change)?;
    let enlarged = nextent::resize::enlarge_inodes(&device, size, &|_| ());
    enlarged.context(|| format!("{image}: inode size"))?;
    say!("Setting inode size {size}");
    Ok(())
}
