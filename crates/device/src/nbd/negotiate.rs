//! The handshake: the client asks for TLS, structured replies, the export and what the server says
//! of it.
//!
//! | step | client | server |
//! |---|---|---|
//! | 1 | - | greeting, flags |
//! | 2 | flags | - |
//! | 3 | with TLS: `STARTTLS` | acknowledges; then the handshake of TLS, which encrypts what follows |
//! | 4 | `STRUCTURED_REPLY` | acknowledges or refuses |
//! | 5 | `SET_META_CONTEXT` of `base:allocation`, if 4 was acknowledged | the context's number, or none |
//! | 6 | `GO` | size, flags and block sizes of the export |
//!
//! A server that does not know `GO` (before 2016) is refused.

use super::stream::{Messages, Stream};
use super::tls::Tls;
use super::wire::{self, Fields, handshake, info, option, option_reply, transmission};
use nextent_num::{must_fit, to_usize};
use nextent_sync::Duration;
use std::io;

/// The longest reply to an option that is read, in bytes. Texts of servers are shorter.
const LONGEST_REPLY: u32 = 64 << 10;
/// The most replies to one option.
const MOST_REPLIES: usize = 1024;
/// The largest request that every server takes, in bytes.
const USUAL_REQUEST: u32 = 32 << 20;

/// What a server says of an export.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Export {
    pub(super) size: u64,
    pub(super) flags: u16,
    /// Requests begin and end at multiples of this, a power of two.
    pub(super) unit: u32,
    /// The largest request with data, in bytes; a multiple of `unit`.
    pub(super) largest: u32,
    pub(super) structured: bool,
    /// The number of the context that says which ranges are zeros.
    pub(super) allocation: Option<u32>,
}

impl Export {
    pub(super) fn has(&self, flag: u16) -> bool {
        self.flags & flag != 0
    }
}

/// A server that violates the protocol. The client does not connect again.
pub(super) fn violation(text: impl Into<String>) -> io::Error {
    let text = format!("the server violates the NBD protocol: {}", text.into());
    io::Error::new(io::ErrorKind::InvalidData, text)
}

/// Negotiates the export `name`, inside of `tls` if there is one.
pub(super) fn negotiate(
    stream: &mut Stream,
    tls: Option<Tls>,
    name: &str,
    limit: Duration,
) -> io::Result<Export> {
    let session = Session { messages: Messages { stream, limit } };
    session.greet()?;
    let encrypted = tls.is_some();
    if let Some(tls) = tls {
        session.ask(option::STARTTLS, &[])?.map_err(|refusal| no_tls(&refusal))?;
        stream.start_tls(tls, limit)?;
    }
    let session = Session { messages: Messages { stream, limit } };
    let first = session.ask(option::STRUCTURED_REPLY, &[]);
    let structured = first.map_err(|error| if encrypted { left(error) } else { error })?.is_ok();
    let allocation = if structured { session.allocation_context(name)? } else { None };
    let mut export = session.go(name)?;
    export.structured = structured;
    export.allocation = allocation;
    Ok(export)
}

/// A reply to an option, up to the acknowledgement; each has a kind and its data.
type Replies = Vec<(u32, Vec<u8>)>;

/// Why a server refused an option.
struct Refusal {
    kind: u32,
    text: String,
}

struct Session<'s> {
    messages: Messages<'s>,
}

impl Session<'_> {
    fn greet(&self) -> io::Result<()> {
        let mut greeting = [0; 18];
        self.messages.read_exact(&mut greeting)?;
        let mut fields = Fields(&greeting);
        let (magic, style) = (fields.u64(), fields.u64());
        let flags = fields.u16().unwrap_or(0);
        if magic != Some(wire::GREETING) {
            return Err(io::Error::new(io::ErrorKind::InvalidData, "it is no NBD server"));
        }
        if style != Some(wire::OPTION) || flags & handshake::FIXED_NEWSTYLE == 0 {
            let text = "the server speaks only the oldstyle NBD handshake";
            return Err(io::Error::new(io::ErrorKind::Unsupported, text));
        }
        let reply = flags & (handshake::FIXED_NEWSTYLE | handshake::NO_ZEROES);
        self.messages.write_all(&u32::from(reply).to_be_bytes())
    }

    /// Sends an option and reads the replies to it.
    fn ask(&self, option: u32, data: &[u8]) -> io::Result<Result<Replies, Refusal>> {
        let mut message = Vec::with_capacity(16 + data.len());
        message.extend(wire::OPTION.to_be_bytes());
        message.extend(option.to_be_bytes());
        message.extend(must_fit::<u32, _>(data.len()).to_be_bytes());
        message.extend(data);
        self.messages.write_all(&message)?;
        let mut replies = Replies::new();
        while replies.len() < MOST_REPLIES {
            let mut header = [0; 20];
            self.messages.read_exact(&mut header)?;
            let mut fields = Fields(&header);
            let (magic, of) = (fields.u64(), fields.u32());
            let (kind, len) = (fields.u32().unwrap_or(0), fields.u32().unwrap_or(0));
            if magic != Some(wire::OPTION_REPLY) || of != Some(option) || len > LONGEST_REPLY {
                return Err(violation("an invalid reply to an option"));
            }
            let mut data = vec![0; to_usize(len)];
            self.messages.read_exact(&mut data)?;
            if kind & option_reply::ERROR != 0 {
                let text = String::from_utf8_lossy(&data).trim().to_owned();
                return Ok(Err(Refusal { kind, text }));
            }
            if kind == option_reply::ACK {
                return Ok(Ok(replies));
            }
            replies.push((kind, data));
        }
        Err(violation("too many replies to an option"))
    }

    /// The number of the context that says which ranges are zeros, if the server has it.
    fn allocation_context(&self, name: &str) -> io::Result<Option<u32>> {
        let mut data = named(name);
        data.extend(1u32.to_be_bytes());
        data.extend(must_fit::<u32, _>(wire::ALLOCATION.len()).to_be_bytes());
        data.extend(wire::ALLOCATION);
        let Ok(replies) = self.ask(option::SET_META_CONTEXT, &data)? else { return Ok(None) };
        let number = |(kind, data): &(u32, Vec<u8>)| {
            let mut fields = Fields(data);
            let number = fields.u32()?;
            (*kind == option_reply::META_CONTEXT && fields.0 == wire::ALLOCATION).then_some(number)
        };
        Ok(replies.iter().find_map(number))
    }

    fn go(&self, name: &str) -> io::Result<Export> {
        let mut data = named(name);
        data.extend(1u16.to_be_bytes());
        data.extend(info::BLOCK_SIZE.to_be_bytes());
        let replies = match self.ask(option::GO, &data)? {
            Ok(replies) => replies,
            Err(refusal) => return Err(refused(name, &refusal)),
        };
        let mut found = None;
        let (mut unit, mut largest) = (1, USUAL_REQUEST);
        for (_, data) in replies.iter().filter(|(kind, _)| *kind == option_reply::INFO) {
            let mut fields = Fields(data);
            match fields.u16() {
                Some(info::EXPORT) => found = fields.u64().zip(fields.u16()),
                Some(info::BLOCK_SIZE) => {
                    let sizes = (fields.u32(), fields.u32(), fields.u32());
                    let (Some(least), Some(_), Some(most)) = sizes else {
                        return Err(violation("block sizes are missing"));
                    };
                    (unit, largest) = (least, most);
                }
                _ => {}
            }
        }
        let (size, flags) = found.ok_or_else(|| violation("the export has no size"))?;
        if flags & transmission::HAS_FLAGS == 0 {
            return Err(violation("the export has no flags"));
        }
        if !unit.is_power_of_two() || unit > 64 << 10 || largest < unit {
            return Err(violation(format!("block sizes {unit} and {largest}")));
        }
        if i64::try_from(size).is_err() {
            return Err(violation(format!("a size of {size} bytes")));
        }
        let size = size - size % u64::from(unit);
        let largest = largest.min(USUAL_REQUEST);
        let largest = (largest - largest % unit).max(unit);
        Ok(Export { size, flags, unit, largest, structured: false, allocation: None })
    }
}

/// The length of a name, and the name.
pub(super) fn named(name: &str) -> Vec<u8> {
    let mut data = must_fit::<u32, _>(name.len()).to_be_bytes().to_vec();
    data.extend(name.as_bytes());
    data
}

fn refused(name: &str, refusal: &Refusal) -> io::Error {
    use io::ErrorKind as Kind;
    let (kind, why) = match refusal.kind {
        option_reply::UNSUPPORTED => {
            (Kind::Unsupported, "the server is too old: it lacks NBD_OPT_GO")
        }
        option_reply::POLICY => (Kind::PermissionDenied, "the server refuses access"),
        option_reply::TLS_REQUIRED => (Kind::Unsupported, "the server requires TLS: use nbds://"),
        option_reply::UNKNOWN => (Kind::NotFound, "the server has no such export"),
        option_reply::SHUTDOWN => (Kind::ConnectionAborted, "the server is shutting down"),
        option_reply::BLOCK_SIZE_REQUIRED => (Kind::Unsupported, "the server needs block sizes"),
        _ => (Kind::Other, "the server refuses the export"),
    };
    io::Error::new(kind, format!("export {name:?}: {why}{}", refusal.said()))
}

/// Explains a connection that ends after the handshake of TLS. With TLS 1.3 the client completes it
/// before the server has seen its certificate.
fn left(error: io::Error) -> io::Error {
    use io::ErrorKind as Kind;
    match error.kind() {
        Kind::UnexpectedEof | Kind::ConnectionReset | Kind::BrokenPipe => {
            let text = "the server left after the TLS handshake; it may require a certificate of \
                        the client (client-cert.pem)";
            io::Error::new(error.kind(), text)
        }
        _ => error,
    }
}

fn no_tls(refusal: &Refusal) -> io::Error {
    let text = format!("the server does not offer TLS{}", refusal.said());
    io::Error::new(io::ErrorKind::Unsupported, text)
}

impl Refusal {
    /// The server's text, if it sent one.
    fn said(&self) -> String {
        match self.text.as_str() {
            "" => String::new(),
            text => format!(" ({text:?})"),
        }
    }
}
