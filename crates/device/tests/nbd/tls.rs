//! The NBD device over TLS, with nbdkit (GnuTLS) and qemu-nbd, and what it says of servers and
//! certificates that do not fit.

use super::*;
use nextent_testkit::{Authority, Certificate};
use std::path::{Path, PathBuf};

/// An authority, and the directory of a server at `localhost` and a client.
fn authority() -> Result<(Authority, PathBuf), Skip> {
    let authority = Authority::new()?;
    let both = [Certificate::new("server", "DNS:localhost"), Certificate::new("client", "DNS:me")];
    let dir = authority.directory(&both);
    Ok((authority, dir))
}

/// The arguments of nbdkit for TLS, before others.
fn nbdkit(dir: &Path, more: &[&str]) -> Result<NbdServer, Skip> {
    let certificates = format!("--tls-certificates={}", dir.display());
    NbdServer::nbdkit(&[&["--tls=require", &certificates][..], more].concat())
}

fn connect(address: &str) -> std::io::Result<NbdDevice> {
    NbdDevice::open(&NbdAddress::parse(address).unwrap(), &NbdOptions::new())
}

fn open_tls(server: &NbdServer, dir: &Path) -> NbdDevice {
    connect(&server.tls_address(dir)).unwrap()
}

#[track_caller]
fn refused(address: &str, why: &str) {
    let error = connect(address).map(drop).unwrap_err().to_string();
    assert!(error.contains(why) && !error.contains('\n'), "{error}");
}

#[test]
fn servers_keep_the_contract_over_tls() {
    let (_authority, dir) = need!(authority());
    let image = file();
    let path = image.path().to_str().unwrap();
    let object = format!("tls-creds-x509,id=tls,endpoint=server,dir={}", dir.display());
    let servers = [
        nbdkit(&dir, &["memory", "4M"]),
        nbdkit(&dir, &["--tls-verify-peer", "--no-sr", "memory", "4M"]),
        NbdServer::qemu(&["--object", &object, "--tls-creds", "tls", "-f", "raw", path]),
    ];
    for (seed, server) in (20..).zip(servers) {
        let server = need!(server);
        let device = open_tls(&server, &dir);
        device.write_zeroes(0, SIZE).unwrap();
        let model = compare(&device, seed, 200);
        for (unit, depth) in [(512, 1), (64 << 10, 8), (1 << 20, 4)] {
            use_queue(&device, unit, depth);
        }
        device.write_at(0, &model).unwrap();
        drop(device);
        check(&open_tls(&server, &dir), &model);
    }
}

/// Threads share each connection, and more bytes are in flight than sockets hold.
#[test]
fn many_threads_share_a_tls_connection() {
    let (_authority, dir) = need!(authority());
    let server = need!(nbdkit(&dir, &["memory", "64M"]));
    let address = NbdAddress::parse(&server.tls_address(&dir)).unwrap();
    let device = NbdDevice::open(&address, &NbdOptions::new().connections(1)).unwrap();
    many_threads(&device, 40, || {
        let mut queue = device.queue(64);
        for n in 3..24u64 {
            let direction = if n % 2 == 0 { Direction::Read } else { Direction::Write };
            queue.submit(transfer(n, direction, n << 21, Buffer::new(2 << 20)));
        }
        let mut done = Vec::new();
        queue.complete(usize::MAX, &mut done);
        done.into_iter().for_each(|completed| completed.result.unwrap());
    });
}

#[test]
fn a_killed_tls_server_is_connected_to_again() {
    let (_authority, dir) = need!(authority());
    let image = file();
    let mut server = need!(nbdkit(&dir, &["file", image.path().to_str().unwrap()]));
    let address = NbdAddress::parse(&server.tls_address(&dir)).unwrap();
    let device = NbdDevice::open(&address, &reconnecting()).unwrap();
    many_threads(&device, 100, || {
        for round in 0..3 {
            thread::sleep(Duration::from_millis(20 + round * 13));
            server.restart();
        }
    });
}

#[test]
fn other_servers_are_refused_by_their_certificates() {
    let (authority, dir) = need!(authority());
    let server = need!(nbdkit(&dir, &["memory", "4M"]));
    let other = need!(Authority::new());
    let stranger = other.directory(&[]);
    refused(&server.tls_address(&stranger), "no trusted CA");
    let named = |name: &str| format!("{}&tls-hostname={name}", server.tls_address(&dir));
    connect(&named("localhost")).unwrap();
    refused(&named("other"), "not valid for name \"other\"");
    refused(&named("127.0.0.1"), "not valid for name \"127.0.0.1\"");
    refused(&named("a%20b"), "no host name");
    let expired = Certificate { days: -1, ..Certificate::new("server", "DNS:localhost") };
    let server = need!(nbdkit(&authority.directory(&[expired]), &["memory", "4M"]));
    refused(&server.tls_address(&dir), "xpired");
    let missing = dir.join("missing");
    refused(&server.tls_address(&missing), "no directory of certificates");
}

#[test]
fn a_server_that_verifies_clients_refuses_strangers() {
    let (authority, dir) = need!(authority());
    let server = need!(nbdkit(&dir, &["--tls-verify-peer", "memory", "4M"]));
    connect(&server.tls_address(&dir)).unwrap();
    refused(&server.tls_address(&authority.directory(&[])), "certificate of the client");
    let other = need!(Authority::new());
    let stranger = other.directory(&[Certificate::new("client", "DNS:me")]);
    std::fs::copy(dir.join("ca-cert.pem"), stranger.join("ca-cert.pem")).unwrap();
    refused(&server.tls_address(&stranger), "certificate of the client");
    std::fs::remove_file(stranger.join("client-key.pem")).unwrap();
    refused(&server.tls_address(&stranger), "client-cert.pem: no client-key.pem");
    std::fs::write(stranger.join("client-key.pem"), "text").unwrap();
    refused(&server.tls_address(&stranger), "client-key.pem: nothing of the format PEM");
}

#[test]
fn tls_is_neither_added_nor_left_out() {
    let (_authority, dir) = need!(authority());
    let plain = need!(NbdServer::nbdkit(&["memory", "4M"]));
    refused(&plain.tls_address(&dir), "does not offer TLS");
    let encrypted = need!(nbdkit(&dir, &["memory", "4M"]));
    refused(&encrypted.address(), "requires TLS: use nbds://");
}
