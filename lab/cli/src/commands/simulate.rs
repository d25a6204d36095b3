//! `simulate`: runs a workload on simulated cores, prints a table, writes figures and plots.

use crate::failure::Result;
use crate::output;
use indicatif::ProgressBar;
use nextent_simulate::{Request, calibrate, simulate, validate};
use std::io::{IsTerminal, Write};
use std::path::PathBuf;
use std::process::ExitCode;

/// The default numbers of cores.
const CORES: [usize; 7] = [1, 2, 4, 8, 16, 32, 64];

#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// fallocate2, handles, churn or dio-overwrite
    #[arg(required_unless_present_any = ["validate", "calibrate"])]
    pub(crate) workload: Option<String>,
    /// kunpeng920, epyc9654x2, numaq16, x440, xeon6140, host, or a TOML file
    #[arg(long, value_name = "NAME|FILE.toml", default_value = "host")]
    pub(crate) machine: String,
    /// Numbers of cores, each at most 256 [default: 1,2,4,8,16,32,64]
    #[arg(long, value_name = "N,...", value_delimiter = ',')]
    pub(crate) cores: Vec<usize>,
    /// Designs, see `nextent-lab designs` [default: nextent]
    #[arg(long = "design", value_name = "NAME,...", value_delimiter = ',')]
    pub(crate) designs: Vec<String>,
    /// Timed operations of each core
    #[arg(long, value_name = "N", default_value_t = 2000)]
    pub(crate) operations: u64,
    /// Show which locks and cache lines cost what share of the time
    #[arg(long, conflicts_with_all = ["validate", "calibrate"])]
    pub(crate) why: bool,
    /// Compare the simulation with all published figures
    #[arg(long, conflicts_with_all = ["workload", "machine", "cores", "designs", "operations"])]
    pub(crate) validate: bool,
    /// Measure this machine and print it as a file for --machine
    #[arg(long, conflicts_with_all = [
        "workload", "machine", "cores", "designs", "operations", "validate", "json", "plot",
    ])]
    pub(crate) calibrate: bool,
    /// Write the figures as JSON
    #[arg(long, value_name = "FILE")]
    pub(crate) json: Option<PathBuf>,
    /// Draw operations a second and core against cores
    #[arg(long, value_name = "FILE.svg")]
    pub(crate) plot: Option<PathBuf>,
}

/// `nextent-lab simulate`.
pub(crate) fn run(args: Args) -> Result<ExitCode> {
    if args.calibrate {
        write!(std::io::stdout(), "{}", calibrate()?)?;
        return Ok(ExitCode::SUCCESS);
    }
    output::check(&[&args.json, &args.plot])?;
    let bar = std::io::stderr().is_terminal().then(ProgressBar::new_spinner);
    let mut tell = |text: &str| {
        if let Some(bar) = &bar {
            bar.set_message(text.to_owned());
            bar.tick();
        }
    };
    let (text, json, svg) = if args.validate {
        let found = validate(&mut tell)?;
        (found.to_string(), found.to_json(), found.to_svg())
    } else {
        let request = Request {
            workload: args.workload.unwrap_or_default(),
            machine: args.machine,
            cores: if args.cores.is_empty() { CORES.to_vec() } else { args.cores },
            designs: args.designs,
            operations: args.operations,
        };
        let found = simulate(&request, &mut tell)?;
        let why = if args.why { found.why() } else { String::new() };
        (format!("{found}{why}"), found.to_json(), found.to_svg())
    };
    if let Some(bar) = &bar {
        bar.finish_and_clear();
    }
    write!(std::io::stdout(), "{text}")?;
    if let Some(path) = &args.json {
        output::write(path, &format!("{json:#}\n"))?;
    }
    if let Some(path) = &args.plot {
        output::write(path, &svg)?;
    }
    Ok(ExitCode::SUCCESS)
}
