//! Our server: several requests at once, and TLS.

use super::*;
use nextent_sync::{Condvar, LockClass, Mutex};
use nextent_testkit::{Authority, Certificate};

static INSIDE: LockClass = LockClass::new("test.nbd-inside", 851);

/// Serves `server` at a new socket, until the process ends; the directory and the address.
fn serve(server: nextent_device::NbdServer, scheme: &str) -> (tempfile::TempDir, String) {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("socket");
    let listener = UnixListener::bind(&path).unwrap();
    thread::spawn(move || {
        for client in listener.incoming().flatten() {
            let server = server.clone();
            thread::spawn(move || drop(server.serve(client)));
        }
    });
    let address = format!("{scheme}:///?socket={}", path.display());
    (dir, address)
}

fn connect(address: &str, connections: usize) -> std::io::Result<NbdDevice> {
    let options = NbdOptions::new().connections(connections);
    NbdDevice::open(&NbdAddress::parse(address).unwrap(), &options)
}

/// Reads wait until several are in the device.
struct Meeting {
    memory: MemoryDevice,
    inside: Mutex<usize>,
    changed: Condvar,
}

const AT_ONCE: usize = 4;

impl BlockDevice for Meeting {
    fn size(&self) -> u64 {
        self.memory.size()
    }

    fn read_at(&self, offset: u64, buf: &mut [u8]) -> std::io::Result<()> {
        let mut inside = self.inside.lock();
        *inside += 1;
        self.changed.notify_all();
        let begun = nextent_sync::now();
        while *inside < AT_ONCE {
            if begun.elapsed() > Duration::from_secs(60) {
                return Err(ErrorKind::TimedOut.into());
            }
            self.changed.wait_for(&mut inside, Duration::from_secs(1));
        }
        drop(inside);
        self.memory.read_at(offset, buf)
    }

    fn write_at(&self, offset: u64, buf: &[u8]) -> std::io::Result<()> {
        self.memory.write_at(offset, buf)
    }

    fn write_zeroes(&self, offset: u64, len: u64) -> std::io::Result<()> {
        self.memory.write_zeroes(offset, len)
    }

    fn discard(&self, offset: u64, len: u64) -> std::io::Result<()> {
        self.memory.discard(offset, len)
    }

    fn is_read_only(&self) -> bool {
        false
    }

    fn flush(&self) -> std::io::Result<()> {
        self.memory.flush()
    }
}

#[test]
fn requests_of_one_connection_are_performed_at_once() {
    let memory = MemoryDevice::new(SIZE);
    let inside = Mutex::new(&INSIDE, 0);
    let meeting = Meeting { memory, inside, changed: Condvar::new() };
    let server = nextent_device::NbdServer::new(Arc::new(meeting), "");
    let (_dir, address) = serve(server, "nbd+unix");
    let device = connect(&address, 1).unwrap();
    thread::scope(|scope| {
        for n in 0..AT_ONCE as u64 {
            let device = &device;
            scope.spawn(move || device.read_at(n * 4096, &mut [1; 4096]).unwrap());
        }
    });
}

/// Replies of many threads over one connection are whole, also over TLS and for large requests.
#[test]
fn our_server_serves_many_requests_over_tls() {
    let authority = need!(Authority::new());
    let both = [Certificate::new("server", "DNS:localhost"), Certificate::new("client", "DNS:me")];
    let dir = authority.directory(&both);
    let memory = Arc::new(MemoryDevice::new(SIZE));
    let plain = nextent_device::NbdServer::new(memory.clone(), "disk");
    for verifies in [false, true] {
        let server = plain.clone().tls(&dir, verifies).unwrap();
        let (_socket, address) = serve(server, "nbds+unix");
        let address = format!("{address}&tls-certificates=");
        let stranger = connect(&format!("{address}{}", authority.directory(&[]).display()), 1);
        assert_eq!(stranger.is_ok(), !verifies);
        let device = connect(&format!("{address}{}", dir.display()), 1).unwrap();
        device.write_zeroes(0, SIZE).unwrap();
        let model = compare(&device, 11, 150);
        assert!(memory.to_bytes() == model);
        use_queue(&device, 4096, 64);
        use_queue(&device, 1 << 20, 4);
        many_threads(&device, 20, || ());
    }
    assert!(plain.clone().tls(&authority.directory(&[]), false).is_err());
    let (_socket, address) = serve(plain.tls(&dir, false).unwrap(), "nbd+unix");
    let error = connect(&address, 1).map(drop).unwrap_err();
    assert!(error.to_string().contains("requires TLS"), "{error}");
}
