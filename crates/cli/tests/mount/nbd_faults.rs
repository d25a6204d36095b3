//! Mounts of exports whose server fails, delays and retries requests, by the filters of nbdkit.

use crate::support::*;
use nextent_testkit::{NbdServer, Skip, e2fs, need};
use std::fs::{self, File};
use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};

/// An image of 48 MiB on a server with filters.
struct Served {
    dir: tempfile::TempDir,
    image: PathBuf,
    server: NbdServer,
}

impl Served {
    /// `filters` come before the plugin, `parameters` after the image. `DIR` in them is replaced by
    /// a directory.
    fn new(filters: &[&str], parameters: &[&str]) -> Result<Self, Skip> {
        let dir = tempfile::tempdir().unwrap();
        let image = mkfs(dir.path(), "48m");
        let all = [filters, &["file", text(&image)], parameters].concat();
        let all: Vec<_> = all.iter().map(|arg| arg.replace("DIR", text(dir.path()))).collect();
        let server = NbdServer::nbdkit(&all.iter().map(String::as_str).collect::<Vec<_>>())?;
        Ok(Self { dir, image, server })
    }

    fn mount(&self) -> Result<Mount, Skip> {
        self.mount_with("commit=1")
    }

    fn mount_with(&self, options: &str) -> Result<Mount, Skip> {
        Mount::new(Path::new(&self.server.address()), options)
    }

    /// From now on requests fail, or not any more.
    fn inject(&self, yes: bool) {
        let file = self.dir.path().join("inject");
        match yes {
            true => drop(File::create(file).unwrap()),
            false => drop(fs::remove_file(file)),
        }
    }

    /// Recovers the image, and checks files by the command.
    #[track_caller]
    fn check(mut self, files: usize) {
        self.server.kill();
        if let Ok(report) = e2fs::e2fsck_recover(&self.image) {
            assert!(report.code < 4, "{}", report.text);
        }
        e2fs::assert_clean(&self.image);
        for n in 0..files {
            let printed = run(&["cat", &format!("{}:/f{n}", text(&self.image))]).stdout;
            assert!(printed == contents(n), "f{n}");
        }
    }
}

fn contents(n: usize) -> Vec<u8> {
    vec![n as u8 + 1; 3000 * n + 1]
}

/// Writes and syncs a file.
fn write(mount: &Mount, n: usize) -> std::io::Result<()> {
    let mut file = File::create(mount.join(&format!("f{n}")))?;
    file.write_all(&contents(n))?;
    file.sync_all()
}

/// The callers get the error, the journal stops, and what was synced before is there.
#[test]
fn failed_writes_stop_the_journal() {
    for (name, number) in [("EIO", libc::EIO), ("ENOSPC", libc::ENOSPC)] {
        let error = format!("error={name}");
        let parameters = [
            &error,
            "error-pwrite-rate=100%",
            "error-pwrite-file=DIR/inject",
            "error-zero-rate=100%",
            "error-zero-file=DIR/inject",
        ];
        let served = need!(Served::new(&["--filter=error"], &parameters));
        let mount = need!(served.mount());
        (0..10).for_each(|n| write(&mount, n).unwrap());
        served.inject(true);
        let failed = write(&mount, 10).unwrap_err().raw_os_error();
        assert!(failed == Some(number) || failed == Some(libc::EIO), "{name}: {failed:?}");
        let mut dirs = 0;
        wait_until("the journal stops", || {
            dirs += 1;
            fs::create_dir(mount.join(&format!("dir{dirs}"))).is_err()
        });
        served.inject(false);
        let refused = write(&mount, 11).unwrap_err().raw_os_error();
        assert!(refused == Some(libc::EROFS) || refused == Some(libc::EIO), "{refused:?}");
        (0..10).for_each(|n| assert!(fs::read(mount.join(&format!("f{n}"))).is_ok()));
        mount.kill();
        served.check(10);
    }
}

/// A reader gets the error. Later reads succeed, and the volume stays writable.
#[test]
fn failed_reads_are_errors_of_their_callers() {
    let parameters = ["error-pread-rate=100%", "error-pread-file=DIR/inject"];
    let served = need!(Served::new(&["--filter=error"], &parameters));
    let mount = need!(served.mount());
    (0..10).for_each(|n| write(&mount, n).unwrap());
    mount.unmount();
    let mount = need!(served.mount());
    let path = mount.join("f9");
    let mut file = File::open(&path).unwrap();
    served.inject(true);
    let error = file.read_to_end(&mut Vec::new()).unwrap_err();
    assert_eq!(error.raw_os_error(), Some(libc::EIO));
    drop(file);
    served.inject(false);
    assert!(fs::read(path).unwrap() == contents(9));
    write(&mount, 10).unwrap();
    mount.unmount();
    served.check(11);
}

/// Programs notice nothing of errors that the server handles itself, of delays, of a server that
/// pauses, and of requests in another order.
#[test]
fn slow_servers_are_only_slow() {
    let errors = ["error-pwrite-rate=100%", "error-pwrite-file=DIR/inject"];
    let retry = (vec!["--filter=retry-request", "--filter=error"], ["retry-request-delay=1"]);
    let reopen = (vec!["--filter=retry", "--filter=error"], ["retry-delay=1"]);
    let delay = (vec!["--filter=delay", "--filter=error"], ["wdelay=7ms"]);
    for (filters, parameters) in [retry, reopen, delay] {
        let is_delay = parameters == ["wdelay=7ms"];
        let served = need!(Served::new(&filters, &[&errors[..], &parameters].concat()));
        let mount = need!(served.mount());
        served.inject(!is_delay);
        std::thread::scope(|scope| {
            for part in 0..4 {
                let mount = &mount;
                scope
                    .spawn(move || (part * 8..part * 8 + 8).for_each(|n| write(mount, n).unwrap()));
            }
            std::thread::sleep(std::time::Duration::from_millis(50));
            served.inject(false);
        });
        (0..32)
            .for_each(|n| assert!(fs::read(mount.join(&format!("f{n}"))).unwrap() == contents(n)));
        mount.unmount();
        served.check(32);
    }
}

/// Sends a command to the filter `pause`, which answers with the letter in upper case.
fn control(socket: &Path, command: u8) {
    let mut stream = UnixStream::connect(socket).unwrap();
    stream.write_all(&[command]).unwrap();
    let mut answer = [0];
    stream.read_exact(&mut answer).unwrap();
    assert_eq!(answer[0], command.to_ascii_uppercase());
}

#[test]
fn a_paused_server_is_waited_for() {
    let served = need!(Served::new(&["--filter=pause"], &["pause-control=DIR/control"]));
    let socket = served.dir.path().join("control");
    let mount = need!(served.mount());
    write(&mount, 0).unwrap();
    control(&socket, b'p');
    std::thread::scope(|scope| {
        let writers: Vec<_> = (1..4)
            .map(|n| {
                scope.spawn({
                    let mount = &mount;
                    move || write(mount, n)
                })
            })
            .collect();
        std::thread::sleep(std::time::Duration::from_millis(300));
        assert!(writers.iter().all(|writer| !writer.is_finished()), "the server has answered");
        control(&socket, b'r');
        writers.into_iter().for_each(|writer| writer.join().unwrap().unwrap());
    });
    mount.unmount();
    served.check(4);
}

/// A server that takes requests and never answers is lost after the timeout. The journal stops, and
/// what was synced is there.
#[test]
fn a_silent_server_stops_the_journal_after_the_timeout() {
    let served = need!(Served::new(&["--filter=pause"], &["pause-control=DIR/control"]));
    let socket = served.dir.path().join("control");
    let mount = need!(served.mount_with("timeout=5"));
    (0..5).for_each(|n| write(&mount, n).unwrap());
    control(&socket, b'p');
    let failed = write(&mount, 5).unwrap_err().raw_os_error();
    assert!(failed == Some(libc::EIO) || failed == Some(libc::EROFS), "{failed:?}");
    assert!(fs::create_dir(mount.join("refused")).is_err());
    // A command waits as long as its address says.
    let address = format!("{}&timeout=1", served.server.address());
    let output = run(&["ls", &format!("{address}:/")]);
    let said = String::from_utf8(output.stderr).unwrap();
    assert_eq!((output.status.code(), said.lines().count()), (Some(1), 1), "{said}");
    assert!(said.contains("did not answer for 1s"), "{said}");
    mount.kill();
    control(&socket, b'r');
    served.check(5);
}

#[test]
fn options_of_servers_are_refused_for_files() {
    let dir = tempfile::tempdir().unwrap();
    let (image, point) = (mkfs(dir.path(), "8m"), dir.path().join("mnt"));
    fs::create_dir(&point).unwrap();
    for (options, why) in [
        ("timeout=5", "need an export of an NBD server"),
        ("reconnect=5", "need an export of an NBD server"),
        ("timeout=0", "a number of seconds"),
    ] {
        let output = run(&["mount", "-o", options, text(&image), text(&point)]);
        assert!(!output.status.success());
        let said = String::from_utf8(output.stderr).unwrap();
        assert!(said.contains(why), "{said}");
    }
    e2fs::assert_clean(&image);
}
