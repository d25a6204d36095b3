//! Pipes and devices of the host as sources, as with cp(1): their contents, or with `-r` the files
//! themselves.

use crate::support::{fails, inside, mke2fs, nextent, run, shell};
use nextent_testkit::{Access, KernelMount, e2fs, need};
use std::path::Path;
use std::process::{Command, Stdio};

/// Runs `test` in a directory with the image `i.img`, which must stay clean.
fn with_image(test: impl FnOnce(&Path)) {
    let dir = tempfile::tempdir().expect("the temporary directory can be written");
    shell(dir.path(), "$N mkfs -q i.img 64m");
    test(dir.path());
    e2fs::assert_clean(&dir.path().join("i.img"));
}

/// The file `/f` of the image has the contents and the mode of `copy`.
const AS_CP: &str = "$N cat i.img:/f | cmp - copy; \
    [ \"$($N stat --json i.img:/f | grep -o '\"mode\": \"[0-7]*\"')\" = \
    \"\\\"mode\\\": \\\"$(stat -c 0%a copy)\\\"\" ] || { $N stat i.img:/f; stat copy; }";

#[test]
fn pipes_are_read_to_their_end() {
    with_image(|top| {
        // Larger than a part of a copy, and written in pieces.
        shell(top, "head -c 20000000 /dev/urandom > data; : > none");
        for source in ["data", "none"] {
            for line in [
                "cat $S | cp /dev/stdin copy; cat $S | $N cp -q /dev/stdin i.img:/f",
                "(head -c 1 $S; sleep 0.2; tail -c +2 $S) | $N cp -q /dev/stdin i.img:/f",
                "cp <(cat $S) copy; $N cp -q <(cat $S) i.img:/f",
                "rm -f copy; cp $S copy; $N rm i.img:/f; $N cp -q /dev/stdin i.img:/f < $S",
                "rm -f copy p; mkfifo -m 640 p; cat $S > p & cp p copy; wait; $N rm i.img:/f; \
             cat $S > p & $N cp -q p i.img:/f; wait",
            ] {
                shell(top, &format!("umask 022; S={source}; {line}; {AS_CP}"));
            }
        }
        // Several pipes into a directory, which get their own names.
        shell(
            top,
            "mkfifo q r; $N mkdir i.img:/d; (echo q > q; echo r > r) & $N cp -q q data r i.img:/d; \
         wait; [ \"$($N cat i.img:/d/q)$($N cat i.img:/d/r)\" = qr ]; \
         $N cat i.img:/d/data | cmp - data",
        );
        // With -p attributes are kept.
        shell(
            top,
            "chmod 604 q; touch -d 2001-02-03 q; (sleep 0.2; echo data > q) & \
         $N cp -q -p q i.img:/kept; wait; \
         $N stat --json i.img:/kept | grep -q '\"mode\": \"0604\"'",
        );
    });
}

#[test]
fn with_recursion_pipes_and_devices_are_made() {
    with_image(|top| {
        shell(top, "mkdir t; mkfifo t/p; ln -s p t/l");
        shell(
            top,
            "for o in -r -R -a; do $N rm -f -r i.img:/t i.img:/p i.img:/null; \
         $N cp -q $o t i.img:/; $N cp -q $o t/p i.img:/; $N cp -q $o /dev/null i.img:/; \
         $N ls -l i.img:/ | grep -c '^[pc].*\\(p\\|null\\)$' | grep -q -x 2; \
         $N ls -l i.img:/t | grep -q '^p'; done",
        );
    });
}

#[test]
fn devices_are_read_and_sockets_refused() {
    with_image(|top| {
        shell(top, "$N cp -q /dev/null i.img:/f; [ -z \"$($N cat i.img:/f)\" ]");
        let socket = top.join("s");
        let _listener =
            std::os::unix::net::UnixListener::bind(&socket).expect("the directory can be written");
        let to = inside(&top.join("i.img"), "/s");
        fails(&["cp", "-q", &socket.display().to_string(), &to], 1, "No such device or address");
        // An endless device fills the image, and the copy ends.
        let output = run(&["cp", "-q", "/dev/zero", &inside(&top.join("i.img"), "/z")]);
        assert_eq!(output.status.code(), Some(1));
        assert!(String::from_utf8_lossy(&output.stderr).contains("no space left"));
        // A pipe in an image cannot be read.
        shell(top, "mkfifo p; $N cp -q -r p i.img:/p 2> /dev/null || $N rm i.img:/z");
        shell(top, "$N rm -f i.img:/z; $N cp -q -r p i.img:/p");
        let out = top.join("out").display().to_string();
        fails(&["cp", "-q", &inside(&top.join("i.img"), "/p"), &out], 1, "not a regular file");
    });
}

/// Seconds that a command which does not wait at a pipe never takes, even under load.
const PATIENCE: &str = "120";

/// The exit code and messages of a line of shell, which must not wait at a pipe. `@` is `root`.
fn refusal(top: &Path, line: &str, root: &str) -> (Option<i32>, String) {
    let mut bash = Command::new("bash");
    let line = format!("set -f; exec timeout {PATIENCE} {}", line.replace('@', root));
    bash.args(["-c", &line]).current_dir(top).stdin(Stdio::null());
    let output = bash.env("N", nextent().get_program()).output().expect("there is a bash");
    (output.status.code(), String::from_utf8_lossy(&output.stderr).into_owned())
}

/// The target's tree for refusals.
const TARGETS: &str = "mkdir -p d/p s/sub l e i plain; ln -s none dangling; ln -s none l/p; \
    ln -s sub s/p; echo > f; mkfifo pipe; mkdir q; mkfifo q/p; mknod null c 1 3; chattr +i i";

/// Sources and target, and what cp(1) and this program say of a target that refuses. cp(1) opens
/// the pipe first where its text is empty: it would wait.
const REFUSALS: &[(&str, &str, &str)] = &[
    ("p @/d", "cannot overwrite directory", "cannot overwrite a directory"),
    ("p @/s", "cannot overwrite directory", "cannot overwrite a directory"),
    ("p @/dangling", "", "dangling link; not written through"),
    ("p @/l", "", "dangling link; not written through"),
    ("p p @/f", "ot a directory", "not a directory"),
    ("r/p p @/plain", "will not overwrite just-created", "overwrite what was just copied"),
    ("p @/f/", "", "not a directory"),
    ("p @/new/", "", "not a directory"),
    ("p @/missing/p", "", "o such file or directory"),
    ("p @/i", "", "peration not permitted"),
    ("p @/pipe", "", "cannot be written in an image"),
    ("p @/q", "", "cannot be written in an image"),
    ("p @/null", "", "cannot be written in an image"),
];

/// A target that refuses the copy is reported without waiting for the writer of a source.
#[test]
fn a_target_that_refuses_is_reported_before_a_pipe_is_opened() {
    let dir = tempfile::tempdir().expect("the temporary directory can be written");
    let top = dir.path();
    let image = need!(mke2fs(top, "i.img", &["-t", "ext4"]));
    let mount = need!(KernelMount::new(&image, Access::ReadWrite));
    let at = mount.path().display().to_string();
    shell(top, &format!("mkfifo p; mkdir r; echo > r/p; cd {at}; {TARGETS}"));
    for options in ["", "-p"] {
        for (words, theirs, _) in REFUSALS.iter().filter(|(_, theirs, _)| !theirs.is_empty()) {
            let (code, said) = refusal(top, &format!("cp {options} {words}"), &at);
            assert_eq!(code, Some(1), "{words}: {said}");
            assert!(said.contains(theirs), "{words}: {said}");
            shell(top, &format!("rm -f {at}/plain/p"));
        }
    }
    mount.unmount();
    for options in ["", "-p"] {
        for (words, _, ours) in REFUSALS {
            let (code, said) = refusal(top, &format!("$N cp -q {options} {words}"), "i.img:");
            assert_eq!(code, Some(1), "{words}: {said}");
            assert!(said.contains(ours), "{words}: {said}");
            shell(top, "$N rm -f i.img:/plain/p");
        }
        // A pipe of an image has no contents.
        for to in ["host", "i.img:/new", "i.img:/d"] {
            let (code, said) = refusal(top, &format!("$N cp -q {options} i.img:/pipe {to}"), "");
            assert_eq!(code, Some(1), "{to}: {said}");
            assert!(said.contains("not a regular file"), "{to}: {said}");
        }
    }
    e2fs::assert_clean(&image);
}
