//! The control socket of a mount: a client asks the server to check or to apply options.
//!
//! It lies beside the socket for `nextent status`. A client sends a [`Request`] as JSON and closes
//! its side; the server sends an [`Answer`] and closes the connection. One thread of the server
//! answers, one client after another, so it owns the options of the mount.

use super::super::options::Options;
use super::plan;
use crate::commands::status::socket::{self, SocketFile};
use crate::disk::Disk;
use crate::log::{self, Level};
use nextent::Error;
use nextent::inodes::Inodes;
use nextent_fuse::{AccessTimes, MountFlag, Mounted, Server};
use nextent_sync::{Arc, Duration, Weak, now, sleep, thread};
use rustix::net::sockopt::socket_peercred;
use serde_json::{Value, json};
use std::io::{Read, Write};
use std::net::Shutdown;
use std::os::unix::net::{UnixListener, UnixStream};

/// The suffix of the socket's name.
const KIND: &str = "control";
/// The longest time that a client may take to send its request or to take the answer.
const PATIENCE: Duration = Duration::from_secs(5);
/// The most bytes of a request or an answer.
const LONGEST: u64 = 1 << 16;
/// How long to wait for the kernel to forget deleted files. It does so soon after their last use.
const FORGETTING: Duration = Duration::from_secs(5);
const PERIOD: Duration = Duration::from_millis(10);

/// What a server is asked to do with options.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Step {
    Check,
    Apply,
}

/// A request: words of `-o`, in order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Request {
    pub(super) step: Step,
    pub(super) words: Vec<String>,
}

/// An answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Answer {
    /// Why the options are refused, if they are.
    pub(super) error: Option<String>,
    /// Whether the volume is read-only when the request is answered.
    pub(super) read_only: bool,
}

impl Request {
    fn to_json(&self) -> Value {
        json!({ "apply": self.step == Step::Apply, "words": self.words })
    }

    fn from_json(value: &Value) -> Option<Self> {
        let word = |word: &Value| word.as_str().map(str::to_owned);
        let step = if value["apply"].as_bool()? { Step::Apply } else { Step::Check };
        let words = value["words"].as_array()?.iter().map(word).collect::<Option<_>>()?;
        Some(Self { step, words })
    }
}

impl Answer {
    fn to_json(&self) -> Value {
        json!({ "error": self.error, "read_only": self.read_only })
    }

    fn from_json(value: &Value) -> Option<Self> {
        let error = value["error"].as_str().map(str::to_owned);
        Some(Self { error, read_only: value["read_only"].as_bool()? })
    }
}

/// Sends a request to the server of a mount, and waits for the answer. A change to read-only waits
/// for all changes to become durable.
pub(super) fn ask(mounted: &Mounted, request: &Request) -> std::io::Result<Answer> {
    let mut stream = socket::connect(mounted, KIND)?;
    stream.write_all(request.to_json().to_string().as_bytes())?;
    stream.shutdown(Shutdown::Write)?;
    let mut text = String::new();
    stream.take(LONGEST).read_to_string(&mut text)?;
    let answer = serde_json::from_str(&text).ok().and_then(|value| Answer::from_json(&value));
    answer.ok_or_else(|| std::io::Error::other("its server ended, or sent an invalid answer"))
}

/// The image of a mount.
pub(in super::super) struct Image {
    pub(in super::super) device: Arc<Disk>,
    /// The kernel has claimed the device for the mount.
    pub(in super::super) mounted: bool,
}

/// Starts the thread that answers for `server`, whose mount has the number `device` and was made
/// with `options`. Without it the mount works, so a failure is only printed.
pub(in super::super) fn listen(
    server: &Arc<Server>,
    image: Image,
    options: Options,
    device: (u64, u64),
) -> Option<SocketFile> {
    let options = Options { read_only: server.volume().is_read_only(), ..options };
    let server = Arc::downgrade(server);
    let mut controlled = Controlled { server, image, options };
    let serve = |(file, listener): (SocketFile, UnixListener)| {
        let run = move || listener.incoming().flatten().for_each(|client| controlled.serve(client));
        thread::Builder::new().name("nextent-control".to_owned()).spawn(run)?;
        Ok(file)
    };
    match socket::bind(device, KIND).and_then(serve) {
        Ok(socket) => Some(socket),
        Err(error) => {
            log::write(Level::Warning, &format!("no socket for `mount -o remount`: {error}"));
            None
        }
    }
}

impl Image {
    /// Opens the device for writing, if it was opened for reading.
    fn allow_writes(&self) -> Result<(), String> {
        self.device.allow_writes(self.mounted)
    }
}

/// A server, and the present options of its mount.
struct Controlled {
    server: Weak<Server>,
    image: Image,
    options: Options,
}

impl Controlled {
    /// Answers a client that is root or the user of this process.
    fn serve(&mut self, mut client: UnixStream) {
        let own = rustix::process::geteuid();
        let may = |peer: rustix::process::Uid| peer.is_root() || peer == own;
        if !socket_peercred(&client).is_ok_and(|peer| may(peer.uid)) {
            return;
        }
        let limits =
            [client.set_read_timeout(Some(PATIENCE)), client.set_write_timeout(Some(PATIENCE))];
        let mut text = String::new();
        if limits.iter().any(Result::is_err)
            || (&client).take(LONGEST).read_to_string(&mut text).is_err()
        {
            return;
        }
        let value = serde_json::from_str(&text).ok();
        let Some(request) = value.and_then(|value| Request::from_json(&value)) else { return };
        let Some(server) = self.server.upgrade() else { return };
        let error = self.answer(&server, &request).err();
        let answer = Answer { error, read_only: server.volume().is_read_only() };
        // A client that leaves early needs no answer.
        let _ = client.write_all(answer.to_json().to_string().as_bytes());
    }

    fn answer(&mut self, server: &Server, request: &Request) -> Result<(), String> {
        let next = plan::changed(&self.options, &request.words)?;
        if request.step == Step::Check {
            return Ok(());
        }
        let volume = server.volume();
        if next.read_only {
            make_read_only(volume).map_err(|error| error.to_string())?;
        } else if self.options.read_only {
            self.image.allow_writes()?;
            volume.make_writable().map_err(|error| error.to_string())?;
        }
        volume.set_error_policy(next.errors);
        volume.set_discard(next.discard);
        server.set_access_times(access_times(&next));
        if let Some(level) = next.log_level {
            log::set_level(level);
        }
        log::write(Level::Info, &format!("remounted: {}", request.words.join(",")));
        self.options = next;
        Ok(())
    }
}

/// Makes the volume read-only. Waits a moment while deleted files are in use, since the kernel
/// forgets them a little after it closes them.
fn make_read_only(volume: &Inodes) -> nextent::Result<()> {
    let begun = now();
    loop {
        match volume.make_read_only() {
            Err(Error::Busy) if begun.elapsed() < FORGETTING => sleep(PERIOD),
            done => return done,
        }
    }
}

/// The reads that update access times by `options`.
pub(in super::super) fn access_times(options: &Options) -> AccessTimes {
    let has = |flag| options.flags.contains(&flag);
    AccessTimes {
        never: has(MountFlag::NoAtime),
        strict: has(MountFlag::StrictAtime),
        not_of_directories: has(MountFlag::NoDirAtime),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_and_answers_are_read_as_written() {
        let request = Request { step: Step::Apply, words: vec!["ro".into(), "commit=9".into()] };
        assert_eq!(Request::from_json(&request.to_json()), Some(request));
        for error in [None, Some("why".to_owned())] {
            let answer = Answer { error, read_only: true };
            assert_eq!(Answer::from_json(&answer.to_json()), Some(answer));
        }
        assert_eq!(Request::from_json(&json!({ "words": [1], "apply": true })), None);
        assert_eq!(Answer::from_json(&json!({})), None);
    }
}
