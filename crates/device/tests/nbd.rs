//! The NBD device with the servers of Debian: it keeps the device's contract, also when servers
//! fail, end and start again.

use nextent_device::queue::{Buffer, Completed, Direction, Piece, Transfer};
use nextent_device::{BlockDevice, MemoryDevice, NbdAddress, NbdDevice, NbdOptions, SparseRanges};
use nextent_sync::atomic::{AtomicUsize, Ordering};
use nextent_sync::{Arc, Duration, thread};
use nextent_testkit::{NbdServer, Rng, Skip, need};
use std::io::{ErrorKind, Read, Write};
use std::os::unix::net::{UnixListener, UnixStream};

#[path = "nbd/server.rs"]
mod server;
#[path = "nbd/tls.rs"]
mod tls;

const SIZE: u64 = 4 << 20;

fn open_with(server: &NbdServer, options: &NbdOptions) -> NbdDevice {
    NbdDevice::open(&NbdAddress::parse(&server.address()).unwrap(), options).unwrap()
}

fn open(server: &NbdServer) -> NbdDevice {
    open_with(server, &NbdOptions::new())
}

fn reconnecting() -> NbdOptions {
    NbdOptions::new().reconnect(Duration::from_secs(60))
}

/// A file of [`SIZE`] zeros.
fn file() -> tempfile::NamedTempFile {
    let file = tempfile::NamedTempFile::new().unwrap();
    file.as_file().set_len(SIZE).unwrap();
    file
}

/// Random operations on the device and on a vector; returns the vector.
fn compare(device: &dyn BlockDevice, seed: u64, ops: usize) -> Vec<u8> {
    let mut rng = Rng::new(seed);
    let mut model = vec![0; SIZE as usize];
    assert_eq!(device.size(), SIZE);
    for n in 0..ops {
        let mut at = rng.below(SIZE);
        let bits = rng.below(18);
        let mut len = (1 + rng.below(1 << bits)).min(SIZE - at);
        if rng.below(2) == 0 {
            (at, len) = (at / 4096 * 4096, len.next_multiple_of(4096).min(SIZE - at / 4096 * 4096));
        }
        let range = at as usize..(at + len) as usize;
        match rng.below(8) {
            0..4 => {
                let bytes = vec![n as u8; len as usize];
                device.write_at(at, &bytes).unwrap();
                model[range].copy_from_slice(&bytes);
            }
            4 => {
                device.write_zeroes(at, len).unwrap();
                model[range].fill(0);
            }
            5 => device.flush().unwrap(),
            _ => {
                let mut bytes = vec![1; len as usize];
                device.read_at(at, &mut bytes).unwrap();
                assert!(bytes == model[range], "{len} bytes at {at} differ");
            }
        }
    }
    check(device, &model);
    model
}

/// Compares all bytes, and checks that the device knows no zeros where there are none.
#[track_caller]
fn check(device: &dyn BlockDevice, model: &[u8]) {
    let mut all = vec![1; SIZE as usize];
    device.read_at(0, &mut all).unwrap();
    assert!(all == model, "the device differs from the model");
    let mut at = 0;
    for range in SparseRanges::new(device) {
        let range = range.unwrap();
        assert!(model[at..range.start as usize].iter().all(|byte| *byte == 0));
        at = range.end as usize;
    }
    assert!(model[at..].iter().all(|byte| *byte == 0));
}

#[test]
fn every_server_keeps_the_contract() {
    let image = file();
    let path = image.path().to_str().unwrap();
    let servers = [
        NbdServer::nbdkit(&["memory", "4M"]),
        NbdServer::nbdkit(&["file", path]),
        NbdServer::nbdkit(&[
            "--filter=blocksize-policy",
            "memory",
            "4M",
            "blocksize-minimum=4096",
            "blocksize-preferred=4096",
            "blocksize-maximum=64K",
            "blocksize-error-policy=error",
        ]),
        NbdServer::nbdkit(&["--no-sr", "memory", "4M"]),
        NbdServer::nbdkit(&[
            "--filter=nozero",
            "--filter=noextents",
            "--filter=noparallel",
            "memory",
            "4M",
        ]),
        NbdServer::qemu(&["-f", "raw", path]),
        NbdServer::qemu(&["-f", "raw", "--cache=none", "--aio=native", path]),
    ];
    for (seed, server) in (1..).zip(servers) {
        let server = need!(server);
        if seed == 6 {
            image.as_file().set_len(0).unwrap();
            image.as_file().set_len(SIZE).unwrap();
        }
        for options in [NbdOptions::new(), reconnecting()] {
            let device = open_with(&server, &options);
            device.write_zeroes(0, SIZE).unwrap();
            let model = compare(&device, seed, 300);
            drop(device);
            check(&open(&server), &model);
        }
    }
}

#[test]
fn holes_are_not_read() {
    let image = file();
    let server = need!(NbdServer::nbdkit(&["file", image.path().to_str().unwrap()]));
    let device = open(&server);
    device.write_at(1 << 20, &[7; 4096]).unwrap();
    assert_eq!(device.next_data(0).unwrap(), Some(1 << 20..(1 << 20) + 4096));
    assert_eq!(device.next_data((1 << 20) + 100).unwrap(), Some((1 << 20) + 100..(1 << 20) + 4096));
    assert_eq!(device.next_data((1 << 20) + 4096).unwrap(), None);
    device.discard(1 << 20, 4096).unwrap();
    device.flush().unwrap();
}

#[test]
fn read_only_exports_refuse_writes() {
    let server = need!(NbdServer::nbdkit(&["-r", "memory", "4M"]));
    for device in [open(&server), open_with(&server, &NbdOptions::new().read_only(true))] {
        assert!(device.is_read_only());
        let error = device.write_at(0, &[1; 512]).unwrap_err();
        assert_eq!(error.raw_os_error(), Some(libc::EROFS));
        device.read_at(0, &mut [0; 512]).unwrap();
        device.flush().unwrap();
    }
}

#[test]
fn accesses_beyond_the_end_are_refused() {
    let server = need!(NbdServer::nbdkit(&["memory", "4M"]));
    let device = open(&server);
    for (at, len) in [(SIZE, 1), (SIZE - 1, 2), (u64::MAX, 1)] {
        let mut bytes = vec![0; len];
        assert_eq!(device.read_at(at, &mut bytes).unwrap_err().kind(), ErrorKind::UnexpectedEof);
        assert_eq!(device.write_at(at, &bytes).unwrap_err().kind(), ErrorKind::UnexpectedEof);
    }
    device.read_at(SIZE, &mut []).unwrap();
}

#[test]
fn servers_that_cannot_make_writes_stable_are_refused() {
    let server = need!(NbdServer::nbdkit(&[
        "--filter=fua",
        "--filter=nocache",
        "memory",
        "4M",
        "fuamode=force"
    ]));
    compare(&open(&server), 9, 50);
    let server = need!(NbdServer::nbdkit(&[
        "eval",
        "get_size=echo 4M",
        "pread=dd if=/dev/zero count=$3 iflag=count_bytes status=none",
        "pwrite=cat > /dev/null",
        "can_flush=exit 3"
    ]));
    let address = NbdAddress::parse(&server.address()).unwrap();
    let error = NbdDevice::open(&address, &NbdOptions::new()).map(drop).unwrap_err();
    assert!(error.to_string().contains("neither FLUSH nor FUA"), "{error}");
    NbdDevice::open(&address, &NbdOptions::new().read_only(true)).unwrap();
}

#[test]
fn errors_of_the_server_are_reported_with_their_request() {
    let server = need!(NbdServer::nbdkit(&[
        "--filter=error",
        "memory",
        "4M",
        "error=ENOSPC",
        "error-pwrite-rate=30%"
    ]));
    let device = open_with(&server, &NbdOptions::new().write_behind(false));
    let (mut failed, mut written) = (0, 0);
    for n in 0..200u64 {
        match device.write_at(n * 4096, &[n as u8 + 1; 4096]) {
            Ok(()) => {
                let mut bytes = [0; 4096];
                device.read_at(n * 4096, &mut bytes).unwrap();
                assert_eq!(bytes, [n as u8 + 1; 4096]);
                written += 1;
            }
            Err(error) => {
                assert_eq!(error.raw_os_error(), Some(libc::ENOSPC), "{error}");
                failed += 1;
            }
        }
    }
    assert!(failed > 0 && written > 0);
}

/// Sequential and scattered reads of a server that counts as slow, between writes of all kinds.
#[test]
fn a_slow_server_is_read_ahead() {
    let server = need!(NbdServer::nbdkit(&["--filter=delay", "memory", "4M", "rdelay=2ms"]));
    for options in [NbdOptions::new(), NbdOptions::new().write_behind(false)] {
        let device = open_with(&server, &options);
        device.write_zeroes(0, SIZE).unwrap();
        let mut model = compare(&device, 11, 60);
        for at in (0..SIZE as usize / 4).step_by(4096) {
            let mut bytes = [0; 4096];
            device.read_at(at as u64, &mut bytes).unwrap();
            assert!(bytes == model[at..at + 4096]);
            // Behind the reader, right before it, and what it has read ahead.
            let places = [at, at + 4096, at + (300 << 10)];
            for to in places.into_iter().filter(|to| to + 100 <= SIZE as usize) {
                device.write_at(to as u64, &[at as u8; 100]).unwrap();
                model[to..to + 100].fill(at as u8);
            }
            if at.is_multiple_of(256 << 10) {
                device.discard(at as u64, 4096).unwrap();
                device.write_at(at as u64, &[9; 4096]).unwrap();
                model[at..at + 4096].fill(9);
                let mut queue = device.queue(1);
                let place = at as u64 + (500 << 10);
                queue.submit(transfer(0, Direction::Write, place, Buffer::from_bytes(&[8; 4096])));
                queue.complete(1, &mut Vec::new());
                model[place as usize..][..4096].fill(8);
            }
        }
        check(&device, &model);
        drop(device);
        check(&open(&server), &model);
    }
}

/// Many requests of the read-ahead are in flight when the device is closed. The server goes on.
#[test]
fn a_closed_device_leaves_no_replies() {
    let server = need!(NbdServer::nbdkit(&["--filter=delay", "memory", "4M", "rdelay=5ms"]));
    for _ in 0..5 {
        let device = open(&server);
        for at in (0..SIZE / 4).step_by(64 << 10) {
            device.read_at(at, &mut vec![0; 64 << 10]).unwrap();
        }
    }
}

/// A write returns before it fails. From then on all flushes and writes fail, and reads of its
/// range; others do not.
#[test]
fn deferred_errors_are_reported_by_every_flush() {
    let dir = tempfile::tempdir().unwrap();
    let broken = dir.path().join("broken");
    let server = need!(NbdServer::nbdkit(&[
        "--filter=error",
        "memory",
        "4M",
        "error-pwrite=ENOSPC",
        "error-pwrite-rate=100%",
        &format!("error-pwrite-file={}", broken.display()),
    ]));
    let device = open(&server);
    device.write_at(0, &[1; 4096]).unwrap();
    device.flush().unwrap();
    std::fs::write(&broken, "").unwrap();
    device.write_at(8192, &[2; 4096]).unwrap();
    let mut bytes = [0; 4096];
    device.read_at(8192, &mut bytes).unwrap();
    assert_eq!(bytes, [2; 4096]);
    for _ in 0..2 {
        let error = device.flush().unwrap_err();
        assert_eq!(error.raw_os_error(), Some(libc::ENOSPC), "{error}");
        assert!(device.write_at(0, &[3; 4096]).is_err());
        assert!(device.read_at(8192, &mut bytes).is_err());
        device.read_at(0, &mut bytes).unwrap();
        assert_eq!(bytes, [1; 4096]);
        // The server works again, but the write is lost.
        let _ = std::fs::remove_file(&broken);
    }
}

fn transfer(tag: u64, direction: Direction, offset: u64, buffer: Buffer) -> Transfer {
    let piece = Piece { offset, start: 0, len: buffer.len() };
    Transfer { tag, direction, buffer, pieces: piece.into() }
}

/// Writes and reads back units of `unit` bytes with `depth` transfers in flight.
fn use_queue(device: &dyn BlockDevice, unit: usize, depth: usize) {
    let mut queue = device.queue(depth);
    let count = SIZE / unit as u64;
    for direction in [Direction::Write, Direction::Read] {
        let mut done: Vec<Completed> = Vec::new();
        for n in 0..count {
            let fill = vec![(n as u8).wrapping_add(1); unit];
            let buffer = match direction {
                Direction::Write => Buffer::from_bytes(&fill),
                Direction::Read => Buffer::new(unit),
            };
            queue.submit(transfer(n, direction, n * unit as u64, buffer));
            if queue.in_flight() >= depth {
                queue.complete(1, &mut done);
            }
        }
        queue.complete(usize::MAX, &mut done);
        assert_eq!((queue.in_flight(), done.len() as u64), (0, count));
        for completed in done {
            completed.result.unwrap();
            let tag = completed.transfer.tag;
            assert!(
                completed.transfer.buffer.iter().all(|byte| *byte == (tag as u8).wrapping_add(1)),
                "{tag}"
            );
        }
    }
}

#[test]
fn transfers_are_in_flight_together() {
    let server = need!(NbdServer::nbdkit(&["memory", "4M"]));
    let device = open(&server);
    for (unit, depth) in [(512, 1), (4096, 64), (64 << 10, 8), (1 << 20, 4), (4 << 20, 1)] {
        use_queue(&device, unit, depth);
    }
    let server =
        need!(NbdServer::nbdkit(&["--filter=delay", "memory", "4M", "rdelay=20ms", "wdelay=20ms"]));
    use_queue(&open(&server), 16 << 10, 64);
}

/// More bytes in flight than sockets hold, in both directions.
#[test]
fn requests_larger_than_socket_buffers_do_not_deadlock() {
    let server = need!(NbdServer::nbdkit(&["memory", "64M"]));
    let device = open_with(&server, &NbdOptions::new().connections(1));
    let mut queue = device.queue(64);
    for n in 0..32u64 {
        let direction = if n % 2 == 0 { Direction::Read } else { Direction::Write };
        queue.submit(transfer(n, direction, n << 21, Buffer::new(2 << 20)));
    }
    let mut done = Vec::new();
    queue.complete(usize::MAX, &mut done);
    assert_eq!(done.len(), 32);
    done.into_iter().for_each(|completed| completed.result.unwrap());
}

/// Threads write and read their own ranges, while the caller does something else.
fn many_threads(device: &NbdDevice, rounds: usize, meanwhile: impl FnOnce()) {
    thread::scope(|scope| {
        for thread in 0..8u64 {
            scope.spawn(move || {
                let mut rng = Rng::new(thread);
                let share = SIZE / 8;
                let mut model = vec![0; share as usize];
                device.write_zeroes(thread * share, share).unwrap();
                for round in 0..rounds {
                    let at = rng.below(share);
                    let len = (1 + rng.below(9000)).min(share - at);
                    let range = at as usize..(at + len) as usize;
                    let bytes = vec![round as u8; len as usize];
                    device.write_at(thread * share + at, &bytes).unwrap();
                    model[range].copy_from_slice(&bytes);
                    if round % 16 == 0 {
                        device.flush().unwrap();
                    }
                    let mut all = vec![0; share as usize];
                    device.read_at(thread * share, &mut all).unwrap();
                    assert!(all == model, "thread {thread}, round {round}");
                }
            });
        }
        meanwhile();
    });
}

#[test]
fn many_threads_share_connections() {
    for arguments in
        [&["memory", "4M"][..], &["--filter=multi-conn", "memory", "4M", "multi-conn-mode=disable"]]
    {
        let server = need!(NbdServer::nbdkit(arguments));
        let device = open(&server);
        many_threads(&device, 60, || ());
    }
}

/// The server is killed again and again while threads write. Its file keeps what it had written.
#[test]
fn a_killed_server_loses_nothing_that_was_written() {
    let image = file();
    let mut server = need!(NbdServer::nbdkit(&["file", image.path().to_str().unwrap()]));
    let device = open_with(&server, &reconnecting());
    many_threads(&device, 400, || {
        for round in 0..6 {
            thread::sleep(Duration::from_millis(20 + round * 13));
            server.restart();
        }
    });
}

/// A server that keeps writes in memory loses all of them. The device repeats those that no flush
/// covers.
#[test]
fn unflushed_writes_are_repeated() -> Result<(), Skip> {
    let mut server = NbdServer::nbdkit(&["memory", "4M"])?;
    let device = open_with(&server, &reconnecting());
    device.write_at(0, &[1; 4096]).unwrap();
    device.flush().unwrap();
    device.write_at(8192, &[2; 4096]).unwrap();
    device.write_at(9000, &[3; 10]).unwrap();
    let mut queue = device.queue(4);
    queue.submit(transfer(0, Direction::Write, 1 << 20, Buffer::from_bytes(&[4; 4096])));
    queue.complete(1, &mut Vec::new());
    drop(queue);
    // The server has performed the writes when a read of more bytes ends.
    device.read_at(0, &mut [9; 16 << 10]).unwrap();
    server.restart();
    let mut bytes = [9; 4096];
    device.read_at(8192, &mut bytes).unwrap();
    assert_eq!((bytes[0], bytes[808], bytes[818]), (2, 3, 2));
    device.read_at(1 << 20, &mut bytes).unwrap();
    assert_eq!(bytes, [4; 4096]);
    // The server lost what it had flushed, which a real one does not.
    device.read_at(0, &mut bytes).unwrap();
    assert_eq!(bytes, [0; 4096]);
    Ok(())
}

#[test]
fn a_lost_connection_fails_all_requests_at_once() {
    let mut server = need!(NbdServer::nbdkit(&["memory", "4M"]));
    let device = open(&server);
    device.write_at(0, &[1; 4096]).unwrap();
    server.kill();
    for _ in 0..2 {
        let error = device.read_at(8192, &mut [0; 512]).unwrap_err();
        assert!(error.to_string().contains("lost"), "{error}");
        assert!(device.flush().is_err());
        let mut queue = device.queue(4);
        let mut done = Vec::new();
        queue.submit(transfer(0, Direction::Read, 0, Buffer::new(512)));
        queue.complete(1, &mut done);
        assert!(done[0].result.is_err());
    }
    let error = NbdDevice::open(&NbdAddress::parse(&server.address()).unwrap(), &NbdOptions::new());
    assert!(error.map(drop).unwrap_err().to_string().contains(server.socket().to_str().unwrap()));
}

/// The export has another size when the server starts again.
#[test]
fn another_export_is_refused() {
    let image = file();
    let mut server = need!(NbdServer::nbdkit(&["file", image.path().to_str().unwrap()]));
    let device = open_with(&server, &reconnecting());
    device.write_at(0, &[1; 4096]).unwrap();
    server.kill();
    image.as_file().set_len(SIZE / 2).unwrap();
    server.restart();
    let error = device.flush().unwrap_err();
    assert!(error.to_string().contains("another size"), "{error}");
}

/// A server that does not answer within the timeout counts as lost.
#[test]
fn a_silent_server_is_lost_after_the_timeout() {
    let server = need!(NbdServer::nbdkit(&["--filter=delay", "memory", "4M", "rdelay=600"]));
    let device = open_with(&server, &NbdOptions::new().timeout(Duration::from_secs(1)));
    let error = device.read_at(0, &mut [0; 512]).unwrap_err();
    assert!(error.to_string().contains("did not answer"), "{error}");
}

/// A server that accepts connections and never answers is given up: the time to connect again
/// begins once.
#[test]
fn a_server_that_never_answers_is_given_up() {
    static REQUESTS: AtomicUsize = AtomicUsize::new(0);
    let server = Fake::new(FLAGS, SIZE, |_| {
        REQUESTS.fetch_add(1, Ordering::Relaxed);
        Vec::new()
    });
    let time = Duration::from_secs(1);
    let device = server.open(&NbdOptions::new().timeout(time).reconnect(time)).unwrap();
    let error = device.read_at(0, &mut [0; 512]).unwrap_err();
    assert!(error.to_string().contains("did not answer"), "{error}");
    // Each request is silent for a second.
    let requests = REQUESTS.load(Ordering::Relaxed);
    assert!((1..=3).contains(&requests), "{requests} requests");
}

/// The server answers repeated writes only once it has four of them.
#[test]
fn writes_are_repeated_at_once() {
    const WRITES: usize = 4;
    let connections = AtomicUsize::new(0);
    let server = Fake::serving(move |client| {
        shake_hands(client, FLAGS, SIZE)?;
        let repeats = connections.fetch_add(1, Ordering::Relaxed) > 0;
        let mut held = Vec::new();
        loop {
            let (command, cookie, len) = request(client)?;
            let reply = match command {
                READ => chunk(cookie, 1, 1, &[&[0; 8][..], &vec![0; len]].concat()),
                WRITE => {
                    client.read_exact(&mut vec![0; len])?;
                    chunk(cookie, 1, 0, &[])
                }
                _ if !repeats => return Ok(()), // The flush loses the connection.
                _ => chunk(cookie, 1, 0, &[]),
            };
            held.extend(reply);
            let writes = held.len() / chunk(cookie, 1, 0, &[]).len();
            if !repeats || command != WRITE || writes == WRITES {
                client.write_all(&held)?;
                held.clear();
            }
        }
    });
    let options = NbdOptions::new().timeout(Duration::from_secs(10));
    let device = server.open(&options.reconnect(Duration::from_secs(5))).unwrap();
    for n in 0..WRITES {
        device.write_at(n as u64 * (SIZE / 8), &[1; 4096]).unwrap();
    }
    device.flush().unwrap();
}

/// The server of this crate, over a memory device.
#[test]
fn our_server_keeps_the_contract() {
    let dir = tempfile::tempdir().unwrap();
    let listener = UnixListener::bind(dir.path().join("socket")).unwrap();
    let memory = Arc::new(MemoryDevice::new(SIZE));
    let server = nextent_device::NbdServer::new(memory.clone(), "disk");
    thread::spawn(move || {
        for client in listener.incoming().flatten() {
            let server = server.clone();
            thread::spawn(move || server.serve(client).unwrap());
        }
    });
    let open = |export: &str, options: &NbdOptions| {
        let address = format!("nbd+unix:///{export}?socket={}/socket", dir.path().display());
        NbdDevice::open(&NbdAddress::parse(&address).unwrap(), options)
    };
    let device = open("disk", &NbdOptions::new()).unwrap();
    let model = compare(&device, 8, 300);
    assert!(memory.to_bytes() == model);
    use_queue(&device, 4096, 16);
    device.discard(0, SIZE).unwrap();
    many_threads(&open("", &reconnecting()).unwrap(), 30, || ());
    let error = open("other", &NbdOptions::new()).map(drop).unwrap_err();
    assert!(error.to_string().contains("no such export"), "{error}");
}

/// A server that serves each connection by a function, after a correct handshake.
struct Fake {
    dir: tempfile::TempDir,
}

/// The replies of a server to the first request, which has the cookie that they repeat.
type Answer = fn(cookie: [u8; 8]) -> Vec<u8>;

impl Fake {
    fn new(flags: u16, size: u64, answer: Answer) -> Self {
        Self::serving(move |client| {
            shake_hands(client, flags, size)?;
            loop {
                let (_, cookie, _) = request(client)?;
                client.write_all(&answer(cookie))?;
            }
        })
    }

    fn serving(
        serve: impl Fn(&mut UnixStream) -> std::io::Result<()> + Send + Sync + 'static,
    ) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let listener = UnixListener::bind(dir.path().join("socket")).unwrap();
        let serve = Arc::new(serve);
        thread::spawn(move || {
            for mut client in listener.incoming().flatten() {
                let serve = Arc::clone(&serve);
                // The client ends connections when it likes.
                thread::spawn(move || serve(&mut client));
            }
        });
        Self { dir }
    }

    fn open(&self, options: &NbdOptions) -> std::io::Result<NbdDevice> {
        let socket = self.dir.path().join("socket");
        let address = format!("nbd+unix:///x?socket={}", socket.display());
        NbdDevice::open(&NbdAddress::parse(&address).unwrap(), options)
    }
}

const READ: u16 = 0;
const WRITE: u16 = 1;

/// The command, the cookie and the length of the next request.
fn request(client: &mut UnixStream) -> std::io::Result<(u16, [u8; 8], usize)> {
    let mut request = [0; 28];
    client.read_exact(&mut request)?;
    let command = u16::from_be_bytes([request[6], request[7]]);
    let len = u32::from_be_bytes(request[24..].try_into().unwrap());
    Ok((command, request[8..16].try_into().unwrap(), len as usize))
}

fn shake_hands(client: &mut UnixStream, flags: u16, size: u64) -> std::io::Result<()> {
    client.write_all(b"NBDMAGICIHAVEOPT\0\x03")?;
    client.read_exact(&mut [0; 4])?;
    loop {
        let mut header = [0; 16];
        client.read_exact(&mut header)?;
        let option = &header[8..12];
        let len = u32::from_be_bytes(header[12..].try_into().unwrap());
        client.read_exact(&mut vec![0; len as usize])?;
        let mut reply = |kind: u32, data: &[u8]| {
            let head = [&0x0003_e889_0455_65a9u64.to_be_bytes()[..], option, &kind.to_be_bytes()];
            let all = [head.concat(), (data.len() as u32).to_be_bytes().into(), data.into()];
            client.write_all(&all.concat())
        };
        match option {
            [0, 0, 0, 7] => {
                let info = [&[0, 0][..], &size.to_be_bytes(), &flags.to_be_bytes()].concat();
                reply(3, &info)?;
                return reply(1, &[]);
            }
            [0, 0, 0, 8] => reply(1, &[])?,
            _ => reply((1 << 31) | 1, &[])?,
        }
    }
}

fn chunk(cookie: [u8; 8], flags: u16, kind: u16, payload: &[u8]) -> Vec<u8> {
    let len = (payload.len() as u32).to_be_bytes();
    let head = [
        0x668e_33efu32.to_be_bytes(),
        [flags.to_be_bytes(), kind.to_be_bytes()].concat().try_into().unwrap(),
    ];
    [&head.concat()[..], &cookie, &len, payload].concat()
}

/// Replies to a read of 512 bytes at 4096 that violate the protocol.
const MALFORMED: [(&str, Answer); 10] = [
    ("another magic number", |_| vec![7; 64]),
    ("a cookie of no request", |_| chunk([9; 8], 1, 0, &[])),
    ("a reply without bytes", |cookie| chunk(cookie, 1, 0, &[])),
    ("too few bytes", |cookie| {
        chunk(cookie, 1, 1, &[&4096u64.to_be_bytes()[..], &[0; 511]].concat())
    }),
    ("too many bytes", |cookie| {
        chunk(cookie, 1, 1, &[&4096u64.to_be_bytes()[..], &[0; 513]].concat())
    }),
    ("bytes before the range", |cookie| {
        chunk(cookie, 1, 1, &[&4095u64.to_be_bytes()[..], &[0; 512]].concat())
    }),
    ("a huge hole", |cookie| {
        chunk(cookie, 1, 2, &[&4096u64.to_be_bytes()[..], &[255; 4]].concat())
    }),
    ("an unknown type", |cookie| chunk(cookie, 1, 77, &[])),
    ("an error without a number", |cookie| chunk(cookie, 1, 0x8001, &[0; 4])),
    ("a simple reply", |cookie| {
        [&0x6744_6698u32.to_be_bytes()[..], &[0; 4], &cookie, &[0; 512]].concat()
    }),
];

const FLAGS: u16 = 1 | 4;

/// The client ends with one error, and does not try the same server for a minute.
#[test]
fn malformed_replies_end_the_connection_for_good() {
    for (what, answer) in MALFORMED {
        let server = Fake::new(FLAGS, SIZE, answer);
        let device = server.open(&reconnecting()).unwrap();
        for _ in 0..2 {
            let error = device.read_at(4096, &mut [0; 512]).unwrap_err();
            assert!(error.to_string().contains("violates"), "{what}: {error}");
        }
    }
}

/// A reply in parts, which are out of order, and the end of a connection within a reply.
#[test]
fn replies_in_parts_are_put_together() {
    let server = Fake::new(FLAGS, SIZE, |cookie| {
        let data = [&(4096u64 + 100).to_be_bytes()[..], &[7; 412]].concat();
        let hole = [&4096u64.to_be_bytes()[..], &100u32.to_be_bytes()].concat();
        [chunk(cookie, 0, 1, &data), chunk(cookie, 0, 2, &hole), chunk(cookie, 1, 0, &[])].concat()
    });
    let mut bytes = [1; 512];
    server.open(&NbdOptions::new()).unwrap().read_at(4096, &mut bytes).unwrap();
    assert!(bytes[..100] == [0; 100] && bytes[100..] == [7; 412]);
}

#[test]
fn exports_of_impossible_sizes_are_refused() {
    for (flags, size) in [(FLAGS, u64::MAX), (0, SIZE)] {
        let server = Fake::new(flags, size, |_| vec![]);
        let error = server.open(&NbdOptions::new()).map(drop).unwrap_err();
        assert!(error.to_string().contains("violates"), "{error}");
    }
}

#[test]
fn other_servers_are_refused() {
    let dir = tempfile::tempdir().unwrap();
    let listener = UnixListener::bind(dir.path().join("socket")).unwrap();
    let server = thread::spawn(move || {
        for greeting in [
            &b"SSH-2.0-OpenSSH_9.2p1 Debian"[..],
            b"NBDMAGIC\x00\x00\x42\x02\x81\x86\x12\x53\0\0",
            b"",
        ] {
            let (mut client, _) = listener.accept().unwrap();
            client.write_all(greeting).unwrap();
        }
    });
    for part in ["no NBD server", "oldstyle", "end of file"] {
        let address = format!("nbd+unix:///?socket={}/socket", dir.path().display());
        let address = NbdAddress::parse(&address).unwrap();
        let error = NbdDevice::open(&address, &NbdOptions::new()).map(drop).unwrap_err();
        assert!(error.to_string().contains(part), "{error}");
    }
    server.join().unwrap();
}
