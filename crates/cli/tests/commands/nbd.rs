//! Commands on exports of NBD servers.

use super::Image;
use nextent_testkit::{Authority, Certificate, DiskImage, NbdServer, Skip, e2fs, need};
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, Command, Stdio};

const SIZE: &str = "48m";

/// An image with a server for it.
pub(super) struct Served {
    pub(super) image: Image,
    pub(super) server: NbdServer,
}

impl Served {
    pub(super) fn new() -> Result<Self, Skip> {
        let image = Image { dir: tempfile::tempdir().unwrap() };
        let file = std::fs::File::create(image.path()).unwrap();
        file.set_len(48 << 20).unwrap();
        let server = NbdServer::nbdkit(&["file", image.path().to_str().unwrap()])?;
        Ok(Self { image, server })
    }

    /// The arguments, with `NBD` replaced by the server's address.
    pub(super) fn with_address(&self, args: &[&str]) -> Vec<String> {
        args.iter().map(|arg| arg.replace("NBD", &self.server.address())).collect()
    }

    #[track_caller]
    pub(super) fn ok(&self, args: &[&str]) -> String {
        let args = self.with_address(args);
        self.image.ok(&args.iter().map(String::as_str).collect::<Vec<_>>())
    }

    #[track_caller]
    pub(super) fn fails(&self, args: &[&str], code: i32) -> String {
        let args = self.with_address(args);
        self.image.fails(&args.iter().map(String::as_str).collect::<Vec<_>>(), code)
    }
}

/// A small tree of the host.
fn tree(dir: &Path) -> String {
    let tree = dir.join("tree");
    std::fs::create_dir_all(tree.join("sub")).unwrap();
    for n in 0..50 {
        std::fs::write(tree.join(format!("sub/f{n}")), vec![n; 100 * usize::from(n)]).unwrap();
    }
    std::os::unix::fs::symlink("sub/f1", tree.join("link")).unwrap();
    tree.to_str().unwrap().to_owned()
}

#[test]
fn every_command_takes_an_export() {
    let served = need!(Served::new());
    let dir = tempfile::tempdir().unwrap();
    let tree = tree(dir.path());
    served.ok(&["mkfs", "-q", "-L", "far", "-d", &tree, "NBD"]);
    e2fs::assert_clean(&served.image.path());
    served.ok(&["diff", "NBD", &tree]);
    assert!(served.ok(&["info", "NBD"]).contains("far"));
    served.ok(&["fsck", "-f", "-n", "NBD"]);
    served.ok(&["mkdir", "NBD:/new"]);
    served.ok(&["cp", "-a", &tree, "NBD:/new/tree"]);
    served.ok(&["mv", "NBD:/new/tree/link", "NBD:/moved"]);
    served.ok(&["rm", "-r", "NBD:/sub"]);
    let names = served.ok(&["ls", "NBD:/"]);
    let mut names: Vec<_> = names.lines().collect();
    names.sort_unstable();
    assert_eq!(names, ["link", "lost+found", "moved", "new"]);
    served.ok(&["sync", &tree, "NBD:/"]);
    assert!(served.ok(&["sync", &tree, "NBD:/"]).contains("0 blocks"));
    served.ok(&["diff", "NBD", &tree]);
    let back = dir.path().join("back");
    served.ok(&["cp", "-a", "NBD:/sub", back.to_str().unwrap()]);
    assert_eq!(std::fs::read(back.join("f7")).unwrap(), vec![7; 700]);
    served.ok(&["trim", "NBD"]);
    served.ok(&["resize", "-M", "NBD"]);
    served.ok(&["resize", "NBD"]);
    let said = served.fails(&["resize", "NBD", "49m"], 1);
    assert!(said.contains("the export has only 50331648 bytes; enlarge it first"), "{said}");
    served.ok(&["diff", "NBD", &tree]);
    drop(served.server);
    e2fs::assert_clean(&served.image.path());
}

/// The same contents give the same bytes on an export and in a file.
#[test]
fn an_export_gets_the_same_bytes_as_a_file() {
    let served = need!(Served::new());
    let dir = tempfile::tempdir().unwrap();
    let tree = tree(dir.path());
    let file = dir.path().join("file").to_str().unwrap().to_owned();
    let id = [
        "-U",
        "12345678-1234-1234-1234-123456789abc",
        "-E",
        "hash_seed=12345678-1234-1234-1234-123456789abc",
    ];
    let make =
        |to: &[&str]| served.with_address(&[&["mkfs", "-q", "-d", &tree][..], &id, to].concat());
    for to in [&["NBD"][..], &[&file, SIZE]] {
        let made = Command::new(env!("CARGO_BIN_EXE_nextent"))
            .args(make(to))
            .env("SOURCE_DATE_EPOCH", "1700000000")
            .output()
            .unwrap();
        assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
    }
    drop(served.server);
    e2fs::assert_clean(&served.image.path());
    assert!(std::fs::read(served.image.path()).unwrap() == std::fs::read(file).unwrap());
}

#[test]
fn partitions_of_an_export_are_used() {
    let served = need!(Served::new());
    let parts = [("first", 1, 16), ("root", 17, 24)];
    let disk = DiskImage::gpt(&served.image.path(), 48, 512, &parts);
    let root = 17 << 20..41 << 20;
    let outside = disk.outside(&root);
    served.ok(&["mkfs", "-q", "NBD@label=root"]);
    served.ok(&["mkdir", "NBD@2:/dir"]);
    assert!(served.ok(&["ls", "NBD@offset=17m,size=24m:/"]).contains("dir"));
    assert!(served.ok(&["info", "NBD"]).contains("root"));
    assert!(served.fails(&["ls", "NBD@3:/"], 1).contains("no such partition"));
    drop(served.server);
    assert!(outside == disk.outside(&root));
    let part = served.image.dir.path().join("part");
    disk.extract(&root, &part);
    e2fs::assert_clean(&part);
}

#[test]
fn wrong_exports_are_refused_by_one_line() {
    let mut served = need!(Served::new());
    served.ok(&["mkfs", "-q", "NBD"]);
    let dir = tempfile::tempdir().unwrap();
    let tree = tree(dir.path());
    assert!(served.fails(&["mkfs", "-q", "NBD", "1g"], 1).contains("do not fit"));
    assert!(served.fails(&["mkfs", "-q", "--free", "0", "-d", &tree, "NBD"], 1).contains("size"));
    for (wrong, why) in [
        ("nbd://", "needs a host"),
        ("nbd://host:0/x", "HOST[:PORT]"),
        ("nbd+unix:///x", "?socket=PATH"),
        ("nbds://host/x?tls-psk-file=f", "tls-psk-file is not supported"),
        ("nbd://host/x?tls-certificates=d", "needs nbds://"),
    ] {
        let said = served.fails(&["ls", &format!("{wrong}:/")], 2);
        assert!(said.contains(why), "{said}");
        let said = served.fails(&["info", wrong], 2);
        assert!(said.contains(why), "{said}");
    }
    let missing = "nbd+unix:///?socket=/nonexistent/socket";
    assert!(served.fails(&["ls", &format!("{missing}:/")], 1).contains("/nonexistent/socket"));
    served.server.kill();
    assert!(served.fails(&["ls", "NBD:/"], 1).contains("NBD server"));
    assert!(served.fails(&["mkfs", "-q", "NBD"], 1).contains("NBD server"));
    e2fs::assert_clean(&served.image.path());
    assert!(!Path::new("nbd:").exists() && !Path::new("nbd+unix:").exists());
}

/// Commands over TLS, and servers and certificates that do not fit: one line each.
#[test]
fn exports_are_used_over_tls() {
    let mut served = need!(Served::new());
    let authority = need!(Authority::new());
    let both = [Certificate::new("server", "DNS:localhost"), Certificate::new("client", "DNS:me")];
    let dir = authority.directory(&both);
    let ours = |server: &NbdServer| server.tls_address(&dir);
    let plain = ours(&served.server);
    let certificates = format!("--tls-certificates={}", dir.display());
    let path = served.image.path();
    let file = ["file", path.to_str().unwrap()];
    let options = ["--tls=require", &certificates, "--tls-verify-peer"];
    assert!(served.fails(&["info", &plain], 1).contains("does not offer TLS"));
    served.server = NbdServer::nbdkit(&[&options[..], &file].concat()).unwrap();
    let address = ours(&served.server);
    let tree = tree(&dir);
    served.ok(&["mkfs", "-q", "-d", &tree, &address]);
    served.ok(&["mkdir", &format!("{address}:/new")]);
    served.ok(&["fsck", "-f", "-n", &address]);
    assert!(served.ok(&["ls", &format!("{address}:/")]).contains("new"));
    let at = |dir: &Path| served.server.tls_address(dir);
    let stranger = need!(Authority::new());
    for (address, why) in [
        (served.server.address(), "use nbds://"),
        (at(&stranger.directory(&[])), "no trusted CA"),
        (format!("{address}&tls-hostname=other"), "not valid for name"),
        (at(&authority.directory(&[])), "certificate of the client"),
        (at(&dir.join("missing")), "no directory of certificates"),
    ] {
        let said = served.fails(&["info", &address], 1);
        assert!(said.contains(why) && said.trim_end().lines().count() == 1, "{said}");
    }
    drop(served.server);
    e2fs::assert_clean(&path);
}

#[test]
fn read_only_exports_are_read() {
    let mut served = need!(Served::new());
    served.ok(&["mkfs", "-q", "NBD"]);
    let path = served.image.path();
    served.server = NbdServer::nbdkit(&["-r", "file", path.to_str().unwrap()]).unwrap();
    served.ok(&["ls", "NBD:/"]);
    served.ok(&["fsck", "-f", "-n", "NBD"]);
    assert!(served.fails(&["mkdir", "NBD:/new"], 1).contains("read-only"));
    assert!(served.fails(&["mkfs", "-q", "NBD"], 1).contains("allows no writes"));
    e2fs::assert_clean(&path);
}

/// `nextent serve nbd`, until it is dropped.
struct Serving {
    child: Child,
    address: String,
}

impl Serving {
    fn start(args: &[&str]) -> Self {
        let mut child = Command::new(env!("CARGO_BIN_EXE_nextent"))
            .args(["serve", "nbd"])
            .args(args)
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut address = String::new();
        BufReader::new(child.stdout.as_mut().unwrap()).read_line(&mut address).unwrap();
        Self { child, address: address.trim().to_owned() }
    }

    /// Ends it by a signal; its exit code.
    fn end(mut self) -> Option<i32> {
        let pid = rustix::process::Pid::from_child(&self.child);
        rustix::process::kill_process(pid, rustix::process::Signal::TERM).unwrap();
        self.child.wait().unwrap().code()
    }
}

impl Drop for Serving {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Runs a tool of other projects.
#[track_caller]
fn tool(name: &str, args: &[&str]) -> Result<String, Skip> {
    let output = Command::new(name).args(args).output().map_err(|_| Skip::missing(name))?;
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(output.status.success(), "{args:?}: {}", String::from_utf8_lossy(&output.stderr));
    Ok(text)
}

#[test]
fn other_clients_use_a_served_image() {
    let image = Image::new();
    let path = image.path();
    let socket = image.dir.path().join("s ocket");
    let copy = image.dir.path().join("copy");
    let (copy, image_text) = (copy.to_str().unwrap(), path.to_str().unwrap());
    let serving = Serving::start(&["-k", socket.to_str().unwrap(), "-x", "a disk", image_text]);
    assert_eq!(image.run(&["ls", "IMAGE:/"]).status.code(), Some(1), "the image is locked");
    let info = need!(tool("nbdinfo", &["--json", &serving.address]));
    assert!(info.contains("\"export-size\": 67108864"), "{info}");
    assert!(need!(tool("nbdinfo", &["--list", &serving.address])).contains("a disk"));
    assert!(need!(tool("nbdinfo", &["--map", &serving.address])).contains("hole,zero"));
    need!(tool("nbdcopy", &[&serving.address, copy]));
    assert!(std::fs::read(copy).unwrap() == std::fs::read(&path).unwrap());
    image.ok(&["mkdir", &format!("{}:/made", serving.address)]);
    need!(tool("qemu-img", &["convert", "-O", "raw", &serving.address, copy]));
    assert!(image.ok(&["ls", &format!("{copy}:/")]).contains("made"));
    image.ok(&["mkdir", &format!("{copy}:/more")]);
    need!(tool("nbdcopy", &["--flush", copy, &serving.address]));
    assert_eq!(serving.end(), Some(0));
    assert!(!socket.exists());
    assert!(image.ok(&["ls", "IMAGE:/"]).contains("more"));
    e2fs::assert_clean(&path);
}

#[test]
fn other_clients_use_a_served_image_over_tls() {
    let image = Image::new();
    let path = image.path();
    let authority = need!(Authority::new());
    let both = [Certificate::new("server", "DNS:localhost"), Certificate::new("client", "DNS:me")];
    let dir = authority.directory(&both).to_str().unwrap().to_owned();
    let image_text = path.to_str().unwrap();
    let listen = ["-l", "localhost:0", "--tls-certificates", &dir];
    let said = image.fails(&["serve", "nbd", "--tls-verify-peer", image_text], 2);
    assert!(said.contains("--tls-certificates"), "{said}");
    let empty = authority.directory(&[]);
    let said = ["serve", "nbd", "--tls-certificates", empty.to_str().unwrap(), image_text];
    assert!(image.fails(&said, 1).contains("no server-cert.pem"));
    let serving = Serving::start(&[&listen[..], &["--tls-verify-peer", image_text]].concat());
    let address = &serving.address;
    let (host, port) =
        address.trim_end_matches('/').rsplit_once(':').expect("the address has a port");
    assert_eq!(host, "nbds://localhost");
    let with = |dir: &str| format!("{address}?tls-certificates={dir}");
    let ours = with(&dir);
    assert!(need!(tool("nbdinfo", &["--json", &ours])).contains("\"export-size\": 67108864"));
    let copy = image.dir.path().join("copy");
    let copy = copy.to_str().unwrap();
    need!(tool("nbdcopy", &[&ours, copy]));
    assert!(std::fs::read(copy).unwrap() == std::fs::read(&path).unwrap());
    image.ok(&["mkdir", &format!("{ours}:/made")]);
    need!(tool("nbdcopy", &["--flush", copy, &ours]));
    image.ok(&["mkdir", &format!("{ours}:/more")]);
    let object = format!("tls-creds-x509,id=tls,endpoint=client,dir={dir}");
    let options = format!("driver=nbd,host=localhost,port={port},tls-creds=tls");
    let convert = ["convert", "--object", &object, "--image-opts", &options, "-O", "raw", copy];
    need!(tool("qemu-img", &convert));
    assert!(image.ok(&["ls", &format!("{copy}:/")]).contains("more"));
    let said = image.fails(&["ls", &format!("{}:/", with(empty.to_str().unwrap()))], 1);
    assert!(said.contains("certificate of the client"), "{said}");
    let plain = format!("nbd://127.0.0.1:{port}/:/");
    assert!(image.fails(&["ls", &plain], 1).contains("use nbds://"));
    let numeric = ours.replace("localhost", "127.0.0.1");
    assert!(image.fails(&["ls", &format!("{numeric}:/")], 1).contains("not valid for name"));
    assert_eq!(serving.end(), Some(0));
    e2fs::assert_clean(&path);
}

#[test]
fn a_read_only_server_shares_its_image() {
    let image = Image::new();
    let path = image.path();
    let serve = |args: &[&str]| {
        Serving::start(&[args, &["-r", "-l", "127.0.0.1:0", path.to_str().unwrap()]].concat())
    };
    let (first, second) = (serve(&[]), serve(&["-x", "name"]));
    for address in [&first.address, &second.address] {
        assert!(address.starts_with("nbd://127.0.0.1:"), "{address}");
        image.ok(&["ls", &format!("{address}:/")]);
        let said = image.fails(&["mkdir", &format!("{address}:/dir")], 1);
        assert!(said.contains("read-only"), "{said}");
    }
    image.ok(&["ls", "IMAGE:/"]);
    assert_eq!(image.run(&["mkdir", "IMAGE:/dir"]).status.code(), Some(1), "the image is locked");
    let served = [first.end(), second.end()];
    assert_eq!(served, [Some(0), Some(0)]);
    e2fs::assert_clean(&path);
}

/// A server that was killed leaves its socket, which the next one replaces. A client that connects
/// again goes on.
#[test]
fn a_killed_server_of_ours_is_started_again() {
    let image = Image::new();
    let path = image.path().to_str().unwrap().to_owned();
    let socket = image.dir.path().join("socket");
    let args = ["-k", socket.to_str().unwrap(), &path];
    let first = Serving::start(&args);
    image.ok(&["mkdir", &format!("{}:/first", first.address)]);
    drop(first);
    let second = Serving::start(&args);
    image.ok(&["mkdir", &format!("{}:/second", second.address)]);
    let said = image.fails(&["serve", "nbd", "-k", socket.to_str().unwrap(), "/dev/null"], 1);
    assert!(said.contains("/dev/null"), "{said}");
    assert_eq!(second.end(), Some(0));
    assert!(image.ok(&["ls", "IMAGE:/"]).contains("second"));
    e2fs::assert_clean(&image.path());
}
