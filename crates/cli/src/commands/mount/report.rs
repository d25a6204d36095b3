//! The status of a mount: one JSON document for `nextent status`, by a thread that listens on a
//! socket.

use crate::commands::status::socket::{self, SocketFile};
use crate::log::{self, Level};
use nextent_fuse::{BOUNDS, RequestStatistics, Server};
use nextent_sync::{Arc, Duration, Instant, Weak, now, thread};
use rustix::net::sockopt::socket_peercred;
use serde_json::{Value, json};
use std::io::Write;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;

/// The longest time for a client to take the answer.
const PATIENCE: Duration = Duration::from_secs(5);

/// A server, and what is known about its mount.
pub(super) struct Reporter {
    server: Weak<Server>,
    image: String,
    point: String,
    transport: &'static str,
    since: Instant,
}

impl Reporter {
    pub(super) fn new(
        server: &Arc<Server>,
        image: &str,
        point: &Path,
        transport: &'static str,
    ) -> Self {
        Self {
            server: Arc::downgrade(server),
            image: image.to_owned(),
            point: point.display().to_string(),
            transport,
            since: now(),
        }
    }

    /// The present status; none after the mount has ended.
    pub(super) fn status(&self) -> Option<Value> {
        let server = self.server.upgrade()?;
        let volume = server.volume();
        let sb = volume.superblock();
        let journal = volume.journal_statistics();
        let caches = volume.cache_usage();
        Some(json!({
            "image": self.image,
            "mountpoint": self.point,
            "pid": std::process::id(),
            "transport": self.transport,
            "uptime_seconds": self.since.elapsed().as_secs_f64(),
            "read_only": volume.is_read_only(),
            "space": {
                "block_size": volume.geometry().block_size,
                "blocks": volume.geometry().blocks_count,
                "free_blocks": sb.free_blocks_count(),
                "reserved_blocks": sb.reserved_blocks_count(),
                "inodes": volume.geometry().inodes_count,
                "free_inodes": sb.free_inodes_count.get(),
            },
            "multi_mount": volume.multi_mount().map(|state| json!({
                "node": state.node,
                "device": state.device,
                "sequence": state.sequence,
                "updated": state.updated,
                "interval_seconds": state.interval,
            })),
            "errors": { "recorded": sb.error_count.get(), "journal": journal.error },
            "journal": {
                "commits": journal.commits,
                "fast_commits": journal.fast_commits,
                "blocks": journal.blocks,
                "seconds": journal.time.as_secs_f64(),
                "longest_seconds": journal.longest.as_secs_f64(),
                "log_blocks": journal.log_blocks,
                "log_used_blocks": journal.log_used,
            },
            "caches": {
                "inodes": caches.inodes,
                "inode_bytes": caches.inode_bytes,
                "pinned_inodes": caches.pinned,
                "block_bytes": caches.block_bytes,
                "groups": caches.groups,
                "group_bytes": caches.group_bytes,
            },
            "latency_bounds_seconds":
                BOUNDS.map(|bound| Duration::from_micros(bound).as_secs_f64()),
            "operations": server.requests().iter().map(operation).collect::<Vec<_>>(),
        }))
    }
}

fn operation(requests: &RequestStatistics) -> Value {
    json!({
        "operation": requests.operation,
        "count": requests.count,
        "errors": requests.errors,
        "bytes": requests.bytes,
        "seconds": requests.time.as_secs_f64(),
        "buckets": requests.buckets,
    })
}

/// Starts the thread that answers `nextent status` for the mount with this device number. Without
/// it the mount works, so a failure is only printed.
pub(super) fn listen(reporter: Arc<Reporter>, device: (u64, u64)) -> Option<SocketFile> {
    let serve = |(file, listener): (SocketFile, UnixListener)| {
        let answer = move || {
            listener.incoming().flatten().for_each(|client| answer(&reporter, client));
        };
        thread::Builder::new().name("nextent-status".to_owned()).spawn(answer)?;
        Ok(file)
    };
    match socket::bind(device, socket::STATUS).and_then(serve) {
        Ok(socket) => Some(socket),
        Err(error) => {
            log::write(Level::Warning, &format!("no socket for `nextent status`: {error}"));
            None
        }
    }
}

/// Answers a client that is root or the user of this process.
fn answer(reporter: &Reporter, mut client: UnixStream) {
    let own = rustix::process::geteuid();
    let may = |peer: rustix::process::Uid| peer.is_root() || peer == own;
    if !socket_peercred(&client).is_ok_and(|peer| may(peer.uid)) {
        return;
    }
    if let Some(status) = reporter.status() {
        // A client that leaves early needs no answer.
        let _ = client.set_write_timeout(Some(PATIENCE));
        let _ = client.write_all(status.to_string().as_bytes());
    }
}
