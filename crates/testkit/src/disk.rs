//! Disk images with partition tables, written byte by byte.

use std::fs::File;
use std::ops::Range;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

const MIB: u64 = 1 << 20;

/// A disk image. All bytes outside of its table are a pattern.
#[derive(Debug)]
pub struct DiskImage {
    path: PathBuf,
    /// Numbers and bytes of its partitions.
    pub parts: Vec<(u32, Range<u64>)>,
}

impl DiskImage {
    fn new(path: &Path, mib: u64) -> (Self, File) {
        let pattern: Vec<u8> = (0..=250).cycle().take(1 << 20).collect();
        let file = File::options().create(true).truncate(true).read(true).write(true).open(path);
        let file = file.expect("a new file");
        for at in 0..mib {
            file.write_all_at(&pattern, at * MIB).expect("it has space");
        }
        (Self { path: path.into(), parts: Vec::new() }, file)
    }

    /// A disk of `mib` MiB with a GPT: names, first MiB and number of MiB of its partitions.
    ///
    /// # Panics
    /// If the file cannot be written.
    #[must_use]
    pub fn gpt(path: &Path, mib: u64, sector: u64, parts: &[(&str, u64, u64)]) -> Self {
        let (mut disk, file) = Self::new(path, mib);
        let last = mib * MIB / sector - 1;
        let mut boot = [0; 512];
        entry(&mut boot, 0, 0xee, (1, last.min(u64::from(u32::MAX))));
        file.write_all_at(&boot, 0).expect("it has space");
        let mut entries = vec![0; 128 * 128];
        for (n, (number, (name, first, count))) in (1..).zip(parts).enumerate() {
            let bytes = first * MIB..(first + count) * MIB;
            let row = &mut entries[n * 128..][..128];
            row[..16].copy_from_slice(&LINUX);
            row[16..32].fill(u8::try_from(number).expect("few partitions"));
            row[32..40].copy_from_slice(&(bytes.start / sector).to_le_bytes());
            row[40..48].copy_from_slice(&(bytes.end / sector - 1).to_le_bytes());
            for (at, unit) in name.encode_utf16().enumerate() {
                row[56 + 2 * at..][..2].copy_from_slice(&unit.to_le_bytes());
            }
            disk.parts.push((number, bytes));
        }
        let backup = last - 128 * 128 / sector;
        for (place, other, start) in [(1, last, 2), (last, 1, backup)] {
            let mut header = [0; 92];
            header[..16].copy_from_slice(b"EFI PART\0\0\x01\0\x5c\0\0\0");
            for (at, value) in [(24, place), (32, other), (40, 40), (48, backup - 1), (72, start)] {
                header[at..at + 8].copy_from_slice(&value.to_le_bytes());
            }
            header[56..72].fill(9);
            for (at, value) in [(80, 128), (84, 128), (88, crc32(&entries))] {
                header[at..at + 4].copy_from_slice(&value.to_le_bytes());
            }
            let sum = crc32(&header);
            header[16..20].copy_from_slice(&sum.to_le_bytes());
            file.write_all_at(&entries, start * sector).expect("it has space");
            file.write_all_at(&header, place * sector).expect("it has space");
        }
        disk
    }

    /// A disk of `mib` MiB with an MBR: first MiB and number of MiB of its primary partition, and
    /// of the logical ones in an extended partition behind it.
    ///
    /// # Panics
    /// If the file cannot be written.
    #[must_use]
    pub fn mbr(
        path: &Path,
        mib: u64,
        sector: u64,
        primary: (u64, u64),
        logical: &[(u64, u64)],
    ) -> Self {
        let (mut disk, file) = Self::new(path, mib);
        let unit = MIB / sector;
        let mut boot = [0; 512];
        boot[440..444].copy_from_slice(&[0xcd, 0xab, 0x34, 0x12]);
        entry(&mut boot, 0, 0x83, (primary.0 * unit, primary.1 * unit));
        disk.parts.push((1, primary.0 * MIB..(primary.0 + primary.1) * MIB));
        // The table of each logical partition is in the MiB before it.
        let base = logical.first().map_or(0, |first| first.0 - 1);
        if base > 0 {
            entry(&mut boot, 1, 0x0f, (base * unit, (mib - base) * unit));
        }
        file.write_all_at(&boot, 0).expect("it has space");
        for (n, (first, count)) in logical.iter().enumerate() {
            let mut table = [0; 512];
            entry(&mut table, 0, 0x83, (unit, count * unit));
            if let Some((next, count)) = logical.get(n + 1) {
                entry(&mut table, 1, 0x05, ((next - 1 - base) * unit, (count + 1) * unit));
            }
            file.write_all_at(&table, (first - 1) * MIB).expect("it has space");
            let number = u32::try_from(n + 5).expect("few partitions");
            disk.parts.push((number, first * MIB..(first + count) * MIB));
        }
        disk
    }

    /// The path of the image.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// All bytes but those of a partition.
    ///
    /// # Panics
    /// If the file cannot be read.
    #[must_use]
    pub fn outside(&self, part: &Range<u64>) -> Vec<u8> {
        let mut bytes = std::fs::read(&self.path).expect("it was made");
        let at = |byte: u64| usize::try_from(byte).expect("a small image");
        drop(bytes.drain(at(part.start)..at(part.end)));
        bytes
    }

    /// A copy of the bytes of a partition at `to`.
    ///
    /// # Panics
    /// If the files cannot be read or written.
    pub fn extract(&self, part: &Range<u64>, to: &Path) {
        let at = |byte: u64| usize::try_from(byte).expect("a small image");
        let bytes = std::fs::read(&self.path).expect("it was made");
        std::fs::write(to, &bytes[at(part.start)..at(part.end)]).expect("there is space");
    }
}

/// The type "Linux filesystem", as it is stored.
const LINUX: [u8; 16] = [
    0xaf, 0x3d, 0xc6, 0x0f, 0x83, 0x84, 0x72, 0x47, 0x8e, 0x79, 0x3d, 0x69, 0xd8, 0x47, 0x7d, 0xe4,
];

fn entry(sector: &mut [u8; 512], n: usize, kind: u8, (first, count): (u64, u64)) {
    let low = |number: u64| u32::try_from(number).expect("a small disk").to_le_bytes();
    let at = 446 + 16 * n;
    sector[510..].copy_from_slice(b"\x55\xaa");
    sector[at + 4] = kind;
    sector[at + 8..at + 12].copy_from_slice(&low(first));
    sector[at + 12..at + 16].copy_from_slice(&low(count));
}

fn crc32(bytes: &[u8]) -> u32 {
    let step = |sum: u32| if sum & 1 == 0 { sum >> 1 } else { sum >> 1 ^ 0xedb8_8320 };
    !bytes.iter().fold(!0, |sum, byte| (0..8).fold(sum ^ u32::from(*byte), |sum, _| step(sum)))
}
