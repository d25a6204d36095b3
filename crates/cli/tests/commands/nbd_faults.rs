//! Commands on exports of NBD servers that fail, and two nodes that want one export.

use super::nbd::Served;
use nextent_testkit::{NbdServer, Skip, e2fs, need};
use std::io::Write;
use std::process::{Command, Stdio};
use std::thread;
use std::time::Duration;

/// A server with an error in a share of some requests.
fn failing(served: &mut Served, parameters: &[&str]) -> Result<(), Skip> {
    let path = served.image.path();
    let all = [&["--filter=error", "file", path.to_str().unwrap()], parameters].concat();
    served.server = NbdServer::nbdkit(&all)?;
    Ok(())
}

#[test]
fn an_error_of_the_server_is_one_line() {
    let mut served = need!(Served::new());
    served.ok(&["mkfs", "-q", "NBD"]);
    served.ok(&["mkdir", "NBD:/dir"]);
    need!(failing(
        &mut served,
        &["error=ENOSPC", "error-pwrite-rate=100%", "error-zero-rate=100%"]
    ));
    for args in [&["mkdir", "NBD:/new"][..], &["rm", "-r", "NBD:/dir"]] {
        let said = served.fails(args, 1);
        assert!(said.contains("No space left on device"), "{said}");
    }
    assert!(served.ok(&["ls", "NBD:/"]).contains("dir"));
    need!(failing(&mut served, &["error-pread-rate=100%"]));
    for args in [&["ls", "NBD:/"][..], &["mkdir", "NBD:/new"], &["cp", "NBD:/dir", "/tmp/x"]] {
        let said = served.fails(args, 1);
        assert!(said.contains("Input/output error"), "{said}");
    }
    let said = served.fails(&["fsck", "-n", "NBD"], 8);
    assert!(said.contains("Input/output error"), "{said}");
    // A volume that is being made is not a volume afterwards, but the next attempt makes it one.
    need!(failing(&mut served, &["error=ENOSPC", "error-pwrite-rate=100%"]));
    let made = served.image.run(&strs(&served.with_address(&["mkfs", "-q", "NBD"])));
    let said = String::from_utf8(made.stderr).unwrap();
    assert_eq!((made.status.code(), said.lines().count()), (Some(1), 1), "{said}");
    assert!(said.contains("No space left on device"), "{said}");
    need!(failing(&mut served, &[]));
    served.ok(&["mkfs", "-q", "NBD"]);
    drop(served.server);
    e2fs::assert_clean(&served.image.path());
}

/// A second node is refused while the first one lives. It takes over when the first one has been
/// killed and has not written its number for long enough.
#[test]
fn two_nodes_take_turns_with_an_export() {
    let served = need!(Served::new());
    let path = served.image.path();
    served.ok(&["mkfs", "-q", "-O", "mmp", "-E", "mmp_update_interval=1", "NBD"]);
    let before = std::fs::read(&path).unwrap();
    // A command within its work: it waits for the rest of its script.
    let mut first = Command::new(env!("CARGO_BIN_EXE_nextent"))
        .args(served.with_address(&["edit", "NBD"]))
        .stdin(Stdio::piped())
        .spawn()
        .unwrap();
    let mut script = first.stdin.take().unwrap();
    script.write_all(b"mkdir /first\n").unwrap();
    while std::fs::read(&path).unwrap() == before {
        thread::sleep(Duration::from_millis(50));
    }
    let refused = served.image.run(&strs(&served.with_address(&["mkdir", "NBD:/second"])));
    let said = String::from_utf8(refused.stderr).unwrap();
    assert_eq!(refused.status.code(), Some(1), "{said}");
    assert!(said.contains("another node") && said.lines().count() == 1, "{said}");
    first.kill().unwrap();
    first.wait().unwrap();
    served.ok(&["mkdir", "NBD:/second"]);
    assert!(served.ok(&["ls", "NBD:/"]).contains("second"));
    drop(served.server);
    e2fs::assert_clean(&path);
}

fn strs(args: &[String]) -> Vec<&str> {
    args.iter().map(String::as_str).collect()
}
