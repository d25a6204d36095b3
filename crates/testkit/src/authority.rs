//! Certificates for TLS, made by `openssl`, in the files that libnbd, nbdkit and QEMU use.

use crate::Skip;
use std::path::{Path, PathBuf};
use std::process::Command;
use tempfile::TempDir;

/// A certificate authority.
#[derive(Debug)]
pub struct Authority {
    dir: TempDir,
}

/// A certificate that an authority signs.
#[derive(Clone, Copy, Debug)]
pub struct Certificate {
    /// `client` or `server`.
    pub side: &'static str,
    /// The host or the client that it names, as `DNS:NAME` or `IP:ADDRESS`.
    pub name: &'static str,
    /// After how many days it expires; it has expired if negative.
    pub days: i32,
}

impl Certificate {
    /// A valid certificate.
    #[must_use]
    pub fn new(side: &'static str, name: &'static str) -> Self {
        Self { side, name, days: 30 }
    }
}

impl Authority {
    /// Makes a new authority.
    ///
    /// # Errors
    /// [`Skip`] if openssl is missing.
    ///
    /// # Panics
    /// If openssl fails.
    #[track_caller]
    pub fn new() -> Result<Self, Skip> {
        let authority = Self { dir: tempfile::tempdir().unwrap() };
        let (key, certificate) = (authority.path("ca-key.pem"), authority.path("ca-cert.pem"));
        let name = format!("/CN={}", authority.dir.path().file_name().unwrap().display());
        let subject = ["-subj", &name, "-addext", "basicConstraints=critical,CA:TRUE"];
        let files = ["-keyout", text(&key), "-out", text(&certificate)];
        openssl(&[&["req", "-x509"][..], &NEW_KEY, &subject, &files].concat())?;
        Ok(authority)
    }

    /// Makes a directory with the authority's certificate and those that it signs.
    ///
    /// # Panics
    /// If openssl fails.
    #[must_use]
    #[track_caller]
    pub fn directory(&self, certificates: &[Certificate]) -> PathBuf {
        let dir = tempfile::tempdir_in(&self.dir).unwrap().keep();
        std::fs::copy(self.path("ca-cert.pem"), dir.join("ca-cert.pem")).unwrap();
        certificates.iter().for_each(|certificate| self.sign(certificate, &dir));
        dir
    }

    #[track_caller]
    fn sign(&self, certificate: &Certificate, dir: &Path) {
        let Certificate { side, name, days } = certificate;
        let file = |what: &str| dir.join(format!("{side}-{what}.pem"));
        let (key, signed, request) = (file("key"), file("cert"), file("request"));
        let name = format!("subjectAltName={name}");
        let subject = ["-subj", "/CN=test", "-addext", &name];
        let constraints = ["-addext", "basicConstraints=critical,CA:FALSE"];
        let files = ["-keyout", text(&key), "-out", text(&request)];
        let request_args =
            [&["req", "-new"][..], &NEW_KEY, &subject, &constraints, &files].concat();
        openssl(&request_args).unwrap();
        let (ca, ca_key) = (self.path("ca-cert.pem"), self.path("ca-key.pem"));
        let days = days.to_string();
        let by = ["-CA", text(&ca), "-CAkey", text(&ca_key), "-days", &days];
        let files = ["-in", text(&request), "-out", text(&signed)];
        let copy = ["-copy_extensions", "copy"];
        openssl(&[&["x509", "-req"][..], &by, &copy, &files].concat()).unwrap();
    }

    fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }
}

const NEW_KEY: [&str; 5] = ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes"];

fn text(path: &Path) -> &str {
    path.to_str().unwrap()
}

#[track_caller]
fn openssl(arguments: &[&str]) -> Result<(), Skip> {
    let output = Command::new("openssl").args(arguments).output();
    let output = output.map_err(|_| Skip::missing("openssl"))?;
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "openssl {arguments:?}: {said}");
    Ok(())
}
