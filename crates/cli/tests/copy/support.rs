//! Runs the command, and makes images and trees for it.

use nextent_testkit::tree::{self, Compare, HostDir, Tree};
use nextent_testkit::{Access, KernelMount, Skip, TreeMaker, e2fs};
use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

/// A size that fits the trees of these tests.
pub(crate) const SIZE: u64 = 256 << 20;

/// The command.
pub(crate) fn nextent() -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_nextent"));
    command.stdin(Stdio::null());
    command
}

/// Runs the command, which may fail.
pub(crate) fn run<S: AsRef<OsStr>>(args: &[S]) -> Output {
    nextent().args(args).output().expect("the command was built")
}

/// Runs the command, which must succeed and print nothing.
#[track_caller]
pub(crate) fn works<S: AsRef<OsStr>>(args: &[S]) {
    good(&run(args));
}

#[track_caller]
pub(crate) fn good(output: &Output) {
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success() && said.is_empty(), "{}: {said}", output.status);
}

/// Runs the command, which must fail with `code` and one line that contains `words`.
#[track_caller]
pub(crate) fn fails<S: AsRef<OsStr>>(args: &[S], code: i32, words: &str) {
    let output = run(args);
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(code), "{said}");
    assert_eq!(said.lines().count(), 1, "{said}");
    assert!(said.contains(words), "{said}");
}

/// Has `grep -q` read all of its input: a program that still writes to it would be killed by the
/// closed pipe, and the line fail.
const READ_ALL: &str = "grep() { if [ \"$1\" = -q ]; then shift; command grep \"$@\" > /dev/null; \
    else command grep \"$@\"; fi; }; ";

/// Runs a line of shell; `$N` is the command. It must succeed and print nothing.
#[track_caller]
pub(crate) fn shell(dir: &Path, line: &str) {
    let mut command = Command::new("bash");
    command.env("N", env!("CARGO_BIN_EXE_nextent")).current_dir(dir);
    command.args(["-o", "pipefail", "-c", &format!("{READ_ALL}{line}")]);
    let output = command.output().expect("there is a bash");
    let out = String::from_utf8_lossy(&output.stdout);
    let err = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success() && out.is_empty() && err.is_empty(), "{line}: {out}{err}");
}

/// `dir/name:path` as an argument.
pub(crate) fn inside(image: &Path, path: &str) -> String {
    format!("{}:{path}", image.display())
}

/// A directory with a random tree in `tree`.
pub(crate) fn with_tree(seed: u64) -> (tempfile::TempDir, PathBuf) {
    let dir = tempfile::tempdir().expect("the temporary directory can be written");
    let top = dir.path().join("tree");
    std::fs::create_dir(&top).expect("as above");
    let small =
        TreeMaker { files: 150, longest: 80_000, big_dir: 120, depth: 12, ..Default::default() };
    TreeMaker { seed, ..small }.make(&top).expect("the host takes plain files");
    (dir, top)
}

/// The tree of a directory.
pub(crate) fn tree(top: &Path) -> Tree {
    tree::walk(&HostDir::new(top)).expect("it can be read")
}

/// The tree at `path` in an image, through the kernel's mount.
pub(crate) fn mounted(image: &Path, path: &str) -> Result<Tree, Skip> {
    let mount = KernelMount::new(image, Access::ReadOnly)?;
    let tree = tree(&mount.join(path));
    mount.unmount();
    Ok(tree)
}

/// Compares everything, also holes.
pub(crate) fn all() -> Compare {
    Compare { holes: true, ..Compare::default() }
}

/// Makes an image by mke2fs.
pub(crate) fn mke2fs(dir: &Path, name: &str, args: &[&str]) -> Result<PathBuf, Skip> {
    let path = dir.join(name);
    e2fs::mke2fs(&path, SIZE, args)?;
    Ok(path)
}

/// Extracts with GNU tar into a directory and with this program into an image; both trees must be
/// equal.
#[track_caller]
pub(crate) fn as_gnu_tar(dir: &Path, stream: &str) {
    shell(
        dir,
        &format!(
            "rm -rf gnu; mkdir gnu; tar -C gnu -x -f {stream} --same-owner -p 2> /dev/null || true"
        ),
    );
    for by in ["-x", "-d"] {
        shell(
            dir,
            &match by {
                "-x" => {
                    format!("rm -f i.img; $N mkfs -q i.img 200m; $N tar -q -x i.img:/ < {stream}")
                }
                _ => format!("rm -f i.img; $N mkfs -q -d {stream} i.img 200m"),
            },
        );
        shell(dir, "e2fsck -fn i.img > /dev/null 2>&1");
        // Names, kinds, modes, owners, lengths and contents of both.
        let list = "cd $D && find . -mindepth 1 -not -name lost+found -printf '%P %y %m %U %G %s \
            %l\\n' | sort; \
            cd $D && find . -type f -exec sha256sum {} + | sort";
        let listed = |top: &Path| {
            let output = std::process::Command::new("bash")
                .env("D", top)
                .args(["-c", list])
                .output()
                .expect("there is a bash");
            String::from_utf8(output.stdout).expect("names are text")
        };
        let listed = |top: &Path| -> Vec<String> {
            let size_of_dirs = |line: &str| {
                let mut words: Vec<&str> = line.split(' ').collect();
                if words.get(1) == Some(&"d") {
                    words[5] = "-";
                }
                words.join(" ")
            };
            listed(top).lines().map(size_of_dirs).collect()
        };
        let mount = match KernelMount::new(&dir.join("i.img"), Access::ReadOnly) {
            Ok(mount) => mount,
            Err(skip) => return println!("{skip:?}"),
        };
        let ours = listed(&mount.join("."));
        mount.unmount();
        assert_eq!(ours, listed(&dir.join("gnu")), "{by} {stream}");
    }
}

/// Writes headers field by field, also invalid ones.
const RAW: &str = "python3 - <<'P'
def h(name, typ, size, mode=b'0000644\\0', ids=b'0000000\\0'*2, mtime=b'00000000000\\0', \
    dev=b'0000000\\0'*2, \
    magic=b'ustar\\x0000', link=b'', signed=False):
    b = bytearray(512); b[0:len(name)] = name; b[100:108] = mode; b[108:124] = ids
    b[124:136] = b'%011o\\0' % size; b[136:148] = mtime; b[148:156] = b' ' * 8; b[156:157] = typ
    b[157:157+len(link)] = link; b[257:265] = magic; b[329:345] = dev
    s = sum((x - 256 if x > 127 and signed else x) for x in b)
    b[148:156] = b'%06o\\0 ' % s; return bytes(b)
def f(name, data=b'abc', **k): return h(name, b'0', len(data), **k) + data + b'\\0' * \
    (-len(data) % 512)
def rec(k, v):
    n = len(k) + len(v) + 3
    while len(str(n)) + len(k) + len(v) + 3 != n: n = len(str(n)) + len(k) + len(v) + 3
    return str(n).encode() + b' ' + k + b'=' + v + b'\\n'
def x(*records, typ=b'x'):
    d = b''.join(rec(*r) for r in records); \
        return h(b'pax', typ, len(d)) + d + b'\\0' * (-len(d) % 512)
def b256(n, w=8):
    return (n & (1 << 8*w - 1) - 1 | 1 << 8*w - 1).to_bytes(w, 'big')
E = b'\\0' * 1024
def out(name, *parts): open(name, 'wb').write(b''.join(parts) + E)
";

/// Runs `script` after [`RAW`].
pub(crate) fn make(dir: &Path, script: &str) {
    shell(dir, &format!("{RAW}{script}\nP"));
}

/// Extracts `stream` into a new image; its messages and exit code.
pub(crate) fn extract(dir: &Path, stream: &str) -> (String, Option<i32>) {
    shell(dir, "rm -f i.img; $N mkfs -q i.img 64m");
    let input = std::fs::File::open(dir.join(stream)).expect("it was made");
    let output = nextent()
        .args(["tar", "-q", "-x", &inside(&dir.join("i.img"), "/")])
        .stdin(Stdio::from(input))
        .output()
        .expect("the command was built");
    e2fs::assert_clean(&dir.join("i.img"));
    (String::from_utf8_lossy(&output.stderr).into_owned(), output.status.code())
}
