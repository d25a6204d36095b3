//! Sections of man pages besides options: examples, files, environment, exit status, see also.

use super::pages::escaped;
use std::fmt::Write;

/// A command's own parts of these sections.
struct Page {
    /// Command lines, each with an explanation.
    examples: &'static [(&'static str, &'static str)],
    files: &'static [(&'static str, &'static str)],
    environment: &'static [(&'static str, &'static str)],
    exit: &'static [(&'static str, &'static str)],
    see: &'static [&'static str],
}

const EXIT: &[(&str, &str)] = &[
    ("0", "Everything was done."),
    ("1", "An operation failed; a line on standard error names it."),
    ("2", "The arguments are wrong."),
    ("141", "The program that read the output ended first."),
];
const EXIT_DIFF: &[(&str, &str)] = &[
    ("0", "The trees are equal."),
    ("1", "They differ."),
    ("2", "The arguments are wrong, or something could not be compared."),
    ("141", "The program that read the output ended first."),
];
const EXIT_FSCK: &[(&str, &str)] = &[
    ("0", "No errors."),
    ("4", "Errors remain."),
    ("8", "The check could not be done: there is no ext file system, or it cannot be read."),
    ("16", "The arguments are wrong."),
];
const EXIT_MOUNT: &[(&str, &str)] = &[
    ("0", "The image is mounted or unmounted."),
    ("1", "The arguments are wrong, or the user lacks permission."),
    ("2", "There is no FUSE, or no io_uring although it was asked for."),
    ("32", "Mounting or unmounting failed."),
];

const COLOR: (&str, &str) = ("NO_COLOR", "If set and not empty, progress has no colours.");
const EPOCH: (&str, &str) = (
    "SOURCE_DATE_EPOCH",
    "Seconds since 1970: all times of the volume, and the latest time of what -d copies. With -U \
     and -E hash_seed equal contents make equal images.",
);
const NOTIFY: (&str, &str) =
    ("NOTIFY_SOCKET", "The socket on which systemd learns that the mount is ready or ends.");
const PATH: (&str, &str) = ("PATH", "Searched for fusermount3, which mounts without root.");

const FUSE: &[(&str, &str)] = &[
    ("/dev/fuse", "The kernel's FUSE. Mounting needs permission to read and write it."),
    ("/etc/fuse.conf", "Whether users without root may use allow_other and allow_root."),
    ("/sys/module/fuse/parameters/enable_uring", "Whether the kernel offers FUSE over io_uring."),
    ("/run/mount/utab", "Names the helper by which umount(8) waits for the server."),
];

const STATUS: &[(&str, &str)] =
    &[("/run/nextent", "The sockets of root's servers; those of users are in XDG_RUNTIME_DIR.")];

/// A page with one example.
macro_rules! example {
    ($line:expr, $does:expr, $see:expr $(,)?) => {
        Page { examples: &[($line, $does)], see: $see, ..PLAIN }
    };
}

const PLAIN: Page = Page { examples: &[], files: &[], environment: &[], exit: EXIT, see: &[] };

/// Each command's page. A command that is missing here fails a test.
const PAGES: &[(&str, Page)] = &[
    (
        "nextent",
        Page {
            examples: &[
                ("nextent mkfs disk.img 1g", "Makes an ext4 file system in a new file."),
                ("nextent cp -a tree/. disk.img:/", "Copies a tree into it."),
                ("nextent ls -l disk.img:/", "Lists its root directory."),
                ("nextent mount disk.img /mnt", "Mounts it, without root."),
                ("nextent ls disk.img@2:/", "Lists the second partition of a disk image."),
            ],
            environment: &[COLOR, EPOCH],
            see: &["mke2fs(8)", "e2fsck(8)", "debugfs(8)", "fuse2fs(1)", "ext4(5)"],
            ..PLAIN
        },
    ),
    (
        "mkfs",
        Page {
            examples: &[
                ("nextent mkfs disk.img 1g", "Makes an ext4 file system in a new file."),
                ("nextent mkfs -t ext2 -b 1024 -L boot /dev/sdb1", "Makes ext2 on a partition."),
                (
                    "nextent mkfs -d tree -E root_owner=0:0 root.img 512m",
                    "Makes an image of a directory.",
                ),
                (
                    "nextent mkfs -d tree --free 5% root.img",
                    "Makes the smallest image of it in which 5 percent of the blocks are free.",
                ),
                (
                    "nextent mkfs -d tree --owner 0:0 --owners devices root.img 512m",
                    "The same with root's files, and with devices of a device table.",
                ),
                (
                    "nextent mkfs --oci layout:web --owner 0:0 root.img",
                    "Makes an image of the layers of a container's image.",
                ),
                (
                    "fakeroot tar -c -C tree . | nextent mkfs -d - root.img 512m",
                    "The same, with the owners that fakeroot gives.",
                ),
                (
                    "SOURCE_DATE_EPOCH=0 nextent mkfs -U clear -E hash_seed=clear -d tree a 64m",
                    "Makes an image that is the same each time.",
                ),
            ],
            environment: &[EPOCH, COLOR],
            see: &["mke2fs(8)", "mke2fs.conf(5)", "nextent-fsck(1)", "nextent-mount(1)"],
            ..PLAIN
        },
    ),
    (
        "mount",
        Page {
            examples: &[
                ("nextent mount disk.img /mnt", "Mounts an image; umount(8) ends it."),
                ("nextent mount -o ro disk.img@2 /mnt", "Mounts a partition of a disk image."),
                ("/srv/disk.img /data fuse.nextent defaults,nofail 0 0", "A line of /etc/fstab."),
                (
                    "nextent mount -o remount,ro /mnt",
                    "Makes a mount read-only and its image clean.",
                ),
            ],
            files: FUSE,
            environment: &[NOTIFY, PATH],
            exit: EXIT_MOUNT,
            see: &["mount(8)", "umount(8)", "fusermount3(1)", "fuse(4)", "fstab(5)"],
        },
    ),
    (
        "umount",
        Page {
            examples: &[
                ("nextent umount /mnt", "Unmounts, and waits until the image is closed."),
                ("umount /mnt", "umount(8) calls umount.fuse.nextent where it is installed."),
            ],
            files: FUSE,
            exit: EXIT_MOUNT,
            see: &["umount(8)", "nextent-mount(1)"],
            ..PLAIN
        },
    ),
    (
        "serve",
        Page {
            examples: &[
                ("nextent serve nbd -k /run/s disk.img", "Serves an image on a Unix socket."),
                (
                    "nextent serve nbd -r disk.img@2",
                    "Serves a partition for reading on port 10809.",
                ),
                (
                    "nextent serve nbd -k /run/s --tls-certificates pki --tls-verify-peer d.img",
                    "Serves an image over TLS to clients with certificates.",
                ),
            ],
            see: &["nbdinfo(1)", "nbdcopy(1)", "qemu-img(1)"],
            ..PLAIN
        },
    ),
    (
        "status",
        Page {
            examples: &[
                ("nextent status /mnt", "Shows what the server of a mount has done."),
                ("nextent status --prometheus /mnt", "Writes the same as metrics."),
            ],
            files: STATUS,
            see: &["nextent-mount(1)"],
            ..PLAIN
        },
    ),
    (
        "fsck",
        Page {
            examples: &[
                ("nextent fsck disk.img", "Checks unless the image is marked as clean."),
                ("nextent fsck -f --json disk.img", "Checks in any case; output for programs."),
            ],
            environment: &[],
            exit: EXIT_FSCK,
            see: &["fsck(8)", "e2fsck(8)", "nextent-replay(1)"],
            ..PLAIN
        },
    ),
    (
        "tune",
        Page {
            examples: &[
                ("nextent tune -L root -m 1 disk.img", "Sets label and reserved blocks."),
                ("nextent tune -U random disk.img", "Gives a new UUID."),
                ("nextent tune -O verity disk.img@2", "Allows files with fs-verity."),
            ],
            see: &["tune2fs(8)", "nextent-info(1)", "nextent-mkfs(1)"],
            ..PLAIN
        },
    ),
    (
        "resize",
        Page {
            examples: &[
                ("nextent resize disk.img 8g", "Grows or shrinks the volume and its file."),
                ("nextent resize -M disk.img", "Makes both as small as the contents allow."),
                ("nextent resize disk.img@2", "Grows the volume to its partition."),
                ("nextent resize /mnt", "Lets the kernel grow a volume that it has mounted."),
            ],
            see: &["resize2fs(8)", "nextent-fsck(1)", "nextent-info(1)"],
            ..PLAIN
        },
    ),
    (
        "info",
        Page {
            examples: &[
                ("nextent info disk.img", "Shows the superblock and the free space."),
                ("nextent info --groups --json disk.img", "Shows every group, for programs."),
                ("nextent info --plot map.svg disk.img@2", "Draws a map of a partition, too."),
            ],
            see: &["dumpe2fs(8)", "e2freefrag(8)"],
            ..PLAIN
        },
    ),
    (
        "cp",
        Page {
            examples: &[
                ("nextent cp -a tree disk.img:/srv", "Copies a tree in, with all attributes."),
                ("nextent cp disk.img:/etc/passwd .", "Copies a file out."),
                ("nextent cp -a old.img:/. new.img:/", "Copies everything between images."),
                ("nextent cp disk.img@1:/a disk.img@2:/", "Copies between partitions."),
            ],
            environment: &[COLOR],
            see: &["cp(1)", "nextent-tar(1)"],
            ..PLAIN
        },
    ),
    (
        "tar",
        Page {
            examples: &[
                ("nextent tar -c disk.img:/ | zstd > disk.tar.zst", "Packs all files."),
                ("nextent tar -x disk.img:/ < disk.tar.zst", "Unpacks them."),
            ],
            environment: &[COLOR],
            see: &["tar(1)", "nextent-cp(1)"],
            ..PLAIN
        },
    ),
    ("ls", example!("nextent ls -l disk.img:/etc", "Lists a directory.", &["ls(1)"])),
    ("tree", example!("nextent tree -L 2 disk.img:/", "Shows two levels.", &["tree(1)"])),
    ("cat", example!("nextent cat disk.img:/etc/fstab", "Shows a file.", &["cat(1)"])),
    (
        "stat",
        example!(
            "nextent stat disk.img:/etc/fstab",
            "Shows inode, times and extents.",
            &["stat(1)"]
        ),
    ),
    ("mkdir", example!("nextent mkdir -p disk.img:/a/b", "Makes both.", &["mkdir(1)"])),
    ("rm", example!("nextent rm -r disk.img:/tmp/old", "Removes a tree.", &["rm(1)"])),
    ("mv", example!("nextent mv disk.img:/a disk.img:/b", "Renames a file.", &["mv(1)"])),
    (
        "ln",
        example!("nextent ln -s ../usr/lib disk.img:/lib", "Makes a symbolic link.", &["ln(1)"]),
    ),
    (
        "chmod",
        example!("nextent chmod -R go-w disk.img:/etc", "Removes write permission.", &["chmod(1)"]),
    ),
    (
        "chown",
        example!("nextent chown 0:0 disk.img:/etc/shadow", "Makes root its owner.", &["chown(1)"]),
    ),
    (
        "truncate",
        example!("nextent truncate -s +1m disk.img:/log", "Makes a file longer.", &["truncate(1)"]),
    ),
    (
        "fallocate",
        example!(
            "nextent fallocate -l 1g disk.img:/swap",
            "Allocates blocks to a file.",
            &["fallocate(1)"]
        ),
    ),
    (
        "touch",
        example!(
            "nextent touch -d 2026-01-31T12:00Z disk.img:/etc/motd",
            "Sets both times of a file, in UTC.",
            &["touch(1)"]
        ),
    ),
    (
        "mknod",
        example!("nextent mknod disk.img:/dev/null c 1 3", "Makes a device node.", &["mknod(1)"]),
    ),
    (
        "getxattr",
        example!(
            "nextent getxattr -d disk.img:/bin/ping",
            "Shows all attributes of a file with their values.",
            &["getfattr(1)", "nextent-setxattr(1)", "xattr(7)"]
        ),
    ),
    (
        "setxattr",
        Page {
            examples: &[
                ("nextent setxattr disk.img:/a user.origin web", "Sets an attribute."),
                ("nextent setxattr -x user.origin disk.img:/a", "Removes it."),
            ],
            see: &["setfattr(1)", "nextent-getxattr(1)", "xattr(7)"],
            ..PLAIN
        },
    ),
    (
        "edit",
        Page {
            examples: &[
                ("nextent edit -f script disk.img", "Runs the lines of a file."),
                (
                    "printf 'mkdir -p /etc\\nwrite /etc/hostname box\\n' | nextent edit disk.img",
                    "Makes a directory and a file.",
                ),
            ],
            see: &["debugfs(8)", "nextent-cp(1)", "nextent-setxattr(1)"],
            ..PLAIN
        },
    ),
    (
        "diff",
        Page {
            examples: &[
                ("nextent diff old.img new.img", "Shows which files differ, and in what."),
                ("nextent diff --ignore owners,times rootfs/ disk.img", "Compares a directory."),
            ],
            exit: EXIT_DIFF,
            see: &["diff(1)", "nextent-cp(1)"],
            ..PLAIN
        },
    ),
    (
        "sync",
        Page {
            examples: &[
                ("nextent sync rootfs/ disk.img", "Brings the image to the directory."),
                ("nextent sync -n -i rootfs/ disk.img@2:/srv", "Shows what would change."),
            ],
            see: &["rsync(1)", "nextent-cp(1)", "nextent-diff(1)"],
            ..PLAIN
        },
    ),
    (
        "trim",
        example!(
            "nextent trim disk.img",
            "Makes the image file as small as its contents.",
            &["fstrim(8)"]
        ),
    ),
    (
        "commit-overlay",
        example!(
            "nextent commit-overlay overlay:base.img+c1.delta",
            "Writes what the delta holds into base.img.",
            &["nextent-rebase(1)", "qemu-img(1)"]
        ),
    ),
    (
        "rebase",
        example!(
            "nextent rebase overlay:base.img+c1.delta new.img",
            "Puts the overlay on new.img: it is overlay:new.img+c1.delta then.",
            &["nextent-commit-overlay(1)", "qemu-img(1)"]
        ),
    ),
    ("replay", example!("nextent replay disk.img", "Recovers after a crash.", &["e2fsck(8)"])),
];

/// The sections of a command's page, in the order of man-pages(7): title and roff.
pub(super) fn of(own: &str, section: u8) -> Vec<(&'static str, String)> {
    let Some((_, page)) = PAGES.iter().find(|(name, _)| *name == own) else { return Vec::new() };
    let mut sections = vec![("EXIT STATUS", table(page.exit))];
    if !page.environment.is_empty() {
        sections.push(("ENVIRONMENT", table(page.environment)));
    }
    sections.push(("FILES", files(page)));
    sections.push(("EXAMPLES", examples(page)));
    sections.push(("SEE ALSO", see_also(own, section, page)));
    sections
}

fn files(page: &Page) -> String {
    let image = ("IMAGE", "A file or a block device with an ext2, ext3 or ext4 file system.");
    table(&[&[image], page.files].concat())
}

fn table(rows: &[(&str, &str)]) -> String {
    let mut text = String::new();
    for (word, meaning) in rows {
        // Writing to a string cannot fail.
        let _ = writeln!(text, ".TP\n\\fB{}\\fR\n{}", escaped(word), escaped(meaning));
    }
    text
}

fn examples(page: &Page) -> String {
    let mut text = String::new();
    for (line, does) in page.examples {
        let (line, does) = (escaped(line), escaped(does));
        // Writing to a string cannot fail.
        let _ = writeln!(text, ".PP\n{does}\n.PP\n.RS 4\n.nf\n{line}\n.fi\n.RE");
    }
    // A section heading needs no paragraph after it.
    text.strip_prefix(".PP\n").unwrap_or(&text).to_owned()
}

fn see_also(own: &str, section: u8, page: &Page) -> String {
    let mut names: Vec<String> = page.see.iter().map(|name| (*name).to_owned()).collect();
    match own {
        "nextent" => {
            let below = PAGES.iter().filter(|(name, _)| *name != "nextent");
            names.extend(below.map(|(name, _)| format!("nextent-{name}(1)")));
        }
        own if section == 8 => names.push(format!("nextent-{own}(1)")),
        _ => names.push("nextent(1)".to_owned()),
    }
    names.sort();
    names.dedup();
    let shown: Vec<String> = names
        .iter()
        .map(|name| match name.split_once('(') {
            Some((name, rest)) => format!("\\fB{}\\fR({rest}", escaped(name)),
            None => escaped(name),
        })
        .collect();
    format!("{}\n", shown.join(",\n"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::args::Args;
    use clap::CommandFactory;

    #[test]
    fn every_command_has_its_sections() {
        let whole = Args::command();
        let names = whole.get_subcommands().map(clap::Command::get_name);
        for name in names.chain(["nextent"]) {
            let titles: Vec<_> = of(name, 1).into_iter().map(|(title, _)| title).collect();
            for title in ["EXIT STATUS", "FILES", "EXAMPLES", "SEE ALSO"] {
                assert!(titles.contains(&title), "{name}: {title}");
            }
            assert!(!examples(&PAGES.iter().find(|page| page.0 == name).unwrap().1).is_empty());
        }
    }
}
