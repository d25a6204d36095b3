//! `mkfs -O journal_dev`: an external journal in place of a file system.

use super::{Args, confirmed, device_size, no_file, without_name};
use crate::failure::{Failure, Result, complain, say};
use crate::show;
use crate::target::Place;
use nextent::mkfs::{JournalPlan, MkfsOptions};
use nextent_device::{BlockDevice, FileDevice, FileOptions};
use nextent_sync::Arc;
use std::process::ExitCode;

/// Makes an external journal. Errors have no name of the image; the caller adds it.
pub(super) fn make(
    args: &Args,
    place: &Place,
    options: &MkfsOptions,
) -> std::result::Result<JournalPlan, String> {
    if !args.contents.is_empty() || args.oci.is_some() || args.free.is_some() {
        return Err("an external journal has no contents; leave out -d, --oci and --free".into());
    }
    let planned = |bytes| JournalPlan::new(options, bytes).map_err(|error| error.to_string());
    if args.dry_run {
        return planned(device_size(place, options)?);
    }
    let is_new = place.is_file() && !place.path.exists();
    let device = open(args, place, options.size)?;
    let plan = planned(device.size()).and_then(|plan| {
        for warning in plan.warnings() {
            complain(&format!("{}: warning: {warning}", show::path(&args.image)));
        }
        if !confirmed(args, &*device)? {
            return Err("left unchanged".into());
        }
        plan.write(&*device).map_err(|error| error.to_string())?;
        Ok(plan)
    });
    if plan.is_err() && is_new {
        // The error of the journal is reported.
        let _ = std::fs::remove_file(&place.path);
    }
    plan
}

fn open(
    args: &Args,
    place: &Place,
    size: Option<u64>,
) -> std::result::Result<Arc<dyn BlockDevice>, String> {
    if let Some(device) = no_file(place, false)? {
        return Ok(device);
    }
    let mut how = place.options(FileOptions::new().direct(args.direct));
    match (size, place.size) {
        (Some(size), Some(room)) if size > room => {
            return Err(format!("{size} bytes were asked for, the part has {room}"));
        }
        (Some(size), _) => {
            how = how.size(size).create(place.part.is_none() && !place.path.is_dir());
        }
        (None, _) => {}
    }
    let device = FileDevice::open(&place.path, &how);
    Ok(Arc::new(device.map_err(|error| without_name(place, &error.to_string()))?))
}

/// Prints what was made, or would be made.
pub(super) fn show(args: &Args, plan: &JournalPlan) -> Result<ExitCode> {
    let (sb, blocks) = (plan.superblock(), plan.blocks());
    if args.json {
        let text = serde_json::to_string_pretty(&serde_json::json!({
            "uuid": sb.volume_uuid().to_string(),
            "label": sb.label(),
            "features": sb.features().names(),
            "block_size": plan.block_size(),
            "blocks": blocks,
        }));
        say!("{}", text.map_err(|error| Failure::new(error.to_string()))?);
    } else if let Some(front) = args.front.as_ref().filter(|_| !args.quiet || args.dry_run) {
        front.show_journal(args, plan)?;
    } else if !args.quiet || args.dry_run {
        let verb = if args.dry_run { "Would make" } else { "Made" };
        say!("{verb} an external journal of {blocks} {}k blocks", plan.block_size() / 1024);
        say!("UUID: {}", sb.volume_uuid());
    }
    Ok(ExitCode::SUCCESS)
}
