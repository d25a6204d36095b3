//! How fragmented files and free space are: histograms by powers of two.

use super::svg::{Anchor, Svg};
use super::units::{grouped, percent, share, size};
use super::{MARGIN, WIDTH};
use nextent::check::BlockUsage;

const GAP: f64 = 24.0;
const CHART: f64 = (WIDTH - 2.0 * MARGIN - 2.0 * GAP) / 3.0;
const LABEL: f64 = 70.0;
const BAR: f64 = 190.0;
const STEP: f64 = 17.0;

/// A row: its label, the number that is shown, and its part of the whole.
struct Row {
    label: String,
    number: u64,
    part: u64,
}

/// Draws the histograms from `y` on; returns where to go on.
pub(super) fn draw(svg: &mut Svg, usage: &BlockUsage, y: f64) -> f64 {
    let block = u64::from(usage.survey.geo.block_size);
    let lengths = |rows: &[(u64, u64)]| -> Vec<Row> {
        let row = |(power, (number, part)): (usize, &(u64, u64))| Row {
            label: size(block << power),
            number: *number,
            part: *part,
        };
        rows.iter().enumerate().map(row).collect()
    };
    let counts = usage.files.extents_of_files.iter().enumerate().map(|(power, files)| Row {
        label: match power {
            0 => "1".to_owned(),
            power => format!("{}\u{2013}{}", grouped(1 << power), grouped((2 << power) - 1)),
        },
        number: *files,
        part: *files,
    });
    let charts = [
        (
            "Extents of files, by length",
            "Length from; bar: share of the files' blocks; number of extents",
            lengths(&usage.files.lengths),
        ),
        (
            "Free extents, by length",
            "Length from; bar: share of the free blocks; number of extents",
            lengths(&usage.survey.free.lengths),
        ),
        (
            "Files, by their number of extents",
            "Extents; bar: share of the files that have blocks; number of files",
            counts.collect(),
        ),
    ];
    let mut end = y;
    for (number, (title, note, rows)) in charts.into_iter().enumerate() {
        let x = MARGIN + number as f64 * (CHART + GAP);
        svg.text((x, y), "head", Anchor::Start, title);
        svg.text((x, y + 17.0), "note", Anchor::Start, note);
        end = end.max(chart(svg, (x, y + 28.0), &rows));
    }
    end + MARGIN
}

fn chart(svg: &mut Svg, (x, y): (f64, f64), rows: &[Row]) -> f64 {
    let total = rows.iter().map(|row| row.part).sum();
    let first = rows.iter().position(|row| row.number > 0);
    let last = rows.iter().rposition(|row| row.number > 0);
    let (Some(first), Some(last)) = (first, last) else {
        svg.text((x, y + 12.0), "label", Anchor::Start, "None");
        return y + STEP;
    };
    let mut at = y;
    for Row { label, number, part } in &rows[first..=last] {
        svg.text((x + LABEL, at + 12.0), "small", Anchor::End, label);
        let width = BAR * share(*part, total);
        svg.rect((x + LABEL + 8.0, at + 2.0), (BAR, STEP - 4.0), "ground", "");
        if *number > 0 {
            svg.rect((x + LABEL + 8.0, at + 2.0), (width.max(0.5), STEP - 4.0), "bar", "");
            let text = format!("{} ({})", grouped(*number), percent(*part, total));
            svg.text((x + LABEL + BAR + 14.0, at + 12.0), "small", Anchor::Start, &text);
        }
        at += STEP;
    }
    at
}
