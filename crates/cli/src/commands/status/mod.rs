//! `status`: what the server of a mount has done, and the state of its volume.
//!
//! The server answers each connection to its [`socket`] with one JSON document. This command prints
//! the document, or shows it as text or in Prometheus's exposition format.

mod prometheus;
pub(crate) mod socket;
mod text;

use crate::failure::{Context, Failure, Result, say};
use crate::show;
use nextent_fuse::Mounted;
use nextent_sync::Duration;
use serde_json::Value;
use std::io::Read;
use std::path::{Path, PathBuf};

/// The longest time that a server may take to answer.
const PATIENCE: Duration = Duration::from_secs(10);
/// The most bytes of an answer.
const LONGEST: u64 = 1 << 20;

#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Print JSON
    #[arg(long, conflicts_with = "prometheus")]
    pub(crate) json: bool,
    /// Print metrics for Prometheus
    #[arg(long)]
    pub(crate) prometheus: bool,
    /// A mount point of nextent
    #[arg(value_name = "MOUNTPOINT")]
    pub(crate) point: PathBuf,
}

/// `nextent status`.
pub(crate) fn run(args: &Args) -> Result<()> {
    let name = show::path(&args.point);
    let mounted = find(&args.point).context(|| name.clone())?;
    let Some(mounted) = mounted.filter(Mounted::is_nextent) else {
        return Err(Failure::new(format!("{name}: not a mount point of nextent")));
    };
    let status = ask(&mounted).context(|| name)?;
    if args.json {
        say!("{status:#}");
    } else if args.prometheus {
        say!("{}", prometheus::format(&status).trim_end());
    } else {
        say!("{}", text::format(&status).trim_end());
    }
    Ok(())
}

/// The mount at `point`. Does not ask the mount's server, which may not admit this user, or may
/// hang.
pub(crate) fn find(point: &Path) -> std::io::Result<Option<Mounted>> {
    let point = std::path::absolute(point)?;
    if let (Some(parent), Some(name)) = (point.parent(), point.file_name())
        && let Some(mounted) = Mounted::at(&parent.canonicalize()?.join(name))
    {
        return Ok(Some(mounted));
    }
    // Perhaps a symbolic link.
    Ok(Mounted::at(&point.canonicalize()?))
}

/// Reads the answer of the mount's server.
fn ask(mounted: &Mounted) -> std::io::Result<Value> {
    let stream = socket::connect(mounted, socket::STATUS)?;
    stream.set_read_timeout(Some(PATIENCE))?;
    let mut answer = String::new();
    stream.take(LONGEST).read_to_string(&mut answer)?;
    serde_json::from_str(&answer).map_err(std::io::Error::other)
}

/// The status as text, for a server's log.
pub(crate) fn as_text(status: &Value) -> String {
    text::format(status)
}
