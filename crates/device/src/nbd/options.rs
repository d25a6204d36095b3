//! Options of an NBD device.

use super::url::NbdAddress;
use nextent_sync::{Duration, available_cores};

/// The timeout, if neither the options nor the address has one.
const TIMEOUT: Duration = Duration::from_secs(60);

/// How to use an NBD export.
///
/// # Examples
///
/// ```
/// use nextent_device::NbdOptions;
/// use std::time::Duration;
///
/// let options = NbdOptions::new().reconnect(Duration::from_secs(60));
/// # let _ = options;
/// ```
#[derive(Clone, Debug)]
pub struct NbdOptions {
    pub(super) read_only: bool,
    pub(super) reconnect: Duration,
    timeout: Option<Duration>,
    pub(super) connections: usize,
    pub(super) write_behind: bool,
}

impl Default for NbdOptions {
    fn default() -> Self {
        Self::new()
    }
}

impl NbdOptions {
    /// Reads and writes, without connecting again, with the timeout of the address or one minute.
    #[must_use]
    pub fn new() -> Self {
        /// More connections than this do not help.
        const MOST: usize = 16;
        Self {
            read_only: false,
            reconnect: Duration::ZERO,
            timeout: None,
            connections: available_cores().clamp(1, MOST),
            write_behind: true,
        }
    }

    /// Refuses writes if `yes`.
    #[must_use]
    pub fn read_only(self, yes: bool) -> Self {
        Self { read_only: yes, ..self }
    }

    /// For how long a lost connection is made again and again. Zero, the default: not at all. Then
    /// all requests fail once the connection is lost.
    ///
    /// The time begins when a request first loses its connection. A request that is lost again
    /// after it fails. So a server that accepts connections and never answers costs at most the
    /// timeout before the first loss, this time, and the timeout once more.
    ///
    /// A device that connects again keeps a copy of the writes since the last flush, at most 64
    /// MiB, and repeats them.
    #[must_use]
    pub fn reconnect(self, time: Duration) -> Self {
        Self { reconnect: time, ..self }
    }

    /// After which time without progress of the server the connection counts as lost, instead of
    /// that of the address. At least one second.
    #[must_use]
    pub fn timeout(self, time: Duration) -> Self {
        Self { timeout: Some(time.max(Duration::from_secs(1))), ..self }
    }

    /// The longest time without progress of the server at `address`.
    pub(super) fn timeout_of(&self, address: &NbdAddress) -> Duration {
        self.timeout.or(address.timeout).unwrap_or(TIMEOUT)
    }

    /// Whether a write returns before the server has performed it; the default. Then a write that
    /// fails is reported by later writes and by flushes, all of which fail from then on. Writes to
    /// a server that cannot flush are never deferred.
    #[must_use]
    pub fn write_behind(self, yes: bool) -> Self {
        Self { write_behind: yes, ..self }
    }

    /// The most connections, if the server supports several at once; by default one for each core.
    #[must_use]
    pub fn connections(self, most: usize) -> Self {
        Self { connections: most.max(1), ..self }
    }
}
