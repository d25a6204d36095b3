//! Commands change an image as coreutils change a mounted one: same exit code, same tree. Most of
//! these cases were found by the random form of these tests, `cargo xtask differential`.

use crate::support::{mke2fs, nextent, shell, tree};
use nextent_testkit::tree::{Compare, Tree, assert_same};
use nextent_testkit::{Access, KernelMount, Skip, e2fs, need};
use std::path::Path;
use std::process::{Command, Stdio};

/// Runs a line of shell in `top` with this umask; whether it succeeded.
fn run(top: &Path, umask: &str, line: &str) -> bool {
    let mut bash = Command::new("bash");
    bash.args(["-c", &format!("umask {umask}; {line}")]).current_dir(top);
    bash.env("N", nextent().get_program()).stdin(Stdio::null());
    let output = bash.output().expect("there is a bash");
    output.status.success()
}

/// Runs `line` with coreutils and with this program, in two images prepared by `setup`. `@` is the
/// image's root; `host` has the host files that `line` reads.
#[track_caller]
fn alike(setup: &str, umask: &str, line: &str) -> Result<(), Skip> {
    let dir = tempfile::tempdir().expect("the temporary directory can be written");
    let top = dir.path();
    mke2fs(top, "theirs.img", &["-t", "ext4"])?;
    let mount = KernelMount::new(&top.join("theirs.img"), Access::ReadWrite)?;
    let at = mount.path().display().to_string();
    shell(top, &format!("mkdir host; cd {at}; {}", setup.replace("host/", &host(top))));
    mount.unmount();
    shell(top, "cp --sparse=always theirs.img ours.img");

    let mount = KernelMount::new(&top.join("theirs.img"), Access::ReadWrite)?;
    let theirs_line = line.replace('@', &mount.path().display().to_string());
    let theirs = run(top, umask, &theirs_line);
    let want = tree(mount.path());
    mount.unmount();
    let ours = run(top, umask, &format!("$N {}", line.replace('@', "ours.img:")));
    assert_eq!(ours, theirs, "{line}");
    e2fs::assert_clean(&top.join("ours.img"));
    let mount = KernelMount::new(&top.join("ours.img"), Access::ReadOnly)?;
    let got = tree(mount.path());
    mount.unmount();
    same(&want, &got);
    Ok(())
}

fn host(top: &Path) -> String {
    format!("{}/host/", top.display())
}

/// Everything except times, which differ between runs.
#[track_caller]
fn same(want: &Tree, got: &Tree) {
    assert_same(want, got, &Compare { times: false, ..Compare::default() });
}

#[test]
fn umasks_and_default_lists_apply_to_new_files() {
    let setup = "mkdir d l; chmod 2775 d; setfacl -d -m u:1000:rwx,o::- l; \
        mkdir -p host/s/t; echo > host/s/f; mkfifo host/s/p; chmod 4777 host/s/f; \
        chmod 1777 host/s/t; chmod 6666 host/s/p";
    for umask in ["022", "077", "002"] {
        for line in [
            "mkdir @/new @/d/new @/l/new",
            "mkdir -p @/a/b @/d/a/b @/l/a/b",
            "mkdir -p -m 2750 @/a/b @/l/a/b",
            "mkdir -m 1733 @/a @/d/b @/l/c",
            "truncate -s 5 @/new @/d/new @/l/new",
            "cp -r host/s @/",
            "cp -r host/s @/d",
            "cp -r host/s @/l",
            "cp host/s/f @/new",
        ] {
            need!(alike(setup, umask, line));
        }
    }
}

#[test]
fn a_slash_at_the_end_requires_a_directory() {
    let setup = "mkdir -p d e/d; echo > f; ln -s d l; mkfifo p; echo > e/d/f; ln -s c c";
    for line in [
        "mv @/f/ @/new",
        "mv @/f @/new/",
        "mv @/p @/new/",
        "mv @/d @/new/",
        "mv @/d/ @/new",
        "mv @/d @/e/",
        "ln @/f @/new/",
        "ln -s f @/new/",
        "ln @/f @/e/",
        "ln -s e/ @/d",
        "ln -s e//f// @/d",
        "truncate -s 1 @/new/",
        "rm @/f/",
        "rm -f @/f/. @/p",
        "rm @/c/",
        "rm -f @/c/ @/f",
        "rm -r -f @/c// @/e",
        "rm -f @/c/x",
        "rm -r @/d/",
        "rm -r @/e/d/..",
        "rm -r -f @/d/. @/e/d/../ @/f",
        "mkdir @/new/",
    ] {
        need!(alike(setup, "022", line));
    }
}

#[test]
fn truncate_creates_the_target_of_a_dangling_link() {
    let setup = "mkdir d; ln -s d/new l; ln -s ../m d/k; ln -s d/k j; ln -s none/x n; ln -s y/ s; \
        ln -s loop loop";
    for line in ["@/l", "@/j", "@/n", "@/s", "@/loop", "-c @/l"] {
        need!(alike(setup, "022", &format!("truncate -s 7 {line}")));
    }
}

#[test]
fn a_source_may_be_named_twice() {
    let setup = "mkdir d e; echo > d/f; ln d/f d/g; ln -s f d/l; echo > host/h; ln host/h host/i; \
        mkdir -p host/s/x; echo > host/x; ln -s none e/x; mkdir s; echo other > s/f; \
        ln -s loop loop; mkdir -p o t/x u/x v/x; echo > v/x/f; mkdir w; echo > w/x; \
        mkdir -p host/a/d host/b/d; echo 1 > host/a/d/f; echo 2 > host/b/d/f";
    for line in [
        "cp -r host/a/d host/b/d host/a/d @/e",
        "cp -r host/a/d/. host/b/d/. host/a/d/. @/e",
        "cp -r host/a/d/. host/b/d/. host/b/../a/d/. @/e",
        "mv @/t/x @/u/x @/o",
        "mv @/t/x @/v/x @/o",
        "mv @/v/x @/t/x @/o",
        "mv @/t/x @/w/x @/o",
        "mv @/w/x @/t/x @/o",
        "mv @/d/f @/d/",
        "mv @/d/f @/d/g",
        "mv @/d/f @/d/l",
        "mv @/d @/d",
        "mv @/d/l @/d/f",
        "mv @/d/l @/d/g",
        "mv @/d/f @/d/g @/loop",
        "mv @/d/f @/d/g @/d/f/x",
        "mv @/d/f @/s/f @/e",
        "cp host/h host/h @/e",
        "cp host/../host/./h host/h @/e",
        "cp @/d/../d/f @/d/f @/e",
        "cp @/d/f @/d/g @/s/f @/e",
        "cp -r @/d @/d @/e",
        "cp host/h host/i @/e",
        "cp -r host/s/x host/x @/e",
    ] {
        need!(alike(setup, "022", line));
    }
}

#[test]
fn only_option_a_keeps_hard_links() {
    let setup = "mkdir -p host/s d/s; echo > host/s/a; ln host/s/a host/s/b; \
        echo old > d/s/a; ln d/s/a d/s/b; ln d/s/a d/s/c; ln host/s/a host/x; \
        ln -s s/b d/link; mkfifo d/p; ln d/p d/q; ln -s q d/pipe; mknod d/n c 1 3; ln d/n d/m";
    for line in [
        "cp -r host/s @/new",
        "cp -r -p host/s @/new",
        "cp -a host/s @/new",
        "cp -a host/s host/x @/d",
        "cp -r host/s @/d",
        "cp -a host/s/a @/d/s/a",
        "cp -a host/s/a @/d/link",
        "cp -a host/s/a @/d/q",
        "cp -a host/s/a @/d/pipe",
        "cp -a host/s/a @/d/m",
        "cp -p host/s/a @/d/link",
    ] {
        need!(alike(setup, "022", line));
    }
}

/// The same from an image to the host, where cp(1) copies from a mount of the image.
#[test]
fn only_option_a_keeps_hard_links_on_the_host() {
    let dir = tempfile::tempdir().expect("the temporary directory can be written");
    let top = dir.path();
    let image = need!(mke2fs(top, "a.img", &["-t", "ext4"]));
    shell(top, "mkdir s; echo a > s/a; ln s/a s/b; echo x > s/x; $N cp -a s a.img:/");
    let mount = need!(KernelMount::new(&image, Access::ReadOnly));
    let from = mount.path().display().to_string();
    for (case, options) in ["-r", "-rp", "-a"].iter().enumerate() {
        let old = "mkdir -p $D/s; echo old > $D/s/a; ln $D/s/a $D/s/b; ln $D/s/a $D/s/c; \
            echo old > $D/s/x; ln $D/s/x $D/y; ln -s y $D/link";
        for (name, command) in [
            ("theirs", format!("cp {options} {from}/")),
            ("ours", format!("$N cp {options} a.img:/")),
        ] {
            let copies = format!("{command}s $D; {command}s/x $D/link");
            let pipes = "mkfifo $D/p; ln $D/p $D/q; ln -s q $D/pipe; ln $D/p $D/r";
            let onto = match *options {
                "-a" => format!("{command}s/x $D/pipe; {command}s/x $D/r"),
                // It would wait for a reader.
                _ => ":".to_owned(),
            };
            shell(top, &format!("D={name}{case}; {old}; {copies}; {pipes}; {onto}"));
        }
        let (theirs, ours) = (format!("theirs{case}"), format!("ours{case}"));
        same(&tree(&top.join(theirs)), &tree(&top.join(ours)));
    }
    mount.unmount();
}

/// A file is written through a link of the target, but not through a dangling one. Other kinds
/// replace the link.
#[test]
fn links_in_the_target_are_followed_or_replaced() {
    let setup = "mkdir -p d/s d/sub; echo old > d/end; cd d/s; ln -s ../end f; ln -s none g; \
        ln -s ../sub h; ln -s ../end l; ln -s loop loop; \
        echo > ../two; ln ../two ../also; ln -s ../two m; cd ..; cd ..; \
        mkdir host/s; cd host/s; echo new > f; echo new > g; echo new > h; ln -s other l; \
        echo new > m; \
        echo new > loop";
    for line in [
        "cp -r host/s @/d",
        "cp -a host/s @/d",
        "cp host/s/f @/d/s",
        "cp host/s/g @/d/s",
        "cp -a host/s/g @/d/s",
        "cp -a host/s/l @/d/s",
    ] {
        need!(alike(setup, "022", line));
    }
}

#[test]
fn owners_are_those_of_chown() {
    for owner in ["7:", "daemon:", "daemon", ":daemon", "daemon:7", "7:8", ":", "no-such-name", ""]
    {
        need!(alike("echo > f; chown 5:6 f", "022", &format!("chown '{owner}' @/f")));
    }
}
