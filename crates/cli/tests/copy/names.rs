//! Names and targets that no file can have, in images with hand-written directory blocks. They are
//! not copied to the host, a stream or another image; all other files are.

use crate::support::{as_gnu_tar, run, shell};
use nextent_testkit::e2fs;
use std::path::Path;
use std::process::Output;

/// Makes an image with `good`, `dir/good` and damaged entries at the top. The names have fixed
/// lengths and are overwritten in place; the image has no checksums.
fn hostile(dir: &Path) {
    let names = "mkdir src src/dir src/Qd src/Qd/inner; echo good > src/good; cp src/good src/dir; \
        for f in Q Qz Qz_1 Qz_2 Qz_34567 Qz_esc1; do echo bad > src/$f; done; \
        ln -s TARGETz1 src/link-zero; ln -s TARGETz2 src/link-good; \
        ln src/Qz_1 src/zz-first-good; \
        $N mkfs -q -O ^metadata_csum,^inline_data -d src i.img 16m";
    shell(dir, names);
    let patch = r"python3 - <<'P'
b = open('i.img', 'rb').read()
def entry(old, new, kind=1):
    global b
    # The length of the name, its kind, the name.
    was = bytes([len(old), kind]) + old
    assert was in b, old
    b = b.replace(was, bytes([len(new), kind]) + new)
entry(b'Q', b'.')
entry(b'Qz', b'..')
entry(b'Qd', b'..', kind=2)
entry(b'Qz_1', b'../x')
entry(b'Qz_2', b'/abs')
entry(b'Qz_34567', b'cut\0here')
entry(b'Qz_esc1', b'\x1b[2J\x07/\n')
assert b.count(b'TARGETz1') == 1
b = b.replace(b'TARGETz1', b'TARG\0Tz1')
open('i.img', 'wb').write(b)
P";
    shell(dir, patch);
}

/// Checks that the command failed and named each damaged entry on a line of plain text.
#[track_caller]
fn refused(output: &Output) {
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{said}");
    let plain = |byte: &u8| *byte == b'\n' || (0x20..0x7f).contains(byte);
    assert!(output.stderr.iter().all(plain), "{said:?}");
    for name in [
        "'..\\x2fx'",
        "'\\x2fabs'",
        "'cut\\u{0}here'",
        "'\\u{1b}[2J\\u{7}\\x2f\\n'",
        "'TARG\\u{0}Tz1'",
    ] {
        assert!(said.contains(name), "{name}: {said}");
    }
    assert_eq!(said.lines().count(), 5, "{said}");
}

/// The sound entries. The file of `../x` has only its second name left.
const GOOD: &str = "dir dir/good good link-good lost+found zz-first-good";

#[test]
fn impossible_names_are_not_copied() {
    let dir = tempfile::tempdir().expect("writable");
    let top = dir.path();
    hostile(top);
    let image = |path: &str| format!("{}:{path}", top.join("i.img").display());
    let out = top.join("a/b/out");
    let listed = |at: &str| {
        let list = format!(
            "echo lost+found > list; (cd {at} && find . -mindepth 1 -printf '%P\\n') >> list; \
             [ \"$(sort -u list | tr '\\n' ' ')\" = '{GOOD} ' ] || cat list"
        );
        shell(top, &list);
    };
    // To the host.
    shell(top, "mkdir -p a/b/out");
    for option in ["-r", "-a"] {
        refused(&run(&["cp", "-q", option, &image("/."), &out.display().to_string()]));
        listed("a/b/out");
        shell(top, "[ \"$(ls a/b)$(ls a)\" = outb ]; [ ! -e /abs ]");
    }
    // To a stream, read by GNU tar and by this program.
    let output = run(&["tar", "-q", "-c", &image("/")]);
    refused(&output);
    std::fs::write(top.join("s.tar"), &output.stdout).expect("writable");
    shell(top, "mkdir t; tar -C t -x -f s.tar; $N mkfs -q -d s.tar t.img 16m");
    listed("t");
    // To another image.
    shell(top, "$N mkfs -q o.img 16m");
    let to = format!("{}:/", top.join("o.img").display());
    refused(&run(&["cp", "-q", "-r", &image("/."), &to]));
    shell(top, "rm -rf h; $N cp -q -r o.img:/. h");
    listed("h");
    e2fs::assert_clean(&top.join("o.img"));
}

/// Listings show such a name so that it cannot be taken for a path.
#[test]
fn listings_escape_impossible_names() {
    let dir = tempfile::tempdir().expect("writable");
    hostile(dir.path());
    let image = format!("{}:/", dir.path().join("i.img").display());
    for args in [
        &["ls", "-a"][..],
        &["ls", "-l", "-a"],
        &["ls", "-a", "--json"],
        &["tree"],
        &["tree", "--json"],
    ] {
        let output = run(&[args, &[image.as_str()]].concat());
        let said = String::from_utf8(output.stdout).expect("it is text");
        // JSON doubles backslashes.
        let said = said.replace("\\\\", "\\");
        assert!(said.contains("..\\x2fx") && said.contains("\\x2fabs"), "{args:?}: {said}");
        assert!(said.contains("cut\\u{0}here") && said.contains("\\u{1b}[2J"), "{args:?}: {said}");
        assert!(!said.contains("../x") && !said.contains('\x1b'), "{args:?}: {said}");
    }
}

/// Members of a stream that lead out of the target are refused by the rules of GNU tar.
#[test]
fn members_that_lead_out_are_refused() {
    let dir = tempfile::tempdir().expect("writable");
    let top = dir.path();
    let make = "python3 - <<'P'
import tarfile, io
def f(n, b=b'x'): i = tarfile.TarInfo(n); i.size = len(b); t.addfile(i, io.BytesIO(b))
def l(n, to): i = tarfile.TarInfo(n); i.type = tarfile.LNKTYPE; i.linkname = to; t.addfile(i)
t = tarfile.open('s.tar', 'w', format=tarfile.GNU_FORMAT)
f('a'); f('d/b'); f('/abs'); f('//d//c'); f('./e/./f')
l('h1', '/abs'); l('h2', '../a'); l('h3', 'd/../a'); l('h4', '../../abs'); l('/h6', 'a')
t.close()
t = tarfile.open('bad.tar', 'w', format=tarfile.PAX_FORMAT)
f('first'); f('../up'); f('d/../e'); f('..'); l('h5', '..'); l('h8', '/'); l('h9', '')
i = tarfile.TarInfo('plain'); i.pax_headers = {'path': 'cut\\0here'}; t.addfile(i)
i = tarfile.TarInfo('zero'); i.type = tarfile.SYMTYPE; i.linkname = 'x'; \
    i.pax_headers = {'linkpath': 'to\\0here'}; t.addfile(i)
i = tarfile.TarInfo('empty'); i.type = tarfile.SYMTYPE; i.linkname = ''; t.addfile(i)
f('last')
t.close()
P";
    shell(top, make);
    as_gnu_tar(top, "s.tar");
    // Refused members are counted; the others are unpacked.
    shell(
        top,
        "rm -f i.img; $N mkfs -q i.img 16m; \
         $N tar -q -x i.img:/ < bad.tar 2> err && echo no failure; \
         [ $(wc -l < err) = 9 ] && ! grep -q invalid err || cat err; \
         [ \"$($N ls i.img:/ | tr '\\n' ' ')\" = 'first last lost+found ' ] || $N ls i.img:/",
    );
    e2fs::assert_clean(&top.join("i.img"));
}

/// An attribute name with an equals sign, at which a record's key would end.
#[test]
fn attribute_names_may_have_equals_signs() {
    let dir = tempfile::tempdir().expect("writable");
    let top = dir.path();
    let set = "mkdir src; touch src/f; setfattr -n user.a=b%3D%z -v v src/f";
    let host = std::process::Command::new("bash").current_dir(top).args(["-c", set]).status();
    if !host.is_ok_and(|status| status.success()) {
        return println!("skipped: no attributes on this host");
    }
    let has = |at: &str| {
        let read = format!("import os; assert os.getxattr('{at}/f', 'user.a=b%3D%z') == b'v'");
        shell(top, &format!("python3 -c \"{read}\""));
    };
    shell(
        top,
        "mkdir gnu ours; tar --xattrs -C src -c . | tar --xattrs -C gnu -x; \
         $N mkfs -q -d src a.img 16m; $N tar -c a.img:/ | tar --xattrs -C ours -x; \
         tar --xattrs -C src -c . | $N mkfs -q -d - b.img 16m; mkdir back; $N cp -a b.img:/. back",
    );
    has("gnu");
    has("ours");
    has("back");
}
