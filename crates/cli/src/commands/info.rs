//! `info`: the superblock as dumpe2fs shows it, and free space as e2freefrag shows it. For a disk,
//! its partitions. A plot shows what the blocks are used for.

use super::info_disk;
use super::plot::{Output, Plot};
use crate::disk::Disk;
use crate::failure::{Context, Failure, Result, say};
use crate::show;
use crate::target::ImageSpec;
use nextent::check::{Survey, survey};
use nextent_device::{BlockDevice, FileOptions};
use nextent_ondisk::group_desc::{GroupDesc, flags};
use nextent_ondisk::htree::HashVersion;
use nextent_ondisk::mmp::{SEQ_CLEAN, SEQ_FSCK};
use nextent_ondisk::superblock::{on_error, state};
use nextent_ondisk::{DiskTime, GroupNo, Incompat, RoCompat};
use nextent_sync::Arc;
use serde_json::{Map, Value, json};
use std::path::{Path, PathBuf};

#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Show every group
    #[arg(long)]
    pub(crate) groups: bool,
    /// Print JSON
    #[arg(long)]
    pub(crate) json: bool,
    /// Write a picture of the volume to FILE, as SVG: the use of its blocks, and fragmentation
    ///
    /// The picture shows the volume as after the replay of its journal. It does not depend on the
    /// time or the name of the image. `-` writes it to standard output, in place of the text.
    #[arg(long, value_name = "FILE", value_hint = clap::ValueHint::FilePath)]
    pub(crate) plot: Option<PathBuf>,
    /// The image
    #[arg(value_hint = clap::ValueHint::FilePath)]
    pub(crate) image: ImageSpec,
}

type Field = (&'static str, Value);

/// `nextent info`.
pub(crate) fn run(args: &Args) -> Result<()> {
    let on_output = args.plot.as_deref() == Some(Path::new("-"));
    if on_output && (args.json || args.groups) {
        return Err(Failure::usage("--plot - leaves no standard output for --json or --groups"));
    }
    let plot = args.plot.as_deref().map(|path| Plot::new(path, &args.image)).transpose()?;
    if let Some(disk) = info_disk::disk(&args.image) {
        if plot.is_some() {
            let advice = args.image.part_advice(&disk.1);
            return Err(Failure::new(format!("{}: a plot is of one volume{advice}", args.image)));
        }
        return info_disk::print(&args.image, &disk, args.json);
    }
    let device = args.image.open(FileOptions::new().read_only(true))?;
    let refused = |error| Failure::new(format!("{}: {}", args.image, args.image.explain(&error)));
    let of_delta = delta(&device).context(|| args.image.to_string())?;
    let device: Arc<dyn BlockDevice> = Arc::new(device);
    let found = survey(Arc::clone(&device), 0).map_err(refused)?;
    if let Some(plot) = plot
        && plot.write(device, &args.image)? == Output::Standard
    {
        return Ok(());
    }
    let (journal, multi_mount) = (journal(&found), multi_mount(&found));
    let parts = [identity(&found), layout(&found), life(&found), journal, multi_mount, of_delta];
    let fields = parts.concat();
    if args.json {
        say!("{:#}", as_json(&found, fields, args.groups));
        return Ok(());
    }
    for (name, value) in fields.iter().filter(|(_, value)| !value.is_null()) {
        say!("{:<26}{}", format!("{name}:"), plain(value));
    }
    free_space(&found)?;
    if args.groups {
        for (group, desc) in &found.groups {
            print_group(&found, *group, desc)?;
        }
    }
    Ok(())
}

/// What an overlay has written.
fn delta(device: &Disk) -> std::io::Result<Vec<Field>> {
    let Some(delta) = device.delta() else { return Ok(Vec::new()) };
    let state = if delta.is_committing() { "being committed" } else { "in use" };
    Ok(vec![("Delta bytes", delta.delta_bytes()?.into()), ("Delta state", state.into())])
}

fn plain(value: &Value) -> String {
    match value {
        Value::String(text) => text.clone(),
        Value::Array(words) => words.iter().map(plain).collect::<Vec<_>>().join(" "),
        other => other.to_string(),
    }
}

fn identity(found: &Survey) -> Vec<Field> {
    let (sb, geo) = (&found.sb, &found.geo);
    let mut states = Vec::new();
    states.push(if sb.state.get() & state::VALID != 0 { "clean" } else { "not clean" });
    if sb.state.get() & state::ERROR != 0 {
        states.push("with errors");
    }
    if sb.state.get() & state::ORPHAN != 0 {
        states.push("orphans being recovered");
    }
    let errors = match sb.errors.get() {
        on_error::CONTINUE => "Continue",
        on_error::READ_ONLY => "Remount read-only",
        on_error::PANIC => "Panic",
        _ => "Unknown",
    };
    let text = |text: String| if text.is_empty() { "<none>".to_owned() } else { text };
    vec![
        ("Filesystem volume name", text(show::name(sb.label().as_bytes())).into()),
        ("Last mounted on", text(show::name(sb.last_mounted_on().as_bytes())).into()),
        ("Filesystem UUID", sb.volume_uuid().to_string().into()),
        ("Filesystem revision #", sb.rev_level.get().into()),
        ("Filesystem features", geo.features.names().into()),
        ("Filesystem state", states.join(" ").into()),
        ("Errors behavior", errors.into()),
    ]
}

fn layout(found: &Survey) -> Vec<Field> {
    let (sb, geo) = (&found.sb, &found.geo);
    let clusters = geo.features.has(RoCompat::BIGALLOC);
    let flex = geo.features.has(Incompat::FLEX_BG);
    let only = |on: bool, value: Value| if on { value } else { Value::Null };
    vec![
        ("Inode count", geo.inodes_count.into()),
        ("Block count", geo.blocks_count.into()),
        ("Reserved block count", sb.reserved_blocks_count().into()),
        ("Free blocks", sb.free_blocks_count().into()),
        ("Free inodes", sb.free_inodes_count.get().into()),
        ("First block", geo.first_data_block.0.into()),
        ("Block size", geo.block_size.into()),
        ("Cluster size", only(clusters, (geo.block_size << geo.cluster_bits).into())),
        ("Group descriptor size", geo.desc_size.into()),
        ("Reserved GDT blocks", geo.reserved_gdt_blocks.into()),
        ("Group count", geo.group_count.into()),
        ("Blocks per group", geo.blocks_per_group.into()),
        ("Inodes per group", geo.inodes_per_group.into()),
        ("Inode blocks per group", geo.inode_table_blocks.into()),
        ("Flex block group size", only(flex, geo.flex_groups.into())),
        ("First inode", geo.first_inode.0.into()),
        ("Inode size", geo.inode_size.into()),
    ]
}

fn life(found: &Survey) -> Vec<Field> {
    let sb = &found.sb;
    let time = |seconds: u64| match seconds {
        0 => "n/a".to_owned(),
        _ => show::full(DiskTime::new(i64::try_from(seconds).unwrap_or(i64::MAX), 0)),
    };
    let hash = match HashVersion::of_code(sb.def_hash_version, false) {
        Some(HashVersion::Legacy) => "legacy",
        Some(HashVersion::HalfMd4) => "half_md4",
        Some(HashVersion::Tea) => "tea",
        Some(HashVersion::SipHash) => "siphash",
        _ => "unknown",
    };
    let seed: Vec<String> = sb.hash_seed_words().map(|word| format!("{word:08x}")).to_vec();
    let sums = found.geo.features.metadata_csum();
    let only = |on: bool, value: Value| if on { value } else { Value::Null };
    vec![
        ("Filesystem created", time(sb.made_at()).into()),
        ("Last mount time", time(sb.mounted_at()).into()),
        ("Last write time", time(sb.written_at()).into()),
        ("Last checked", time(sb.checked_at()).into()),
        ("Mount count", sb.mnt_count.get().into()),
        ("Lifetime writes", format!("{} KiB", sb.kbytes_written.get()).into()),
        ("Reserved blocks uid", sb.reserved_owner().0.into()),
        ("Reserved blocks gid", sb.reserved_owner().1.into()),
        ("Default directory hash", hash.into()),
        ("Directory hash seed words", seed.into()),
        ("Checksum type", only(sums, "crc32c".into())),
        ("Checksum", only(sums, format!("{:#010x}", sb.checksum.get()).into())),
        ("FS Error count", only(sb.error_count.get() > 0, sb.error_count.get().into())),
        ("First error time", only(sb.first_error_at() > 0, time(sb.first_error_at()).into())),
        ("Last error time", only(sb.last_error_at() > 0, time(sb.last_error_at()).into())),
    ]
}

fn journal(found: &Survey) -> Vec<Field> {
    let Some(journal) = &found.journal else { return Vec::new() };
    let names = journal.features().names();
    let bytes = u64::from(journal.length()) * u64::from(found.geo.block_size);
    vec![
        ("Journal inode", found.sb.journal_inum.get().into()),
        ("Journal features", if names.is_empty() { "(none)".into() } else { names.into() }),
        ("Total journal size", format!("{}k", bytes >> 10).into()),
        ("Total journal blocks", journal.length().into()),
        ("Journal sequence", format!("{:#010x}", journal.sequence().0).into()),
        ("Journal start", journal.start().into()),
        ("Journal errno", journal.errno().into()),
    ]
}

/// Which node had the volume last, by its multiple mount protection.
fn multi_mount(found: &Survey) -> Vec<Field> {
    let Some(block) = &found.multi_mount else { return Vec::new() };
    let state = match block.sequence.get() {
        SEQ_CLEAN => "clean".to_owned(),
        SEQ_FSCK => "a check has the volume".to_owned(),
        number => format!("{number:#010x}"),
    };
    let time = i64::try_from(block.time.get()).unwrap_or(i64::MAX);
    vec![
        ("MMP sequence", state.into()),
        ("MMP update time", show::full(DiskTime::new(time, 0)).into()),
        ("MMP node name", show::name(block.node()).into()),
        ("MMP device name", show::name(block.device()).into()),
        ("MMP update interval", found.sb.mmp_interval.get().into()),
    ]
}

fn free_space(found: &Survey) -> Result<()> {
    let free = &found.free;
    let average = free.blocks as f64 / free.runs.max(1) as f64;
    say!(
        "\nFree extents: {}, longest {} blocks, average {average:.1} blocks",
        free.runs,
        free.longest
    );
    say!("{:>22}  {:>12}  {:>12}  {:>7}", "Blocks in extent", "Extents", "Free blocks", "Percent");
    for (power, (runs, blocks)) in free.lengths.iter().enumerate().filter(|(_, row)| row.0 > 0) {
        let range = format!("{}-{}", 1u64 << power, (2u64 << power) - 1);
        let percent = *blocks as f64 * 100.0 / free.blocks.max(1) as f64;
        say!("{range:>22}  {runs:>12}  {blocks:>12}  {percent:>6.2}%");
    }
    Ok(())
}

fn group_flags(found: &Survey, desc: &GroupDesc) -> Vec<&'static str> {
    let all = [
        (flags::INODE_UNINIT, "INODE_UNINIT"),
        (flags::BLOCK_UNINIT, "BLOCK_UNINIT"),
        (flags::INODE_ZEROED, "ITABLE_ZEROED"),
    ];
    let set = all.into_iter().filter(|(bit, _)| desc.has_flag(&found.geo.features, *bit));
    set.map(|(_, name)| name).collect()
}

fn print_group(found: &Survey, group: GroupNo, desc: &GroupDesc) -> Result<()> {
    let geo = &found.geo;
    let first = geo.group_first_block(group).0;
    let last = first + u64::from(geo.group_blocks(group)) - 1;
    let flags = group_flags(found, desc).join(", ");
    say!("\nGroup {group}: (Blocks {first}-{last}) csum {:#06x} [{flags}]", desc.checksum);
    if let Some(block) = geo.super_block_of(group) {
        let kind = if group.0 == 0 { "Primary" } else { "Backup" };
        say!("  {kind} superblock at {block}");
    }
    say!("  Block bitmap at {}, csum {:#010x}", desc.block_bitmap, desc.block_bitmap_csum);
    say!("  Inode bitmap at {}, csum {:#010x}", desc.inode_bitmap, desc.inode_bitmap_csum);
    let end = desc.inode_table.0.saturating_add(u64::from(geo.inode_table_blocks)) - 1;
    say!("  Inode table at {}-{end}", desc.inode_table);
    let (blocks, inodes, dirs) = (desc.free_clusters, desc.free_inodes, desc.used_dirs);
    let unused = desc.itable_unused;
    say!(
        "  {blocks} free blocks, {inodes} free inodes, {dirs} directories, {unused} unused inodes"
    );
    Ok(())
}

fn as_json(found: &Survey, fields: Vec<Field>, groups: bool) -> Value {
    let key = |name: &str| name.to_lowercase().replace(" #", "").replace(' ', "_");
    let mut all: Map<String, Value> =
        fields.into_iter().map(|(name, value)| (key(name), value)).collect();
    let free = &found.free;
    let lengths = free.lengths.iter().enumerate().filter(|(_, row)| row.0 > 0);
    let lengths = lengths.map(
        |(power, (runs, blocks))| json!({"from": 1u64 << power, "extents": runs, "blocks": blocks}),
    );
    all.insert(
        "free_space".into(),
        json!({
            "blocks": free.blocks,
            "extents": free.runs,
            "longest": free.longest,
            "histogram": lengths.collect::<Vec<_>>(),
        }),
    );
    if groups {
        let row = |(group, desc): &(GroupNo, GroupDesc)| {
            json!({
                "group": group.0,
                "first_block": found.geo.group_first_block(*group).0,
                "blocks": found.geo.group_blocks(*group),
                "block_bitmap": desc.block_bitmap.0,
                "inode_bitmap": desc.inode_bitmap.0,
                "inode_table": desc.inode_table.0,
                "free_blocks": desc.free_clusters,
                "free_inodes": desc.free_inodes,
                "directories": desc.used_dirs,
                "unused_inodes": desc.itable_unused,
                "flags": group_flags(found, desc),
            })
        };
        all.insert("groups".into(), found.groups.iter().map(row).collect());
    }
    Value::Object(all)
}
