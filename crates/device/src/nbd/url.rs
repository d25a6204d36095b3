//! Addresses of NBD exports.

use nextent_sync::Duration;
use std::fmt;
use std::io;
use std::path::PathBuf;

/// The port of NBD servers, if an address names none.
const PORT: u16 = 10809;

/// The address of an export. Source: the NBD project's `doc/uri.md`.
///
/// | address | server |
/// |---|---|
/// | `nbd://HOST[:PORT]/EXPORT` | over TCP, at port 10809 if none is named |
/// | `nbd+unix:///EXPORT?socket=PATH` | over the Unix socket at `PATH` |
/// | `nbds://`, `nbds+unix://` | the same with TLS |
///
/// | parameter | meaning |
/// |---|---|
/// | `timeout=SECONDS` | after which time without progress a server counts as lost |
/// | `tls-certificates=DIR` | where `ca-cert.pem`, `client-cert.pem` and `client-key.pem` are |
/// | `tls-hostname=NAME` | the name in the server's certificate, if it is not the host's |
///
/// Parameters follow `?`, with `&` between them. Over a Unix socket the server's name is
/// `localhost` unless one is given.
///
/// Characters may be given as `%` and two hexadecimal digits. The export may be empty: the server's
/// default.
///
/// # Examples
///
/// ```
/// use nextent_device::NbdAddress;
///
/// let address = NbdAddress::parse("nbd+unix:///disk?socket=/run/nbd.sock")?;
/// assert_eq!(address.export(), "disk");
/// assert!(NbdAddress::parse("nbd+unix:///disk").is_err());
/// # Ok::<(), String>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NbdAddress {
    pub(super) server: ServerAddress,
    export: String,
    pub(super) tls: Option<TlsAddress>,
    /// After which time without progress the server counts as lost.
    pub(super) timeout: Option<Duration>,
}

/// What an address says of TLS.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct TlsAddress {
    /// The directory of the certificates.
    pub(super) certificates: Option<PathBuf>,
    /// The name in the server's certificate.
    pub(super) hostname: Option<String>,
}

/// Where the server listens.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum ServerAddress {
    Tcp { host: String, port: u16 },
    Unix(PathBuf),
}

impl NbdAddress {
    /// Whether `text` begins as an address of an export does.
    #[must_use]
    pub fn is_address(text: &str) -> bool {
        ["nbd://", "nbd+unix://", "nbds://", "nbds+unix://"].iter().any(|s| text.starts_with(s))
    }

    /// Parses an address.
    ///
    /// # Errors
    /// What is wrong with it, as text.
    pub fn parse(text: &str) -> Result<Self, String> {
        let Some((scheme, rest)) = text.split_once("://") else {
            return Err("an address of NBD begins with nbd:// or nbd+unix://".into());
        };
        let (place, query) = rest.split_once('?').unwrap_or((rest, ""));
        let (authority, export) = place.split_once('/').unwrap_or((place, ""));
        let export = decode(export)?;
        let (mut socket, mut timeout) = (None, None);
        let mut tls = scheme.starts_with("nbds").then(TlsAddress::default);
        for word in query.split('&').filter(|word| !word.is_empty()) {
            let unknown = || format!("`{word}` is no parameter of an address of NBD");
            let (name, value) = word.split_once('=').ok_or_else(unknown)?;
            let value = decode(value)?;
            match (name, &mut tls) {
                ("timeout", _) => {
                    let seconds = value.parse::<u32>().ok().filter(|seconds| *seconds > 0);
                    let seconds =
                        seconds.ok_or_else(|| format!("`{word}`: no number of seconds"))?;
                    timeout = Some(Duration::from_secs(seconds.into()));
                }
                ("socket", _) => socket = Some(PathBuf::from(value)),
                ("tls-certificates" | "tls-hostname", None) => {
                    return Err(format!("{name} needs nbds:// or nbds+unix://"));
                }
                ("tls-certificates", Some(tls)) => tls.certificates = Some(value.into()),
                ("tls-hostname", Some(tls)) => tls.hostname = Some(value),
                ("tls-psk-file", _) => {
                    return Err("tls-psk-file is not supported; use certificates".into());
                }
                ("tls-verify-peer", _) => {
                    return Err(
                        "tls-verify-peer: the server's certificate is always verified".into()
                    );
                }
                _ => return Err(unknown()),
            }
        }
        let server = match (scheme, socket) {
            ("nbd+unix" | "nbds+unix", Some(socket)) if authority.is_empty() => {
                ServerAddress::Unix(socket)
            }
            ("nbd+unix" | "nbds+unix", Some(_)) => {
                return Err(format!("a Unix socket has no host: {scheme}:///{authority}/..."));
            }
            ("nbd+unix" | "nbds+unix", None) => {
                return Err(format!("{scheme}:// needs ?socket=PATH"));
            }
            ("nbd" | "nbds", Some(_)) => {
                return Err(format!("{scheme}:// has no socket; use {scheme}+unix://"));
            }
            ("nbd" | "nbds", None) => tcp(scheme, authority)?,
            _ => return Err(format!("{scheme}:// is no address of NBD")),
        };
        Ok(Self { server, export, tls, timeout })
    }

    /// The same with absolute paths.
    pub(super) fn absolute(&self) -> io::Result<Self> {
        let server = match &self.server {
            ServerAddress::Unix(path) => ServerAddress::Unix(std::path::absolute(path)?),
            tcp @ ServerAddress::Tcp { .. } => tcp.clone(),
        };
        let mut tls = self.tls.clone();
        if let Some(dir) = tls.as_mut().and_then(|tls| tls.certificates.as_mut()) {
            *dir = std::path::absolute(&*dir)?;
        }
        Ok(Self { server, export: self.export.clone(), tls, timeout: self.timeout })
    }

    /// The name of the export.
    #[must_use]
    pub fn export(&self) -> &str {
        &self.export
    }
}

/// Parses `HOST[:PORT]`. An IPv6 address is in brackets.
fn tcp(scheme: &str, authority: &str) -> Result<ServerAddress, String> {
    let wrong = || format!("`{authority}` is no HOST[:PORT]");
    let (host, port) = match authority.strip_prefix('[') {
        Some(rest) => {
            let (host, after) = rest.split_once(']').ok_or_else(wrong)?;
            (
                host,
                if after.is_empty() {
                    None
                } else {
                    Some(after.strip_prefix(':').ok_or_else(wrong)?)
                },
            )
        }
        None => match authority.split_once(':') {
            Some((host, port)) => (host, Some(port)),
            None => (authority, None),
        },
    };
    let port = match port {
        Some(port) => port.parse().ok().filter(|port| *port > 0).ok_or_else(wrong)?,
        None => PORT,
    };
    let host = decode(host)?;
    if host.is_empty() {
        return Err(format!("{scheme}:// needs a host: {scheme}://HOST[:PORT]/EXPORT"));
    }
    Ok(ServerAddress::Tcp { host, port })
}

/// Replaces `%` and two hexadecimal digits by the byte.
fn decode(text: &str) -> Result<String, String> {
    let wrong = || format!("`{text}` has a % without two hexadecimal digits");
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let Some((first, after)) = rest.split_first() {
        rest = after;
        if *first != b'%' {
            bytes.push(*first);
            continue;
        }
        let (digits, after) = rest.split_first_chunk::<2>().ok_or_else(wrong)?;
        let digit = |byte: u8| char::from(byte).to_digit(16);
        let (high, low) = digit(digits[0]).zip(digit(digits[1])).ok_or_else(wrong)?;
        bytes.push(u8::try_from(high << 4 | low).map_err(|_| wrong())?);
        rest = after;
    }
    let name = String::from_utf8(bytes).map_err(|_| format!("`{text}` is not UTF-8"))?;
    if name.contains('\0') {
        return Err(format!("`{text}` has a zero byte"));
    }
    Ok(name)
}

impl fmt::Display for ServerAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Tcp { host, port } if host.contains(':') => write!(f, "[{host}]:{port}"),
            Self::Tcp { host, port } => write!(f, "{host}:{port}"),
            Self::Unix(path) => write!(f, "{}", path.display()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn server(text: &str) -> String {
        NbdAddress::parse(text).unwrap().server.to_string()
    }

    #[test]
    fn addresses_are_parsed() {
        assert_eq!(server("nbd://host"), "host:10809");
        assert_eq!(server("nbd://host:7/a/b"), "host:7");
        assert_eq!(server("nbd://[::1]:7/"), "[::1]:7");
        assert_eq!(server("nbd://[::1]"), "[::1]:10809");
        assert_eq!(server("nbd+unix://?socket=s.sock"), "s.sock");
        assert_eq!(server("nbd+unix:///x?socket=/a%20b"), "/a b");
        assert_eq!(server("nbds://host"), "host:10809");
        assert_eq!(server("nbds+unix:///x?socket=/s&tls-certificates=/c"), "/s");
        let tls = |text| NbdAddress::parse(text).unwrap().tls;
        assert_eq!(tls("nbd://host"), None);
        assert_eq!(tls("nbds://host"), Some(TlsAddress::default()));
        let named = TlsAddress { certificates: Some("a b".into()), hostname: Some("n".into()) };
        assert_eq!(tls("nbds://host/x?tls-certificates=a%20b&tls-hostname=n"), Some(named));
        assert_eq!(NbdAddress::parse("nbd://h").unwrap().timeout, None);
        let limited = NbdAddress::parse("nbd://h/x?timeout=7").unwrap();
        assert_eq!(limited.timeout, Some(Duration::from_secs(7)));
        let export = |text| NbdAddress::parse(text).unwrap().export().to_owned();
        assert_eq!(export("nbd://host/a/b"), "a/b");
        assert_eq!(export("nbd://host/%61%3f"), "a?");
        assert_eq!(export("nbd://host/"), "");
    }

    #[test]
    fn wrong_addresses_are_refused() {
        for wrong in [
            "nbd://",
            "nbd:///x",
            "nbd://h:0/",
            "nbd://h:x/",
            "nbd://h:65536",
            "nbd://[::1",
            "nbd://[::1]x",
            "nbd://h/%",
            "nbd://h/%1",
            "nbd://h/%zz",
            "nbd://h/%00",
            "nbd://h/%ff",
            "nbd://h?socket=s",
            "nbd+unix:///x",
            "nbd+unix://h/x?socket=s",
            "nbd+unix:///x?sock=s",
            "nbd+unix:///x?socket",
            "nbd://h?timeout=",
            "nbd://h?timeout=0",
            "nbd://h?timeout=-1",
            "nbd://h?timeout=1s",
            "nbd://h?tls-hostname=n",
            "nbds://",
            "nbds://h?socket=s",
            "nbds://h?tls-psk-file=f",
            "nbds://h?tls-verify-peer=false",
            "nbds+unix:///x",
            "http://h",
            "h",
        ] {
            assert!(NbdAddress::parse(wrong).is_err(), "{wrong}");
        }
    }
}
