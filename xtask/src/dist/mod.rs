//! Makes the packages: the static program, a dynamically linked one for fakeroot, man pages,
//! completions, tar archives, and Debian packages if `dpkg-deb` is installed. A second package has
//! links by the names of e2fsprogs. All are checked at the end.

mod check;
mod compat;
mod package;
mod tree;

use crate::shell::{cargo, command, has, target_dir};
use std::path::{Path, PathBuf};
use std::process::Command;

/// The packages and their paths.
struct Dist {
    /// The output directory.
    dir: PathBuf,
    /// The program.
    binary: PathBuf,
    /// The same program linked dynamically, which it runs under fakeroot and the like; none where
    /// libc is always linked statically.
    dynamic: Option<PathBuf>,
    /// Man pages and completions.
    docs: PathBuf,
    version: String,
    /// Rust's target triple.
    triple: String,
}

/// Makes everything below `target/packages`.
pub(crate) fn run() -> Result<(), String> {
    let triple = host()?;
    let target = target_dir();
    // `dist` would be the directory of a cargo profile.
    let dir = target.join("packages");
    let _ = std::fs::remove_dir_all(&dir);
    std::fs::create_dir_all(&dir).map_err(|error| format!("{}: {error}", dir.display()))?;
    let docs = dir.join("docs");
    let to = docs.display().to_string();
    println!("man pages and completions");
    let features = ["-p", "nextent-cli", "--features", "generate"];
    let mut generate = cargo(["run", "--quiet"]);
    done(generate.args(features).args(["--", "generate-docs", &to]))?;
    println!("the program for {triple}, without shared libraries");
    let mut build = cargo(["build", "--quiet", "--profile", "dist", "-p", "nextent-cli"]);
    // With an explicit target, the flag does not apply to build scripts.
    done(build.args(["--target", &triple]).env("RUSTFLAGS", "-C target-feature=+crt-static"))?;
    let binary = target.join(&triple).join("dist/nextent");
    let dynamic = triple.ends_with("-gnu").then(|| target.join("dist/nextent"));
    if dynamic.is_some() {
        println!("the program with shared libraries, for fakeroot");
        done(&mut cargo(["build", "--quiet", "--profile", "dist", "-p", "nextent-cli"]))?;
    }
    let version = env!("CARGO_PKG_VERSION").to_owned();
    let dist = Dist { dir, binary, dynamic, docs, version, triple };
    let mut made = vec![dist.archive()?, dist.compat_archive()?];
    if has("dpkg-deb") {
        made.extend([dist.debian()?, dist.compat_debian()?]);
    } else {
        println!("no Debian package: dpkg-deb is not installed");
    }
    dist.check(&made)?;
    println!("links: {}", dist.links());
    for path in made {
        println!("{}", path.display());
    }
    Ok(())
}

/// The target triple of this machine.
fn host() -> Result<String, String> {
    let about = output(&mut command("rustc", ["-vV"]))?;
    let line = about.lines().find_map(|line| line.strip_prefix("host: "));
    line.map(str::to_owned).ok_or_else(|| "rustc does not name its host".into())
}

/// Runs a command that must succeed.
fn done(command: &mut Command) -> Result<(), String> {
    let name = command.get_program().display().to_string();
    let status = command.status().map_err(|error| format!("{name}: {error}"))?;
    if status.success() { Ok(()) } else { Err(format!("{name}: {status}")) }
}

/// The stdout of a command that must succeed.
fn output(command: &mut Command) -> Result<String, String> {
    let name = command.get_program().display().to_string();
    let output = command.output().map_err(|error| format!("{name}: {error}"))?;
    if output.status.success() {
        return Ok(String::from_utf8_lossy(&output.stdout).into_owned());
    }
    Err(format!("{name}: {}", String::from_utf8_lossy(&output.stderr).trim()))
}

/// The files of a directory, in order.
fn files(dir: &Path) -> Result<Vec<PathBuf>, String> {
    let named = |error| format!("{}: {error}", dir.display());
    let entries = std::fs::read_dir(dir).map_err(named)?;
    let mut files = entries
        .map(|entry| entry.map(|entry| entry.path()))
        .collect::<Result<Vec<_>, _>>()
        .map_err(named)?;
    files.sort();
    Ok(files)
}
