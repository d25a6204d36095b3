//! `replay`.

use crate::args::Replay;
use crate::failure::{Result, say};
use crate::image::{Image, Purpose};
use crate::show;
use serde_json::json;

/// `nextent replay`. Opening the image recovers, closing it marks it as clean.
pub(crate) fn run(args: &Replay) -> Result<()> {
    let image = Image::open(&args.image, Purpose::Change)?;
    let report = image.volume.recovery();
    image.close()?;
    if args.json {
        say!(
            "{:#}",
            json!({
                "transactions": report.transactions,
                "blocks": report.blocks,
                "revoked": report.revoked,
                "fast_commits": report.fast_commits,
                "orphans": report.orphans,
            })
        );
    } else if report.is_nothing() {
        say!("{}: clean, nothing to recover", show::path(&args.image));
    } else {
        let fast = match report.fast_commits {
            0 => String::new(),
            n => format!(", {n} records of fast commits"),
        };
        say!(
            "{}: recovered {} transactions ({} blocks){fast}, {} orphans",
            show::path(&args.image),
            report.transactions,
            report.blocks,
            report.orphans
        );
    }
    Ok(())
}
