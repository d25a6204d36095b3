//! Tar streams of various writers: the result is that of GNU tar. Attributes that cannot be kept
//! are named, and the rest of the stream is unpacked.

use crate::support::{as_gnu_tar, extract, make, shell};
use nextent_testkit::{Access, KernelMount, e2fs, need};
use std::path::Path;

#[test]
fn headers_are_read_as_by_gnu_tar() {
    let dir = tempfile::tempdir().expect("the temporary directory can be written");
    make(
        dir.path(),
        "out('a.tar', h(b'dir/', b'0', 0, mode=b'0000755\\0'), f(b'dir/f'), h(b'd2/', b'\\0', 0, \
            mode=b'0000755\\0'), f(b'd2/f'))
out('b.tar', f(b'blank', ids=b' '*16), f(b'zero', ids=b'\\0'*16), f(b'lead', ids=b'   144 \\0   \
    145 \\0'), \
    h(b'null', b'3', 0, dev=b'\\0'*16), f(b'last', mode=b'   644 \\0'))
out('c.tar', f(b'big', ids=b256(3000000000)+b256(4294967294)), f(b'old', mtime=b256(-86400, 12)), \
    f(b'k\\xc3\\xa4se', signed=True), f(b'v7', magic=b'\\0'*8))
out('d.tar', x((b'uid', b'1234'), (b'mtime', b'1.5'), typ=b'g'), f(b'one'), x((b'path', \
    b'renamed')), f(b'two'), f(b'three'))
out('e.tar', h(b'././@LongLink', b'L', 151) + b'n'*150 + b'\\0'*362, f(b'n'*99), \
    h(b'././@LongLink', b'K', 151) + b'n'*150 + b'\\0'*362, h(b'link', b'2', 0, link=b'n'*99, \
        mode=b'0000777\\0'))",
    );
    for stream in ["a.tar", "b.tar", "c.tar", "d.tar", "e.tar"] {
        as_gnu_tar(dir.path(), stream);
    }
    // GNU's incremental archives have entries of type D, with a list of names as contents.
    shell(
        dir.path(),
        "mkdir -p src/sub; echo one > src/one; echo two > src/sub/two; \
        tar -C src -c -f inc.tar --listed-incremental=snar .; grep -c . inc.tar > /dev/null",
    );
    as_gnu_tar(dir.path(), "inc.tar");
    for format in ["v7", "oldgnu", "gnu", "ustar", "pax"] {
        shell(dir.path(), &format!("tar -C src -c -f f.tar --format={format} ."));
        as_gnu_tar(dir.path(), "f.tar");
    }
}

/// Streams are unpacked by their contents, also if they have several parts.
#[test]
fn packed_streams_are_read_as_by_gnu_tar() {
    let dir = tempfile::tempdir().expect("the temporary directory can be written");
    shell(
        dir.path(),
        "mkdir -p src/sub; seq 90000 > src/one; echo two > src/sub/two; tar -C src -cf a.tar .; \
        for tool in gzip zstd; do command -v $tool > /dev/null || exit 0; \
        { head -c 300k a.tar | $tool -c; tail -c +307201 a.tar | $tool -c; } > a.$tool; done",
    );
    for stream in ["a.gzip", "a.zstd"] {
        if dir.path().join(stream).exists() {
            as_gnu_tar(dir.path(), stream);
        }
    }
}

/// An entry with a number that an inode cannot hold is refused and named; the rest is unpacked.
#[test]
fn numbers_that_do_not_fit_refuse_their_entry() {
    let dir = tempfile::tempdir().expect("the temporary directory can be written");
    make(
        dir.path(),
        "bad = [f(b'bad', ids=b256(1<<32)+b'0000000\\0'), f(b'bad', \
            ids=b'0000000\\0'+b256(1<<40)), \
    f(b'bad', ids=b256(-1)+b'0000000\\0'), f(b'bad', mtime=b256(1<<40, 12)), f(b'bad', \
        mtime=b256(-(1<<40), 12)), \
    h(b'bad', b'3', 0, dev=b256(1<<13)+b'0000000\\0'), h(b'bad', b'4', 0, \
        dev=b'0000000\\0'+b256(1<<21)), \
    f(b'bad', ids=b'12a4567\\0'*2), x((b'uid', b'4294967296')) + f(b'bad'), x((b'gid', b'-1')) + \
        f(b'bad'), \
    x((b'mtime', b'99999999999999')) + f(b'bad'), x((b'mtime', b'x')) + f(b'bad')]
for n, b in enumerate(bad): out('%d.tar' % n, f(b'before'), b, f(b'after', b'there'))",
    );
    for n in 0..12 {
        let (said, code) = extract(dir.path(), &format!("{n}.tar"));
        assert_eq!(code, Some(1), "{n}: {said}");
        assert_eq!(said.lines().count(), 1, "{n}: {said}");
        assert!(said.contains(" bad: its "), "{n}: {said}");
        shell(
            dir.path(),
            "[ $($N cat i.img:/after) = there ]; ! $N stat i.img:/bad > /dev/null 2>&1",
        );
    }
}

/// Attributes in all forms of records are kept, and one that ext4 cannot store is reported.
#[test]
fn attributes_of_all_records_are_kept() {
    let dir = tempfile::tempdir().expect("the temporary directory can be written");
    let top = dir.path();
    make(
        top,
        "acl = b'user::rw-\\nuser:1000:rwx\\ngroup::r--\\nmask::rwx\\nother::r--\\n'
star = b'user::rw-,user:joe:rwx:1000,group::r--,mask::rwx,other::r--'
dacl = b'user::rwx,group::r-x,group:7:rwx,mask::rwx,other::---'
out('a.tar', x((b'SCHILY.acl.access', acl)), f(b'gnu', mode=b'0000674\\0'), \
    x((b'SCHILY.acl.access', star)), \
    f(b'star', mode=b'0000674\\0'), x((b'SCHILY.acl.default', dacl)), h(b'dir', b'5', 0, \
        mode=b'0000755\\0'), \
    x((b'RHT.security.selinux', b'u:object_r:bin_t:s0')), f(b'label'), \
    x((b'LIBARCHIVE.xattr.user.b', b'AAH/'), (b'SCHILY.xattr.user.c', b'text')), f(b'bsd'))
out('names.tar', x((b'SCHILY.acl.access', \
    b'user::rw-,user:joe:rwx,group::r--,mask::rwx,other::r--')), f(b'f'), f(b'g'))
out('mac.tar', x((b'SCHILY.xattr.com.apple.provenance', b'abc'), (b'LIBARCHIVE.creationtime', \
    b'1')), f(b'f'), \
    x((b'SCHILY.xattr.com.apple.provenance', b'abc')), f(b'g'), f(b'._f'))
out('type.tar', h(b'odd', b'c', 3) + b'abc' + b'\\0'*509, f(b'g'))",
    );
    let (said, code) = extract(top, "a.tar");
    assert_eq!((said.as_str(), code), ("", Some(0)));
    let mount = need!(KernelMount::new(&top.join("i.img"), Access::ReadOnly));
    let at = mount.join(".").display().to_string();
    let list = format!(
        "getfacl -p -n {at}/gnu | grep -q ^user:1000:rwx; \
            getfacl -p -n {at}/star | grep -q ^user:1000:rwx; \
        getfacl -p -n {at}/dir | grep -q ^default:group:7:rwx; \
        [ \"$(getfattr --absolute-names --only-values -n user.b {at}/bsd | xxd -p)\" = 0001ff ]; \
        [ \"$(getfattr --absolute-names --only-values -n user.c {at}/bsd)\" = text ]"
    );
    let listed = std::panic::catch_unwind(|| {
        shell(
            top,
            &format!("set -e; {}", list.replace(" | xxd -p", " | od -An -tx1 | tr -d ' \\n'")),
        )
    });
    mount.unmount();
    listed.expect("all attributes are there");
    shell(top, "debugfs -R 'ea_get -V /label security.selinux' i.img 2> /dev/null | grep -q bin_t");
    for (stream, code, words) in [
        ("names.tar", 1, "joe"),
        ("mac.tar", 0, "com.apple.provenance"),
        ("type.tar", 0, "type 'c'"),
    ] {
        let (said, got) = extract(top, stream);
        assert_eq!(got, Some(code), "{stream}: {said}");
        assert!(said.contains(words) && said.lines().count() == 1, "{stream}: {said}");
        shell(top, "[ $($N cat i.img:/g) = abc ]");
    }
}

/// A directory without an entry does not inherit set-group-id from a directory whose entry has it.
#[test]
fn set_group_id_comes_last() {
    let dir = tempfile::tempdir().expect("the temporary directory can be written");
    let top = dir.path();
    shell(
        top,
        "mkdir -p s/d/e; echo > s/d/e/f; chown 0:100 s/d; chmod 2755 s/d; umask 022; \
        tar -C s --no-recursion -c -f a.tar d d/e/f; mkdir theirs; tar -x -p -f a.tar -C theirs; \
        $N mkfs -q -d a.tar new.img 16m; $N mkfs -q old.img 16m; $N tar -q -x old.img:/ < a.tar",
    );
    let list = "find d -printf '%p %m %U:%G\\n' | sort";
    shell(&top.join("theirs"), &format!("{list} > ../want"));
    for image in ["new.img", "old.img"] {
        e2fs::assert_clean(&top.join(image));
        let mount = need!(KernelMount::new(&top.join(image), Access::ReadOnly));
        shell(mount.path(), &format!("{list} | diff {}/want -", top.display()));
        mount.unmount();
    }
}

/// Access lists of directories without an entry, and of directories for which GNU tar writes an
/// empty default list; attribute names that it escapes.
#[test]
fn attributes_of_gnu_tar_are_kept() {
    let dir = tempfile::tempdir().expect("the temporary directory can be written");
    let top = dir.path();
    shell(
        top,
        "mkdir -p s/d/e; echo > s/d/e/f; setfacl -m u:70000:rwx,g:7:r s/d s/d/e/f; \
        setfacl -d -m g:70000:rx s/d/e; setfattr -n user.%25 -v a s/d; \
        setfattr -n user.a=%b -v c s/d/e/f; \
        tar -C s -c -f a.tar --format=pax --acls --xattrs '--xattrs-include=*' d; \
        tar -C s -c -f b.tar --format=pax d/e/f",
    );
    let list = "cd $D; getfacl -R -n . ; getfattr -R -d -m '^user' . | sort";
    let listed = |at: &Path| {
        let mut bash = std::process::Command::new("bash");
        let output = bash.env("D", at).args(["-c", list]).output().expect("there is a bash");
        String::from_utf8(output.stdout).expect("it is text")
    };
    for stream in ["a.tar", "b.tar"] {
        // The top has a default list, which the unpacked files must not inherit.
        let setup = "rm -f t.img o.img; truncate -s 32M t.img; mke2fs -q -F -t ext4 t.img";
        shell(top, setup);
        let mount = need!(KernelMount::new(&top.join("t.img"), Access::ReadWrite));
        shell(mount.path(), "setfacl -d -m u:1:rwx,o::- .; chmod 2755 .");
        mount.unmount();
        shell(top, "cp t.img o.img");
        let mount = need!(KernelMount::new(&top.join("t.img"), Access::ReadWrite));
        shell(
            top,
            &format!(
                "tar -x -p -f {stream} -C {} --acls --xattrs '--xattrs-include=*'",
                mount.path().display()
            ),
        );
        let want = listed(mount.path());
        mount.unmount();
        shell(top, &format!("$N tar -q -x o.img:/ < {stream}"));
        e2fs::assert_clean(&top.join("o.img"));
        let mount = need!(KernelMount::new(&top.join("o.img"), Access::ReadOnly));
        assert_eq!(listed(mount.path()), want, "{stream}");
        mount.unmount();
        // In the other direction.
        shell(
            top,
            "rm -rf out; mkdir out; $N tar -q -c o.img:/d > c.tar; \
            tar -x -p -f c.tar -C out --acls --xattrs '--xattrs-include=*'",
        );
        let mount = need!(KernelMount::new(&top.join("o.img"), Access::ReadOnly));
        assert_eq!(listed(&top.join("out")), listed(&mount.join("d")), "{stream}");
        mount.unmount();
    }
}
