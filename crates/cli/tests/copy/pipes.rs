//! Pipes and devices of the host as sources, as with cp(1): their contents, or with `-r` the files
//! themselves.

use crate::support::{fails, inside, run, shell};
use nextent_testkit::e2fs;
use std::path::Path;

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
