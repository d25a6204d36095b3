//! A mount for a test, which is unmounted in any case.

use nextent_testkit::{Skip, e2fs};
use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Output, Stdio};
use std::sync::Mutex;
use std::time::{Duration, Instant};

/// Much longer than any operation takes on a loaded machine.
pub(crate) const PATIENCE: Duration = Duration::from_secs(120);

/// The tool.
pub(crate) fn nextent() -> Command {
    Command::new(env!("CARGO_BIN_EXE_nextent"))
}

/// Runs the tool.
pub(crate) fn run(args: &[&str]) -> Output {
    nextent().args(args).stdin(Stdio::null()).output().unwrap()
}

/// Makes an image of `size`.
pub(crate) fn mkfs(dir: &Path, size: &str) -> PathBuf {
    let image = dir.join("image");
    let made = run(&["mkfs", "-q", "-b", "4096", text(&image), size]);
    assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
    image
}

pub(crate) fn text(path: &Path) -> &str {
    path.to_str().unwrap()
}

/// Whether this machine can mount. For tests of io_uring the kernel offers it until the result is
/// dropped.
pub(crate) fn can_mount() -> Result<Offered, Skip> {
    let root = Command::new("id").arg("-u").output();
    if !root.is_ok_and(|output| output.stdout == b"0\n") {
        return Err(Skip::missing("root"));
    }
    let fuse = std::fs::OpenOptions::new().read(true).write(true).open("/dev/fuse");
    fuse.map_err(|_| Skip::missing("/dev/fuse"))?;
    Offered::new()
}

/// The parameter by which the kernel offers FUSE over io_uring.
const PARAMETER: &str = "/sys/module/fuse/parameters/enable_uring";

/// Whether the kernel offers io_uring now.
pub(crate) fn offers_rings() -> bool {
    std::fs::read_to_string(PARAMETER).is_ok_and(|set| set.trim() == "Y")
}

/// The number of tests that need the offer, and the parameter before the first of them.
static OFFERS: Mutex<(usize, Option<String>)> = Mutex::new((0, None));

/// Keeps the parameter set for tests over io_uring. The last one restores it.
pub(crate) struct Offered(());

impl Offered {
    fn new() -> Result<Self, Skip> {
        let mut offers = OFFERS.lock().unwrap();
        if crate::RINGS && offers.0 == 0 {
            let missing = |_| Skip::missing("FUSE over io_uring");
            let found = std::fs::read_to_string(PARAMETER).map_err(missing)?;
            std::fs::write(PARAMETER, "Y").map_err(missing)?;
            offers.1 = Some(found);
        }
        offers.0 += 1;
        Ok(Self(()))
    }
}

impl Drop for Offered {
    fn drop(&mut self) {
        let mut offers = OFFERS.lock().unwrap();
        offers.0 -= 1;
        if offers.0 == 0
            && let Some(found) = offers.1.take()
        {
            let _ = std::fs::write(PARAMETER, found);
        }
    }
}

/// Whether `point` is a mount point.
pub(crate) fn is_mounted(point: &Path) -> bool {
    let mounts = std::fs::read_to_string("/proc/self/mountinfo").unwrap();
    mounts.lines().any(|line| line.split(' ').nth(4) == Some(text(point)))
}

/// Waits until `done`.
#[track_caller]
pub(crate) fn wait_until(what: &str, mut done: impl FnMut() -> bool) {
    let begun = Instant::now();
    while !done() {
        assert!(begun.elapsed() < PATIENCE, "still not: {what}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// Allocates all space of the volume to a file; its length.
pub(crate) fn take_all(file: &File) -> u64 {
    let (mut len, mut step) = (0, 1 << 20);
    while step >= 4096 {
        match rustix::fs::fallocate(file, rustix::fs::FallocateFlags::empty(), len, step) {
            Ok(()) => len += step,
            Err(rustix::io::Errno::NOSPC) => step /= 2,
            Err(error) => panic!("{error}"),
        }
    }
    len
}

/// A server in the foreground, and its mount.
pub(crate) struct Mount {
    point: tempfile::TempDir,
    server: Child,
    _offered: Offered,
    _device: Option<LoopDevice>,
}

/// A loop device, until this is dropped.
pub(crate) struct LoopDevice(pub(crate) PathBuf);

impl LoopDevice {
    /// Attaches `image`.
    pub(crate) fn attach(image: &Path) -> Result<Self, Skip> {
        let made = Command::new("losetup").args(["-f", "--show", text(image)]).output();
        let made = made.ok().filter(|output| output.status.success());
        let made = made.ok_or(Skip::missing("loop devices"))?;
        Ok(Self(String::from_utf8_lossy(&made.stdout).trim().into()))
    }
}

impl Drop for LoopDevice {
    fn drop(&mut self) {
        let _ = Command::new("losetup").arg("-d").arg(&self.0).output();
    }
}

/// Runs `nextent mount -o remount,OPTIONS` on a mount; what it printed, if it failed.
pub(crate) fn try_remount(mount: &Mount, options: &str) -> Result<(), String> {
    let options = format!("remount,{options}");
    let output = run(&["mount", "-o", &options, text(mount.path())]);
    match output.status.success() {
        true => Ok(()),
        false => Err(String::from_utf8(output.stderr).unwrap()),
    }
}

/// The same. Repeats it while the kernel counts files as open for writing or deleted: a process
/// that another test is starting has copies of this process's descriptors for a moment.
pub(crate) fn remount(mount: &Mount, options: &str) -> Result<(), String> {
    let begun = Instant::now();
    loop {
        match try_remount(mount, options) {
            Err(why) if why.contains("open for writing") && begun.elapsed() < PATIENCE => {
                std::thread::sleep(Duration::from_millis(5));
            }
            done => return done,
        }
    }
}

/// Runs `work` on a new image of `size`, mounted with each of some options.
#[track_caller]
pub(crate) fn with_each(
    options: &[&str],
    size: &str,
    work: impl Fn(&Mount, &str),
) -> Result<(), Skip> {
    for options in options {
        let dir = tempfile::tempdir().unwrap();
        let image = mkfs(dir.path(), size);
        let mount = Mount::new(&image, options)?;
        work(&mount, options);
        mount.unmount();
        e2fs::assert_clean(&image);
    }
    Ok(())
}

impl Mount {
    /// Mounts `image`.
    #[track_caller]
    pub(crate) fn new(image: &Path, options: &str) -> Result<Self, Skip> {
        Self::by(nextent(), image, options)
    }

    /// Mounts `image` by `command`, which executes the tool.
    #[track_caller]
    pub(crate) fn by(mut command: Command, image: &Path, options: &str) -> Result<Self, Skip> {
        let _offered = can_mount()?;
        let is_file = crate::BLOCKS && image.is_file();
        let _device = if is_file { Some(LoopDevice::attach(image)?) } else { None };
        let image = _device.as_ref().map_or(image, |device| &device.0);
        let point = tempfile::tempdir().unwrap();
        command.args(["mount", "-f", "--threads", "4", text(image), text(point.path())]);
        command.args(["-o", if crate::RINGS { "io_uring" } else { "no_io_uring" }]);
        command.args(["-o", options]);
        let server = command.stdin(Stdio::null()).spawn().unwrap();
        let mut mount = Self { point, server, _offered, _device };
        let path = mount.path().to_owned();
        wait_until("mounted", || {
            assert!(mount.server.try_wait().unwrap().is_none(), "the server ended");
            is_mounted(&path)
        });
        Ok(mount)
    }

    pub(crate) fn path(&self) -> &Path {
        self.point.path()
    }

    pub(crate) fn join(&self, path: &str) -> PathBuf {
        self.path().join(path)
    }

    pub(crate) fn server(&self) -> u32 {
        self.server.id()
    }

    /// Unmounts, and waits for the server, which must succeed.
    #[track_caller]
    pub(crate) fn unmount(mut self) {
        let path = self.path().to_owned();
        wait_until("unmounted", || {
            Command::new("umount").arg(&path).output().unwrap().status.success()
        });
        let status = self.wait();
        assert!(status.success(), "{status}");
    }

    /// Kills the server.
    pub(crate) fn kill(mut self) {
        self.server.kill().unwrap();
        self.server.wait().unwrap();
    }

    /// Whether the server has ended.
    pub(crate) fn has_ended(&mut self) -> bool {
        self.server.try_wait().unwrap().is_some()
    }

    /// Waits for the server's end.
    #[track_caller]
    pub(crate) fn wait(&mut self) -> ExitStatus {
        let mut status = None;
        wait_until("the server's end", || {
            status = self.server.try_wait().unwrap();
            status.is_some()
        });
        status.unwrap()
    }
}

impl Drop for Mount {
    fn drop(&mut self) {
        // The server has ended, unless a test has failed. Kill it first: programs that are started
        // here may have to wait for it.
        let _ = self.server.kill();
        let _ = self.server.wait();
        if is_mounted(self.path()) {
            let _ = Command::new("umount").arg("-l").arg(self.path()).output();
        }
    }
}
