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
use nextent_sync::{
    Arc, Duration, Instant, LockClass, Mutex, RwLock, SlotId, current_slot, now, sleep,
};
use std::borrow::Cow;
use std::collections::VecDeque;
use std::io::{self, IoSlice};
use std::mem::take;
use std::ops::Range;

static CONNECTING: LockClass = LockClass::new("device.nbd-connecting", 877);
static CONNECTIONS: LockClass = LockClass::new("device.nbd-connections", 878);
static UNFLUSHED: LockClass = LockClass::new("device.nbd-unflushed", 886);

/// How often connections are made for one request, before it fails.
const MOST_LOSSES: usize = 8;
/// Unflushed writes that are repeated at once.
const REPEATED_AT_ONCE: usize = 16;
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

/// The lost connections of one request.
///
/// The time to connect again begins with the first loss and not with each. So a server that accepts
/// connections and never answers is given up once that time has passed and the last request has
/// had its timeout.
#[derive(Default)]
pub(super) struct Losses {
    count: usize,
    first: Option<Instant>,
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
        let limit = options.timeout_of(&address);
        let (export, channels) = connect(&address, options, None, limit).map_err(failed)?;
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
        let (mut ended, mut losses) = (Vec::new(), Losses::default());
        loop {
            let epoch = self.present();
            let channel = epoch.channel_of(current_slot());
            let client = Client::new();
            if channel.submit(&client, request, data).is_ok()
                && let Some(outcome) = outcome(channel, &client, &mut ended)
            {
                return outcome;
            }
            self.renew(&epoch, &mut losses)?;
        }
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
        let (client, mut losses) = (Client::new(), Losses::default());
        loop {
            let epoch = self.present();
            match epoch.channel(number).submit_into(&client, request, data, take(buffer)) {
                Ok(_) => return Ok(Sent { epoch, channel: number, client, record }),
                Err(_) => self.renew(&epoch, &mut losses)?,
            }
        }
    }

    /// Whether all connections were usable when last used.
    pub(super) fn are_usable(&self) -> bool {
        self.present().channels.iter().all(|channel| channel.lost().is_none())
    }

    /// Makes new connections instead of those of `lost`, unless another thread has. `losses` are
    /// those of the request that needs them.
    ///
    /// # Errors
    /// The cause, once the time for it has passed. All later calls fail with it too.
    pub(super) fn renew(&self, lost: &Epoch, losses: &mut Losses) -> io::Result<()> {
        let first = *losses.first.get_or_insert_with(now);
        losses.count += 1;
        if losses.count > MOST_LOSSES {
            return Err(self.failure(&io::Error::other("the connection is lost again and again")));
        }
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
        let mut pause = PAUSES.0;
        // A server that violates the protocol would do so again.
        while cause.kind() != io::ErrorKind::InvalidData
            && let Some(left) = self.options.reconnect.checked_sub(first.elapsed())
            && !left.is_zero()
        {
            match self.connect_and_repeat(left) {
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

    /// Connects, with a limit for each step, and repeats the writes that the last flush does not
    /// cover.
    fn connect_and_repeat(&self, limit: Duration) -> io::Result<Vec<Channel<Stream>>> {
        let expected = Some(&self.export);
        let (_, channels) = connect(&self.address, &self.options, expected, limit.max(PAUSES.0))?;
        let repeats = self.unflushed.lock().repeats();
        let mut in_flight = VecDeque::with_capacity(REPEATED_AT_ONCE);
        for (channel, repeat) in channels.iter().cycle().zip(&repeats) {
            if in_flight.len() == REPEATED_AT_ONCE {
                in_flight.pop_front().map_or(Ok(()), repeated)?;
            }
            let (command, offset, len, data) = match repeat {
                Repeat::Bytes(offset, data) => {
                    (Command::Write, *offset, to_u64(data.len()), &data[..])
                }
                Repeat::Zeros(range) => {
                    (Command::WriteZeroes, range.start, range.end - range.start, &[][..])
                }
            };
            let request = Request::new(command, offset, must_fit(len));
            let client = Client::new();
            if channel.submit(&client, &request, data).is_err() {
                return Err(lost_again(channel));
            }
            in_flight.push_back((channel, client));
        }
        in_flight.into_iter().try_for_each(repeated)?;
        Ok(channels)
    }
}

/// Waits for the end of a repeated write.
fn repeated((channel, client): (&Channel<Stream>, Arc<Client>)) -> io::Result<()> {
    match outcome(channel, &client, &mut Vec::new()) {
        Some(done) => done.map(drop),
        None => Err(lost_again(channel)),
    }
}

fn lost_again(channel: &Channel<Stream>) -> io::Error {
    let lost = || io::Error::new(io::ErrorKind::ConnectionAborted, "lost again");
    channel.lost().unwrap_or_else(lost)
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
            None => self.renew(&sent.epoch, &mut Losses::default()),
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

/// Waits for the outcome of the only request of `client`; `None` if the connection is lost.
fn outcome(
    channel: &Channel<Stream>,
    client: &Arc<Client>,
    ended: &mut Vec<(u64, Outcome)>,
) -> Option<io::Result<Reply>> {
    ended.clear();
    channel.wait(client, ended);
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

/// Connects as often as the server and the options allow, with a limit for each step. The export
/// must be the `expected` one.
fn connect(
    address: &NbdAddress,
    options: &NbdOptions,
    expected: Option<&Export>,
    limit: Duration,
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
    let limit = limit.min(timeout);
    let (export, first) = one(limit)?;
    if expected.is_some_and(|expected| *expected != export) {
        return Err(violation("the export has another size or other flags than before"));
    }
    let most = if export.has(transmission::CAN_MULTI_CONN) { options.connections } else { 1 };
    let mut channels = vec![first];
    while channels.len() < most {
        // A server may limit connections, and let further ones wait.
        let Ok((other, channel)) = one(limit.min(FURTHER)) else { break };
        if other != export {
            return Err(violation("connections show different exports"));
        }
        channels.push(channel);
    }
    Ok((export, channels))
}
