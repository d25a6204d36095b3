//! NBD servers of Debian on Unix sockets: nbdkit and qemu-nbd.

use crate::Skip;
use nextent_sync::{Duration, now, thread};
use std::ffi::OsString;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use tempfile::TempDir;

/// How long a server may take to start.
const START: Duration = Duration::from_secs(60);

/// A server that is killed when it is dropped.
#[derive(Debug)]
pub struct NbdServer {
    program: &'static str,
    arguments: Vec<OsString>,
    child: Option<Child>,
    dir: TempDir,
}

impl NbdServer {
    /// Starts `nbdkit` with these arguments: a plugin and its parameters, after options and
    /// filters.
    ///
    /// # Errors
    /// [`Skip`] if nbdkit, the plugin or a filter is missing.
    ///
    /// # Panics
    /// If it does not start.
    #[track_caller]
    pub fn nbdkit(arguments: &[&str]) -> Result<Self, Skip> {
        let dir = tempfile::tempdir().unwrap();
        let mut all: Vec<OsString> = ["-f", "-U"].map(OsString::from).into();
        all.push(dir.path().join("socket").into());
        all.extend(arguments.iter().map(OsString::from));
        Self::start("nbdkit", all, dir)
    }

    /// Starts `qemu-nbd` with these arguments: options and an image.
    ///
    /// # Errors
    /// [`Skip`] if qemu-nbd is missing.
    ///
    /// # Panics
    /// If it does not start.
    #[track_caller]
    pub fn qemu(arguments: &[&str]) -> Result<Self, Skip> {
        let dir = tempfile::tempdir().unwrap();
        let mut all: Vec<OsString> = ["-t", "-e", "32", "-k"].map(OsString::from).into();
        all.push(dir.path().join("socket").into());
        all.extend(arguments.iter().map(OsString::from));
        Self::start("qemu-nbd", all, dir)
    }

    #[track_caller]
    fn start(program: &'static str, arguments: Vec<OsString>, dir: TempDir) -> Result<Self, Skip> {
        let mut server = Self { program, arguments, child: None, dir };
        server.launch()?;
        Ok(server)
    }

    #[track_caller]
    fn launch(&mut self) -> Result<(), Skip> {
        let mut command = Command::new(self.program);
        command.args(&self.arguments).stdin(Stdio::null());
        // Servers report clients that leave, and injected errors.
        command.stdout(Stdio::null()).stderr(Stdio::null());
        let child = command.spawn().map_err(|_| Skip::missing(self.program))?;
        self.child = Some(child);
        let begun = now();
        while UnixStream::connect(self.socket()).is_err() {
            let ended = self.child.as_mut().and_then(|child| child.try_wait().unwrap());
            assert_eq!(ended, None, "{} {:?} has ended", self.program, self.arguments);
            assert!(begun.elapsed() < START, "{} does not start", self.program);
            thread::sleep(Duration::from_millis(5));
        }
        Ok(())
    }

    /// Where it listens.
    #[must_use]
    pub fn socket(&self) -> PathBuf {
        self.dir.path().join("socket")
    }

    /// The address of its default export.
    #[must_use]
    pub fn address(&self) -> String {
        format!("nbd+unix:///?socket={}", self.socket().display())
    }

    /// The same with TLS; `certificates` is the client's directory.
    #[must_use]
    pub fn tls_address(&self, certificates: &Path) -> String {
        let (socket, dir) = (self.socket(), certificates.display());
        format!("nbds+unix:///?socket={}&tls-certificates={dir}", socket.display())
    }

    /// Kills it by SIGKILL.
    ///
    /// # Panics
    /// If it cannot be killed.
    pub fn kill(&mut self) {
        if let Some(mut child) = self.child.take() {
            child.kill().unwrap();
            child.wait().unwrap();
        }
        let _ = std::fs::remove_file(self.socket());
    }

    /// Kills it, and starts it again with the same arguments and the same socket.
    ///
    /// # Panics
    /// If it does not start.
    #[track_caller]
    pub fn restart(&mut self) {
        self.kill();
        self.launch().unwrap();
    }
}

impl Drop for NbdServer {
    fn drop(&mut self) {
        self.kill();
    }
}
