//! The mount: several processes fill a served image, which e2fsck and the kernel check then.

use super::table::Outcome;
use super::{Demo, finish, same_trees, setup_refused, text};
use crate::setup;
use crate::shell::command;
use std::path::{Path, PathBuf};
use std::process::{Child, Stdio};

/// The number of processes, each of which unpacks a tree.
const COPIES: usize = 4;

impl Demo {
    /// Serves a new image, fills it by several processes, and unmounts.
    pub(super) fn serve(&self) {
        if !setup::is_root() || !Path::new("/dev/fuse").exists() {
            let missing = || Outcome::Skipped("no root or no FUSE".into());
            return self.table.row("nextent mount", missing);
        }
        let (image, at) = (self.path("served.img"), self.path("served"));
        self.table.row("mkfs and mount, by nextent", || {
            let made = self.nextent(&["mkfs", "-q", &text(&image), "512m"]);
            let dir = std::fs::create_dir(&at).map_err(|error| error.to_string());
            let mounted =
                made.and(dir).and_then(|()| self.nextent(&["mount", &text(&image), &text(&at)]));
            Outcome::of(mounted, |_| "over FUSE".into())
        });
        self.table.row("tar -x into it, four processes", || self.unpack(&at));
        self.table.row("umount", || {
            // By this name the program waits for the server, as umount(8) wants.
            let helper = self.path("umount.fuse.nextent");
            let linked = std::os::unix::fs::symlink(&self.tool, &helper);
            let linked = linked.map_err(|error| error.to_string());
            let ended = linked.and_then(|()| finish(command(&text(&helper), [&at])));
            Outcome::of(ended, |_| "all data is durable".into())
        });
        self.table.row("e2fsck -fn after the mount", || {
            let args = ["-f", "-n", &text(&image)].map(String::from);
            Outcome::of(finish(command("e2fsck", &args)), |_| "clean".into())
        });
        self.table.row("the kernel mounts it and agrees", || self.kernel_agrees(&image));
    }

    /// Unpacks the tree by [`COPIES`] processes, and compares.
    fn unpack(&self, at: &Path) -> Outcome {
        let tree = self.path("tree");
        let start = |n: usize| -> std::io::Result<Child> {
            let to = at.join(format!("copy{n}"));
            std::fs::create_dir(&to)?;
            // The format keeps nanoseconds, and -S keeps holes.
            let script = "tar --format=posix -C \"$0\" -cSf - . | tar -C \"$1\" -xf -";
            let args = ["-c", script, &text(&tree), &text(&to)].map(String::from);
            command("sh", &args).stderr(Stdio::piped()).spawn()
        };
        let children: Vec<_> = (0..COPIES).map(start).collect();
        for child in children {
            match child.and_then(Child::wait_with_output) {
                Ok(output) if output.status.success() => {}
                Ok(output) => return Outcome::Failed(super::first_line(&output.stderr)),
                Err(error) => return Outcome::Failed(error.to_string()),
            }
        }
        let copies = (0..COPIES).map(|n| at.join(format!("copy{n}")));
        all_same(&tree, copies)
    }

    fn kernel_agrees(&self, image: &Path) -> Outcome {
        let point = self.path("kernel");
        if let Err(error) = std::fs::create_dir(&point) {
            return Outcome::Failed(error.to_string());
        }
        let args = ["-o", "loop,ro", &text(image), &text(&point)].map(String::from);
        match command("mount", &args).output() {
            Ok(output) if output.status.success() => {}
            Ok(output) if setup_refused(&output.stderr) => {
                return Outcome::Skipped("no loop mount here".into());
            }
            Ok(output) => return Outcome::Failed(super::first_line(&output.stderr)),
            Err(error) => return Outcome::Skipped(format!("no mount: {error}")),
        }
        let copies = (0..COPIES).map(|n| point.join(format!("copy{n}")));
        let outcome = all_same(&self.path("tree"), copies);
        let _ = command("umount", [&point]).status();
        outcome
    }
}

/// The first failed comparison, or the last one.
fn all_same(tree: &Path, copies: impl Iterator<Item = PathBuf>) -> Outcome {
    let mut last = Outcome::Failed("no copies".into());
    for copy in copies {
        last = same_trees(tree, &copy);
        if matches!(last, Outcome::Failed(_)) {
            return last;
        }
    }
    last
}
