//! The report as an SVG plot: operations a second and thread against threads, on log axes.
//!
//! Each line has its name at its right end, in its colour, instead of a legend. Names that would
//! overlap are moved apart and connected to the end of their line. The default design is bold,
//! mounted directories are dashed. Thin bars show the range of all rounds.

use super::Report;
use crate::designs::Design;
use crate::plan::Location;
use crate::workloads::Workload;
use std::fmt::Write;

const WIDTH: f64 = 1000.0;
const HEIGHT: f64 = 600.0;
const LEFT: f64 = 84.0;
const RIGHT: f64 = 740.0;
const TOP: f64 = 84.0;
const BOTTOM: f64 = 530.0;
/// The distance of two names.
const NAME_GAP: f64 = 17.0;
/// Colours that people with colour blindness can distinguish.
const COLOURS: [&str; 10] = [
    "#d55e00", "#009e73", "#cc79a7", "#b8860b", "#56b4e9", "#7b3294", "#8c564b", "#636363",
    "#5b8c00", "#17a2a2",
];
/// The colour of the default design.
const OURS: &str = "#0057b8";

/// One line of the plot.
struct Line<'a> {
    name: &'a str,
    colour: &'static str,
    bold: bool,
    dashed: bool,
    /// Threads with their median, minimum and maximum.
    points: Vec<(usize, [f64; 3])>,
}

impl Report {
    /// Operations a second and thread (for dbench MB/s) against threads, as SVG.
    #[must_use]
    pub fn to_svg(&self) -> String {
        let lines = self.lines();
        let scale = Scale::over(&self.threads, &lines);
        let mut svg = String::new();
        let drawn = self
            .frame(&mut svg, &scale)
            .and_then(|()| lines.iter().try_for_each(|line| draw(&mut svg, &scale, line)))
            .and_then(|()| names(&mut svg, &scale, &lines))
            .and_then(|()| svg.write_str("</svg>\n"));
        drawn.expect("writing to a string does not fail");
        svg
    }

    fn lines(&self) -> Vec<Line<'_>> {
        let mut colours = COLOURS.iter().cycle();
        let mut lines = Vec::new();
        for (number, column) in self.columns.iter().enumerate() {
            let bold = column.design == Some(Design::default());
            let mut points = Vec::new();
            for &threads in &self.threads {
                let each = self.cell(number, threads).map(|run| self.figure(run) / threads as f64);
                let each: Vec<f64> = each.filter(|value| *value > 0.0).collect();
                if let Some((middle, _)) = super::spread(each.clone()) {
                    let least = each.iter().copied().fold(f64::INFINITY, f64::min);
                    let most = each.iter().copied().fold(0.0, f64::max);
                    points.push((threads, [middle, least, most]));
                }
            }
            points.sort_by_key(|point| point.0);
            lines.push(Line {
                name: &column.label,
                colour: if bold { OURS } else { colours.next().expect("a cycle has no end") },
                bold,
                dashed: column.location != Location::Engine,
                points,
            });
        }
        lines.retain(|line| !line.points.is_empty());
        lines
    }

    /// Title, grid and axes.
    fn frame(&self, svg: &mut String, scale: &Scale) -> std::fmt::Result {
        let unit = match self.workload {
            Workload::Dbench => "MB/s",
            _ => "operations a second",
        };
        let (name, what) = (self.workload.name(), self.workload.operation());
        let title = format!("{name}: {unit} and thread");
        let machine = format!("{}, {} cores", self.machine.cpu, self.machine.cores);
        axes(svg, scale, [&title, what, &machine, "threads"], &self.threads)?;
        self.mark_cores(svg, scale)
    }
}

/// Title, unit and machine; grid and axes with the name of the horizontal one.
fn axes(
    svg: &mut String,
    scale: &Scale,
    [title, what, machine, along]: [&str; 4],
    threads: &[usize],
) -> std::fmt::Result {
    writeln!(
        svg,
        "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{WIDTH}\" height=\"{HEIGHT}\" \
         viewBox=\"0 0 {WIDTH} {HEIGHT}\" font-family=\"Helvetica, Arial, sans-serif\">\n\
         <rect width=\"100%\" height=\"100%\" fill=\"white\"/>"
    )?;
    text(svg, (LEFT, 32.0), "font-size=\"20\" font-weight=\"bold\"", title)?;
    text(svg, (LEFT, 54.0), "font-size=\"13\" fill=\"#555\"", what)?;
    text(svg, (LEFT, 71.0), "font-size=\"11\" fill=\"#777\"", machine)?;
    for (value, label) in scale.ticks() {
        let y = scale.y(value);
        let strong = if label.is_some() { "#ccc" } else { "#eee" };
        rule(svg, (LEFT, y), (RIGHT, y), strong)?;
        if let Some(label) = label {
            let style = "font-size=\"12\" fill=\"#333\" text-anchor=\"end\"";
            text(svg, (LEFT - 8.0, y + 4.0), style, &label)?;
        }
    }
    for &threads in threads {
        let x = scale.x(threads);
        rule(svg, (x, TOP), (x, BOTTOM), "#eee")?;
        let style = "font-size=\"12\" fill=\"#333\" text-anchor=\"middle\"";
        text(svg, (x, BOTTOM + 18.0), style, &threads.to_string())?;
    }
    rule(svg, (LEFT, BOTTOM), (RIGHT, BOTTOM), "#333")?;
    rule(svg, (LEFT, TOP), (LEFT, BOTTOM), "#333")?;
    let middle = f64::midpoint(LEFT, RIGHT);
    let style = "font-size=\"13\" fill=\"#333\" text-anchor=\"middle\"";
    text(svg, (middle, BOTTOM + 44.0), style, along)
}

/// Operations a second and core against cores, as SVG. A name that ends in `published` is dashed.
#[must_use]
pub fn curves(title: &str, along: &str, all: &[(&str, Vec<(usize, f64)>)]) -> String {
    let ours = Design::default().to_string();
    let mut colours = COLOURS.iter().cycle();
    let mut drawn = Vec::new();
    for (name, points) in all {
        let points = points.iter().filter(|point| point.1 > 0.0);
        let points: Vec<_> = points.map(|(cores, value)| (*cores, [*value; 3])).collect();
        if !points.is_empty() {
            drawn.push((*name, points));
        }
    }
    let lines: Vec<Line<'_>> = drawn
        .iter()
        .map(|(name, points)| {
            let bold = *name == ours;
            let colour = if bold { OURS } else { colours.next().expect("a cycle has no end") };
            let dashed = name.ends_with("published");
            Line { name, colour, bold, dashed, points: points.clone() }
        })
        .collect();
    let mut threads: Vec<usize> =
        lines.iter().flat_map(|line| line.points.iter().map(|point| point.0)).collect();
    threads.sort_unstable();
    threads.dedup();
    let scale = Scale::over(&threads, &lines);
    let mut svg = String::new();
    let done = axes(&mut svg, &scale, [title, "operations a second and core", "", along], &threads)
        .and_then(|()| lines.iter().try_for_each(|line| draw(&mut svg, &scale, line)))
        .and_then(|()| names(&mut svg, &scale, &lines))
        .and_then(|()| svg.write_str("</svg>\n"));
    done.expect("writing to a string does not fail");
    svg
}

impl Report {
    /// The number of threads beyond which they share cores, and no line can stay level.
    fn mark_cores(&self, svg: &mut String, scale: &Scale) -> std::fmt::Result {
        let cores = self.machine.cores;
        let (few, many) = (self.threads.iter().min(), self.threads.iter().max());
        if few.is_none_or(|few| *few > cores) || many.is_none_or(|many| *many <= cores) {
            return Ok(());
        }
        let x = scale.x(cores);
        writeln!(
            svg,
            "<line x1=\"{x:.1}\" y1=\"{TOP}\" x2=\"{x:.1}\" y2=\"{BOTTOM}\" stroke=\"#999\" \
             stroke-dasharray=\"2 3\"/>"
        )?;
        let style = "font-size=\"11\" fill=\"#777\"";
        text(svg, (x + 5.0, BOTTOM - 7.0), style, &format!("{cores} cores"))
    }
}

/// Maps figures to coordinates.
struct Scale {
    threads: (f64, f64),
    /// The powers of ten at the bottom and at the top.
    values: (f64, f64),
}

impl Scale {
    fn over(threads: &[usize], lines: &[Line<'_>]) -> Self {
        let ends = |values: &mut dyn Iterator<Item = f64>| {
            values.fold((f64::INFINITY, f64::NEG_INFINITY), |(low, high), value| {
                (low.min(value), high.max(value))
            })
        };
        let all = lines.iter().flat_map(|line| &line.points);
        let (low, high) = ends(&mut all.flat_map(|point| point.1).map(f64::log10));
        let (low, high) = if low <= high { (low, high) } else { (0.0, 1.0) };
        // A margin at both ends, and at least a factor of ten in total.
        let air = ((1.0 - (high - low)) / 2.0).max(0.06 * (high - low)).max(0.05);
        let (few, many) = ends(&mut threads.iter().map(|n| (*n as f64).log2()));
        Self { threads: (few, many), values: (low - air, high + air) }
    }

    fn x(&self, threads: usize) -> f64 {
        let (few, many) = self.threads;
        if many - few < 0.01 {
            return f64::midpoint(LEFT, RIGHT);
        }
        let (left, right) = (LEFT + 24.0, RIGHT - 24.0);
        left + ((threads as f64).log2() - few) / (many - few) * (right - left)
    }

    fn y(&self, value: f64) -> f64 {
        let (low, high) = self.values;
        BOTTOM - (value.log10() - low) / (high - low) * (BOTTOM - TOP)
    }

    /// The positions of grid lines, some with a label.
    fn ticks(&self) -> Vec<(f64, Option<String>)> {
        let (low, high) = self.values;
        let wide = high - low > 4.0;
        let mut ticks = Vec::new();
        for power in low.floor() as i32..=high.ceil() as i32 {
            for digit in 1..10 {
                let value = f64::from(digit) * 10f64.powi(power);
                if !(low..=high).contains(&value.log10()) {
                    continue;
                }
                let named = digit == 1 || (!wide && matches!(digit, 2 | 5));
                ticks.push((value, named.then(|| short(value))));
            }
        }
        ticks
    }
}

/// 20k, 1.5M, 0.2.
fn short(value: f64) -> String {
    match value {
        v if v >= 1e9 => format!("{}G", v / 1e9),
        v if v >= 1e6 => format!("{}M", v / 1e6),
        v if v >= 1e3 => format!("{}k", v / 1e3),
        v if v >= 1.0 => format!("{v}"),
        v => format!("{v:.3}").trim_end_matches('0').to_owned(),
    }
}

fn draw(svg: &mut String, scale: &Scale, line: &Line<'_>) -> std::fmt::Result {
    let at = |(threads, [middle, ..]): &(usize, [f64; 3])| (scale.x(*threads), scale.y(*middle));
    let path: Vec<String> =
        line.points.iter().map(at).map(|(x, y)| format!("{x:.1},{y:.1}")).collect();
    let (colour, width) = (line.colour, if line.bold { 3.6 } else { 2.0 });
    let dashes = if line.dashed { " stroke-dasharray=\"7 4\"" } else { "" };
    writeln!(
        svg,
        "<polyline points=\"{}\" fill=\"none\" stroke=\"{colour}\" stroke-width=\"{width}\" \
         stroke-linejoin=\"round\"{dashes}/>",
        path.join(" ")
    )?;
    for point in &line.points {
        let (x, y) = at(point);
        let [_, least, most] = point.1;
        rule(svg, (x, scale.y(least)), (x, scale.y(most)), colour)?;
        let radius = if line.bold { 4.5 } else { 3.0 };
        let (fill, edge) = if line.dashed { ("white", colour) } else { (colour, colour) };
        writeln!(
            svg,
            "<circle cx=\"{x:.1}\" cy=\"{y:.1}\" r=\"{radius}\" fill=\"{fill}\" \
             stroke=\"{edge}\" stroke-width=\"1.5\"/>"
        )?;
    }
    Ok(())
}

/// The names at the ends of the lines, moved apart where they would overlap.
fn names(svg: &mut String, scale: &Scale, lines: &[Line<'_>]) -> std::fmt::Result {
    let end = |line: &Line<'_>| {
        let (threads, [middle, ..]) = line.points[line.points.len() - 1];
        (scale.x(threads), scale.y(middle))
    };
    let mut order: Vec<&Line<'_>> = lines.iter().collect();
    order.sort_by(|a, b| end(a).1.total_cmp(&end(b).1));
    let wanted: Vec<f64> = order.iter().map(|line| end(line).1).collect();
    for (line, y) in order.into_iter().zip(apart(&wanted)) {
        let (from, colour) = (end(line), line.colour);
        let x = RIGHT + 14.0;
        if line.points.len() > 1 || (y - from.1).abs() > 1.0 {
            writeln!(
                svg,
                "<polyline points=\"{:.1},{:.1} {:.1},{y:.1} {:.1},{y:.1}\" fill=\"none\" \
                 stroke=\"{colour}\" stroke-width=\"0.8\" stroke-opacity=\"0.6\"/>",
                from.0 + 6.0,
                from.1,
                x - 8.0,
                x - 3.0
            )?;
        }
        let weight = if line.bold { " font-weight=\"bold\"" } else { "" };
        let value = short_figure(line.points[line.points.len() - 1].1[0]);
        let style = format!("font-size=\"13\" fill=\"{colour}\"{weight}");
        text(svg, (x, y + 4.5), &style, &format!("{} {value}", clipped(line.name)))?;
    }
    Ok(())
}

/// Shortens a long name in its middle so that it fits beside the plot.
fn clipped(name: &str) -> String {
    let letters: Vec<char> = name.chars().collect();
    if letters.len() <= 26 {
        return name.to_owned();
    }
    let (head, tail) = (&letters[..10], &letters[letters.len() - 13..]);
    head.iter().chain(&['.', '.', '.']).chain(tail).collect()
}

fn short_figure(value: f64) -> String {
    let digits = (2 - value.max(1e-9).log10().floor() as i32).clamp(-9, 9);
    let unit = 10f64.powi(digits);
    short((value * unit).round() / unit)
}

/// Heights near the wanted ones (which rise), at least a line apart and within the plot.
fn apart(wanted: &[f64]) -> Vec<f64> {
    let mut places = wanted.to_vec();
    for n in 1..places.len() {
        places[n] = places[n].max(places[n - 1] + NAME_GAP);
    }
    // Names beyond the bottom edge push the names above them up.
    let mut limit = HEIGHT - 14.0;
    for place in places.iter_mut().rev() {
        *place = place.min(limit);
        limit = *place - NAME_GAP;
    }
    // Groups that were pushed down move up together, so that the error is the same on both sides.
    for _ in 0..4 {
        let mut start = 0;
        while start < places.len() {
            let mut end = start + 1;
            while end < places.len() && places[end] - places[end - 1] < NAME_GAP + 0.01 {
                end += 1;
            }
            let off: f64 = (start..end).map(|n| places[n] - wanted[n]).sum();
            let mean = off / (end - start) as f64;
            let above = if start == 0 { TOP - 10.0 } else { places[start - 1] + NAME_GAP };
            let shift = mean.clamp(0.0, (places[start] - above).max(0.0));
            places[start..end].iter_mut().for_each(|place| *place -= shift);
            start = end;
        }
    }
    places
}

fn text(svg: &mut String, at: (f64, f64), style: &str, text: &str) -> std::fmt::Result {
    let text = text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;");
    writeln!(svg, "<text x=\"{:.1}\" y=\"{:.1}\" {style}>{text}</text>", at.0, at.1)
}

fn rule(svg: &mut String, from: (f64, f64), to: (f64, f64), colour: &str) -> std::fmt::Result {
    let ((x1, y1), (x2, y2)) = (from, to);
    writeln!(
        svg,
        "<line x1=\"{x1:.1}\" y1=\"{y1:.1}\" x2=\"{x2:.1}\" y2=\"{y2:.1}\" stroke=\"{colour}\"/>"
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_keep_apart() {
        let places = apart(&[100.0, 101.0, 102.0, 300.0]);
        assert!(places.windows(2).all(|pair| pair[1] - pair[0] >= NAME_GAP - 0.01), "{places:?}");
        assert!((places[1] - 101.0).abs() < 2.0 && places[3] == 300.0, "{places:?}");
        let low = apart(&[HEIGHT; 5]);
        assert!(low.iter().all(|place| *place < HEIGHT), "{low:?}");
    }

    #[test]
    fn figures_are_short() {
        assert_eq!(short(20_000.0), "20k");
        assert_eq!(short_figure(2_055_915.0), "2.06M");
        assert_eq!(short_figure(12.345), "12.3");
        assert_eq!(short(0.05), "0.05");
    }

    #[test]
    fn long_names_lose_their_middle() {
        assert_eq!(clipped("engine nextent"), "engine nextent");
        assert_eq!(clipped("dir:/a/very/long/path/to/some/mount").len(), 26);
    }
}
