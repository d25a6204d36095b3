//! Certificates for TLS, in the files that libnbd, nbdkit and QEMU use.
//!
//! | file of the directory | what |
//! |---|---|
//! | `ca-cert.pem` | the CAs that sign the certificates of the other side |
//! | `ca-crl.pem` | revoked certificates; may be missing |
//! | `client-cert.pem`, `client-key.pem` | the certificate of a client and its key; may be missing |
//! | `server-cert.pem`, `server-key.pem` | those of a server |
//!
//! Without a directory, a client uses that of libnbd: `/etc/pki/libnbd` for root, `~/.pki/libnbd`
//! or `~/.config/pki/libnbd` for others. Without `ca-cert.pem` it trusts the CAs of the system.

use super::tls::Tls;
use super::url::{ServerAddress, TlsAddress};
use nextent_sync::Arc;
use rustls::client::WebPkiServerVerifier;
use rustls::crypto::{CryptoProvider, ring};
use rustls::pki_types::pem::{Error as PemError, PemObject};
use rustls::pki_types::{CertificateDer, CertificateRevocationListDer, PrivateKeyDer, ServerName};
use rustls::server::WebPkiClientVerifier;
use rustls::{ClientConfig, ClientConnection, RootCertStore, ServerConfig, ServerConnection};
use std::fmt::Display;
use std::io;
use std::path::{Path, PathBuf};

/// A directory of certificates.
pub(super) struct Certificates {
    dir: Option<PathBuf>,
}

/// The TLS of a new connection to a server.
pub(super) fn client(tls: &TlsAddress, server: &ServerAddress) -> io::Result<Tls> {
    let certificates = match &tls.certificates {
        Some(dir) if dir.is_dir() => Certificates { dir: Some(dir.clone()) },
        Some(dir) => {
            let text = format!("TLS: {}: no directory of certificates", dir.display());
            return Err(io::Error::new(io::ErrorKind::NotFound, text));
        }
        None => Certificates { dir: usual() },
    };
    let host = match (&tls.hostname, server) {
        (Some(name), _) | (None, ServerAddress::Tcp { host: name, .. }) => name.clone(),
        (None, ServerAddress::Unix(_)) => "localhost".to_owned(),
    };
    let name = ServerName::try_from(host.clone())
        .map_err(|_| invalid(format_args!("`{host}` is no host name")))?;
    let connection = ClientConnection::new(Arc::new(certificates.client()?), name);
    Ok(Tls::new(connection.map_err(invalid)?.into()))
}

/// What a server with the certificates of a directory does.
pub(super) fn server(dir: &Path, verifies_clients: bool) -> io::Result<ServerConfig> {
    Certificates { dir: Some(dir.to_owned()) }.server(verifies_clients)
}

/// The TLS of a new connection to a client.
pub(super) fn accepted(config: &Arc<ServerConfig>) -> io::Result<Tls> {
    let connection = ServerConnection::new(Arc::clone(config)).map_err(invalid)?;
    Ok(Tls::new(connection.into()))
}

/// The directory of libnbd, if there is one.
fn usual() -> Option<PathBuf> {
    let root = rustix::process::geteuid().is_root();
    let home = std::env::var_os("HOME").map(PathBuf::from);
    let candidates = match (root, home) {
        (true, _) => vec![PathBuf::from("/etc/pki/libnbd")],
        (false, Some(home)) => vec![home.join(".pki/libnbd"), home.join(".config/pki/libnbd")],
        (false, None) => Vec::new(),
    };
    candidates.into_iter().find(|dir| dir.is_dir())
}

fn invalid(error: impl Display) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, format!("TLS: {error}"))
}

fn in_file(path: &Path, error: impl Display) -> io::Error {
    invalid(format_args!("{}: {error}", path.display()))
}

/// All objects of a file of the format PEM.
fn objects<T: PemObject>(path: &Path) -> io::Result<Vec<T>> {
    let read = |error: PemError| match error {
        PemError::Io(source) => {
            io::Error::new(source.kind(), format!("TLS: {}: {source}", path.display()))
        }
        other => in_file(path, other),
    };
    let found: Vec<T> =
        T::pem_file_iter(path).map_err(read)?.collect::<Result<_, _>>().map_err(read)?;
    match found.is_empty() {
        true => Err(in_file(path, "nothing of the format PEM")),
        false => Ok(found),
    }
}

impl Certificates {
    /// The path of a file that exists.
    fn file(&self, name: &str) -> Option<PathBuf> {
        let path = self.dir.as_ref()?.join(name);
        path.exists().then_some(path)
    }

    /// The CAs that sign certificates of the other side.
    fn roots(&self) -> io::Result<Arc<RootCertStore>> {
        let mut roots = RootCertStore::empty();
        if let Some(path) = self.file("ca-cert.pem") {
            for certificate in objects(&path)? {
                roots.add(certificate).map_err(|error| in_file(&path, error))?;
            }
            return Ok(Arc::new(roots));
        }
        let system = rustls_native_certs::load_native_certs();
        // Some systems have certificates that rustls refuses; they sign nothing then.
        roots.add_parsable_certificates(system.certs);
        if roots.is_empty() {
            return Err(invalid(
                "the system has no CAs; name a directory with ca-cert.pem by tls-certificates=DIR",
            ));
        }
        Ok(Arc::new(roots))
    }

    fn revoked(&self) -> io::Result<Vec<CertificateRevocationListDer<'static>>> {
        self.file("ca-crl.pem").map_or(Ok(Vec::new()), |path| objects(&path))
    }

    /// A certificate with those that sign it, and its key; none if there is no file of either.
    fn own(&self, side: &str) -> io::Result<Option<Identity>> {
        let names = [format!("{side}-cert.pem"), format!("{side}-key.pem")];
        let (chain, key) = match (self.file(&names[0]), self.file(&names[1])) {
            (Some(chain), Some(key)) => (chain, key),
            (None, None) => return Ok(None),
            (None, Some(path)) => return Err(in_file(&path, format_args!("no {}", names[0]))),
            (Some(path), None) => return Err(in_file(&path, format_args!("no {}", names[1]))),
        };
        let mut keys = objects(&key)?;
        Ok(Some((objects(&chain)?, keys.swap_remove(0))))
    }

    fn client(&self) -> io::Result<ClientConfig> {
        let provider = provider();
        let verifier =
            WebPkiServerVerifier::builder_with_provider(self.roots()?, Arc::clone(&provider))
                .with_crls(self.revoked()?)
                .allow_unknown_revocation_status()
                .build()
                .map_err(invalid)?;
        let config = ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .map_err(invalid)?
            .with_webpki_verifier(verifier);
        match self.own("client")? {
            Some((chain, key)) => config.with_client_auth_cert(chain, key).map_err(invalid),
            None => Ok(config.with_no_client_auth()),
        }
    }
}

impl Certificates {
    /// The file, which a server must have.
    fn needed(&self, name: &str) -> io::Result<PathBuf> {
        let dir = self.dir.clone().unwrap_or_default();
        self.file(name).ok_or_else(|| {
            let text = format!("TLS: {} has no {name}", dir.display());
            io::Error::new(io::ErrorKind::NotFound, text)
        })
    }

    fn server(&self, verifies_clients: bool) -> io::Result<ServerConfig> {
        let provider = provider();
        self.needed("server-cert.pem")?;
        self.needed("server-key.pem")?;
        let Some((chain, key)) = self.own("server")? else {
            return Err(invalid("no certificate of the server"));
        };
        let config = ServerConfig::builder_with_provider(Arc::clone(&provider))
            .with_safe_default_protocol_versions()
            .map_err(invalid)?;
        let config = if verifies_clients {
            // CAs of the system sign certificates of strangers.
            self.needed("ca-cert.pem")?;
            let verifier = WebPkiClientVerifier::builder_with_provider(self.roots()?, provider)
                .with_crls(self.revoked()?)
                .allow_unknown_revocation_status()
                .build()
                .map_err(invalid)?;
            config.with_client_cert_verifier(verifier)
        } else {
            config.with_no_client_auth()
        };
        config.with_single_cert(chain, key).map_err(invalid)
    }
}

/// A certificate with those that sign it, and its key.
type Identity = (Vec<CertificateDer<'static>>, PrivateKeyDer<'static>);

fn provider() -> Arc<CryptoProvider> {
    Arc::new(ring::default_provider())
}
