//! The NBD protocol on the wire: numbers, requests and headers of replies.
//!
//! All fields are big-endian. Source: the protocol description of the NBD project
//! (`doc/proto.md`), sections "Newstyle negotiation", "Transmission" and "Values".

/// The first bytes of a server.
pub(super) const GREETING: u64 = 0x4e42_444d_4147_4943;
/// Precedes an option, and follows the greeting of a newstyle server.
pub(super) const OPTION: u64 = 0x4948_4156_454f_5054;
/// Precedes the reply to an option.
pub(super) const OPTION_REPLY: u64 = 0x0003_e889_0455_65a9;

const REQUEST: u32 = 0x2560_9513;
pub(super) const SIMPLE_REPLY: u32 = 0x6744_6698;
pub(super) const STRUCTURED_REPLY: u32 = 0x668e_33ef;

/// Flags of the server and the client in the handshake.
pub(super) mod handshake {
    pub(in super::super) const FIXED_NEWSTYLE: u16 = 1;
    pub(in super::super) const NO_ZEROES: u16 = 2;
}

/// Options that the client asks for.
pub(super) mod option {
    pub(in super::super) const EXPORT_NAME: u32 = 1;
    pub(in super::super) const ABORT: u32 = 2;
    pub(in super::super) const LIST: u32 = 3;
    pub(in super::super) const STARTTLS: u32 = 5;
    pub(in super::super) const INFO: u32 = 6;
    pub(in super::super) const GO: u32 = 7;
    pub(in super::super) const STRUCTURED_REPLY: u32 = 8;
    pub(in super::super) const LIST_META_CONTEXT: u32 = 9;
    pub(in super::super) const SET_META_CONTEXT: u32 = 10;
}

/// Replies to options. Errors have the highest bit.
pub(super) mod option_reply {
    pub(in super::super) const ACK: u32 = 1;
    pub(in super::super) const SERVER: u32 = 2;
    pub(in super::super) const INFO: u32 = 3;
    pub(in super::super) const META_CONTEXT: u32 = 4;
    pub(in super::super) const ERROR: u32 = 1 << 31;
    pub(in super::super) const UNSUPPORTED: u32 = ERROR | 1;
    pub(in super::super) const POLICY: u32 = ERROR | 2;
    pub(in super::super) const INVALID: u32 = ERROR | 3;
    pub(in super::super) const TLS_REQUIRED: u32 = ERROR | 5;
    pub(in super::super) const UNKNOWN: u32 = ERROR | 6;
    pub(in super::super) const SHUTDOWN: u32 = ERROR | 7;
    pub(in super::super) const BLOCK_SIZE_REQUIRED: u32 = ERROR | 8;
}

/// Parts of the description of an export.
pub(super) mod info {
    pub(in super::super) const EXPORT: u16 = 0;
    pub(in super::super) const BLOCK_SIZE: u16 = 3;
}

/// Flags of an export.
pub(super) mod transmission {
    pub(in super::super) const HAS_FLAGS: u16 = 1;
    pub(in super::super) const READ_ONLY: u16 = 1 << 1;
    pub(in super::super) const SEND_FLUSH: u16 = 1 << 2;
    pub(in super::super) const SEND_FUA: u16 = 1 << 3;
    pub(in super::super) const SEND_TRIM: u16 = 1 << 5;
    pub(in super::super) const SEND_WRITE_ZEROES: u16 = 1 << 6;
    pub(in super::super) const CAN_MULTI_CONN: u16 = 1 << 8;
}

/// Types of the chunks of a structured reply. Errors have the highest bit.
pub(super) mod chunk {
    pub(in super::super) const DONE: u16 = 1;
    pub(in super::super) const NONE: u16 = 0;
    pub(in super::super) const OFFSET_DATA: u16 = 1;
    pub(in super::super) const OFFSET_HOLE: u16 = 2;
    pub(in super::super) const BLOCK_STATUS: u16 = 5;
    pub(in super::super) const ERROR: u16 = 1 << 15;
}

/// The context that says which ranges read as zeros.
pub(super) const ALLOCATION: &[u8] = b"base:allocation";
/// The flag of a range of that context that takes no space.
pub(super) const HOLE: u32 = 1;
/// The flag of a range of that context that reads as zeros.
pub(super) const READS_ZEROS: u32 = 2;

/// The kinds of requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Command {
    Read,
    Write,
    Disconnect,
    Flush,
    Trim,
    WriteZeroes,
    BlockStatus,
}

impl Command {
    const ALL: [Self; 7] = [
        Self::Read,
        Self::Write,
        Self::Disconnect,
        Self::Flush,
        Self::Trim,
        Self::WriteZeroes,
        Self::BlockStatus,
    ];

    fn code(self) -> u16 {
        match self {
            Self::Read => 0,
            Self::Write => 1,
            Self::Disconnect => 2,
            Self::Flush => 3,
            Self::Trim => 4,
            Self::WriteZeroes => 6,
            Self::BlockStatus => 7,
        }
    }
}

/// The server completes the request only once it is stable.
const FORCE_UNIT_ACCESS: u16 = 1;
/// A block status describes one range only.
const ONE_RANGE: u16 = 1 << 3;

/// A request. The data of a write follows it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Request {
    pub(super) command: Command,
    /// Complete it only once it is stable.
    pub(super) stable: bool,
    pub(super) offset: u64,
    pub(super) len: u32,
}

/// Bytes of a request's header.
pub(super) const REQUEST_LEN: usize = 28;

impl Request {
    pub(super) fn new(command: Command, offset: u64, len: u32) -> Self {
        Self { command, stable: false, offset, len }
    }

    /// The header, with the number that the reply repeats.
    pub(super) fn header(&self, cookie: u64) -> [u8; REQUEST_LEN] {
        let flags = if self.stable { FORCE_UNIT_ACCESS } else { 0 };
        let mut header = [0; REQUEST_LEN];
        header[..4].copy_from_slice(&REQUEST.to_be_bytes());
        header[4..6].copy_from_slice(&flags.to_be_bytes());
        header[6..8].copy_from_slice(&self.command.code().to_be_bytes());
        header[8..16].copy_from_slice(&cookie.to_be_bytes());
        header[16..24].copy_from_slice(&self.offset.to_be_bytes());
        header[24..].copy_from_slice(&self.len.to_be_bytes());
        header
    }
}

/// A request as a server reads it.
pub(super) struct Parsed {
    /// `None` for an unknown one.
    pub(super) command: Option<Command>,
    pub(super) stable: bool,
    pub(super) one_range: bool,
    pub(super) offset: u64,
    pub(super) len: u32,
}

impl Request {
    /// The request with this header and its number; `None` if it is none.
    pub(super) fn parse(header: &[u8; REQUEST_LEN]) -> Option<(Parsed, u64)> {
        let mut fields = Fields(header);
        if fields.u32()? != REQUEST {
            return None;
        }
        let (flags, code) = (fields.u16()?, fields.u16()?);
        let cookie = fields.u64()?;
        let parsed = Parsed {
            command: Command::ALL.into_iter().find(|command| command.code() == code),
            stable: flags & FORCE_UNIT_ACCESS != 0,
            one_range: flags & ONE_RANGE != 0,
            offset: fields.u64()?,
            len: fields.u32()?,
        };
        Some((parsed, cookie))
    }
}

/// Reads numbers from the front of a message. A message that is too short has none.
pub(super) struct Fields<'b>(pub(super) &'b [u8]);

impl<'b> Fields<'b> {
    pub(super) fn take<const N: usize>(&mut self) -> Option<[u8; N]> {
        let (front, rest) = self.0.split_first_chunk()?;
        self.0 = rest;
        Some(*front)
    }

    pub(super) fn u16(&mut self) -> Option<u16> {
        self.take().map(u16::from_be_bytes)
    }

    pub(super) fn u32(&mut self) -> Option<u32> {
        self.take().map(u32::from_be_bytes)
    }

    pub(super) fn u64(&mut self) -> Option<u64> {
        self.take().map(u64::from_be_bytes)
    }

    /// The next `len` bytes.
    pub(super) fn bytes(&mut self, len: usize) -> Option<&'b [u8]> {
        let (front, rest) = self.0.split_at_checked(len)?;
        self.0 = rest;
        Some(front)
    }
}

/// Error numbers of the protocol, which are the same on each system, and the errno of each.
const ERRORS: [(u32, i32); 7] = [
    (1, libc::EPERM),
    (5, libc::EIO),
    (12, libc::ENOMEM),
    (22, libc::EINVAL),
    (28, libc::ENOSPC),
    (75, libc::EOVERFLOW),
    (95, libc::EOPNOTSUPP),
];

/// The errno of an error number of the protocol. Servers may send others, which count as `EIO`.
pub(super) fn errno(code: u32) -> i32 {
    ERRORS.iter().find(|(known, _)| *known == code).map_or(libc::EIO, |(_, errno)| *errno)
}

/// The error number of an errno.
pub(super) fn code(errno: i32) -> u32 {
    let code = |errno| ERRORS.iter().find(|(_, known)| *known == errno).map(|(code, _)| *code);
    match errno {
        libc::EROFS => 1,
        libc::EDQUOT | libc::EFBIG => 28,
        errno => code(errno).unwrap_or(5),
    }
}

/// The error number of a server that is about to end. The client connects again.
pub(super) const SHUTTING_DOWN: u32 = 108;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_has_its_fields_in_order() {
        let mut request = Request::new(Command::Write, 0x0102_0304, 0x50);
        request.stable = true;
        let header = request.header(7);
        let mut fields = Fields(&header);
        assert_eq!(fields.u32(), Some(REQUEST));
        assert_eq!((fields.u16(), fields.u16()), (Some(1), Some(1)));
        assert_eq!((fields.u64(), fields.u64()), (Some(7), Some(0x0102_0304)));
        assert_eq!((fields.u32(), fields.u16()), (Some(0x50), None));
    }
}
