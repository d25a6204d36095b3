//! An NBD server that ends at each change and each flush of a workload.
//!
//! The server ends instead of the n-th operation, or after it without a reply, and loses the writes
//! since the last flush or keeps them. A client that connects again notices nothing. The journal of
//! another client stops, and the image is recovered with every durable file.

use super::common::{Image, check_aborted, check_recovery};
use super::work;
use nextent::OpenOptions;
use nextent::inodes::Inodes;
use nextent_device::{BlockDevice, MemoryDevice, NbdAddress, NbdDevice, NbdOptions, NbdServer};
use nextent_ondisk::DiskTime;
use nextent_sync::{Arc, Duration, LockClass, Mutex, thread};
use nextent_testkit::need;
use std::io;
use std::net::Shutdown;
use std::ops::Range;
use std::os::unix::net::{UnixListener, UnixStream};

static STATE: LockClass = LockClass::new("test.lost-server", 2);

/// When a server ends, and what is left.
#[derive(Clone, Copy, Debug)]
struct End {
    /// The number of the operation.
    at: u64,
    /// The operation is performed, but has no reply.
    performs: bool,
    /// The writes since the last flush are lost.
    loses: bool,
}

struct State {
    /// The number of servers that have ended.
    generation: u64,
    present: MemoryDevice,
    stable: MemoryDevice,
    clients: Vec<UnixStream>,
    /// Changes and flushes so far, and which of them are flushes.
    operations: u64,
    flushes: Vec<u64>,
    end: Option<End>,
}

impl State {
    fn change(
        &mut self,
        is_flush: bool,
        act: impl FnOnce(&MemoryDevice) -> io::Result<()>,
    ) -> io::Result<()> {
        let number = self.operations;
        self.operations += 1;
        let end = self.end.filter(|end| end.at == number);
        if end.is_none_or(|end| end.performs) {
            act(&self.present)?;
            if is_flush {
                self.flushes.push(number);
                self.stable = self.present.snapshot();
            }
        }
        let Some(end) = end else { return Ok(()) };
        self.generation += 1;
        if end.loses {
            self.present = self.stable.snapshot();
        }
        for client in self.clients.drain(..) {
            client.shutdown(Shutdown::Both)?;
        }
        Err(io::ErrorKind::ConnectionAborted.into())
    }
}

/// The device of the server that serves a connection.
struct Storage {
    state: Arc<Mutex<State>>,
    generation: u64,
}

impl Storage {
    fn with<T>(&self, act: impl FnOnce(&mut State) -> io::Result<T>) -> io::Result<T> {
        let mut state = self.state.lock();
        match state.generation == self.generation {
            true => act(&mut state),
            false => Err(io::ErrorKind::ConnectionAborted.into()),
        }
    }
}

impl BlockDevice for Storage {
    fn size(&self) -> u64 {
        self.state.lock().present.size()
    }

    fn read_at(&self, offset: u64, buf: &mut [u8]) -> io::Result<()> {
        self.with(|state| state.present.read_at(offset, buf))
    }

    fn write_at(&self, offset: u64, buf: &[u8]) -> io::Result<()> {
        self.with(|state| state.change(false, |device| device.write_at(offset, buf)))
    }

    fn flush(&self) -> io::Result<()> {
        self.with(|state| state.change(true, |_| Ok(())))
    }

    fn discard(&self, offset: u64, len: u64) -> io::Result<()> {
        self.with(|state| state.change(false, |device| device.discard(offset, len)))
    }

    fn write_zeroes(&self, offset: u64, len: u64) -> io::Result<()> {
        self.with(|state| state.change(false, |device| device.write_zeroes(offset, len)))
    }

    fn is_read_only(&self) -> bool {
        false
    }

    fn next_data(&self, offset: u64) -> io::Result<Option<Range<u64>>> {
        self.with(|state| state.present.next_data(offset))
    }
}

/// A server in this process. Its successor listens at the same address.
struct Served {
    dir: tempfile::TempDir,
    state: Arc<Mutex<State>>,
}

impl Served {
    fn new(base: &MemoryDevice) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let listener = UnixListener::bind(dir.path().join("socket")).unwrap();
        let state = State {
            generation: 0,
            present: base.snapshot(),
            stable: base.snapshot(),
            clients: Vec::new(),
            operations: 0,
            flushes: Vec::new(),
            end: None,
        };
        let state = Arc::new(Mutex::new(&STATE, state));
        let of_listener = state.clone();
        // The thread ends with the process.
        thread::spawn(move || {
            for client in listener.incoming().flatten() {
                let mut state = of_listener.lock();
                state.clients.push(client.try_clone().unwrap());
                let storage = Storage { state: of_listener.clone(), generation: state.generation };
                drop(state);
                let server = NbdServer::new(Arc::new(storage), "disk");
                // A client whose server ends gets no reply.
                thread::spawn(move || drop(server.serve(client)));
            }
        });
        Self { dir, state }
    }

    fn open(&self, reconnect: Duration) -> Inodes {
        let address = format!("nbd+unix:///disk?socket={}/socket", self.dir.path().display());
        let options = NbdOptions::new().reconnect(reconnect);
        let device = NbdDevice::open(&NbdAddress::parse(&address).unwrap(), &options).unwrap();
        let now = DiskTime { seconds: 1_700_000_000, nanos: 0 };
        let options = OpenOptions::new().commit_interval(Duration::ZERO).now(now);
        Inodes::open(Arc::new(device), &options).unwrap()
    }

    /// Ends the server at the n-th operation from now.
    fn end_after(&self, end: End) {
        let mut state = self.state.lock();
        state.end = Some(End { at: state.operations + end.at, ..end });
    }

    fn left(&self) -> MemoryDevice {
        self.state.lock().present.snapshot()
    }
}

fn base() -> Result<MemoryDevice, nextent_testkit::Skip> {
    let image = Image::make(8 << 20, &["-t", "ext4", "-b", "1024", "-J", "size=1"])?;
    Ok(MemoryDevice::load(&image.path()).unwrap())
}

/// The ends to try: each flush in each way, each other operation in one way.
fn ends(base: &MemoryDevice) -> Vec<End> {
    let served = Served::new(base);
    let volume = served.open(Duration::ZERO);
    let begin = served.state.lock().operations;
    assert_eq!(work(&volume).len(), 2);
    let (end, flushes) = {
        let state = served.state.lock();
        (state.operations, state.flushes.clone())
    };
    volume.close().unwrap();
    let mut ends = Vec::new();
    for number in begin..end {
        let ways = [(false, false), (true, true), (true, false), (false, true)];
        let some = if flushes.contains(&number) { 0..4 } else { 0..1 };
        for way in some {
            let (performs, loses) = ways[(way + number as usize) % 4];
            ends.push(End { at: number - begin, performs, loses });
        }
    }
    ends
}

#[test]
fn a_client_that_connects_again_notices_nothing() {
    let base = need!(base());
    for end in ends(&base) {
        let served = Served::new(&base);
        let volume = served.open(Duration::from_secs(100));
        served.end_after(end);
        let durable = work(&volume);
        assert_eq!(durable.len(), 2, "{end:?}");
        volume.close().unwrap_or_else(|error| panic!("{end:?}: {error}"));
        assert_eq!(served.state.lock().generation, 1, "{end:?}");
        check_recovery(served.left(), &durable, &format!("{end:?}"));
    }
}

#[test]
fn the_journal_of_another_client_stops() {
    let base = need!(base());
    for end in ends(&base) {
        let served = Served::new(&base);
        let volume = served.open(Duration::ZERO);
        served.end_after(end);
        let durable = work(&volume);
        assert_eq!(served.state.lock().generation, 1, "{end:?}");
        let _ = volume.sync();
        check_aborted(&volume, &format!("{end:?}"));
        assert!(volume.close().is_err(), "{end:?}");
        check_recovery(served.left(), &durable, &format!("{end:?}"));
    }
}
