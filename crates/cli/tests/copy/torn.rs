//! A copy that is killed leaves an image that recovers.

use crate::support::*;
use nextent_testkit::{e2fs, need};
use std::time::Duration;

#[test]
fn a_killed_copy_leaves_a_recoverable_image() {
    let (dir, top) = with_tree(11);
    // A small journal, so that it wraps around during the copy.
    let image = need!(mke2fs(dir.path(), "a.img", &["-t", "ext4", "-J", "size=4"]));
    for (n, wait) in [20u64, 60, 150, 300, 600].into_iter().enumerate() {
        let to = inside(&image, &format!("/d{n}"));
        let mut command = nextent();
        command.args(["cp", "-a", top.to_str().expect("plain"), &to]);
        let mut child = command.spawn().expect("the command was built");
        std::thread::sleep(Duration::from_millis(wait));
        child.kill().expect("it can be killed");
        child.wait().expect("it was killed");
        let output = run(&["replay", image.to_str().expect("plain")]);
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        e2fs::assert_clean(&image);
    }
}
