//! A server: offers a device to NBD clients, one thread for each connection.
//!
//! Options are answered as the protocol asks: `GO`, `INFO`, `EXPORT_NAME`, `LIST`,
//! `STRUCTURED_REPLY`, `LIST_META_CONTEXT`, `SET_META_CONTEXT` and `ABORT`; TLS is not offered.
//! Requests of one connection are performed in the order in which they arrive. Clients use several
//! connections at once: a flush on one covers what was written over all.

use super::wire::{
    self, Command, Fields, Request, chunk, handshake, info, option, option_reply, transmission,
};
use crate::BlockDevice;
use nextent_num::{must_fit, to_usize};
use nextent_sync::Arc;
use std::io::{self, Read, Write};
use std::ops::Range;

/// The longest option that is read, in bytes. A longer one ends the connection.
const LONGEST_OPTION: u32 = 64 << 10;
/// The largest request with data, in bytes.
const LARGEST: u32 = 32 << 20;
/// The preferred size and alignment of requests.
const PREFERRED: u32 = 4096;
/// The most ranges that one block status describes.
const MOST_RANGES: usize = 1024;
/// The number of the context `base:allocation`.
const CONTEXT: u32 = 1;

/// A device that is offered to clients.
///
/// # Examples
///
/// ```
/// use nextent_device::{BlockDevice, MemoryDevice, NbdAddress, NbdDevice, NbdOptions, NbdServer};
/// use std::os::unix::net::UnixListener;
/// use std::sync::Arc;
///
/// # let dir = tempfile::tempdir()?;
/// let socket = dir.path().join("socket");
/// let listener = UnixListener::bind(&socket)?;
/// let server = NbdServer::new(Arc::new(MemoryDevice::new(1 << 20)), "disk");
/// std::thread::spawn(move || -> std::io::Result<()> {
///     let (client, _) = listener.accept()?;
///     server.serve(&client, &client)
/// });
/// let address = format!("nbd+unix:///disk?socket={}", socket.display());
/// let address = NbdAddress::parse(&address).expect("an address");
/// let device = NbdDevice::open(&address, &NbdOptions::new().connections(1))?;
/// device.write_at(0, b"text")?;
/// device.flush()?;
/// # Ok::<(), std::io::Error>(())
/// ```
#[derive(Clone)]
pub struct NbdServer {
    device: Arc<dyn BlockDevice>,
    export: String,
}

/// What a client has negotiated.
#[derive(Default)]
struct Negotiated {
    structured: bool,
    allocation: bool,
}

/// A connection to a client.
struct Connection<'c, R, W> {
    server: &'c NbdServer,
    input: R,
    output: W,
    negotiated: Negotiated,
    /// Whether the client wants no zeros after the description of an export.
    no_zeroes: bool,
}

impl NbdServer {
    /// Offers `device` under the name `export`, and as the default export.
    pub fn new(device: Arc<dyn BlockDevice>, export: impl Into<String>) -> Self {
        Self { device, export: export.into() }
    }

    /// Serves one client until it disconnects.
    ///
    /// # Errors
    /// The connection fails or the client violates the protocol. Errors of the device go to the
    /// client.
    pub fn serve(&self, input: impl Read, output: impl Write) -> io::Result<()> {
        let negotiated = Negotiated::default();
        let mut connection =
            Connection { server: self, input, output, negotiated, no_zeroes: false };
        match connection.negotiate()? {
            true => connection.transmit(),
            false => Ok(()),
        }
    }

    fn flags(&self) -> u16 {
        use transmission as flag;
        let always = flag::HAS_FLAGS | flag::SEND_FLUSH | flag::CAN_MULTI_CONN;
        let writes = flag::SEND_FUA | flag::SEND_TRIM | flag::SEND_WRITE_ZEROES;
        always | if self.device.is_read_only() { flag::READ_ONLY } else { writes }
    }

    fn knows(&self, name: &[u8]) -> bool {
        name.is_empty() || name == self.export.as_bytes()
    }

    /// The lengths of ranges from `range.start` on, and whether each reads as zeros.
    fn ranges(&self, range: Range<u64>) -> io::Result<Vec<(u64, bool)>> {
        let mut ranges = Vec::new();
        let mut at = range.start;
        while at < range.end && ranges.len() < MOST_RANGES {
            let data = self.device.next_data(at)?.unwrap_or(range.end..range.end);
            let start = data.start.clamp(at, range.end);
            if start > at {
                ranges.push((start - at, true));
            }
            at = data.end.clamp(start, range.end);
            if at > start {
                ranges.push((at - start, false));
            }
        }
        Ok(ranges)
    }
}

fn wrong(text: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, format!("the client violates the protocol: {text}"))
}

impl<R: Read, W: Write> Connection<'_, R, W> {
    /// The handshake; whether the client goes on to requests.
    fn negotiate(&mut self) -> io::Result<bool> {
        let mut greeting = Vec::with_capacity(18);
        greeting.extend(wire::GREETING.to_be_bytes());
        greeting.extend(wire::OPTION.to_be_bytes());
        greeting.extend((handshake::FIXED_NEWSTYLE | handshake::NO_ZEROES).to_be_bytes());
        self.output.write_all(&greeting)?;
        self.output.flush()?;
        let mut flags = [0; 4];
        self.input.read_exact(&mut flags)?;
        self.no_zeroes = flags[3] & 2 != 0;
        loop {
            let mut header = [0; 16];
            self.input.read_exact(&mut header)?;
            let mut fields = Fields(&header);
            let (magic, kind) = (fields.u64(), fields.u32().unwrap_or(0));
            let len = fields.u32().unwrap_or(0);
            if magic != Some(wire::OPTION) || len > LONGEST_OPTION {
                return Err(wrong("an invalid option"));
            }
            let mut data = vec![0; to_usize(len)];
            self.input.read_exact(&mut data)?;
            match kind {
                option::EXPORT_NAME => return self.export_name(&data),
                option::ABORT => {
                    self.reply(kind, option_reply::ACK, &[])?;
                    return Ok(false);
                }
                option::GO if self.describe(kind, &data)? => return Ok(true),
                option::GO => {}
                option::INFO => drop(self.describe(kind, &data)?),
                option::LIST if data.is_empty() => {
                    let name = super::negotiate::named(&self.server.export);
                    self.reply(kind, option_reply::SERVER, &name)?;
                    self.reply(kind, option_reply::ACK, &[])?;
                }
                option::STRUCTURED_REPLY if data.is_empty() => {
                    self.negotiated.structured = true;
                    self.reply(kind, option_reply::ACK, &[])?;
                }
                option::LIST_META_CONTEXT | option::SET_META_CONTEXT => {
                    self.meta_context(kind, &data)?;
                }
                option::LIST | option::STRUCTURED_REPLY => {
                    self.reply(kind, option_reply::INVALID, &[])?;
                }
                _ => self.reply(kind, option_reply::UNSUPPORTED, &[])?,
            }
        }
    }

    fn reply(&mut self, option: u32, kind: u32, data: &[u8]) -> io::Result<()> {
        let mut reply = Vec::with_capacity(20 + data.len());
        reply.extend(wire::OPTION_REPLY.to_be_bytes());
        reply.extend(option.to_be_bytes());
        reply.extend(kind.to_be_bytes());
        reply.extend(must_fit::<u32, _>(data.len()).to_be_bytes());
        reply.extend(data);
        self.output.write_all(&reply)?;
        self.output.flush()
    }

    /// The oldest way to choose an export. An unknown one ends the connection, as the protocol
    /// asks.
    fn export_name(&mut self, name: &[u8]) -> io::Result<bool> {
        if !self.server.knows(name) {
            return Ok(false);
        }
        let mut description = self.server.device.size().to_be_bytes().to_vec();
        description.extend(self.server.flags().to_be_bytes());
        if !self.no_zeroes {
            description.extend([0; 124]);
        }
        self.output.write_all(&description)?;
        self.output.flush()?;
        Ok(true)
    }

    /// Answers `INFO` and `GO`; whether the export is known.
    fn describe(&mut self, kind: u32, data: &[u8]) -> io::Result<bool> {
        let mut fields = Fields(data);
        let name = fields.u32().and_then(|len| fields.bytes(to_usize(len)));
        let Some(name) = name else {
            self.reply(kind, option_reply::INVALID, &[])?;
            return Ok(false);
        };
        if !self.server.knows(name) {
            self.reply(kind, option_reply::UNKNOWN, b"no such export")?;
            return Ok(false);
        }
        let mut export = info::EXPORT.to_be_bytes().to_vec();
        export.extend(self.server.device.size().to_be_bytes());
        export.extend(self.server.flags().to_be_bytes());
        self.reply(kind, option_reply::INFO, &export)?;
        let mut sizes = info::BLOCK_SIZE.to_be_bytes().to_vec();
        for size in [1, PREFERRED, LARGEST] {
            sizes.extend(size.to_be_bytes());
        }
        self.reply(kind, option_reply::INFO, &sizes)?;
        self.reply(kind, option_reply::ACK, &[])?;
        Ok(true)
    }

    /// Answers a question for contexts. The server has `base:allocation`.
    fn meta_context(&mut self, kind: u32, data: &[u8]) -> io::Result<()> {
        let mut fields = Fields(data);
        let name = fields.u32().and_then(|len| fields.bytes(to_usize(len)));
        let count = fields.u32();
        let (Some(name), Some(count)) = (name, count) else {
            return self.reply(kind, option_reply::INVALID, &[]);
        };
        let lists = kind == option::LIST_META_CONTEXT;
        if !self.negotiated.structured || !self.server.knows(name) {
            let refusal = if self.negotiated.structured {
                option_reply::UNKNOWN
            } else {
                option_reply::INVALID
            };
            return self.reply(kind, refusal, &[]);
        }
        let mut wanted = lists && count == 0;
        for _ in 0..count {
            let Some(query) = fields.u32().and_then(|len| fields.bytes(to_usize(len))) else {
                return self.reply(kind, option_reply::INVALID, &[]);
            };
            wanted |= query == wire::ALLOCATION || (lists && query == b"base:");
        }
        if wanted {
            let number = if lists { 0 } else { CONTEXT };
            let context = [&number.to_be_bytes()[..], wire::ALLOCATION].concat();
            self.reply(kind, option_reply::META_CONTEXT, &context)?;
        }
        if !lists {
            self.negotiated.allocation = wanted;
        }
        self.reply(kind, option_reply::ACK, &[])
    }

    /// Performs requests until the client disconnects.
    fn transmit(&mut self) -> io::Result<()> {
        loop {
            let mut header = [0; wire::REQUEST_LEN];
            match self.input.read_exact(&mut header) {
                Ok(()) => {}
                // Clients may leave without a word between requests.
                Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => return Ok(()),
                Err(error) => return Err(error),
            }
            let (request, cookie) =
                Request::parse(&header).ok_or_else(|| wrong("an invalid request"))?;
            match request.command {
                Some(Command::Disconnect) => return Ok(()),
                Some(Command::Write) if request.len > LARGEST => {
                    return Err(wrong("a write that is too large"));
                }
                Some(command) => self.perform(command, &request, cookie)?,
                None => self.fail(cookie, libc::EINVAL)?,
            }
            self.output.flush()?;
        }
    }

    fn perform(&mut self, command: Command, request: &wire::Parsed, cookie: u64) -> io::Result<()> {
        let device = Arc::clone(&self.server.device);
        let (offset, len) = (request.offset, u64::from(request.len));
        let mut data = Vec::new();
        if command == Command::Write {
            data.resize(to_usize(request.len), 0);
            self.input.read_exact(&mut data)?;
        }
        let has_range = command != Command::Flush;
        if has_range && offset.checked_add(len).is_none_or(|end| end > device.size()) {
            let changes = matches!(command, Command::Write | Command::WriteZeroes);
            return self.fail(cookie, if changes { libc::ENOSPC } else { libc::EINVAL });
        }
        let done = match command {
            Command::Read if request.len > LARGEST => return self.fail(cookie, libc::EOVERFLOW),
            Command::Read => return self.read(request, cookie),
            Command::BlockStatus => return self.block_status(request, cookie),
            Command::Write => device.write_at(offset, &data),
            Command::Flush | Command::Disconnect => device.flush(),
            Command::WriteZeroes => device.write_zeroes(offset, len),
            Command::Trim => match device.discard(offset, len) {
                // A hint, which the device cannot use.
                Err(error) if error.kind() == io::ErrorKind::Unsupported => Ok(()),
                done => done,
            },
        };
        let done = done.and_then(|()| if request.stable { device.flush() } else { Ok(()) });
        match done {
            Ok(()) => self.succeed(cookie),
            Err(error) => self.fail(cookie, error.raw_os_error().unwrap_or(libc::EIO)),
        }
    }

    fn read(&mut self, request: &wire::Parsed, cookie: u64) -> io::Result<()> {
        let mut data = vec![0; to_usize(request.len)];
        if let Err(error) = self.server.device.read_at(request.offset, &mut data) {
            return self.fail(cookie, error.raw_os_error().unwrap_or(libc::EIO));
        }
        if !self.negotiated.structured {
            self.output.write_all(&simple_reply(0, cookie))?;
            return self.output.write_all(&data);
        }
        let len = must_fit::<u32, _>(data.len() + 8);
        let mut head = chunk_header(chunk::DONE, chunk::OFFSET_DATA, cookie, len);
        head.extend(request.offset.to_be_bytes());
        self.output.write_all(&head)?;
        self.output.write_all(&data)
    }

    fn block_status(&mut self, request: &wire::Parsed, cookie: u64) -> io::Result<()> {
        if !self.negotiated.allocation || request.len == 0 {
            return self.fail(cookie, libc::EINVAL);
        }
        let range = request.offset..request.offset + u64::from(request.len);
        let ranges = match self.server.ranges(range) {
            Ok(ranges) => ranges,
            Err(error) => return self.fail(cookie, error.raw_os_error().unwrap_or(libc::EIO)),
        };
        let mut payload = CONTEXT.to_be_bytes().to_vec();
        let count = if request.one_range { 1 } else { ranges.len() };
        for (len, zeros) in &ranges[..count.min(ranges.len())] {
            payload.extend(must_fit::<u32, _>(*len).to_be_bytes());
            let flags = if *zeros { wire::HOLE | wire::READS_ZEROS } else { 0 };
            payload.extend(flags.to_be_bytes());
        }
        let len = must_fit::<u32, _>(payload.len());
        let mut reply = chunk_header(chunk::DONE, chunk::BLOCK_STATUS, cookie, len);
        reply.extend(payload);
        self.output.write_all(&reply)
    }

    fn succeed(&mut self, cookie: u64) -> io::Result<()> {
        match self.negotiated.structured {
            true => self.output.write_all(&chunk_header(chunk::DONE, chunk::NONE, cookie, 0)),
            false => self.output.write_all(&simple_reply(0, cookie)),
        }
    }

    fn fail(&mut self, cookie: u64, errno: i32) -> io::Result<()> {
        let code = wire::code(errno);
        if !self.negotiated.structured {
            return self.output.write_all(&simple_reply(code, cookie));
        }
        let mut reply = chunk_header(chunk::DONE, chunk::ERROR | 1, cookie, 6);
        reply.extend(code.to_be_bytes());
        reply.extend(0u16.to_be_bytes());
        self.output.write_all(&reply)
    }
}

fn simple_reply(error: u32, cookie: u64) -> Vec<u8> {
    let parts =
        [&wire::SIMPLE_REPLY.to_be_bytes()[..], &error.to_be_bytes(), &cookie.to_be_bytes()];
    parts.concat()
}

fn chunk_header(flags: u16, kind: u16, cookie: u64, len: u32) -> Vec<u8> {
    let mut header = wire::STRUCTURED_REPLY.to_be_bytes().to_vec();
    header.extend(flags.to_be_bytes());
    header.extend(kind.to_be_bytes());
    header.extend(cookie.to_be_bytes());
    header.extend(len.to_be_bytes());
    header
}
