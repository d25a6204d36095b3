//! Asynchronous transfers over one connection of the calling thread.
//!
//! A transfer becomes one request for each of its pieces, or more if a piece is larger than the
//! server's largest request. If the connection is lost, all requests that have not ended are sent
//! again over a new one. Parts of the server's blocks are transferred with blocking calls.

use super::NbdDevice;
use super::channel::{Client, Outcome};
use super::connections::{Epoch, Losses};
use super::wire::{Command, Request};
use crate::BlockDevice;
use crate::queue::{Completed, DeviceQueue, Direction, Transfer, outside};

use nextent_num::{to_u64, to_usize};
use nextent_sync::{Arc, HashMap, SlotId, current_slot};
use std::io;
use std::ops::Range;

/// A transfer with requests in flight.
struct Active {
    transfer: Transfer,
    /// Its requests that have not ended.
    left: usize,
    result: io::Result<()>,
}

/// A request in flight.
struct Part {
    /// The number of its transfer.
    of: u64,
    request: Request,
    memory: Range<usize>,
    /// The number of the record of a write.
    record: Option<u64>,
}

/// Transfers in flight on an export.
pub(super) struct NbdQueue<'d> {
    device: &'d NbdDevice,
    epoch: Epoch,
    /// The slot of the thread that made the queue, which chooses the connection.
    slot: SlotId,
    client: Arc<Client>,
    next: u64,
    active: HashMap<u64, Active>,
    /// By cookie of the present connection.
    parts: HashMap<u64, Part>,
    done: Vec<Completed>,
    depth: usize,
    /// The connections lost since a request ended.
    losses: Losses,
}

impl<'d> NbdQueue<'d> {
    pub(super) fn new(device: &'d NbdDevice, depth: usize) -> Self {
        Self {
            device,
            epoch: device.connections.present(),
            slot: current_slot(),
            client: Client::new(),
            next: 0,
            active: HashMap::default(),
            parts: HashMap::default(),
            done: Vec::new(),
            depth: depth.max(1),
            losses: Losses::default(),
        }
    }

    /// Checks a transfer; whether all its pieces are whole blocks of the server.
    fn check(&self, transfer: &Transfer) -> io::Result<bool> {
        let mut aligned = true;
        for piece in transfer.pieces.as_slice() {
            if transfer.buffer.get(piece.of_buffer()).is_none() {
                return Err(outside());
            }
            let len = to_u64(piece.len);
            match transfer.direction {
                Direction::Read => self.device.check(piece.offset, len)?,
                Direction::Write => self.device.check_write(piece.offset, len)?,
            }
            aligned &= self.device.is_aligned(piece.offset, len);
            // Requests of the queue pass by the write-behind.
            let range = piece.offset..piece.offset + len;
            self.device.behind.settle(&self.device.connections, &range)?;
        }
        Ok(aligned)
    }

    /// The requests of a transfer.
    fn divide(&self, of: u64, transfer: &Transfer) -> Vec<Part> {
        let command = match transfer.direction {
            Direction::Read => Command::Read,
            Direction::Write => Command::Write,
        };
        let mut parts = Vec::with_capacity(transfer.pieces.as_slice().len());
        for piece in transfer.pieces.as_slice() {
            let range = piece.offset..piece.offset + to_u64(piece.len);
            for request in self.device.transfers(command, range) {
                let start = piece.start + to_usize(request.offset - piece.offset);
                let memory = start..start + to_usize(request.len);
                parts.push(Part { of, request, memory, record: None });
            }
        }
        parts
    }

    /// Sends requests, also over new connections. If that fails for good they all end.
    fn send(&mut self, mut parts: Vec<Part>) {
        while let Some(part) = parts.pop() {
            let data = match (part.request.command, self.active.get(&part.of)) {
                (Command::Write, Some(active)) => &active.transfer.buffer[part.memory.clone()],
                _ => &[],
            };
            match self.epoch.channel_of(self.slot).submit(&self.client, &part.request, data) {
                Ok(cookie) => {
                    self.parts.insert(cookie, part);
                }
                Err(_) => {
                    parts.push(part);
                    parts.extend(self.parts.drain().map(|(_, part)| part));
                    if let Err(error) = self.renew() {
                        return self.fail(parts, &error);
                    }
                }
            }
        }
    }

    /// Uses new connections. No request is in flight then.
    fn renew(&mut self) -> io::Result<()> {
        self.device.connections.renew(&self.epoch, &mut self.losses)?;
        self.epoch = self.device.connections.present();
        // Outcomes of earlier connections go to the earlier client.
        self.client = Client::new();
        Ok(())
    }

    fn fail(&mut self, parts: Vec<Part>, error: &io::Error) {
        for part in parts {
            self.end(&part, Err(io::Error::new(error.kind(), error.to_string())));
        }
    }

    /// Records the writes among `parts` before they are sent.
    fn record(&self, transfer: &Transfer, parts: &mut [Part]) -> io::Result<()> {
        for part in parts.iter_mut().filter(|part| part.request.command == Command::Write) {
            let data = &transfer.buffer[part.memory.clone()];
            part.record = self.device.begin_write(part.request.offset, data)?;
        }
        Ok(())
    }

    /// Handles the outcomes of requests.
    fn absorb(&mut self, ended: &mut Vec<(u64, Outcome)>) {
        let mut lost = Vec::new();
        for (cookie, outcome) in ended.drain(..) {
            let Some(part) = self.parts.remove(&cookie) else { continue };
            match outcome.into_result(self.epoch.channel_of(self.slot)) {
                Some(Ok(reply)) => {
                    if let Some(active) = self.active.get_mut(&part.of)
                        && part.request.command == Command::Read
                    {
                        active.transfer.buffer[part.memory.clone()].copy_from_slice(&reply.bytes);
                    }
                    self.losses = Losses::default();
                    self.end(&part, Ok(()));
                }
                Some(Err(error)) => self.end(&part, Err(error)),
                None => lost.push(part),
            }
        }
        if !lost.is_empty() {
            lost.extend(self.parts.drain().map(|(_, part)| part));
            match self.renew() {
                Ok(()) => self.send(lost),
                Err(error) => self.fail(lost, &error),
            }
        }
    }

    /// Ends a request, and its transfer if it was the last one.
    fn end(&mut self, part: &Part, result: io::Result<()>) {
        if part.request.command == Command::Write {
            self.device.end_change(&part.request);
        }
        self.device.end_write(part.record, result.is_ok());
        let Some(active) = self.active.get_mut(&part.of) else { return };
        active.left -= 1;
        if active.result.is_ok() {
            active.result = result;
        }
        if active.left == 0
            && let Some(Active { transfer, result, .. }) = self.active.remove(&part.of)
        {
            self.done.push(Completed { transfer, result });
        }
    }

    /// Waits until a request in flight ends.
    fn wait(&mut self) {
        let mut ended = Vec::new();
        self.epoch.channel_of(self.slot).wait(&self.client, &mut ended);
        self.absorb(&mut ended);
    }
}

impl DeviceQueue for NbdQueue<'_> {
    fn submit(&mut self, mut transfer: Transfer) {
        let result = match self.check(&transfer) {
            Ok(true) => {
                let of = self.next;
                let mut parts = self.divide(of, &transfer);
                match self.record(&transfer, &mut parts) {
                    Ok(()) if !parts.is_empty() => {
                        self.next += 1;
                        let left = parts.len();
                        self.active.insert(of, Active { transfer, left, result: Ok(()) });
                        self.send(parts);
                        while self.active.len() > self.depth {
                            self.wait();
                        }
                        return;
                    }
                    result => {
                        for part in &parts {
                            self.device.end_write(part.record, false);
                        }
                        result
                    }
                }
            }
            Ok(false) => transfer.perform(self.device as &dyn BlockDevice),
            Err(error) => Err(error),
        };
        self.done.push(Completed { transfer, result });
    }

    fn complete(&mut self, least: usize, done: &mut Vec<Completed>) {
        let mut ended = Vec::new();
        if !self.active.is_empty() {
            self.epoch.channel_of(self.slot).poll(&self.client, &mut ended);
            self.absorb(&mut ended);
        }
        while self.done.len() < least && !self.active.is_empty() {
            self.wait();
        }
        done.append(&mut self.done);
    }

    fn in_flight(&self) -> usize {
        self.active.len() + self.done.len()
    }
}

impl Drop for NbdQueue<'_> {
    fn drop(&mut self) {
        while !self.active.is_empty() {
            self.wait();
        }
    }
}
