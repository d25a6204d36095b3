//! Copies over existing files: sources take effect in order, a file has one writer at a time, and
//! late writes never reach another file. Pipes and devices are written, not removed.

use crate::support::{as_gnu_tar, fails, inside, mke2fs, nextent, run, shell, works};
use nextent_testkit::{Access, KernelMount, e2fs, need};
use std::io::Read;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::process::Stdio;

const EXT4: &[&str] = &["-t", "ext4"];

fn scratch() -> tempfile::TempDir {
    tempfile::tempdir().expect("the temporary directory can be written")
}

/// A file of 20 MB is still being written when its name becomes a link to another file, and then a
/// small file of another owner. Nothing of the first file may reach the third.
#[test]
fn late_writes_of_a_replaced_file_reach_no_other_file() {
    let dir = scratch();
    let make = "head -c 20000000 /dev/urandom > big; echo one > one; echo secret > small; \
        chmod 777 big; chmod 600 small; \
        tar -c -f s.tar --transform s/big/f/ one big; \
        tar -r -f s.tar --transform 's/^one$/f/' --owner 7:7 one; \
        ln one two; tar -c -f l.tar one two; \
        python3 - <<'P'
import tarfile, io
t = tarfile.open('t.tar', 'w')
def f(n, b, mode=0o644, uid=0):
    i = tarfile.TarInfo(n); i.size = len(b); i.mode = mode; i.uid = uid; t.addfile(i, io.BytesIO(b))
def l(n, to): i = tarfile.TarInfo(n); i.type = tarfile.LNKTYPE; i.linkname = to; t.addfile(i)
big = open('big', 'rb').read()
for k in range(4):
    f('g%d' % k, b'target'); f('f%d' % k, big, 0o777, 1000); l('f%d' % k, 'g%d' % k); \
        f('small%d' % k, b'secret', 0o600, 7)
    f('h%d' % k, big); f('h%d' % k, b'short', 0o640); f('h%d' % k, big[:300000]); \
        l('k%d' % k, 'h%d' % k); f('h%d' % k, b'last')
t.close()
P";
    shell(dir.path(), make);
    for stream in ["s.tar", "t.tar", "l.tar"] {
        as_gnu_tar(dir.path(), stream);
    }
}

/// Names that change their kind, links in paths, and the same link twice are handled as by GNU tar.
#[test]
fn names_may_change_their_kind() {
    let dir = scratch();
    let make = "python3 - <<'P'
import tarfile, io
t = tarfile.open('s.tar', 'w')
def f(n, b=b'x'): i = tarfile.TarInfo(n); i.size = len(b); t.addfile(i, io.BytesIO(b))
def d(n): i = tarfile.TarInfo(n); i.type = tarfile.DIRTYPE; i.mode = 0o755; t.addfile(i)
def s(n, to): i = tarfile.TarInfo(n); i.type = tarfile.SYMTYPE; i.linkname = to; i.mode = 0o777; \
    t.addfile(i)
def l(n, to): i = tarfile.TarInfo(n); i.type = tarfile.LNKTYPE; i.linkname = to; t.addfile(i)
d('usr'); d('usr/lib'); s('lib', 'usr/lib'); f('lib/libc.so'); l('lib/libc2.so', 'lib/libc.so')
f('a'); l('b', 'a'); l('b', 'a'); f('c', b'two'); l('c', 'a')
f('file-dir'); d('file-dir'); f('file-dir/inside')
d('dir-file'); f('dir-file', b'now a file')
s('link-file', 'a'); f('link-file', b'own')
s('link-dir', 'usr'); d('link-dir'); f('link-dir/x')
f('file-link'); s('file-link', 'nowhere')
t.close()
P";
    shell(dir.path(), make);
    as_gnu_tar(dir.path(), "s.tar");
}

/// Two trees with the same names, of large and small files, and hard links in the target.
#[test]
fn the_last_source_wins() {
    let dir = scratch();
    let make = "mkdir base over out; for k in $(seq 40); do \
        head -c 300000 /dev/zero | tr '\\0' B > base/f$k; \
            head -c 200000 /dev/zero | tr '\\0' O > over/f$k; done; \
        head -c 30000000 /dev/zero | tr '\\0' B > base/big; \
            head -c 20000000 /dev/zero | tr '\\0' O > over/big";
    shell(dir.path(), make);
    shell(dir.path(), "$N mkfs -q i.img 300m; $N cp -q -a base/. over/. i.img:/");
    shell(dir.path(), "rm -rf out; $N cp -q -r i.img:/. out; diff -r over out");
    // The same out of images.
    shell(dir.path(), "$N mkfs -q b.img 300m; $N cp -q -a base/. b.img:/");
    shell(dir.path(), "rm -rf out; mkdir out; $N cp -q -r b.img:/. i.img:/. out; diff -r over out");
    shell(dir.path(), "rm -rf out; mkdir out; $N cp -q -r i.img:/. b.img:/. out; diff -r base out");
    // A host source between two image sources keeps its place in the order.
    shell(
        dir.path(),
        "$N mkfs -q c.img 300m; $N cp -q -a b.img:/. over/. c.img:/; \
        rm -rf out; $N cp -q -r c.img:/. out; diff -r over out",
    );
}

/// An inode with several names in the target gets the contents of exactly one source.
#[test]
fn hard_links_of_the_target_hold_one_source() {
    let dir = scratch();
    shell(
        dir.path(),
        "mkdir src out; for k in 1 2 3 4 5 6; do \
        head -c $((9000000 + k * 1000000)) /dev/zero | tr '\\0' $k > src/f$k; done",
    );
    let whole = "ok=0; for k in 1 2 3 4 5 6; do cmp -s $F src/f$k && ok=1; done; [ $ok = 1 ]";
    for _ in 0..3 {
        shell(
            dir.path(),
            "rm -f i.img; $N mkfs -q i.img 200m; echo > one; $N cp -q one i.img:/f1; \
            for k in 2 3 4 5 6; do $N ln i.img:/f1 i.img:/f$k; done; $N cp -q -r src/. i.img:/; \
            rm -rf out; $N cp -q -r i.img:/. out; e2fsck -fn i.img > /dev/null 2>&1",
        );
        shell(dir.path(), &format!("F=out/f1; {whole}"));
        shell(dir.path(), "for k in 2 3 4 5 6; do cmp out/f1 out/f$k; done");
        // The same on the host.
        shell(
            dir.path(),
            "rm -rf h s.img; mkdir h; echo > h/f1; \
            for k in 2 3 4 5 6; do ln h/f1 h/f$k; done; $N mkfs -q -d src s.img 200m; \
            $N cp -q -r s.img:/. h; [ $(stat -c %h h/f1) = 6 ]",
        );
        shell(dir.path(), &format!("F=h/f1; {whole}"));
    }
}

/// As by cp(1), pipes and devices are opened and written, and not replaced.
#[test]
fn pipes_and_devices_are_written() {
    let dir = scratch();
    let top = dir.path();
    shell(
        top,
        "head -c 3000000 /dev/urandom > f; truncate -s 3500000 f; head -c 100 f >> f; \
        $N mkfs -q -d f i.img 64m 2> /dev/null || { $N mkfs -q i.img 64m; $N cp -q f i.img:/f; }",
    );
    let image = top.join("i.img");
    // A pipe, by its name and as /dev/stdout.
    shell(
        top,
        "mkfifo pipe; cat pipe > got & $N cp -q i.img:/f pipe; wait; cmp f got; [ -p pipe ]",
    );
    shell(top, "$N cp -q i.img:/f /dev/stdout | cmp - f");
    shell(top, "$N cp -q i.img:/f /dev/stdout > to; cmp to f");
    let mut child = nextent()
        .args(["cp", "-q", &inside(&image, "/f"), "/proc/self/fd/1"])
        .stdout(Stdio::piped())
        .spawn()
        .expect("the command was built");
    let mut got = Vec::new();
    child.stdout.take().expect("it is a pipe").read_to_end(&mut got).expect("it can be read");
    assert!(child.wait().expect("it ends").success());
    assert_eq!(got, std::fs::read(top.join("f")).expect("it was made above"));
    // A device node of this test, not the machine's.
    let null = top.join("null");
    let made = std::process::Command::new("mknod").arg(&null).args(["c", "1", "3"]).status();
    if !made.is_ok_and(|status| status.success()) {
        return println!("skipped: no mknod");
    }
    for option in ["-q", "-p"] {
        works(&["cp", option, &inside(&image, "/f"), &null.display().to_string()]);
        let stat = std::fs::symlink_metadata(&null).expect("it is still there");
        assert!(stat.file_type().is_char_device(), "{option}");
        assert_eq!(stat.rdev(), 0x103);
    }
    // A pipe below a directory, and one in an image, where no program would read it, are kept.
    shell(
        top,
        "mkdir d; mknod d/f c 1 3; $N cp -q i.img:/f d; [ -c d/f ]; \
        mkdir n; mknod n/f p; $N mkfs -q -d n p.img 16m",
    );
    let output = run(&[
        "cp",
        "-q",
        &top.join("f").display().to_string(),
        &format!("{}:/f", top.join("p.img").display()),
    ]);
    assert_eq!(output.status.code(), Some(1));
    shell(top, "$N stat p.img:/f | grep -q -i fifo");
    e2fs::assert_clean(&top.join("p.img"));
}

/// As by cp(1), a link that the user names as the target is written through, except a dangling one.
#[test]
fn a_link_as_the_target_is_written_through() {
    let dir = scratch();
    let top = dir.path();
    shell(
        top,
        "echo new > f; $N mkfs -q i.img 16m; $N mkdir i.img:/d; $N cp -q f i.img:/d/old; \
        $N ln -s d/old i.img:/link; $N ln -s nothing i.img:/dangling; $N ln -s link i.img:/second",
    );
    shell(
        top,
        "echo newer > f; $N cp -q f i.img:/second; [ \"$($N cat i.img:/d/old)\" = newer ]; \
        $N stat i.img:/link | grep -q -i link; $N stat i.img:/second | grep -q -i link",
    );
    fails(
        &[
            "cp",
            "-q",
            &top.join("f").display().to_string(),
            &inside(&top.join("i.img"), "/dangling"),
        ],
        1,
        "a dangling link",
    );
    shell(
        top,
        "mkdir o; echo x > o/old; ln -s old o/link; ln -s nothing o/dangling; \
        $N cp -q i.img:/d/old o/link; [ $(cat o/old) = newer ]; [ -L o/link ]",
    );
    fails(
        &[
            "cp",
            "-q",
            &inside(&top.join("i.img"), "/d/old"),
            &top.join("o/dangling").display().to_string(),
        ],
        1,
        "a dangling link",
    );
    // A link that is copied as a link replaces the link.
    shell(
        top,
        "$N cp -q -r i.img:/link o/link; [ \"$(readlink o/link)\" = d/old ]; \
            [ $(cat o/old) = newer ]",
    );
}

/// A copy of a file onto itself, by any names, is refused and changes nothing.
#[test]
fn copies_onto_themselves_are_refused() {
    let dir = scratch();
    let top = dir.path();
    shell(
        top,
        "echo data > f; $N mkfs -q i.img 16m; $N mkdir i.img:/d; $N cp -q f i.img:/d/f; \
        $N ln i.img:/d/f i.img:/hard; $N ln -s d/f i.img:/soft; $N ln -s d i.img:/dir",
    );
    let image = top.join("i.img");
    for (from, to, words) in [
        ("/d/f", "/d/f", "same file"),
        ("/d/f", "/hard", "same file"),
        ("/hard", "/d/f", "same file"),
        ("/d/f", "/soft", "same file"),
        ("/soft", "/d/f", "that the link leads to"),
        ("/d/f", "/dir/f", "same file"),
        ("/d/f", "/d/../d/f", "same file"),
        ("/d", "/", "same directory"),
        ("/d", "/d", "into itself"),
        ("/d", "/dir", "into itself"),
    ] {
        fails(&["cp", "-q", "-r", &inside(&image, from), &inside(&image, to)], 1, words);
        shell(top, "[ $($N cat i.img:/d/f) = data ]");
    }
    // The image file as the target of a file in it.
    fails(&["cp", "-q", &inside(&image, "/d/f"), &image.display().to_string()], 1, "being used");
    shell(top, "ln -s i.img alias; mkdir h; ln i.img h/f");
    fails(
        &["cp", "-q", &inside(&image, "/d/f"), &top.join("alias").display().to_string()],
        1,
        "being used",
    );
    fails(
        &["cp", "-q", &inside(&image, "/d/f"), &top.join("h").display().to_string()],
        1,
        "being used",
    );
    shell(top, "[ $($N cat i.img:/d/f) = data ]; e2fsck -fn i.img > /dev/null 2>&1");
}

/// Owner, mode, access lists, capabilities and times are all kept; inherited lists are removed.
#[test]
fn all_attributes_are_kept() {
    let dir = scratch();
    let top = dir.path();
    shell(
        top,
        "mkdir src src/sub; echo x > src/cap; echo y > src/sub/plain; \
        chown 1000:1000 src/cap; chmod 4755 src/cap; chmod 660 src/sub/plain; \
        touch -d '2001-02-03 04:05:06.789' src/cap src/sub/plain",
    );
    let cap = "0sAQAAAgAgAAAAAAAAAAAAAAAAAAA=";
    let set = format!("setfattr -n security.capability -v {cap} src/cap");
    let host = std::process::Command::new("bash").current_dir(top).args(["-c", &set]).status();
    if !host.is_ok_and(|status| status.success()) {
        return println!("skipped: no security.capability on this host");
    }
    shell(
        top,
        "touch -d '2001-02-03 04:05:06.789' src/cap src/sub src; \
            tar -C src --xattrs --xattrs-include='*' -c -f s.tar .",
    );
    let image = need!(mke2fs(top, "i.img", EXT4));
    // The target has a default list, and files with their own lists.
    {
        let mount = need!(KernelMount::new(&image, Access::ReadWrite));
        let at = mount.join(".").display().to_string();
        shell(
            top,
            &format!(
                "mkdir {at}/t {at}/u; setfacl -d -m u:1001:rwx {at}/t {at}/u; \
            mkdir {at}/t/sub; echo old > {at}/t/sub/plain; setfacl -m u:1001:rwx {at}/t/sub/plain"
            ),
        );
        mount.unmount();
    }
    works(&["cp", "-q", "-a", &top.join("src/.").display().to_string(), &inside(&image, "/t")]);
    shell(top, "$N tar -q -x i.img:/u < s.tar; $N mkdir i.img:/v; $N cp -q -a i.img:/t/. i.img:/v");
    shell(top, "mkdir out; setfacl -d -m u:1001:rwx out; $N cp -q -a i.img:/v/. out");
    let check = "for d in $DIRS; do \
        [ \"$(stat -c '%u %g %a %y' $d/cap)\" = \"$(stat -c '%u %g %a %y' src/cap)\" ] || echo \
            $d: cap; \
        [ \"$(getfattr -e base64 --only-values -n security.capability $d/cap 2> /dev/null | \
            base64)\" = \
          \"$(getfattr --only-values -n security.capability src/cap | base64)\" ] || echo $d: \
              capability; \
        [ \"$(stat -c '%a %y' $d/sub/plain)\" = \"$(stat -c '%a %y' src/sub/plain)\" ] || echo \
            $d: plain; \
        getfacl -p $d/sub/plain $d/cap $d/sub 2> /dev/null | grep 1001 && echo $d: a list; done; \
            true";
    {
        let mount = need!(KernelMount::new(&image, Access::ReadOnly));
        let at = mount.join(".").display().to_string();
        shell(top, &format!("DIRS='{at}/t {at}/u {at}/v out'; {check}"));
        mount.unmount();
    }
    e2fs::assert_clean(&image);
}

/// A command closes the image after any error, so that it needs no recovery.
#[test]
fn a_failed_copy_leaves_nothing_to_recover() {
    let dir = scratch();
    let top = dir.path();
    shell(
        top,
        "$N mkfs -q i.img 16m; echo x > f; head -c 30000000 /dev/zero > big; echo text > other",
    );
    let image = top.join("i.img").display().to_string();
    let clean = || {
        shell(
            top,
            "dumpe2fs -h i.img 2> /dev/null | grep -q needs_recovery && echo not closed; true",
        );
        e2fs::assert_clean(&top.join("i.img"));
    };
    let path = |name: &str| top.join(name).display().to_string();
    for args in [
        vec!["cp", "-q", "-r", &path("missing"), &format!("{image}:/")],
        vec!["cp", "-q", &path("f"), &format!("{image}:/no/such")],
        vec!["cp", "-q", &path("f"), &path("f"), &format!("{image}:/new")],
        vec!["cp", "-q", &path("big"), &format!("{image}:/")],
        vec!["cp", "-q", &format!("{}:/f", path("other")), &format!("{image}:/")],
        vec!["rm", &format!("{image}:/none")],
        vec!["mv", &format!("{image}:/none"), &format!("{image}:/x")],
    ] {
        let output = run(&args);
        assert!(!output.status.success(), "{args:?}");
        clean();
    }
}
