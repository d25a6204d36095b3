//! Compares images on NBD servers with the same image as a local file.
//!
//! `cargo xtask bench nbd [ROUNDS]`. The servers serve files in the same directory over Unix
//! sockets. With a delay of 5 ms a request the peer of a transfer is nbdcopy, which keeps 64
//! requests in flight.

use super::measure::seconds;
use super::pairs::{faster, make_tree, need, nextent, text};
use super::{Pair, Row, in_turns, print_table, rounds_of};
use crate::shell::command;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// The size of an image, and that in bytes.
const SIZE: (&str, u64) = ("1g", 1 << 30);
/// Bytes of the large file.
const LARGE: u64 = 256 << 20;
/// Small files that are copied one after another.
const SMALL: usize = 10_000;

/// The sources and the number of rounds.
struct Served {
    dir: PathBuf,
    rounds: usize,
}

/// A server, killed when it is dropped.
struct Server {
    child: Child,
    socket: PathBuf,
}

/// Measures and prints the table.
pub(super) fn run(args: &[String]) -> Result<(), String> {
    let rounds = rounds_of(args, "usage: cargo xtask bench nbd [ROUNDS]")?;
    super::build(&["nextent-cli"])?;
    let dir = tempfile::Builder::new().prefix("nextent-bench-").tempdir();
    let dir = dir.map_err(|error| error.to_string())?;
    let bench = Served { dir: dir.path().into(), rounds };
    bench.make_sources().map_err(|error| format!("the sources: {error}"))?;
    let pairs: [Pair<Served>; 8] = [
        Served::fill_by_nbdkit,
        Served::fill_by_qemu,
        Served::dbench_by_nbdkit,
        Served::dbench_by_qemu,
        Served::random_writes,
        Served::read_with_delay,
        Served::write_with_delay,
        Served::small_with_delay,
    ];
    print_table(&bench, &pairs, rounds);
    Ok(())
}

impl Server {
    /// Starts `nbdkit` on the file `image`, with more arguments.
    fn nbdkit(image: &Path, filters: &[&str], parameters: &[&str]) -> Result<Self, String> {
        need("nbdkit")?;
        let socket = image.with_extension("sock");
        let mut server = command("nbdkit", ["-f", "-U", &text(&socket)]);
        server.args(filters).args(["file", &text(image)]).args(parameters);
        Self::start(server, socket)
    }

    /// Starts `qemu-nbd` on the file `image`.
    fn qemu(image: &Path) -> Result<Self, String> {
        need("qemu-nbd")?;
        let socket = image.with_extension("sock");
        let options = ["-t", "-e", "32", "-f", "raw", "-k", &text(&socket), &text(image)];
        Self::start(command("qemu-nbd", options), socket)
    }

    fn start(mut server: Command, socket: PathBuf) -> Result<Self, String> {
        server.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        let child = server.spawn().map_err(|error| error.to_string())?;
        let server = Self { child, socket };
        let began = Instant::now();
        while std::os::unix::net::UnixStream::connect(&server.socket).is_err() {
            if began.elapsed() > Duration::from_secs(20) {
                return Err("the server does not start".into());
            }
            std::thread::sleep(Duration::from_millis(5));
        }
        Ok(server)
    }

    fn address(&self) -> String {
        format!("nbd+unix:///?socket={}", self.socket.display())
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // It may have ended.
        let _ = self.child.kill();
        let _ = self.child.wait();
        let _ = fs::remove_file(&self.socket);
    }
}

impl Served {
    fn make_sources(&self) -> std::io::Result<()> {
        make_tree(&self.path("tree"))?;
        let small = self.path("small");
        fs::create_dir(&small)?;
        for n in 0..SMALL {
            fs::write(small.join(n.to_string()), vec![1; n % 4096])?;
        }
        let bytes: Vec<u8> = (0..LARGE).map(|n| ((n * 7919) >> 5) as u8).collect();
        fs::write(self.path("large"), bytes)
    }

    fn path(&self, name: &str) -> PathBuf {
        self.dir.join(name)
    }

    /// An empty file for a server.
    fn fresh(&self, name: &str) -> Result<PathBuf, String> {
        let path = self.path(name);
        drop(fs::remove_file(&path));
        let file = fs::File::create(&path).and_then(|file| file.set_len(SIZE.1));
        file.map(|()| path).map_err(|error| error.to_string())
    }

    /// Fails if the image is damaged.
    fn check(image: &Path) -> Result<(), String> {
        need("e2fsck")?;
        seconds(command("e2fsck", ["-fn", &text(image)])).map(drop)
    }

    /// Makes an image of 50,000 files on a server, and as a file.
    fn fill(
        &self,
        name: &'static str,
        serve: impl Fn(&Path) -> Result<Server, String>,
    ) -> Result<Row, String> {
        let tree = text(&self.path("tree"));
        let fill = |image: &str| seconds(nextent(&["mkfs", "-q", "-d", &tree, image, SIZE.0]));
        let medians = in_turns(
            self.rounds,
            || {
                let image = self.fresh("far.img")?;
                let server = serve(&image)?;
                let took = fill(&server.address())?;
                drop(server);
                Self::check(&image)?;
                Ok(took)
            },
            || fill(&text(&self.fresh("near.img")?)),
        )?;
        Ok(faster(name, medians, "s", 0.5))
    }

    fn fill_by_nbdkit(&self) -> Result<Row, String> {
        self.fill("fill, 50,000 files, nbdkit | a file", |image| Server::nbdkit(image, &[], &[]))
    }

    fn fill_by_qemu(&self) -> Result<Row, String> {
        self.fill("fill, 50,000 files, qemu-nbd | a file", Server::qemu)
    }

    /// The time of `work` in a mount of a new file system on `image`.
    fn mounted(
        &self,
        image: &str,
        work: &dyn Fn(&str) -> Result<f64, String>,
    ) -> Result<f64, String> {
        let point = self.path("mnt");
        fs::create_dir_all(&point).map_err(|error| error.to_string())?;
        let point = text(&point);
        seconds(nextent(&["mkfs", "-q", image, SIZE.0]))?;
        seconds(nextent(&["mount", image, &point]))?;
        let done = work(&point);
        seconds(nextent(&["umount", &point]))?;
        done
    }

    /// Work in a mount, on a server and in a file.
    fn in_mounts(
        &self,
        name: &'static str,
        serve: impl Fn(&Path) -> Result<Server, String>,
        work: &dyn Fn(&str) -> Result<f64, String>,
    ) -> Result<Row, String> {
        let medians = in_turns(
            self.rounds,
            || {
                let image = self.fresh("far.img")?;
                let server = serve(&image)?;
                let took = self.mounted(&server.address(), work)?;
                drop(server);
                Self::check(&image)?;
                Ok(took)
            },
            || self.mounted(&text(&self.fresh("near.img")?), work),
        )?;
        Ok(faster(name, medians, "s a work", 0.5))
    }

    fn dbench_by_nbdkit(&self) -> Result<Row, String> {
        let serve = |image: &Path| Server::nbdkit(image, &[], &[]);
        self.in_mounts("dbench, nbdkit | a file", serve, &dbench)
    }

    fn dbench_by_qemu(&self) -> Result<Row, String> {
        self.in_mounts("dbench, qemu-nbd | a file", Server::qemu, &dbench)
    }

    fn random_writes(&self) -> Result<Row, String> {
        let serve = |image: &Path| Server::nbdkit(image, &[], &[]);
        self.in_mounts("4k random direct writes, nbdkit | a file", serve, &random_writes)
    }

    /// A server that takes 5 ms longer for each request, on an
    /// empty image.
    fn delayed(&self) -> Result<Server, String> {
        let image = self.fresh("far.img")?;
        seconds(nextent(&["mkfs", "-q", &text(&image), SIZE.0]))?;
        Server::nbdkit(&image, &["--filter=delay"], &["rdelay=5ms", "wdelay=5ms"])
    }

    fn read_with_delay(&self) -> Result<Row, String> {
        need("nbdcopy")?;
        let server = self.delayed()?;
        seconds(nextent(&["cp", &text(&self.path("large")), &format!("{}:/", server.address())]))?;
        let raw = self.fresh("near.img")?;
        fs::copy(self.path("large"), &raw).map_err(|error| error.to_string())?;
        let peer = Server::nbdkit(&raw, &["--filter=delay"], &["rdelay=5ms", "wdelay=5ms"])?;
        let medians = in_turns(
            self.rounds,
            || seconds(nextent(&["cp", &format!("{}:/large", server.address()), "/dev/null"])),
            || seconds(command("nbdcopy", [&peer.address(), "null:"])),
        )?;
        Ok(faster("read 256 MiB, 5 ms a request | nbdcopy", medians, "s", 0.8))
    }

    fn write_with_delay(&self) -> Result<Row, String> {
        need("nbdcopy")?;
        let large = text(&self.path("large"));
        let server = self.delayed()?;
        let target = format!("{}:/large", server.address());
        let raw = self.fresh("near.img")?;
        let peer = Server::nbdkit(&raw, &["--filter=delay"], &["rdelay=5ms", "wdelay=5ms"])?;
        let medians = in_turns(
            self.rounds,
            || seconds(nextent(&["cp", &large, &target])),
            || seconds(command("nbdcopy", [&large, &peer.address()])),
        )?;
        Ok(faster("write 256 MiB, 5 ms a request | nbdcopy", medians, "s", 0.8))
    }

    fn small_with_delay(&self) -> Result<Row, String> {
        let small = text(&self.path("small"));
        let copy = |image: &str| seconds(nextent(&["cp", "-r", &small, &format!("{image}:/")]));
        let medians = in_turns(
            self.rounds,
            || copy(&self.delayed()?.address()),
            || {
                let image = text(&self.fresh("near.img")?);
                seconds(nextent(&["mkfs", "-q", &image, SIZE.0]))?;
                copy(&image)
            },
        )?;
        Ok(faster("cp -r of 10,000 files, 5 ms a request | a file", medians, "s", 1.0 / 3.0))
    }
}

/// Seconds that 100 MB of dbench take.
fn dbench(place: &str) -> Result<f64, String> {
    need("dbench")?;
    Ok(100.0 / super::mount::dbench(4, place)?)
}

/// Seconds that 10,000 writes take.
fn random_writes(place: &str) -> Result<f64, String> {
    need("fio")?;
    let options = ["--name=w", "--rw=randwrite", "--bs=4k", "--direct=1", "--size=64m"];
    let mut fio = command("fio", options);
    fio.args(["--iodepth=16", "--ioengine=libaio", "--runtime=2", "--time_based"]);
    let output = fio.args(["--output-format=json", "--directory", place]).output();
    let output = output.map_err(|error| error.to_string())?;
    let text = String::from_utf8_lossy(&output.stdout);
    let figures = text.find('{').and_then(|at| serde_json::from_str(&text[at..]).ok());
    let figures: serde_json::Value = figures.ok_or("fio has no figures")?;
    let rate = figures["jobs"][0]["write"]["iops"].as_f64().filter(|rate| *rate > 0.0);
    Ok(10_000.0 / rate.ok_or("fio has no rate")?)
}
