//! `serve nbd`: a server of network block devices.
//!
//! The main thread waits for signals. One thread accepts connections, and each connection has its
//! own threads. At the end the main thread ends all connections, so that no write follows, and
//! flushes the device.

use crate::failure::{Failure, Result, complain, say};
use crate::show;
use crate::target::ImageSpec;
use nextent_device::{BlockDevice, FileOptions, NbdServer, NbdSocket};
use nextent_sync::{Arc, LockClass, Mutex, thread};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::iterator::Signals;
use std::io;
use std::net::{Shutdown, TcpListener, TcpStream};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};

static CLIENTS: LockClass = LockClass::new("cli.nbd-clients", 10);

/// Arguments of `serve nbd`.
#[derive(Debug, clap::Args)]
pub(super) struct Args {
    /// Listen on a Unix socket, which is made and at the end removed
    #[arg(short = 'k', long, value_name = "PATH", conflicts_with = "listen")]
    socket: Option<PathBuf>,
    /// Listen on this TCP address, for any client unless --tls-verify-peer is given
    #[arg(short, long, value_name = "HOST:PORT", default_value = "localhost:10809")]
    listen: String,
    /// The name of the export; clients may also leave it out
    #[arg(short = 'x', long, value_name = "NAME", default_value = "", hide_default_value = true)]
    export: String,
    /// Require TLS, with server-cert.pem and server-key.pem of this directory
    #[arg(long, value_name = "DIR", value_hint = clap::ValueHint::DirPath)]
    tls_certificates: Option<PathBuf>,
    /// Refuse clients without a certificate that ca-cert.pem of the directory has signed
    #[arg(long, requires = "tls_certificates")]
    tls_verify_peer: bool,
    /// Refuse writes; other readers may use the image meanwhile
    #[arg(short, long)]
    read_only: bool,
    /// The image: a file, a block device, or a part of one; its file system is not looked at
    #[arg(value_hint = clap::ValueHint::FilePath)]
    image: ImageSpec,
}

/// A listening socket.
enum Listener {
    Unix(UnixListener, PathBuf),
    Tcp(TcpListener),
}

/// The socket of a client.
enum Client {
    Unix(UnixStream),
    Tcp(TcpStream),
}

/// The clients, so that they can be disconnected; none once the server ends. `[cli.nbd-clients]`
type Clients = Mutex<Option<Vec<(u64, Client)>>>;

/// Serves until a signal.
pub(super) fn run(args: &Args) -> Result<()> {
    let failed =
        |text: String| Failure::new(format!("serve nbd {}: {text}", show::path(&args.image)));
    let with_tls = |server: NbdServer| match &args.tls_certificates {
        Some(dir) => server.tls(dir, args.tls_verify_peer).map_err(|error| error.to_string()),
        None => Ok(server),
    };
    let device = args.image.open(FileOptions::new().read_only(args.read_only))?;
    let device: Arc<dyn BlockDevice> = Arc::new(device);
    let server = with_tls(NbdServer::new(Arc::clone(&device), args.export.clone()));
    let server = server.map_err(failed)?;
    let (listener, address) = Listener::bind(args).map_err(failed)?;
    let mut signals =
        Signals::new([SIGTERM, SIGINT, SIGHUP]).map_err(|error| failed(error.to_string()))?;
    let file = SocketFile(match &listener {
        Listener::Unix(_, path) => Some(path.clone()),
        Listener::Tcp(_) => None,
    });
    let clients: Arc<Clients> = Arc::new(Mutex::new(&CLIENTS, Some(Vec::new())));
    let accepting = Arc::clone(&clients);
    thread::spawn(move || accept(&listener, &server, &accepting));
    // Clients may connect from here on.
    say!("{address}");
    let _ = signals.forever().next();
    drop(file);
    let last = clients.lock().take();
    last.iter().flatten().for_each(|(_, client)| client.disconnect());
    // A write that a thread has begun may still end, but no client learns that it has.
    match args.read_only {
        true => Ok(()),
        false => device.flush().map_err(|error| failed(format!("flush: {error}"))),
    }
}

/// Removes the file of a Unix socket at the end.
struct SocketFile(Option<PathBuf>);

impl Drop for SocketFile {
    fn drop(&mut self) {
        // Another program may have removed it.
        let _ = self.0.take().map(std::fs::remove_file);
    }
}

impl Listener {
    /// Listens, and returns the address for clients.
    fn bind(args: &Args) -> std::result::Result<(Self, String), String> {
        let export = percent(&args.export);
        let scheme = if args.tls_certificates.is_some() { "nbds" } else { "nbd" };
        if let Some(path) = &args.socket {
            let at = |error: io::Error| format!("{}: {error}", show::path(path));
            let path = std::path::absolute(path).map_err(at)?;
            let address = format!(
                "{scheme}+unix:///{export}?socket={}",
                percent(&path.display().to_string())
            );
            return Ok((Self::Unix(bind_unix(&path).map_err(at)?, path), address));
        }
        let at = |error: io::Error| format!("{}: {error}", args.listen);
        let listener = TcpListener::bind(&args.listen).map_err(at)?;
        let local = listener.local_addr().map_err(at)?;
        // A certificate names the host, not its address.
        let address = match (&args.tls_certificates, args.listen.rsplit_once(':')) {
            (Some(_), Some((host, _))) => format!("{host}:{}", local.port()),
            _ => local.to_string(),
        };
        Ok((Self::Tcp(listener), format!("{scheme}://{address}/{export}")))
    }

    fn accept(&self) -> io::Result<Client> {
        match self {
            Self::Unix(listener, _) => Ok(Client::Unix(listener.accept()?.0)),
            Self::Tcp(listener) => {
                let (client, _) = listener.accept()?;
                client.set_nodelay(true)?;
                Ok(Client::Tcp(client))
            }
        }
    }
}

/// Binds a Unix socket. Replaces the file of a server that was killed.
fn bind_unix(path: &Path) -> io::Result<UnixListener> {
    match UnixListener::bind(path) {
        Err(error)
            if error.kind() == io::ErrorKind::AddrInUse
                && UnixStream::connect(path)
                    .is_err_and(|error| error.kind() == io::ErrorKind::ConnectionRefused) =>
        {
            std::fs::remove_file(path)?;
            UnixListener::bind(path)
        }
        done => done,
    }
}

/// Characters that mean something in an address, as `%` and two digits.
fn percent(text: &str) -> String {
    let one = |byte: u8| match byte {
        b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'/' | b'-' | b'_' | b'.' | b'~' => {
            char::from(byte).to_string()
        }
        byte => format!("%{byte:02x}"),
    };
    text.bytes().map(one).collect()
}

impl Client {
    fn try_clone(&self) -> io::Result<Self> {
        Ok(match self {
            Self::Unix(socket) => Self::Unix(socket.try_clone()?),
            Self::Tcp(socket) => Self::Tcp(socket.try_clone()?),
        })
    }

    fn socket(self) -> NbdSocket {
        match self {
            Self::Unix(socket) => socket.into(),
            Self::Tcp(socket) => socket.into(),
        }
    }

    fn disconnect(&self) {
        let _ = match self {
            Self::Unix(socket) => socket.shutdown(Shutdown::Both),
            Self::Tcp(socket) => socket.shutdown(Shutdown::Both),
        };
    }
}

/// Accepts clients until the server ends.
fn accept(listener: &Listener, server: &NbdServer, clients: &Arc<Clients>) {
    for number in 0.. {
        let client = match listener.accept().and_then(|client| Ok((client.try_clone()?, client))) {
            Ok((copy, client)) => {
                let mut clients = clients.lock();
                let Some(clients) = clients.as_mut() else { return };
                clients.push((number, copy));
                client
            }
            Err(error) => {
                complain(&format!("serve nbd: {error}"));
                // Too many descriptors, for example: until clients leave.
                nextent_sync::sleep(nextent_sync::Duration::from_millis(100));
                continue;
            }
        };
        let (server, registered) = (server.clone(), Arc::clone(clients));
        let serve = move || {
            let served = server.serve(client.socket());
            // The server's end interrupts clients.
            if let (true, Err(error)) = (forget(&registered, number), served) {
                complain(&format!("serve nbd: a client: {error}"));
            }
        };
        let started = thread::Builder::new().name("nextent-nbd".to_owned()).spawn(serve);
        if let Err(error) = started {
            forget(clients, number);
            complain(&format!("serve nbd: {error}"));
        }
    }
}

/// Removes a client from the list; false once the server ends.
fn forget(clients: &Clients, number: u64) -> bool {
    let mut clients = clients.lock();
    let Some(clients) = clients.as_mut() else { return false };
    clients.retain(|(other, _)| *other != number);
    true
}
