//! The table of magic numbers.

use super::Read;

/// A format's name, and advice for its user.
type Known = (&'static str, &'static str);

/// Magic numbers, each with its offset. All must match.
pub(super) type Magics = &'static [(usize, &'static [u8])];

const EXPAND: &str = "decompress it first";
const CONVERT: &str = "convert it first, with `qemu-img convert -O raw`";
const OTHER: &str = "mount(8) knows it, this program reads ext2, ext3 and ext4";
const TAR: &str = "`nextent mkfs -d ARCHIVE IMAGE SIZE` makes an image of it";
const UNPACK: &str = "unpack it first";

/// Formats with a long magic number. The first match counts, so a special format precedes the
/// general one.
#[rustfmt::skip]
const STRONG: &[(Magics, &str, &str)] = &[
    (&[(0, b"\x1f\x8b")], "gzip-compressed data", "decompress it first, with gunzip"),
    (&[(0, b"\xfd7zXZ\0")], "xz-compressed data", "decompress it first, with `xz -d`"),
    (&[(0, b"\x28\xb5\x2f\xfd")], "zstd-compressed data", "decompress it first, with `zstd -d`"),
    (&[(1, b"\x2a\x4d\x18")], "zstd- or lz4-compressed data", EXPAND),
    (&[(0, b"BZh"), (4, b"1AY&SY")], "bzip2-compressed data", "decompress it first, with bunzip2"),
    (&[(0, b"BZh"), (4, b"\x17rE8P\x90")], "bzip2-compressed data", EXPAND),
    (&[(0, b"\x04\x22\x4d\x18")], "lz4-compressed data", "decompress it first, with `lz4 -d`"),
    (&[(0, b"\x02\x21\x4c\x18")], "lz4-compressed data", "decompress it first, with `lz4 -d`"),
    (&[(0, b"LZIP")], "lzip-compressed data", EXPAND),
    (&[(0, b"\x89LZO\0\r\n\x1a\n")], "lzop-compressed data", EXPAND),
    (&[(0, b"\x5d\0\0"), (10, b"\xff\xff")], "lzma-compressed data", EXPAND),
    (&[(0, b"\x1f\x9d")], "data of compress(1)", EXPAND),
    (&[(0, b"PK\x03\x04")], "a zip archive", "unpack it first, with unzip"),
    (&[(0, b"PK\x05\x06")], "an empty zip archive", "unpack it first, with unzip"),
    (&[(0, b"7z\xbc\xaf\x27\x1c")], "a 7z archive", UNPACK),
    (&[(0, b"Rar!\x1a\x07")], "a rar archive", UNPACK),
    (&[(0, b"070701")], "a cpio archive", UNPACK),
    (&[(0, b"070702")], "a cpio archive", UNPACK),
    (&[(0, b"070707")], "a cpio archive", UNPACK),
    (&[(0, b"!<arch>\n")], "an ar archive or Debian package", UNPACK),
    (&[(0, b"\xed\xab\xee\xdb")], "an rpm package", UNPACK),
    (&[(257, b"ustar")], "a tar archive", TAR),
    (&[(0, b"QFI\xfb")], "a qcow or qcow2 disk image", CONVERT),
    (&[(0, b"QED\0")], "a QED disk image", CONVERT),
    (&[(0, b"KDMV")], "a VMDK disk image", CONVERT),
    (&[(0, b"COWD")], "a VMDK disk image", CONVERT),
    (&[(0, b"# Disk DescriptorFile")], "the description of a VMDK disk image", CONVERT),
    (&[(0x40, b"\x7f\x10\xda\xbe")], "a VDI disk image", CONVERT),
    (&[(0, b"vhdxfile")], "a VHDX disk image", CONVERT),
    (&[(0, b"conectix")], "a VHD disk image", CONVERT),
    (&[(0, b"WithoutFreeSpace")], "a Parallels disk image", CONVERT),
    (&[(0, b"WithouFreSpacExt")], "a Parallels disk image", CONVERT),
    (&[(0, b"EVF\x09\x0d\x0a\xff\0")], "an EnCase (E01) disk image", "mount it with ewfmount"),
    (&[(0, b"\x3a\xff\x26\xed")], "an Android sparse image", "convert it first, with simg2img"),
    (&[(4096, b"gDla")], "an Android super partition", "unpack it first, with lpunpack"),
    (&[(0, b"ANDROID!")], "an Android boot image", UNPACK),
    (&[(0, b"UBI#")], "a UBI image", "it belongs on flash memory (ubiformat)"),
    (&[(0, b"\x31\x18\x10\x06")], "a UBIFS file system", OTHER),
    (&[(32, b"SIF_MAGIC")], "a SIF container image", "`singularity sif list` shows its partitions"),
    (&[(0, b"LUKS\xba\xbe")], "an encrypted LUKS volume",
        "open it with `cryptsetup open` and use /dev/mapper/NAME"),
    (&[(3, b"-FVE-FS-")], "an encrypted BitLocker volume",
        "open it with `cryptsetup bitlkOpen` and use /dev/mapper/NAME"),
    (&[(512, b"LABELONE")], "a physical volume of LVM",
        "activate its group with `vgchange -ay` and use the logical volume"),
    (&[(0, b"LABELONE")], "a physical volume of LVM",
        "activate its group with `vgchange -ay` and use the logical volume"),
    (&[(4096, b"\xfc\x4e\x2b\xa9")], "a member of an md RAID",
        "assemble it with `mdadm --assemble` and use /dev/mdN"),
    (&[(0, b"\xfc\x4e\x2b\xa9")], "a member of an md RAID",
        "assemble it with `mdadm --assemble` and use /dev/mdN"),
    (&[(4120, b"\xc6\x85\x73\xf6\x4e\x1a\x45\xca")], "a bcache device", "use /dev/bcacheN"),
    (&[(4120, b"\xc6\x85\x73\xf6\x66\xce\x90\xa9")], "a bcachefs file system", OTHER),
    (&[(0, b"verity\0\0")], "hashes of dm-verity", "use the device whose hashes they are"),
    (&[(0, b"integrt\0")], "a dm-integrity device", "open it with integritysetup"),
    (&[(4086, b"SWAPSPACE2")], "swap space", "it holds no files"),
    (&[(4086, b"SWAP-SPACE")], "swap space", "it holds no files"),
    (&[(8182, b"SWAPSPACE2")], "swap space", "it holds no files"),
    (&[(16374, b"SWAPSPACE2")], "swap space", "it holds no files"),
    (&[(65526, b"SWAPSPACE2")], "swap space", "it holds no files"),
    (&[(0, b"hsqs")], "a squashfs file system", OTHER),
    (&[(0, b"sqsh")], "a squashfs file system", OTHER),
    (&[(0, b"\x45\x3d\xcd\x28")], "a cramfs file system", OTHER),
    (&[(0, b"\x28\xcd\x3d\x45")], "a cramfs file system", OTHER),
    (&[(512, b"\x45\x3d\xcd\x28")], "a cramfs file system", OTHER),
    (&[(0, b"-rom1fs-")], "a romfs file system", OTHER),
    (&[(1024, b"\xe2\xe1\xf5\xe0")], "an erofs file system", OTHER),
    (&[(1024, b"\x10\x20\xf5\xf2")], "an f2fs file system", OTHER),
    (&[(0, b"XFSB")], "an XFS file system", OTHER),
    (&[(0x10040, b"_BHRfS_M")], "a btrfs file system", OTHER),
    (&[(0x10034, b"ReIsEr")], "a reiserfs file system", OTHER),
    (&[(0x2034, b"ReIsEr")], "a reiserfs file system", OTHER),
    (&[(32768, b"JFS1")], "a JFS file system", OTHER),
    (&[(32, b"NXSB")], "an APFS container", OTHER),
    (&[(8192 + 1372, b"\x54\x19\x01\0")], "a UFS file system", OTHER),
    (&[(65536 + 1372, b"\x19\x01\x54\x19")], "a UFS2 file system", OTHER),
    (&[(65536, b"\x01\x16\x19\x70")], "a GFS2 file system", OTHER),
    (&[(2048, b"OCFSV2")], "an OCFS2 file system", OTHER),
    (&[(4096, b"OCFSV2")], "an OCFS2 file system", OTHER),
    (&[(128 << 10, b"\x0c\xb1\xba\0\0\0\0\0")], "a member of a ZFS pool", "import it with zpool"),
    (&[(132 << 10, b"\x0c\xb1\xba\0\0\0\0\0")], "a member of a ZFS pool", "import it with zpool"),
    (&[(0x8001, b"CD001")], "an ISO 9660 file system", OTHER),
    (&[(0x8001, b"BEA01")], "a UDF file system", OTHER),
    (&[(3, b"NTFS    ")], "an NTFS file system", OTHER),
    (&[(3, b"EXFAT   ")], "an exFAT file system", OTHER),
    (&[(3, b"ReFS\0\0\0\0")], "a ReFS file system", OTHER),
    (&[(82, b"FAT32   "), (510, b"\x55\xaa")], "a FAT file system", OTHER),
    (&[(54, b"FAT16   "), (510, b"\x55\xaa")], "a FAT file system", OTHER),
    (&[(54, b"FAT12   "), (510, b"\x55\xaa")], "a FAT file system", OTHER),
    (&[(54, b"FAT     "), (510, b"\x55\xaa")], "a FAT file system", OTHER),
    (&[(1024, b"H+\0\x04")], "an HFS+ file system", OTHER),
    (&[(1024, b"HX\0\x05")], "an HFS+ file system", OTHER),
    (&[(0, b"ER"), (512, b"PM\0\0")], "a disk with an Apple partition map",
        "`losetup -P -f --show` makes a device of each partition"),
    (&[(0, b"\x7fELF")], "a program (ELF)", "give an image"),
    (&[(0, b"version https://git-lfs")], "a pointer of git-lfs",
        "fetch the file with `git lfs pull`"),
    (&[(0, b"%PDF-")], "a PDF document", "give an image"),
];

/// Formats with a short magic number, tried after all others.
#[rustfmt::skip]
const WEAK: &[(Magics, &str, &str)] = &[
    (&[(1040, b"\x7f\x13")], "a Minix file system", OTHER),
    (&[(1040, b"\x8f\x13")], "a Minix file system", OTHER),
    (&[(1040, b"\x68\x24")], "a Minix file system", OTHER),
    (&[(1040, b"\x78\x24")], "a Minix file system", OTHER),
    (&[(1048, b"\x5a\x4d")], "a Minix file system", OTHER),
    (&[(1030, b"\x34\x34")], "a NILFS2 file system", OTHER),
    (&[(1024, b"BD")], "an HFS file system", OTHER),
    (&[(0, b"\x85\x19")], "a JFFS2 file system", "it belongs on flash memory"),
    (&[(0, b"\x19\x85")], "a JFFS2 file system", "it belongs on flash memory"),
    (&[(510, b"\x55\xaa")], "a boot sector without partitions",
        "give the image of an ext file system"),
];

/// The format with a long magic number in `head` or at the end of the device.
pub(super) fn strong(head: &[u8], size: u64, read: &mut Read<'_>) -> Option<Known> {
    in_table(STRONG, head).or_else(|| text(head)).or_else(|| at_end(size, read))
}

/// The format with a short magic number in `head`.
pub(super) fn weak(head: &[u8]) -> Option<Known> {
    in_table(WEAK, head).or_else(|| old_tar(head))
}

/// All rows of both tables.
#[cfg(test)]
pub(super) fn rows() -> impl Iterator<Item = &'static (Magics, &'static str, &'static str)> {
    STRONG.iter().chain(WEAK)
}

fn in_table(table: &[(Magics, &'static str, &'static str)], head: &[u8]) -> Option<Known> {
    let fits = |magics: Magics| {
        magics.iter().all(|(at, magic)| head.get(*at..).is_some_and(|rest| rest.starts_with(magic)))
    };
    table.iter().find(|(magics, ..)| fits(magics)).map(|(_, name, advice)| (*name, *advice))
}

/// A web page, which a server may send instead of a missing file.
fn text(head: &[u8]) -> Option<Known> {
    let begin = head.get(..256).unwrap_or(head).trim_ascii_start();
    let is =
        |word: &[u8]| begin.get(..word.len()).is_some_and(|begin| begin.eq_ignore_ascii_case(word));
    let web = is(b"<!doctype html") || is(b"<html");
    web.then_some(("a web page", "see what the download says"))
}

/// A tar archive without a magic number, recognised by the checksum of its first header.
fn old_tar(head: &[u8]) -> Option<Known> {
    let header = head.get(..512)?;
    let digits = header[148..156].split(|byte| !(b'0'..=b'7').contains(byte));
    let digits = digits.into_iter().find(|digits| !digits.is_empty())?;
    let stored = digits.iter().fold(0u64, |sum, digit| sum << 3 | u64::from(digit - b'0'));
    let blank = |at: usize| (148..156).contains(&at);
    let bytes = header.iter().enumerate();
    let sum: u64 = bytes.map(|(at, byte)| if blank(at) { 32 } else { u64::from(*byte) }).sum();
    let named = header[0] != 0 && sum == stored;
    named.then_some(("a tar archive", TAR))
}

/// Formats whose magic number is at the end of the device.
fn at_end(size: u64, read: &mut Read<'_>) -> Option<Known> {
    let mut sector = [0; 512];
    if read(size.checked_sub(512)?, &mut sector) && sector.starts_with(b"koly") {
        return Some(("an Apple disk image (DMG)", CONVERT));
    }
    None
}
