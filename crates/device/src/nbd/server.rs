//! A server: offers a device to NBD clients. This is the handshake.
//!
//! Options are answered as the protocol asks: `STARTTLS`, `GO`, `INFO`, `EXPORT_NAME`, `LIST`,
//! `STRUCTURED_REPLY`, `LIST_META_CONTEXT`, `SET_META_CONTEXT` and `ABORT`. A server with
//! certificates requires TLS: it answers no other option before. Clients use several connections at
//! once: a flush on one covers what was written over all.

use super::certificates;
use super::server_requests::{self, CONTEXT, Negotiated};
use super::stream::{FOREVER, Messages, NbdSocket, Stream};
use super::wire::{self, Fields, handshake, info, option, option_reply};
use crate::BlockDevice;
use nextent_num::{must_fit, to_usize};
use nextent_sync::{Arc, Duration};
use rustls::ServerConfig;
use std::io;
use std::path::Path;

/// The longest option that is read, in bytes. A longer one ends the connection.
const LONGEST_OPTION: u32 = 64 << 10;
/// The preferred size and alignment of requests.
const PREFERRED: u32 = 4096;
/// The longest time without progress in the handshake of TLS.
const TLS_LIMIT: Duration = Duration::from_secs(60);

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
///     server.serve(client)
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
    pub(super) device: Arc<dyn BlockDevice>,
    export: String,
    tls: Option<Arc<ServerConfig>>,
}

/// A connection to a client, in the handshake.
struct Connection<'c> {
    server: &'c NbdServer,
    stream: Stream,
    encrypted: bool,
    negotiated: Negotiated,
    /// Whether the client wants no zeros after the description of an export.
    no_zeroes: bool,
}

impl NbdServer {
    /// Offers `device` under the name `export`, and as the default export.
    pub fn new(device: Arc<dyn BlockDevice>, export: impl Into<String>) -> Self {
        Self { device, export: export.into(), tls: None }
    }

    /// Requires TLS, with `server-cert.pem` and `server-key.pem` of a directory. If
    /// `verifies_clients`, each client must have a certificate that `ca-cert.pem` has signed and
    /// `ca-crl.pem`, if it is there, does not revoke.
    ///
    /// # Errors
    /// A file is missing or invalid.
    pub fn tls(self, certificates: &Path, verifies_clients: bool) -> io::Result<Self> {
        let tls = certificates::server(certificates, verifies_clients)?;
        Ok(Self { tls: Some(Arc::new(tls)), ..self })
    }

    /// Serves one client until it disconnects.
    ///
    /// # Errors
    /// The connection fails or the client violates the protocol. Errors of the device go to the
    /// client.
    pub fn serve(&self, client: impl Into<NbdSocket>) -> io::Result<()> {
        let mut connection = Connection {
            server: self,
            stream: Stream::accepted(client.into())?,
            encrypted: false,
            negotiated: Negotiated::default(),
            no_zeroes: false,
        };
        match connection.negotiate()? {
            true => server_requests::run(self, connection.stream, connection.negotiated),
            false => Ok(()),
        }
    }

    fn flags(&self) -> u16 {
        use wire::transmission as flag;
        let always = flag::HAS_FLAGS | flag::SEND_FLUSH | flag::CAN_MULTI_CONN;
        let writes = flag::SEND_FUA | flag::SEND_TRIM | flag::SEND_WRITE_ZEROES;
        always | if self.device.is_read_only() { flag::READ_ONLY } else { writes }
    }

    fn knows(&self, name: &[u8]) -> bool {
        name.is_empty() || name == self.export.as_bytes()
    }
}

pub(super) fn wrong(text: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, format!("the client violates the protocol: {text}"))
}

impl Connection<'_> {
    /// The handshake; whether the client goes on to requests.
    fn negotiate(&mut self) -> io::Result<bool> {
        let mut greeting = Vec::with_capacity(18);
        greeting.extend(wire::GREETING.to_be_bytes());
        greeting.extend(wire::OPTION.to_be_bytes());
        greeting.extend((handshake::FIXED_NEWSTYLE | handshake::NO_ZEROES).to_be_bytes());
        self.messages().write_all(&greeting)?;
        let mut flags = [0; 4];
        self.messages().read_exact(&mut flags)?;
        self.no_zeroes = flags[3] & 2 != 0;
        loop {
            let mut header = [0; 16];
            self.messages().read_exact(&mut header)?;
            let mut fields = Fields(&header);
            let (magic, kind) = (fields.u64(), fields.u32().unwrap_or(0));
            let len = fields.u32().unwrap_or(0);
            if magic != Some(wire::OPTION) || len > LONGEST_OPTION {
                return Err(wrong("an invalid option"));
            }
            let mut data = vec![0; to_usize(len)];
            self.messages().read_exact(&mut data)?;
            match kind {
                option::ABORT => {
                    self.reply(kind, option_reply::ACK, &[])?;
                    return Ok(false);
                }
                option::STARTTLS => self.start_tls(&data)?,
                _ if self.server.tls.is_some() && !self.encrypted => {
                    if kind == option::EXPORT_NAME {
                        return Ok(false);
                    }
                    self.reply(kind, option_reply::TLS_REQUIRED, b"the server requires TLS")?;
                }
                option::EXPORT_NAME => return self.export_name(&data),
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

    fn messages(&self) -> Messages<'_> {
        Messages { stream: &self.stream, limit: FOREVER }
    }

    /// Encrypts from here on, and forgets what was negotiated before.
    fn start_tls(&mut self, data: &[u8]) -> io::Result<()> {
        let Some(tls) = &self.server.tls else {
            return self.reply(option::STARTTLS, option_reply::UNSUPPORTED, &[]);
        };
        if self.encrypted || !data.is_empty() {
            return self.reply(option::STARTTLS, option_reply::INVALID, &[]);
        }
        let tls = certificates::accepted(tls)?;
        self.reply(option::STARTTLS, option_reply::ACK, &[])?;
        self.stream.start_tls(tls, TLS_LIMIT)?;
        (self.encrypted, self.negotiated) = (true, Negotiated::default());
        Ok(())
    }

    fn reply(&self, option: u32, kind: u32, data: &[u8]) -> io::Result<()> {
        let mut reply = Vec::with_capacity(20 + data.len());
        reply.extend(wire::OPTION_REPLY.to_be_bytes());
        reply.extend(option.to_be_bytes());
        reply.extend(kind.to_be_bytes());
        reply.extend(must_fit::<u32, _>(data.len()).to_be_bytes());
        reply.extend(data);
        self.messages().write_all(&reply)
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
        self.messages().write_all(&description)?;
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
        for size in [1, PREFERRED, server_requests::LARGEST] {
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
}
