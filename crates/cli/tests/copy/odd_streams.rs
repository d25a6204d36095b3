//! Damaged or unusual tar streams: the result is that of GNU tar, and no contents or attributes of
//! one entry reach another.

use crate::support::{as_gnu_tar, extract, make, run, shell};

/// The attributes of a directory that is reached through a link and then replaced must not go to
/// the file that reuses its inode.
#[test]
fn attributes_of_a_replaced_directory_are_dropped() {
    let dir = tempfile::tempdir().expect("the temporary directory can be written");
    make(
        dir.path(),
        "D = dict(mode=b'0000755\\0')
wide = dict(mode=b'0000777\\0', ids=b'0001234\\0'*2)
def d(name, **k): return h(name, b'5', 0, **(D | k))
def l(name, to): return h(name, b'2', 0, link=to)
a, b = d(b'a/'), l(b'b', b'a')
secret = f(b'a/x', b'secret', mode=b'0000600\\0')
out('0.tar', a, d(b'a/x/', **wide), b, f(b'b/x', b'secret', mode=b'0000600\\0'))
out('1.tar', a, b, d(b'b/x/', **wide), secret)
out('2.tar', a, b, d(b'b/x/', **wide), secret, f(b'b/x/y'), f(b'last'))
out('3.tar', a, b, d(b'b/x/', **wide), l(b'a/x', b'q'), *[d(b's%d/' % n, mode=b'0000700\\0') \
    for n in range(9)])
out('4.tar', a, b, d(b'a/x/', mode=b'0000700\\0'), d(b'b/x/', **wide))
out('5.tar', a, b, d(b'b/x/', mode=b'0000700\\0'), d(b'a/x/', **wide))",
    );
    for n in 0..6 {
        // The second entry fails: its parent is not a directory any more.
        let stream = format!("{n}.tar");
        if n == 2 {
            let (said, code) = extract(dir.path(), &stream);
            assert_eq!((said.lines().count(), code), (1, Some(1)), "{said}");
            shell(
                dir.path(),
                "debugfs -R 'stat /a/x' i.img 2> /dev/null | grep -q 'Mode: *0600'; \
                debugfs -R 'stat /a/x' i.img 2> /dev/null | grep -q 'User: *0 '",
            );
        } else {
            as_gnu_tar(dir.path(), &stream);
        }
    }
}

/// When a link changes, paths through it are looked up again.
#[test]
fn changed_links_are_looked_up_again() {
    let dir = tempfile::tempdir().expect("the temporary directory can be written");
    make(
        dir.path(),
        "def d(name): return h(name, b'5', 0, mode=b'0000755\\0')
def l(name, to): return h(name, b'2', 0, link=to)
out('a.tar', d(b'a/'), d(b'z/'), l(b'b', b'a'), l(b'c', b'b'), f(b'c/one'), l(b'b', b'z'), \
    f(b'c/two'))
out('b.tar', d(b'a/'), d(b'a/z/'), l(b'a/in', b'z'), l(b'c', b'a'), \
    f(b'c/in/one'), d(b'a/in/'), f(b'c/in/two'))",
    );
    for stream in ["a.tar", "b.tar"] {
        as_gnu_tar(dir.path(), stream);
    }
}

/// An entry may replace the link through which its own path leads. The path is then made anew.
#[test]
fn a_link_that_is_part_of_the_path_is_replaced() {
    let dir = tempfile::tempdir().expect("the temporary directory can be written");
    make(
        dir.path(),
        "def l(name, to): return h(name, b'2', 0, link=to)
loop = l(b'e', b'.')
out('file.tar', loop, f(b'e/e', b'text'), f(b'e/f'))
out('twice.tar', loop, f(b'e/e/e', b'text'))
out('link.tar', loop, l(b'e/e', b'x'), f(b'e/f'))
out('fifo.tar', loop, h(b'e/e', b'6', 0), f(b'e/f'))
out('hard.tar', f(b'f', b'text'), loop, h(b'e/e', b'1', 0, link=b'f'), f(b'e/g'))
out('below.tar', h(b'd', b'5', 0, mode=b'0000755\\0'), l(b'd/e', b'.'), f(b'd/e/e', b'text'))",
    );
    for stream in ["file", "twice", "link", "fifo", "hard", "below"] {
        as_gnu_tar(dir.path(), &format!("{stream}.tar"));
    }
}

/// A link that leads out of the tree stays the file that its other names link to, also if it comes
/// twice, as in an archive of a tree and a part of it.
#[test]
fn a_second_link_out_of_the_tree_is_left_out() {
    let dir = tempfile::tempdir().expect("the temporary directory can be written");
    make(
        dir.path(),
        "def l(name, to): return h(name, b'2', 0, link=to)
for n, to in enumerate([b'/none', b'../x', b'a/../b', b'x']):
    out('%d.tar' % n, l(b'c', to), h(b'b', b'1', 0, link=b'c'), l(b'c', to), f(b'last'))
out('4.tar', l(b'c', b'/one'), l(b'c', b'/two'), f(b'last'))",
    );
    for n in 0..5 {
        as_gnu_tar(dir.path(), &format!("{n}.tar"));
    }
}

/// A hard link to a missing file makes no directories, which would block later entries.
#[test]
fn hard_links_to_missing_files_make_no_directories() {
    let dir = tempfile::tempdir().expect("the temporary directory can be written");
    make(
        dir.path(),
        "out('a.tar', h(b'bad', b'1', 0, link=b'd/e/f'), f(b'd', b'there'), \
    h(b'bad2', b'1', 0, link=b'd/x'), h(b'l', b'2', 0, link=b'd'), h(b'bad3', b'1', 0, \
    link=b'l/x/y'))",
    );
    let (said, code) = extract(dir.path(), "a.tar");
    assert_eq!((said.lines().count(), code), (3, Some(1)), "{said}");
    shell(dir.path(), "[ $($N cat i.img:/d) = there ]; ! $N ls i.img:/ | grep bad");
}

/// Fields that some writers leave blank or fill differently.
#[test]
fn headers_of_other_writers_are_read() {
    let dir = tempfile::tempdir().expect("the temporary directory can be written");
    make(
        dir.path(),
        "def p(name, prefix, magic, tail=b''):
    b = bytearray(f(name, magic=magic)); b[345:345+len(prefix)] = prefix
    b[508:508+len(tail)] = tail
    b[148:156] = b' ' * 8; b[148:156] = b'%06o\\0 ' % sum(b[:512]); return bytes(b)
out('a.tar', p(b'f', b'blank', b'ustar\\0  '), p(b'f', b'zero', b'ustar\\0\\0\\0'), \
    p(b'f', b'usual', b'ustar\\x0000'), p(b'f', b'star', b'ustar\\x0000', b'tar\\0'), \
    p(b'old', b'none', b'ustar  \\0'), p(b'v7', b'none', b'\\0'*8))
L = lambda typ, text: h(b'././@LongLink', typ, len(text)) + text + b'\\0' * (-len(text) % 512)
out('b.tar', L(b'L', b'abc\\0def\\0'), f(b'x'), L(b'K', b'to\\0x\\0'), h(b'l', b'2', 0), \
    L(b'L', b'long\\0'), x((b'path', b'pax')), f(b'x'), x((b'path', b'pax2')), \
    L(b'L', b'long2\\0'), f(b'x'))
out('c.tar', h(b'label', b'V', 600) + b'x' * 1024, f(b'f'))",
    );
    for stream in ["a.tar", "b.tar", "c.tar"] {
        as_gnu_tar(dir.path(), stream);
    }
}

/// POSIX: a record without a value deletes that of a global header.
#[test]
fn a_record_without_a_value_deletes_a_global_one() {
    let dir = tempfile::tempdir().expect("the temporary directory can be written");
    make(
        dir.path(),
        "out('a.tar', x((b'uid', b'77'), (b'mtime', b'5'), typ=b'g'), x((b'uid', b''), \
    (b'gid', b''), (b'mtime', b''), (b'size', b'')), f(b'f', ids=b'0000005\\0'*2), f(b'g'))",
    );
    assert_eq!(extract(dir.path(), "a.tar"), (String::new(), Some(0)));
    shell(
        dir.path(),
        "$N stat i.img:/f | grep -q 'Uid: 5 *Gid: 5'; $N stat i.img:/g | grep -q 'Uid: 77'; \
        [ $($N cat i.img:/f) = abc ]",
    );
}

/// A bad entry is refused with one line. If its length is known, the entries after it are unpacked.
#[test]
fn bad_entries_are_refused() {
    let dir = tempfile::tempdir().expect("the temporary directory can be written");
    make(
        dir.path(),
        "def sp(pieces, real, data=b'abc'):
    b = bytearray(h(b'bad', b'S', len(data), magic=b'ustar  \\0'))
    for n, (at, size) in enumerate(pieces): b[386+24*n:410+24*n] = at + size
    b[483:495] = real
    b[148:156] = b' ' * 8; b[148:156] = b'%06o\\0 ' % sum(b)
    return bytes(b) + data + b'\\0' * (-len(data) % 512)
o = lambda n: b'%011o\\0' % n
w = lambda n: b256(n, 12)
p = lambda *r: x(*r) + f(b'bad')
one = lambda text: x((b'GNU.sparse.major', b'1'), (b'GNU.sparse.minor', b'0'), \
    (b'GNU.sparse.realsize', b'90')) + f(b'bad', text.ljust(512, b'\\0') + b'abc')
size = b'GNU.sparse.size'
offset = b'GNU.sparse.offset'
number = b'GNU.sparse.numbytes'
bad = [sp([(w((1 << 64) + 512), o(3))], o(1000)), sp([(o(0), o(3))], w((1 << 64) + 1000)), \
    sp([(o(0), w((1 << 64) + 3))], o(1000)), sp([(w(-5), o(3))], o(1000)), \
    sp([(o(2000), o(3))], o(1000)), sp([(o(0), o(2)), (o(1), o(1))], o(1000)), \
    sp([(o(0), o(3))], b'12x'.ljust(12)), sp([(o(0), o(4))], o(1000)), \
    p((size, b'9'), (offset, b'8'), (number, b'3')), \
    p((size, b'90'), (offset, b'8'), (number, b'2'), (offset, b'5'), (number, b'1')), \
    one(b'1\\nx\\n3\\n'), one(b'1\\n88\\n3\\n'), one(b'2\\n0\\n3\\n1\\n0\\n'), one(b'x\\n'), \
    one(b'99999999999999999999\\n'), one(b'1' * 512), \
    h(b'bad', b'M', 3, magic=b'ustar  \\0') + b'abc' + b'\\0' * 509]
for n, b in enumerate(bad): out('%d.tar' % n, f(b'before'), b, f(b'after', b'there'))
huge = [b256((1 << 64) - 1, 12), b256(1 << 63, 12), b256(1 << 70, 12), b256(-1, 12)]
def hs(size):
    b = bytearray(h(b'bad', b'0', 0)); b[124:136] = size
    b[148:156] = b' ' * 8; b[148:156] = b'%06o\\0 ' % sum(b); return bytes(b)
ends = [hs(n) for n in huge] + [x((b'size', n)) + f(b'bad') for n in (b'18446744073709551615', \
    b'9223372036854775808', b'-1')] + [p((size, b'9223372036854775808'), (offset, b'0'), \
    (number, b'3'))] + [p((size, b'18446744073709551615'), (offset, b'18446744073709551612'), \
    (number, b'3'))]
for n, b in enumerate(ends): out('e%d.tar' % n, f(b'before'), b, f(b'after', b'there'))
most = b'9223372036854775807'
out('far.tar', p((size, most), (offset, b'9223372036854775804'), (number, b'3')), \
    f(b'after', b'there'))
open('none.tar', 'wb')",
    );
    let refused = |stream: &str| {
        let (said, code) = extract(dir.path(), stream);
        assert_eq!((said.lines().count(), code), (1, Some(1)), "{stream}: {said}");
        assert!(!said.contains("panic"), "{stream}: {said}");
        shell(dir.path(), "! dumpe2fs -h i.img 2> /dev/null | grep needs_recovery");
    };
    for n in 0..17 {
        refused(&format!("{n}.tar"));
        let after = "[ $($N cat i.img:/after) = there ]; ! $N stat i.img:/bad > /dev/null 2>&1";
        shell(dir.path(), after);
    }
    refused("far.tar");
    shell(dir.path(), "[ $($N cat i.img:/after) = there ]");
    for n in 0..9 {
        refused(&format!("e{n}.tar"));
        shell(dir.path(), "! $N stat i.img:/bad > /dev/null 2>&1");
    }
    refused("none.tar");
    shell(dir.path(), "rm -f e.img");
    let (image, none) = (dir.path().join("e.img"), dir.path().join("none.tar"));
    let args = ["mkfs".as_ref(), "-q".as_ref(), "-d".as_ref(), none.as_os_str()];
    let output = run(&[&args[..], &[image.as_os_str(), "8m".as_ref()]].concat());
    assert_eq!(output.status.code(), Some(1));
    assert!(!image.exists(), "an empty stream made an image");
}

/// Time and memory are linear in the length of a header, not quadratic.
#[test]
fn headers_of_many_parts_take_linear_time() {
    let dir = tempfile::tempdir().expect("the temporary directory can be written");
    make(
        dir.path(),
        "out('path.tar', x((b'path', b'a/' * 20000 + b'f')) + f(b'f'), x((b'path', \
    b'a/' * 19999 + b'g')) + f(b'g'))
out('attributes.tar', x(*[(b'SCHILY.xattr.user.%d' % i, b'v') for i in range(100000)]) + f(b'f'))
open('limits.py', 'w').write('''
import os, resource, subprocess, sys
code = subprocess.run([os.environ['N'], 'tar', '-q', '-x', 'i.img:/'], \
    stdin=open(sys.argv[1]), stderr=subprocess.DEVNULL, timeout=120).returncode
assert code == int(sys.argv[2]), code
used = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss >> 10
assert used < 300, used''')",
    );
    shell(
        dir.path(),
        "$N mkfs -q i.img 400m; python3 limits.py path.tar 0; \
        dumpe2fs -h i.img 2> /dev/null | grep -q 'Free inodes: *82387'; $N rm -r i.img:/a; \
        python3 limits.py attributes.tar 1; $N rm i.img:/f; e2fsck -fn i.img > /dev/null 2>&1",
    );
}
