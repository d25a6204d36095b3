//! `touch`, `mknod`, `setxattr` and `getxattr`, compared with coreutils and attr on a mount of the
//! kernel's ext4.

use super::{Image, shell};
use nextent_testkit::{Access, KernelMount, e2fs, need};
use std::path::Path;
use std::process::Command;

/// Each case runs with coreutils and with this program; success and results are compared. `@`
/// begins a path on the volume. `f` is a file, `d` a directory, `l` a link to `f`, `dang` a
/// dangling one to `d/made`, and `host` a file of the host.
const CASES: &str = "\
touch -d 2001-02-03T04:05:06Z @new
touch -t 200102030405.06 @f
touch -a -d @5 @f
touch -m -d @6.5 @d
touch -h -d @7 @l
touch -d @-8 @l
touch -c @none
touch -h @none
touch -c -h @none
touch @dang
touch @none/x
touch @new2/
touch @d/
touch -d @9 @f/
touch -r host @d/of_host
touch -r none @f
touch -d 2000-02-30 @f
touch -d @10 @a @none/x @b
mknod @null c 1 3
mknod -m 600 @b1 b 0x8 010
mknod -m u=rw,go= @b2 b 8 1
mknod @u u 259 70000
mknod @p p
mknod @p p
mknod @d p
mknod @p2 p 1 2
mknod @c1 c
mknod @c1 c 1
mknod @c1 c x 1
mknod @x q 1 2
mknod -m 4755 @x p
mknod @x/ p
mknod @none/x p
mknod @dang p";

/// Names, kinds, modes, device numbers and those times that a case has set.
const LIST: &str = "find . -name 'lost+found' -prune -o -exec stat -c '%n %F %a %t:%T %N' {} + \
    | sort; find . ! -name . -printf '%P %A@ %T@\\n' | sort \
    | awk '{ print $1, ($2 > 1600000000 ? \"now\" : $2), ($3 > 1600000000 ? \"now\" : $3) }'";

fn runs(dir: &Path, line: &str) -> bool {
    let mut command = Command::new("bash");
    command.current_dir(dir).env("N", env!("CARGO_BIN_EXE_nextent")).env("TZ", "UTC");
    command.args(["-c", &format!("umask 022; {line}")]).output().unwrap().status.success()
}

fn output(dir: &Path, line: &str) -> String {
    let output = Command::new("bash").current_dir(dir).args(["-c", line]).output().unwrap();
    assert!(output.status.success(), "{line}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8_lossy(&output.stdout).into_owned()
}

#[test]
fn touch_and_mknod_are_those_of_coreutils() {
    let image = Image::new();
    let dir = image.dir.path();
    shell(
        &image,
        "mkdir s s/d; echo f > s/f; ln -s f s/l; ln -s d/made s/dang; \
         touch -a -d @123.5 host; touch -m -d @456 host; \
         TZ=UTC touch -h -d 2000-01-01 s/* s; $N mkfs -q -d s $i 64m; cp $i theirs",
    );
    let mount = need!(KernelMount::with_options(&dir.join("theirs"), Access::ReadWrite, "noatime"));
    for case in CASES.lines() {
        let at = format!("{}/", mount.path().display());
        let theirs = runs(dir, &case.replace('@', &at).replace(&format!("-d {at}"), "-d @"));
        let case = case.replace('@', "image:/").replace("-d image:/", "-d @");
        assert_eq!(runs(dir, &format!("$N {case}")), theirs, "{case}");
    }
    let theirs = output(mount.path(), LIST);
    mount.unmount();
    e2fs::assert_clean(&image.path());
    let mount = need!(KernelMount::with_options(&image.path(), Access::ReadOnly, "noatime"));
    let ours = output(mount.path(), LIST);
    mount.unmount();
    for (ours, theirs) in ours.lines().zip(theirs.lines()) {
        assert_eq!(ours, theirs);
    }
    assert_eq!(ours.lines().count(), theirs.lines().count());
}

/// An access list: owner, user 2, group, mask, others.
const ACL: &str = "0x0200000001000600ffffffff020004000700000004000400ffffffff10000600ffffffff\
    20000400ffffffff";

/// Options of both programs that set and remove attributes, and the values in the form of
/// setfattr(1).
const ATTRIBUTES: [(&str, &str, &str); 14] = [
    ("f", "user.text", "plain"),
    ("f", "user.empty", "\"\""),
    ("f", "user.quoted", "'\"a\\\"b\\\\c\\012\"'"),
    ("f", "user.hex", "0x00ff10"),
    ("f", "user.base", "0sAAECAw=="),
    ("f", "trusted.t", "t"),
    ("f", "security.s", "s"),
    ("d", "user.dir", "x"),
    ("l", "user.through", "x"),
    ("f", "system.posix_acl_access", ACL),
    ("f", "nospace", "x"),
    ("f", "other.name", "x"),
    ("f", "system.posix_acl_access", "0x00"),
    ("p", "user.of_pipe", "x"),
];

#[test]
fn attributes_are_those_of_setfattr() {
    let image = Image::new();
    let dir = image.dir.path();
    shell(
        &image,
        "mkdir s s/d; echo f > s/f; ln -s f s/l; mkfifo s/p; $N mkfs -q -d s $i 64m; cp $i theirs",
    );
    let mount = need!(KernelMount::new(&dir.join("theirs"), Access::ReadWrite));
    if !runs(dir, "command -v setfattr getfattr > /dev/null") {
        return println!("skipped: no attr");
    }
    let top = mount.path().display().to_string();
    for (path, name, value) in ATTRIBUTES {
        let theirs = runs(dir, &format!("setfattr -n {name} -v {value} {top}/{path}"));
        let ours = runs(dir, &format!("$N setxattr image:/{path} {name} {value}"));
        assert_eq!(ours, theirs, "{name} {value}");
    }
    for (path, name) in [("f", "user.text"), ("f", "user.text"), ("l", "user.through")] {
        let theirs = runs(dir, &format!("setfattr -x {name} {top}/{path}"));
        let ours = runs(dir, &format!("$N setxattr -x {name} image:/{path}"));
        assert_eq!(ours, theirs, "-x {name}");
    }
    // A link has attributes of its own in some namespaces.
    for (name, works) in [("trusted.l", true), ("user.l", false)] {
        assert_eq!(runs(dir, &format!("setfattr -h -n {name} -v 1 {top}/l")), works);
        assert_eq!(runs(dir, &format!("$N setxattr -h image:/l {name} 1")), works);
    }
    let all = "getfattr -h -d -m - -e hex f d l p | sort";
    let theirs = output(mount.path(), all);
    mount.unmount();
    e2fs::assert_clean(&image.path());
    let mount = need!(KernelMount::new(&image.path(), Access::ReadOnly));
    assert_eq!(output(mount.path(), all), theirs);
    // This program shows what getfattr shows.
    for form in ["-e hex", "-e base64", "-e text"] {
        for path in ["f", "d", "l"] {
            let theirs = output(mount.path(), &format!("getfattr -h -d -m - {form} {path}"));
            let ours = image.ok(&[
                "getxattr",
                "-h",
                "-d",
                &form.replace("-e ", "--encoding="),
                &format!("IMAGE:/{path}"),
            ]);
            let ours = ours.replace(&format!("{}:/", image.path().display()), "");
            let lines = |text: &str| {
                let mut lines: Vec<String> = text.lines().map(str::to_owned).collect();
                lines.sort();
                lines
            };
            // getfattr leaves line feeds as they are in text.
            if form != "-e text" || !theirs.contains("user.quoted") {
                assert_eq!(lines(&ours), lines(&theirs), "{form} {path}");
            }
        }
    }
    mount.unmount();
}

#[test]
fn attributes_are_shown_in_every_form() {
    let image = Image::new();
    image.ok(&["touch", "IMAGE:/f", "IMAGE:/g"]);
    assert_eq!(image.ok(&["getxattr", "-d", "IMAGE:/f"]), "");
    image.ok(&["setxattr", "IMAGE:/f", "user.b", "0x00ff"]);
    image.ok(&["setxattr", "IMAGE:/f", "user.a", "-text \"quoted\""]);
    let path = format!("{}:/f", image.path().display());
    assert_eq!(image.ok(&["getxattr", "IMAGE:/f"]), format!("# file: {path}\nuser.a\nuser.b\n\n"));
    assert_eq!(
        image.ok(&["getxattr", "-d", "IMAGE:/f"]),
        format!("# file: {path}\nuser.a=\"-text \\\"quoted\\\"\"\nuser.b=0sAP8=\n\n")
    );
    assert_eq!(
        image.ok(&["getxattr", "-n", "user.b", "-e", "hex", "IMAGE:/f"]),
        format!("# file: {path}\nuser.b=0x00ff\n\n")
    );
    assert_eq!(
        image.run(&["getxattr", "--only-values", "-n", "user.b", "IMAGE:/f"]).stdout,
        [0, 255]
    );
    let text = image.ok(&["getxattr", "--json", "-d", "IMAGE:/f"]);
    let json: serde_json::Value = serde_json::from_str(&text).unwrap();
    assert_eq!(
        json[0]["xattrs"],
        serde_json::json!([
            {"name": "user.a", "encoding": "text", "value": "-text \"quoted\""},
            {"name": "user.b", "encoding": "base64", "value": "AP8="}
        ])
    );
    let text = image.fails(&["getxattr", "-n", "user.c", "IMAGE:/f"], 1);
    assert!(text.contains("user.c: no such attribute"), "{text}");
    let text = image.fails(&["setxattr", "IMAGE:/f", "user.c", "0xabc"], 2);
    assert!(text.contains("0xabc"), "{text}");
    image.fails(&["setxattr", "IMAGE:/f", "user.c"], 2);
    // Arguments after one that fails.
    let output = image.run(&["setxattr", "-x", "user.a", "IMAGE:/none", "IMAGE:/g", "IMAGE:/f"]);
    assert_eq!(output.status.code(), Some(1));
    assert_eq!(String::from_utf8_lossy(&output.stderr).lines().count(), 2);
    assert_eq!(image.ok(&["getxattr", "IMAGE:/f"]), format!("# file: {path}\nuser.b\n\n"));
    let output = image.run(&["setxattr", "IMAGE:/f", "bad", "x"]);
    let text = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.code() == Some(1) && text.contains("namespace"), "{text}");
    e2fs::assert_clean(&image.path());
}
