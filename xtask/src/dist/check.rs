//! Checks the packages: pages are rendered without warnings, shells read their completions, and the
//! packed program runs by its names.

use super::{Dist, command, compat, files, output};
use crate::shell::has;
use std::path::{Path, PathBuf};

impl Dist {
    /// Runs all checks that this machine can; names the others.
    pub(super) fn check(&self, made: &[PathBuf]) -> Result<(), String> {
        if has("man") {
            for dir in ["man1", "man8"] {
                files(&self.docs.join(dir))?.iter().try_for_each(|page| rendered(page))?;
            }
        } else {
            println!("not rendered: the man pages, for want of man-db");
        }
        for shell in ["bash", "zsh", "fish"] {
            if !has_shell(shell) {
                println!("not read: completions for {shell}, which is not installed");
                continue;
            }
            for file in files(&self.docs.join(shell))? {
                output(command(shell, ["-n"]).arg(&file))
                    .map_err(|error| format!("{}: {error}", file.display()))?;
            }
        }
        let all = tempfile::tempdir().map_err(|error| error.to_string())?;
        let (archives, packages) = (all.path().join("archives"), all.path().join("packages"));
        for dir in [&archives, &packages] {
            std::fs::create_dir(dir).map_err(|error| format!("{}: {error}", dir.display()))?;
        }
        for path in made {
            match path.extension().is_some_and(|end| end == "deb") {
                true => output(command("dpkg-deb", ["-x"]).arg(path).arg(&packages))?,
                false => output(
                    command("tar", ["--strip-components=1", "-xf"])
                        .arg(path)
                        .arg("-C")
                        .arg(&archives),
                )?,
            };
        }
        for usr in [archives, packages.join("usr")] {
            if usr.exists() {
                runs(&usr)?;
                compat::runs(&usr)?;
            }
        }
        Ok(())
    }

    /// The shared libraries that the program needs.
    pub(super) fn links(&self) -> String {
        let said = output(command("ldd", Vec::<&str>::new()).arg(&self.binary));
        match said.as_deref().map(str::trim) {
            Ok("statically linked") | Err(_) => "nothing".into(),
            Ok(libraries) => libraries.to_owned(),
        }
    }
}

fn has_shell(shell: &str) -> bool {
    output(&mut command(shell, ["-c", ":"])).is_ok()
}

/// Renders a page as lintian does.
fn rendered(page: &Path) -> Result<(), String> {
    let how = ["--warnings", "-E", "UTF-8", "-l", "-Tutf8", "-Z"];
    let mut man = command("man", how);
    let output = man.env("MANROFFSEQ", "").env("MANWIDTH", "80").arg(page).output();
    let output = output.map_err(|error| format!("man: {error}"))?;
    let errors = String::from_utf8_lossy(&output.stderr);
    if output.status.success() && errors.trim().is_empty() {
        return Ok(());
    }
    Err(format!("{}: {errors}", page.display()))
}

/// Makes and checks an image with the program below `usr`.
fn runs(usr: &Path) -> Result<(), String> {
    let image = tempfile::NamedTempFile::new().map_err(|error| error.to_string())?;
    let image = image.path().display().to_string();
    let run = |name: &str, args: &[&str]| {
        let path = usr.join(name).display().to_string();
        output(&mut command(&path, args)).map_err(|error| format!("{path}: {error}"))
    };
    run("bin/nextent", &["--version"])?;
    run("sbin/mkfs.nextent", &["-q", "-F", &image, "16m"])?;
    run("sbin/fsck.nextent", &["-n", &image])?;
    let list = run("bin/nextent", &["ls", &format!("{image}:/")])?;
    if !list.contains("lost+found") {
        return Err(format!("an image without: {list}"));
    }
    sees_faked_owners(usr, "sbin/mkfs.nextent")
}

/// Runs the program below `usr` under fakeroot by the name `mkfs`, and checks that the image has
/// the faked owners.
pub(super) fn sees_faked_owners(usr: &Path, mkfs: &str) -> Result<(), String> {
    if !has("fakeroot") || !usr.join("lib/nextent/nextent").is_file() {
        println!("not tried: {mkfs} under fakeroot");
        return Ok(());
    }
    let dir = tempfile::tempdir().map_err(|error| error.to_string())?;
    let usr = std::path::absolute(usr).map_err(|error| error.to_string())?;
    let line = format!(
        "mkdir t && echo x > t/f && chown -R 7:8 t && {0}/{mkfs} -q -d t a.img 16m && \
         {0}/bin/nextent stat a.img:/f",
        usr.display()
    );
    let mut fakeroot = command("fakeroot", ["--", "sh", "-c", &line]);
    let said = output(fakeroot.current_dir(dir.path()))?;
    if said.contains("Uid: 7  Gid: 8") {
        Ok(())
    } else {
        Err(format!("{mkfs} under fakeroot: a file of 7:8 became: {said}"))
    }
}
