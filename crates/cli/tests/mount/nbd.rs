//! Mounts of exports of NBD servers: also while servers are killed and started again.

use crate::support::*;
use nextent_testkit::{Authority, Certificate, NbdServer, Skip, e2fs, need};
use std::fs::{self, File};
use std::io::Write;
use std::path::{Path, PathBuf};

/// An image of 48 MiB with a server for it.
fn serve(dir: &Path) -> Result<(PathBuf, NbdServer), Skip> {
    let image = mkfs(dir, "48m");
    let server = NbdServer::nbdkit(&["file", text(&image)])?;
    Ok((image, server))
}

fn mount(server: &NbdServer, options: &str) -> Result<Mount, Skip> {
    Mount::new(Path::new(&server.address()), options)
}

/// Writes and syncs a file.
fn write_synced(path: &Path, text: &str) -> std::io::Result<()> {
    let mut file = File::create(path)?;
    file.write_all(text.as_bytes())?;
    file.sync_all()
}

#[test]
fn an_export_is_mounted() {
    let dir = tempfile::tempdir().unwrap();
    let (image, server) = need!(serve(dir.path()));
    for round in 0..2 {
        let mount = need!(mount(&server, ""));
        for n in 0..200 {
            let name = mount.join(&format!("f{n}"));
            if round > 0 {
                assert_eq!(fs::read(&name).unwrap(), vec![n; 5000]);
            }
            fs::write(name, vec![n; 5000]).unwrap();
        }
        remount(&mount, "ro").unwrap();
        assert!(fs::write(mount.join("refused"), "text").is_err());
        remount(&mount, "rw").unwrap();
        mount.unmount();
        e2fs::assert_clean(&image);
    }
}

/// A mount over TLS, also while its server is killed and started again.
#[test]
fn an_export_is_mounted_over_tls() {
    let dir = tempfile::tempdir().unwrap();
    let image = mkfs(dir.path(), "48m");
    let authority = need!(Authority::new());
    let certificates = authority.directory(&[Certificate::new("server", "DNS:localhost")]);
    let option = format!("--tls-certificates={}", certificates.display());
    let arguments = ["--tls=require", &option, "file", text(&image)];
    let mut server = need!(NbdServer::nbdkit(&arguments));
    let address = server.tls_address(&certificates);
    let mount = need!(Mount::new(Path::new(&address), "reconnect=100"));
    for n in 0..60 {
        write_synced(&mount.join(&format!("f{n}")), &n.to_string()).unwrap();
        if n == 30 {
            server.restart();
        }
    }
    for n in 0..60 {
        assert_eq!(fs::read_to_string(mount.join(&format!("f{n}"))).unwrap(), n.to_string());
    }
    mount.unmount();
    server.kill();
    e2fs::assert_clean(&image);
}

/// A server that is killed again and again loses nothing, and operations only wait for it.
#[test]
fn a_killed_server_is_waited_for() {
    let dir = tempfile::tempdir().unwrap();
    let (image, mut server) = need!(serve(dir.path()));
    let mount = need!(mount(&server, "reconnect=100,commit=1"));
    let write = |n: usize| write_synced(&mount.join(&format!("f{n}")), &n.to_string()).unwrap();
    std::thread::scope(|scope| {
        let writer = scope.spawn(|| (0..300).for_each(write));
        while !writer.is_finished() {
            std::thread::sleep(std::time::Duration::from_millis(70));
            server.restart();
        }
    });
    for n in 0..300 {
        assert_eq!(fs::read_to_string(mount.join(&format!("f{n}"))).unwrap(), n.to_string());
    }
    mount.unmount();
    server.kill();
    e2fs::assert_clean(&image);
}

/// Without `reconnect` the journal stops. What was synced is there after a recovery.
#[test]
fn a_lost_server_stops_the_journal() {
    let dir = tempfile::tempdir().unwrap();
    let (image, mut server) = need!(serve(dir.path()));
    let mount = need!(mount(&server, ""));
    for n in 0..20 {
        write_synced(&mount.join(&format!("f{n}")), "text").unwrap();
    }
    server.kill();
    assert!(write_synced(&mount.join("lost"), "text").is_err());
    assert!(fs::write(mount.join("refused"), "text").is_err());
    mount.kill();
    let report = need!(e2fs::e2fsck_recover(&image));
    assert!(report.code < 4, "{}", report.text);
    e2fs::assert_clean(&image);
    for n in 0..20 {
        assert_eq!(run(&["cat", &format!("{}:/f{n}", text(&image))]).stdout, b"text");
    }
}
