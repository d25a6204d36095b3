//! The program as mke2fs and mkfs.ext2 to mkfs.ext4: command lines of other programs, compared with
//! mke2fs where it is installed, and the texts that other programs read.

use crate::called::{Said, called, called_with};
use nextent_testkit::{e2fs, need};
use std::path::Path;
use std::process::Command;

const UUID: &str = "0c4f7f22-7a5c-4b3e-9d38-5b0e36f9a1d7";
const SEED: &str = "hash_seed=6f0d8c11-2f4a-4e57-8b7e-64c7a1f0c001";
const SEEDED: &str = "nodiscard,lazy_itable_init=1,hash_seed=6f0d8c11-2f4a-4e57-8b7e-64c7a1f0c001";

/// A call of a program: its name, its arguments, where `IMG` is the image and `TREE` a directory,
/// its environment, and the size of the image before in MiB, or 0 for none.
struct Call {
    by: &'static str,
    name: &'static str,
    args: &'static str,
    env: &'static [(&'static str, &'static str)],
    mib: u64,
}

const fn call(by: &'static str, name: &'static str, args: &'static str, mib: u64) -> Call {
    Call { by, name, args, env: &[], mib }
}

const CALLS: &[Call] = &[
    Call {
        by: "systemd-repart",
        name: "mkfs.ext4",
        args: "-L root -U UUID -I 256 -m 0 -E SEEDED -b 4096 -T default IMG -d TREE -q",
        env: &[("MKE2FS_DEVICE_SECTSIZE", "512"), ("SOURCE_DATE_EPOCH", "1700000000")],
        mib: 64,
    },
    Call {
        by: "mkosi for old systems",
        name: "mkfs.ext4",
        args: "-L root -U UUID -I 256 -m 0 -E SEEDED -b 4096 -T default IMG -q -O ^orphan_file",
        env: &[("MKE2FS_DEVICE_SECTSIZE", "4096")],
        mib: 64,
    },
    call("osbuild", "mkfs.ext4", "-U UUID IMG", 512),
    call("osbuild", "mkfs.ext4", "-U UUID -L boot -E lazy_itable_init=0 IMG", 64),
    call("osbuild", "mkfs.ext4", "-U UUID -O orphan_file -E lazy_journal_init=1 IMG", 64),
    call("osbuild", "mkfs.ext4", "-U UUID -O ^verity IMG", 64),
    call("osbuild", "mkfs.ext4", "-U UUID -O verity IMG", 64),
    call("Kata agent", "mkfs.ext4", "-F -O ^has_journal -m 0 -i 163840 -I 128 IMG", 128),
    call("Kata's image builder", "mkfs.ext4", "-q -F -b 4096 IMG", 128),
    call("firecrab", "mkfs.ext4", "-F -q -m 0 -L rootfs -d TREE IMG", 64),
    call("firecrab", "mkfs.ext4", "-F -q -m 0 -L rootfs -O ^orphan_file -d TREE IMG", 64),
    call("hypeman", "mkfs.ext4", "-b 4096 -O ^has_journal -d TREE -F IMG", 64),
    call("libguestfs", "mke2fs", "-F -t ext2 -b 1024 -g 8192 -m 1 -L l -M /m IMG", 64),
    call("libguestfs", "mke2fs", "-F -t ext4 -b 4096 -G 8 -i 8192 -I 512 -J size=8 IMG", 256),
    call("libguestfs", "mke2fs", "-F -t ext3 -N 5000 -o linux -O ^dir_index -E stride=4 IMG", 64),
    call("buildroot", "mkfs.ext4", "-d TREE -r 1 -N 0 -m 5 -L root -I 256 -O ^64bit IMG 60M", 0),
    call("genimage", "mkfs.ext2", "-d TREE -r 1 -N 0 -m 5 -L l -I 256 -O ^64bit IMG 32768", 0),
    call("yocto", "mkfs.ext4", "-F -i 8192 IMG -d TREE", 64),
    call("apptainer", "mkfs.ext3", "-d TREE IMG", 64),
    call("a person", "mke2fs", "IMG 20m", 0),
    call("a person", "mke2fs", "-j IMG 131072s", 0),
    call("a person", "mke2fs", "-Fqt ext4 -b2048 IMG 16384", 0),
    call("a person", "mkfs.ext4", "-b -2048 IMG", 64),
    call("a person", "mkfs.ext4", "-T news,default -R stride=4 IMG", 700),
    call("a person", "mkfs.ext4", "-T largefile IMG", 64),
    call("a person", "mkfs.ext3", "-e panic -J size=4 IMG", 64),
    call("a person", "mkfs.ext4", "-o hurd -O ^has_journal IMG", 64),
    call("a person", "mke2fs", "-t ext4 -o hurd -O ^has_journal IMG", 64),
    call("a person", "mkfs.ext2", "-r 0 IMG", 8),
    call("a person", "mkfs.ext4", "-N 100000000 IMG", 16),
    call("a person", "mkfs.ext4", "-m 51 IMG", 16),
    call("a person", "mkfs.ext4", "IMG 1q", 16),
    call("a person", "mkfs.ext4", "-b 512 IMG", 16),
    call("a person", "mkfs.ext4", "-t nonsense IMG", 16),
    call("a person", "mkfs.ext4", "-O nonsense IMG", 16),
    call("a person", "mkfs.ext4", "IMG", 0),
];

/// The arguments of `call` for the image at `image`.
fn arguments(line: &str, image: &Path, tree: &Path) -> Vec<String> {
    let word = |word: &str| match word {
        "IMG" => image.display().to_string(),
        "TREE" => tree.display().to_string(),
        "UUID" => UUID.to_owned(),
        "SEEDED" => SEEDED.to_owned(),
        other => other.to_owned(),
    };
    line.split_whitespace().map(word).collect()
}

fn sized(path: &Path, mib: u64) {
    let _ = std::fs::remove_file(path);
    if mib > 0 {
        std::fs::File::create(path).unwrap().set_len(mib << 20).unwrap();
    }
}

/// The lines of the superblock that must be equal. How full it is depends on the layout of
/// directories, and other lines on chance.
fn described(path: &Path, filled: bool) -> Vec<String> {
    const VARY: [&str; 9] = [
        "dumpe2fs ",
        "Filesystem UUID:",
        "Directory Hash Seed:",
        "Checksum:",
        "Lifetime writes:",
        "Filesystem created:",
        "Last write time:",
        "Last checked:",
        "Journal backup:",
    ];
    let text = e2fs::dumpe2fs(path, true).unwrap();
    let used: &[&str] = if filled { &["Free "] } else { &[] };
    let varies = |line: &&str| VARY.iter().chain(used).any(|name| line.starts_with(name));
    text.lines().filter(|line| !varies(line)).map(str::to_owned).collect()
}

fn tree(dir: &Path) -> std::path::PathBuf {
    let tree = dir.join("tree");
    std::fs::create_dir_all(tree.join("etc")).unwrap();
    std::fs::write(tree.join("etc/hostname"), "machine\n").unwrap();
    std::os::unix::fs::symlink("etc/hostname", tree.join("name")).unwrap();
    tree
}

#[test]
fn other_programs_get_what_mke2fs_makes() {
    let dir = tempfile::tempdir().unwrap();
    let tree = tree(dir.path());
    let (ours, theirs) = (dir.path().join("ours"), dir.path().join("theirs"));
    for Call { by, name, args, env, mib } in CALLS {
        let context = format!("{by}: {name} {args}");
        sized(&ours, *mib);
        sized(&theirs, *mib);
        let words = arguments(args, &ours, &tree);
        let made = called_with(name, &words, env);
        let mut real = Command::new(name);
        real.env("PATH", "/usr/sbin:/sbin:/usr/bin:/bin").env("LC_ALL", "C");
        real.envs(env.iter().copied()).args(arguments(args, &theirs, &tree));
        let real = match real.output() {
            Ok(output) => Said::of(&output),
            Err(_) => return nextent_testkit::Skip::missing("mke2fs").note(),
        };
        assert_eq!(made.code, real.code, "{context}: {made:?} {real:?}");
        assert_eq!(made.out.is_empty(), real.out.is_empty(), "{context}: {made:?} {real:?}");
        if made.code != 0 {
            assert!(!format!("{}{}", made.out, made.err).is_empty(), "{context}");
            continue;
        }
        assert_eq!(ours.metadata().unwrap().len(), theirs.metadata().unwrap().len(), "{context}");
        let filled = args.contains("-d TREE");
        assert_eq!(described(&ours, filled), described(&theirs, filled), "{context}");
        e2fs::assert_clean(&ours);
        if filled {
            let said = e2fs::debugfs(&ours, false, &["cat /etc/hostname"]).unwrap();
            assert!(said.contains("machine"), "{context}: {said}");
        }
    }
}

#[test]
fn the_configuration_file_is_read() {
    let dir = tempfile::tempdir().unwrap();
    let (ours, theirs) = (dir.path().join("ours"), dir.path().join("theirs"));
    let file = dir.path().join("mke2fs.conf");
    for (conf, args) in [
        (
            "[defaults]\nbase_features = sparse_super\ndefault_mntopts = acl,^user_xattr,discard\n\
             blocksize = 2048\nreserved_ratio = 1.5\nhash_alg = tea\nerrors = remount-ro\n\
             [fs_types]\next4 = {\nfeatures = extent,has_journal\ninode_size = 512\n}\n\
             small = {\ninode_ratio = 65536\n}\n",
            "-t ext4 IMG",
        ),
        (
            "[defaults]\nbase_features = sparse_super\ndefault_features = dir_index\n\
             [fs_types]\next4 = {\nfeatures = extent\nfeatures = 64bit\n}\n",
            "-t ext4 IMG",
        ),
        (
            "[defaults]\nbase_features = sparse_super,resize_inode\ndefault_features = dir_index\n\
             [fs_types]\next4 = {\nfeatures = extent,flex_bg,64bit\nflex_bg_size = 4\n\
             options = stride=8,stripe_width=16\n}\nmine = {\ninode_ratio = 32768\n}\n",
            "-t ext4 -O filetype -T mine IMG",
        ),
        ("[defaults]\nfs_type = ext3\n[fs_types]\next3 = {\nfeatures = has_journal\n}\n", "IMG"),
        ("[defaults]\nnonsense\n", "IMG"),
        ("[defaults]\nbase_features = nonsense\n", "IMG"),
    ] {
        std::fs::write(&file, conf).unwrap();
        sized(&ours, 64);
        sized(&theirs, 64);
        let env = [("MKE2FS_CONFIG", file.to_str().unwrap())];
        let made = called_with("mke2fs", &arguments(args, &ours, dir.path()), &env);
        let mut real = Command::new("/usr/sbin/mke2fs");
        real.env("LC_ALL", "C").envs(env).args(arguments(args, &theirs, dir.path()));
        let real = need!(real.output().map_err(|_| nextent_testkit::Skip::missing("mke2fs")));
        let real = Said::of(&real);
        assert_eq!(made.code, real.code, "{conf}: {made:?} {real:?}");
        if made.code == 0 {
            assert_eq!(described(&ours, false), described(&theirs, false), "{conf}");
            e2fs::assert_clean(&ours);
        }
    }
}

/// Without a file, the defaults are those of `nextent mkfs`.
#[test]
fn the_built_in_defaults_are_those_of_mkfs() {
    let dir = tempfile::tempdir().unwrap();
    let (a, b) = (dir.path().join("a"), dir.path().join("b"));
    let none = [("MKE2FS_CONFIG", "/nonexistent"), ("SOURCE_DATE_EPOCH", "1700000000")];
    for size in ["2m", "20m", "600m"] {
        for kind in ["ext2", "ext3", "ext4"] {
            let [a, b] = [&a, &b].map(|path| path.to_str().unwrap());
            let args = ["-q", "-U", UUID, "-E", SEED];
            let made =
                called_with(&format!("mkfs.{kind}"), &[&args[..], &[a, size]].concat(), &none);
            assert_eq!((made.code, made.err.as_str()), (0, ""));
            let own = [&["mkfs", "-t", kind][..], &args, &[b, size]].concat();
            let own = called_with("nextent", &own, &none);
            assert_eq!(own.code, 0, "{own:?}");
            // A large one would take long to compare.
            let same = size == "600m" || std::fs::read(a).unwrap() == std::fs::read(b).unwrap();
            assert!(same, "{kind} {size}");
            let superblocks = need!(e2fs::dumpe2fs(Path::new(a), true));
            assert_eq!(superblocks, need!(e2fs::dumpe2fs(Path::new(b), true)), "{kind} {size}");
            let _ = (std::fs::remove_file(a), std::fs::remove_file(b));
        }
    }
}

#[test]
fn usage_version_and_refusals() {
    // apptainer looks for this in the help of mkfs.ext3.
    let help = called("mkfs.ext3", &["--help"]);
    assert!(help.code == 1 && help.out.is_empty() && help.err.contains("[-d "), "{help:?}");
    assert!(
        help.err.starts_with("mkfs.ext3: invalid option -- '-'\nUsage: mkfs.ext3 "),
        "{help:?}"
    );
    for args in [&[][..], &["a", "1m", "b"], &["-L"]] {
        let said = called("mke2fs", args);
        assert!(said.code == 1 && said.out.is_empty(), "{said:?}");
        assert!(said.err.contains("Usage: mke2fs "), "{said:?}");
    }
    let version = called("mke2fs", &["-V"]);
    assert_eq!((version.code, version.out.as_str()), (0, ""));
    assert!(version.err.starts_with("mke2fs 1.47.0 (nextent "), "{version:?}");
    assert_eq!(called("nextent", &["mke2fs", "-V"]), version);
    let dir = tempfile::tempdir().unwrap();
    let image = dir.path().join("image");
    let image = image.to_str().unwrap();
    for (args, text) in [
        ("-c", "-c is not supported"),
        ("-C 65536", "-C is not supported"),
        ("-l list", "-l is not supported"),
        ("-z undo", "-z is not supported"),
        ("-S", "-S is refused"),
        ("-O quota", "quota"),
        ("-J device=/dev/x", "another device"),
        ("-E encoding=utf8", "encoding needs casefold"),
        ("-E quotatype=usrquota", "quotatype needs quota"),
        ("-E android_sparse", "android_sparse"),
        ("-E nonsense", "nonsense"),
        ("-U nonsense", "nonsense"),
    ] {
        let words: Vec<&str> = args.split(' ').chain([image, "16m"]).collect();
        let said = called("mkfs.ext4", &words);
        let out = said.out.replace(&format!("Creating regular file {image}\n"), "");
        assert!(said.code == 1 && out.is_empty(), "{args}: {said:?}");
        assert!(said.err.contains(text), "{args}: {said:?}");
        let last = said.err.lines().last().unwrap();
        assert!(last.starts_with("mkfs.ext4: "), "{args}: {said:?}");
        assert!(!Path::new(image).exists(), "{args}");
    }
    let small = called_with(
        "mkfs.ext4",
        &["-b", "1024", image, "16m"],
        &[("MKE2FS_DEVICE_SECTSIZE", "4096")],
    );
    assert!(small.code == 1 && small.err.contains("too small"), "{small:?}");
    let absent = called("mkfs.ext4", &["-q", image]);
    let text = format!("The file {image} does not exist and no size was specified.\n");
    assert_eq!((absent.code, absent.err), (1, text));
}

/// Programs read the places of backups from it.
#[test]
fn a_dry_run_prints_what_mke2fs_prints() {
    let dir = tempfile::tempdir().unwrap();
    let image = dir.path().join("image");
    let image = image.to_str().unwrap();
    sized(Path::new(image), 300);
    for args in [&["-n", "-b", "1024"][..], &["-n"], &["-n", "-v"], &["-nq", "-t", "ext4"]] {
        let args = [args, &["-U", UUID, image]].concat();
        let said = called("mke2fs", &args);
        let real = Said::of(&need!(e2fs::run("mke2fs", &args)));
        let numbers = |text: &str| -> Vec<String> {
            let lines = text.lines().filter(|line| !line.starts_with("Maximum filesystem"));
            lines.map(str::to_owned).collect()
        };
        assert_eq!(numbers(&said.out), numbers(&real.out), "{args:?}");
        assert_eq!((said.code, said.err.is_empty()), (real.code, real.err.is_empty()), "{args:?}");
    }
    assert!(std::fs::read(image).unwrap().iter().all(|byte| *byte == 0), "it was written");
    // What is printed about a new file system has the same lines.
    let made = called("mkfs.ext4", &["-U", UUID, image]);
    assert!(made.out.contains(&format!("Filesystem UUID: {UUID}\n")), "{made:?}");
    assert!(made.out.contains("Creating journal (") && made.code == 0, "{made:?}");
    assert!(made.out.ends_with("accounting information: done\n\n"), "{made:?}");
}

/// fakeroot shows other owners to programs that load its library.
#[test]
fn owners_are_those_that_fakeroot_shows() {
    let dir = tempfile::tempdir().unwrap();
    tree(dir.path());
    let line = format!(
        "chown -R 7:8 tree && {}/mkfs.ext4 -q -d tree -r 1 -N 0 a.img 16m",
        crate::called::links().display()
    );
    let mut command = Command::new("fakeroot");
    let command = command.args(["sh", "-c", &line]).current_dir(dir.path());
    let output = need!(command.output().map_err(|_| nextent_testkit::Skip::missing("fakeroot")));
    let said = Said::of(&output);
    assert_eq!((said.code, said.err.as_str()), (0, ""));
    let image = dir.path().join("a.img");
    e2fs::assert_clean(&image);
    let stat = need!(e2fs::debugfs(&image, false, &["stat /etc/hostname"]));
    assert!(stat.contains("User:     7   Group:     8"), "{stat}");
}

/// Words of `-E` of e2fsprogs 1.47.1 and newer.
#[test]
fn permissions_of_the_root_and_attributes_of_contents() {
    let dir = tempfile::tempdir().unwrap();
    let tree = tree(dir.path());
    let file = tree.join("etc/hostname");
    let set = rustix::fs::setxattr(&file, "user.a", b"b", rustix::fs::XattrFlags::empty());
    let image = dir.path().join("image");
    let name = image.to_str().unwrap();
    let tar = dir.path().join("tree.tar");
    let packed = Command::new("tar").arg("-cf").arg(&tar).arg("-C").arg(&tree).arg(".").status();
    assert!(packed.unwrap().success());
    for source in [None, Some(&tree), Some(&tar)] {
        let _ = std::fs::remove_file(&image);
        let filled = source.map(|path| ["-d", path.to_str().unwrap()]);
        let words = "root_perms=2710,no_copy_xattrs,root_owner=7:8";
        let args = [&["-q", "-E", words][..], filled.as_ref().map_or(&[], |two| two)].concat();
        let said = called("mkfs.ext4", &[&args[..], &[name, "16m"]].concat());
        assert_eq!((said.code, said.err.as_str()), (0, ""), "{source:?}");
        let stat = need!(e2fs::debugfs(&image, false, &["stat /", "ea_list /etc/hostname"]));
        assert!(
            stat.contains("Mode:  02710") && stat.contains("User:     7"),
            "{source:?}: {stat}"
        );
        assert!(!stat.contains("user.a"), "{source:?}: {stat}");
        e2fs::assert_clean(&image);
    }
    let filled = called("mkfs.ext4", &["-q", "-F", "-d", tree.to_str().unwrap(), name, "16m"]);
    assert_eq!(filled.code, 0);
    let listed = need!(e2fs::debugfs(&image, false, &["ea_list /etc/hostname"]));
    assert!(set.is_err() || listed.contains("user.a"), "{listed}");
    for (word, text) in [("root_perms=9", "octal"), ("root_selinux=u:o:t", "root_selinux is not")] {
        let said = called("mkfs.ext4", &["-q", "-E", word, name]);
        assert!(said.code == 1 && said.err.contains(text), "{said:?}");
    }
}
