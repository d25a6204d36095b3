//! `info` of a disk: its partitions and what they contain.
//!
//! Nothing is locked, since partitions may be in use: the contents of such a partition are shown as
//! they are on the disk at that moment.

use crate::disk::Disk;
use crate::failure::{Result, say};
use crate::show;
use crate::target::ImageSpec;
use nextent::Foreign;
use nextent_device::{BlockDevice, FileOptions};
use nextent_num::to_u64;
use nextent_ondisk::superblock::{SUPER_OFFSET, SUPER_SIZE};
use nextent_ondisk::{Compat, Incompat, Partition, PartitionTable, RoCompat, Superblock};
use serde_json::{Value, json};

/// What a partition contains.
enum Contents {
    /// A file system of this family.
    Ext { family: &'static str, label: String, uuid: String },
    /// Something else.
    Other(String),
}

/// The device and the table of a disk without a file system of its own.
pub(super) fn disk(image: &ImageSpec) -> Option<(Disk, PartitionTable)> {
    let device = image.open(FileOptions::new().read_only(true).unlocked(true)).ok()?;
    if superblock(&device, 0, device.size()).is_some() {
        return None;
    }
    let read = &mut |at, buf: &mut [u8]| device.read_at(at, buf).is_ok();
    if !matches!(Foreign::identify(device.size(), read), Foreign::Disk(_)) {
        return None;
    }
    let table = PartitionTable::read(device.size(), device.sector_size(), read)?;
    Some((device, table))
}

/// Shows the partitions.
pub(super) fn print(
    image: &ImageSpec,
    (device, table): &(Disk, PartitionTable),
    as_json: bool,
) -> Result<()> {
    let all: Vec<(&Partition, Contents)> =
        table.partitions.iter().map(|part| (part, contents(device, part))).collect();
    if as_json {
        say!("{:#}", describe(image, table, &all));
        return Ok(());
    }
    let count = table.partitions.len();
    say!("{image}: a disk, {}, sectors of {} bytes, {count} partitions", table.form, table.sector);
    if let Some(fault) = &table.fault {
        say!("Damaged: {fault}");
    }
    if count > 0 {
        say!("{:>6} {:>15} {:>15}  {:<20}  Name and contents", "Number", "Start", "Size", "Type");
    }
    for (part, contents) in &all {
        let Partition { number, offset, size, kind, name, .. } = part;
        let kind = match kind.name() {
            "" => kind.to_string(),
            name => name.to_owned(),
        };
        let name = match name.is_empty() {
            true => String::new(),
            false => format!("'{}': ", show::name(name.as_bytes())),
        };
        let contents = match (&part.fault, contents) {
            (Some(fault), _) => fault.clone(),
            (None, Contents::Other(what)) => what.clone(),
            (None, Contents::Ext { family, label, uuid }) => {
                format!("{family}, label '{}', UUID {uuid}", show::name(label.as_bytes()))
            }
        };
        say!("{number:>6} {offset:>15} {size:>15}  {kind:<20}  {name}{contents}");
    }
    Ok(())
}

fn describe(image: &ImageSpec, table: &PartitionTable, all: &[(&Partition, Contents)]) -> Value {
    let row = |(part, contents): &(&Partition, Contents)| {
        let (family, label, uuid, other) = match contents {
            Contents::Ext { family, label, uuid } => (Some(family), Some(label), Some(uuid), None),
            Contents::Other(what) => (None, None, None, Some(what)),
        };
        json!({
            "number": part.number,
            "image": format!("{image}@{}", part.number),
            "start": part.offset,
            "size": part.size,
            "type": part.kind.to_string(),
            "type_name": part.kind.name(),
            "name": part.name,
            "uuid": part.uuid,
            "fault": part.fault,
            "contents": {"family": family, "label": label, "uuid": uuid, "other": other},
        })
    };
    json!({
        "table": table.form,
        "sector": table.sector,
        "fault": table.fault,
        "partitions": all.iter().map(row).collect::<Vec<_>>(),
    })
}

/// The superblock of the `size` bytes from `at` on.
fn superblock(device: &Disk, at: u64, size: u64) -> Option<Superblock> {
    let mut bytes = [0; SUPER_SIZE];
    let fits = size >= SUPER_OFFSET + to_u64(SUPER_SIZE);
    device.read_at(at.checked_add(SUPER_OFFSET).filter(|_| fits)?, &mut bytes).ok()?;
    Superblock::read(&bytes).ok()
}

fn contents(device: &Disk, part: &Partition) -> Contents {
    if part.fault.is_some() {
        return Contents::Other(String::new());
    }
    if let Some(sb) = superblock(device, part.offset, part.size) {
        let (family, label) = (family(&sb), sb.label());
        return Contents::Ext { family, label, uuid: sb.volume_uuid().to_string() };
    }
    let read = &mut |at: u64, buf: &mut [u8]| {
        let end = at.checked_add(to_u64(buf.len())).filter(|end| *end <= part.size);
        let place = part.offset.checked_add(at).filter(|_| end.is_some());
        place.is_some_and(|at| device.read_at(at, buf).is_ok())
    };
    Contents::Other(match Foreign::identify(part.size, read) {
        Foreign::Format { name, .. } => name.to_owned(),
        Foreign::Disk(table) => format!("a partition table ({})", table.form),
        Foreign::Backup { .. } => "an ext file system whose first superblock is lost".to_owned(),
        Foreign::Zeros => "nothing (zeros)".to_owned(),
        _ => "of unknown format".to_owned(),
    })
}

/// The family of a file system, by its features as blkid(8) does.
pub(super) fn family(sb: &Superblock) -> &'static str {
    let features = sb.features();
    let new = features.has(Incompat::EXTENTS)
        || features.has(Incompat::BIT64)
        || features.has(Incompat::FLEX_BG)
        || features.has(RoCompat::HUGE_FILE)
        || features.has(RoCompat::METADATA_CSUM);
    match (new, features.has(Compat::HAS_JOURNAL)) {
        (true, _) => "ext4",
        (false, true) => "ext3",
        (false, false) => "ext2",
    }
}
