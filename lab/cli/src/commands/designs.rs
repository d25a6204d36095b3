//! `designs`: lists the designs by date.

use crate::failure::{Result, say};
use nextent_bench::{Design, designs};
use std::process::ExitCode;

#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Print JSON
    #[arg(long)]
    pub(crate) json: bool,
}

/// `nextent-lab designs`.
pub(crate) fn run(args: &Args) -> Result<ExitCode> {
    let all = designs::all();
    let default = Design::default();
    if args.json {
        let all = all.iter().map(|design| {
            serde_json::json!({
                "name": design.to_string(),
                "date": design.date,
                "about": design.about,
                "source": design.source,
                "gate": design.gate_option(),
                "default": *design == default,
            })
        });
        say!("{:#}", all.collect::<serde_json::Value>());
        return Ok(ExitCode::SUCCESS);
    }
    let names: Vec<String> = all.iter().map(Design::to_string).collect();
    let gates = designs::gates();
    let options = gates.iter().map(|gate| gate.0.len() + 1);
    let width = names.iter().map(String::len).chain(options).max().unwrap_or(0);
    for (name, design) in names.iter().zip(&all) {
        let mark = if *design == default { " (default)" } else { "" };
        let about = option_text(name).unwrap_or(design.about);
        say!("{name:<width$}  {:<7}  {about}{mark}", design.date);
    }
    say!("\nEach design has the journal gate of its date; a suffix chooses another gate:");
    for (option, date, about, presets) in gates {
        say!("{:<width$}  {date:<7}  {about} ({presets})", format!("/{option}"));
    }
    Ok(ExitCode::SUCCESS)
}

/// What the option in a design's name changes, indented below the design.
fn option_text(name: &str) -> Option<&'static str> {
    match name.split_once('/')?.1 {
        "s0" => Some("  groups searched one after another (mb_optimize_scan=0)"),
        "s1" => Some("  groups searched by order (mb_optimize_scan=1)"),
        "acqrel" => Some("  the goal loaded with acquire, stored with release"),
        _ => None,
    }
}
