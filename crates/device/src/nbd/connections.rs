//! The connections of a device to its server, which are made again when they are lost.
//!
//! | lock | rank | protects |
//! |---|---|---|
//! | `[connecting]` | 877 | why the device has failed for good; held while connections are made |
//! | `[connections]` | 878 | the present connections |
//! | `[unflushed]` | 886 | the writes since the last flush; a leaf |
//!
//! Connections are lost and made together: they have an epoch number. A thread whose request is
//! lost asks for new connections with the epoch that it used. The first such thread makes them and
//! repeats the unflushed writes; the others wait for it. Each then sends its request again.

use super::ahead::{self, Ahead, Source};
use super::behind::Transport;
use super::certificates;
use super::channel::{Channel, Client, Outcome, Reply, Socket};
use super::negotiate::{Export, negotiate, violation};
use super::options::NbdOptions;
use super::stream::{Ready, Stream};
use super::unflushed::{Repeat, Unflushed};
use super::url::NbdAddress;
use super::wire::{self, Command, Request, transmission};
use nextent_num::{must_fit, to_u64, to_usize};
use nextent_sync::atomic::{AtomicUsize, Ordering};
use nextent_sync::{Arc, Duration, LockClass, Mutex, RwLock, SlotId, current_slot, now, sleep};
use std::borrow::Cow;
use std::io::{self, IoSlice};
use std::mem::take;
use std::ops::Range;

static CONNECTING: LockClass = LockClass::new("device.nbd-connecting", 877);
static CONNECTIONS: LockClass = LockClass::new("device.nbd-connections", 878);
static UNFLUSHED: LockClass = LockClass::new("device.nbd-unflushed", 886);

/// How often a request is sent to servers that end each time, before it fails.
pub(super) const MOST_ATTEMPTS: usize = 8;
/// The first and the longest pause between attempts to connect.
const PAUSES: (Duration, Duration) = (Duration::from_millis(50), Duration::from_secs(2));

/// How long to wait for a further connection.
const FURTHER: Duration = Duration::from_secs(3);

impl Socket for Stream {
    fn try_read(&self, buf: &mut [u8]) -> io::Result<Option<usize>> {
        Self::try_read(self, buf)
    }

    fn try_write(&self, bufs: &[IoSlice<'_>]) -> io::Result<Option<usize>> {
        Self::try_write(self, bufs)
    }

    fn wait(&self, wanted: Ready, limit: Duration) -> io::Result<Ready> {
        Self::wait(self, wanted, limit)
    }

    fn shutdown(&self) {
        Self::shutdown(self);
    }
}

/// Connections that were made together.
#[derive(Clone)]
pub(super) struct Epoch {
    pub(super) number: u64,
    channels: Arc<[Channel<Stream>]>,
}

impl Epoch {
    /// The connection with a number, of which there are more numbers than connections.
    fn channel(&self, number: usize) -> &Channel<Stream> {
        &self.channels[number % self.channels.len()]
    }

    /// The connection for the threads of a slot.
    pub(super) fn channel_of(&self, slot: SlotId) -> &Channel<Stream> {
        self.channel(slot.index())
    }
}

/// The connections of a device.
pub(super) struct Connections {
    address: NbdAddress,
    options: NbdOptions,
    pub(super) export: Export,
    /// Why the device has failed for good.
    connecting: Mutex<Option<(io::ErrorKind, String)>>,
    present: RwLock<Epoch>,
    pub(super) unflushed: Mutex<Unflushed>,
    /// What was read ahead.
    pub(super) ahead: Ahead<Sent>,
    /// The next connection for a request that no thread waits for.
    turn: AtomicUsize,
}

/// A request that was sent, and that no thread waits for yet.
pub(super) struct Sent {
    epoch: Epoch,
    /// The number of its connection.
    channel: usize,
    client: Arc<Client>,
    /// The number of its record.
    record: Option<u64>,
}

impl Connections {
    pub(super) fn open(address: &NbdAddress, options: &NbdOptions) -> io::Result<Self> {
        let failed = |error: io::Error| {
            io::Error::new(error.kind(), format!("NBD server {}: {error}", address.server))
        };
        // The working directory may be another one when it connects again.
        let address = address.absolute()?;
        let (export, channels) = connect(&address, options, None).map_err(failed)?;
        let ahead = Ahead::new(ahead::sizes(export.size, export.unit, export.largest));
        Ok(Self {
            address,
            options: options.clone(),
            export,
            connecting: Mutex::new(&CONNECTING, None),
            present: RwLock::new(&CONNECTIONS, Epoch { number: 0, channels: channels.into() }),
            unflushed: Mutex::new(&UNFLUSHED, Unflushed::default()),
            ahead,
            turn: AtomicUsize::new(0),
        })
    }

    /// Whether writes are recorded until a flush.
    pub(super) fn records(&self) -> bool {
        self.options.reconnect > Duration::ZERO
    }

    pub(super) fn present(&self) -> Epoch {
        self.present.read().clone()
    }

    /// Sends a request and waits for the reply, also over new connections.
    pub(super) fn perform(&self, request: &Request, data: &[u8]) -> io::Result<Reply> {
        let mut ended = Vec::new();
        for _ in 0..MOST_ATTEMPTS {
            let epoch = self.present();
            let channel = epoch.channel_of(current_slot());
            if let Some(outcome) = send(channel, request, data, &mut ended) {
                return outcome;
            }
            self.renew(&epoch)?;
        }
        Err(self.failure(&io::Error::other("the connection is lost again and again")))
    }

    /// Sends a request over the next connection, or over new ones.
    fn submit(
        &self,
        request: &Request,
        data: &[u8],
        record: Option<u64>,
        buffer: &mut Vec<u8>,
    ) -> io::Result<Sent> {
        let number = self.turn.fetch_add(1, Ordering::Relaxed);
        let client = Client::new();
        for _ in 0..MOST_ATTEMPTS {
            let epoch = self.present();
            match epoch.channel(number).submit_into(&client, request, data, take(buffer)) {
                Ok(_) => return Ok(Sent { epoch, channel: number, client, record }),
                Err(_) => self.renew(&epoch)?,
            }
        }
        Err(self.failure(&io::Error::other("the connection is lost again and again")))
    }

    /// Whether all connections were usable when last used.
    pub(super) fn are_usable(&self) -> bool {
        self.present().channels.iter().all(|channel| channel.lost().is_none())
    }

    /// Makes new connections instead of those of `lost`, unless another thread has.
    ///
    /// # Errors
    /// The cause, once the time for it has passed. All later calls fail with it too.
    pub(super) fn renew(&self, lost: &Epoch) -> io::Result<()> {
        let mut failed = self.connecting.lock();
        if let Some((kind, text)) = &*failed {
            return Err(io::Error::new(*kind, text.clone()));
        }
        if self.present().number != lost.number {
            return Ok(());
        }
        let mut cause = io::Error::other("the connection is lost");
        for channel in &*lost.channels {
            cause = channel.lost().unwrap_or(cause);
            channel.lose(&io::Error::new(io::ErrorKind::ConnectionAborted, "another was lost"));
        }
        let (begun, mut pause) = (now(), PAUSES.0);
        // A server that violates the protocol would do so again.
        while cause.kind() != io::ErrorKind::InvalidData && begun.elapsed() < self.options.reconnect
        {
            match self.connect_and_repeat() {
                Ok(channels) => {
                    let number = lost.number + 1;
                    *self.present.write() = Epoch { number, channels: channels.into() };
                    return Ok(());
                }
                Err(error) => cause = error,
            }
            sleep(pause);
            pause = (pause * 2).min(PAUSES.1);
        }
        let error = self.failure(&cause);
        *failed = Some((error.kind(), error.to_string()));
        Err(error)
    }

    fn failure(&self, cause: &io::Error) -> io::Error {
        let text = format!("connection to the NBD server {} lost: {cause}", self.address.server);
        io::Error::new(cause.kind(), text)
    }

    /// Connects, and repeats the writes that the last flush does not cover.
    fn connect_and_repeat(&self) -> io::Result<Vec<Channel<Stream>>> {
        let (_, channels) = connect(&self.address, &self.options, Some(&self.export))?;
        let repeats = self.unflushed.lock().repeats();
        let mut ended = Vec::new();
        for repeat in repeats {
            let (command, offset, len, data) = match &repeat {
                Repeat::Bytes(offset, data) => {
                    (Command::Write, *offset, to_u64(data.len()), &data[..])
                }
                Repeat::Zeros(range) => {
                    (Command::WriteZeroes, range.start, range.end - range.start, &[][..])
                }
            };
            let request = Request::new(command, offset, must_fit(len));
            let lost = || io::Error::new(io::ErrorKind::ConnectionAborted, "lost again");
            let first = channels.first().ok_or_else(lost)?;
            match send(first, &request, data, &mut ended) {
                Some(done) => drop(done?),
                None => return Err(first.lost().unwrap_or_else(lost)),
            }
        }
        Ok(channels)
    }
}

impl Transport for Connections {
    type Sent = Sent;

    fn send(&self, request: &Request, data: Cow<'_, [u8]>) -> io::Result<Sent> {
        let range = request.offset..request.offset + u64::from(request.len);
        let (record, data) = match (self.records(), request.command) {
            (true, Command::Write) => {
                let shared = Arc::new(data.into_owned());
                let record = self.unflushed.lock().begin_shared(range.start, Arc::clone(&shared));
                (Some(record), Data::Shared(shared))
            }
            (true, Command::WriteZeroes) => {
                (Some(self.unflushed.lock().begin_zeros(range)), Data::Own(data))
            }
            _ => (None, Data::Own(data)),
        };
        let sent = self.submit(request, data.bytes(), record, &mut Vec::new());
        if sent.is_err()
            && let Some(record) = record
        {
            self.unflushed.lock().fail(record);
        }
        sent
    }

    fn has_ended(&self, sent: &Sent) -> bool {
        sent.client.has_outcome()
    }

    fn wait(&self, sent: Sent) -> io::Result<()> {
        let channel = sent.epoch.channel(sent.channel);
        let mut ended = Vec::new();
        channel.wait(&sent.client, &mut ended);
        let outcome = ended.pop().and_then(|(_, outcome)| outcome.into_result(channel));
        let result = match outcome {
            Some(result) => result.map(drop),
            // The new connections repeat all records, so this one too.
            None => self.renew(&sent.epoch),
        };
        if let Some(record) = sent.record {
            let mut unflushed = self.unflushed.lock();
            if result.is_ok() { unflushed.end(record) } else { unflushed.fail(record) }
        }
        result
    }

    fn changed(&self, range: &Range<u64>) {
        self.ahead.cut(range);
    }
}

impl Source for Connections {
    type Sent = Sent;

    fn send(&self, range: &Range<u64>, mut buffer: Vec<u8>) -> io::Result<Sent> {
        self.submit(&read_request(range), &[], None, &mut buffer)
    }

    fn wait(&self, sent: Sent) -> io::Result<Vec<u8>> {
        let channel = sent.epoch.channel(sent.channel);
        let mut ended = Vec::new();
        channel.wait(&sent.client, &mut ended);
        let outcome = ended.pop().and_then(|(_, outcome)| outcome.into_result(channel));
        // The reader asks again over new connections.
        let lost = || Err(io::ErrorKind::ConnectionAborted.into());
        outcome.unwrap_or_else(lost).map(|reply| reply.bytes)
    }

    fn read(&self, offset: u64, buf: &mut [u8]) -> io::Result<()> {
        let mut at = offset;
        for part in buf.chunks_mut(to_usize(u64::from(self.export.largest))) {
            let range = at..at + to_u64(part.len());
            let reply = self.perform(&read_request(&range), &[])?;
            part.copy_from_slice(&reply.bytes);
            at = range.end;
        }
        Ok(())
    }
}

fn read_request(range: &Range<u64>) -> Request {
    Request::new(Command::Read, range.start, must_fit(range.end - range.start))
}

/// The data of a write.
enum Data<'d> {
    Own(Cow<'d, [u8]>),
    /// The record has it too.
    Shared(Arc<Vec<u8>>),
}

impl Data<'_> {
    fn bytes(&self) -> &[u8] {
        match self {
            Self::Own(bytes) => bytes,
            Self::Shared(bytes) => bytes,
        }
    }
}

impl Drop for Connections {
    fn drop(&mut self) {
        self.present().channels.iter().for_each(Channel::disconnect);
    }
}

/// Sends one request and waits; `None` if the connection is lost.
fn send(
    channel: &Channel<Stream>,
    request: &Request,
    data: &[u8],
    ended: &mut Vec<(u64, Outcome)>,
) -> Option<io::Result<Reply>> {
    let client = Client::new();
    channel.submit(&client, request, data).ok()?;
    ended.clear();
    channel.wait(&client, ended);
    let (_, outcome) = ended.pop()?;
    outcome.into_result(channel)
}

impl Outcome {
    /// The result of the request; `None` if it must be sent over a new connection.
    pub(super) fn into_result<S: Socket>(self, channel: &Channel<S>) -> Option<io::Result<Reply>> {
        match self {
            Self::Done(reply) => Some(Ok(reply)),
            Self::Failed(wire::SHUTTING_DOWN) => {
                let text = "the server is shutting down";
                channel.lose(&io::Error::new(io::ErrorKind::ConnectionAborted, text));
                None
            }
            Self::Failed(code) => Some(Err(io::Error::from_raw_os_error(wire::errno(code)))),
            Self::Lost => None,
        }
    }
}

/// Connects as often as the server and the options allow. The export must be the `expected` one.
fn connect(
    address: &NbdAddress,
    options: &NbdOptions,
    expected: Option<&Export>,
) -> io::Result<(Export, Vec<Channel<Stream>>)> {
    let timeout = options.timeout_of(address);
    let one = |limit| {
        let mut stream = Stream::connect(&address.server, limit)?;
        // Certificates are read each time: they may have been renewed.
        let tls = address.tls.as_ref().map(|tls| certificates::client(tls, &address.server));
        let export = negotiate(&mut stream, tls.transpose()?, address.export(), limit)?;
        let channel = Channel::new(stream, timeout, export.structured);
        Ok::<_, io::Error>((export, channel))
    };
    let (export, first) = one(timeout)?;
    if expected.is_some_and(|expected| *expected != export) {
        return Err(violation("the export has another size or other flags than before"));
    }
    let most = if export.has(transmission::CAN_MULTI_CONN) { options.connections } else { 1 };
    let mut channels = vec![first];
    while channels.len() < most {
        // A server may limit connections, and let further ones wait.
        let Ok((other, channel)) = one(timeout.min(FURTHER)) else { break };
        if other != export {
            return Err(violation("connections show different exports"));
        }
        channels.push(channel);
    }
    Ok((export, channels))
}
