//! Layers of container images: the result is that of umoci, and of a script that unpacks layers by
//! GNU tar.

use crate::support::shell;
use nextent_testkit::{Access, KernelMount, Skip, e2fs, need};
use std::path::Path;
use std::process::Command;

/// Shell functions: `layer N` packs the directory `lN`; `unpack DIR` applies all layers in order by
/// GNU tar, as the specification says.
const TOOLS: &str = r#"
layer() { tar --xattrs --numeric-owner -C l$1 -cf $1.tar .; }
unpack() {
    rm -rf "$1"; mkdir "$1"
    for n in 1 2 3; do
        ( cd l$n && find . -name '.wh.*' -printf '%h %f\n' ) | while read -r dir mark; do
            case $mark in
                .wh..wh..opq) [ ! -d "$1/$dir" ] || find "$1/$dir" -mindepth 1 -delete;;
                .wh..wh.*) ;;
                *) rm -rf "$1/$dir/${mark#.wh.}";;
            esac
        done
        ( cd l$n && find . ! -type d ) | while read -r path; do
            [ ! -d "$1/$path" ] || [ -L "$1/$path" ] || rm -rf "$1/$path"
        done
        tar --xattrs --xattrs-include='*' --numeric-owner -p -C "$1" --exclude='.wh.*' -xf $n.tar
    done
}
"#;

/// Three layers in which names change in every way.
const LAYERS: &str = r#"
mkdir -p l1/a/sub l1/b/deep/er l1/dir/x l1/opaque/old l1/usr/bin l1/plain; cd l1
echo 1 > a/f; echo 1 > a/sub/g; ln a/f a/h; ln -s f a/l; echo 1 > b/deep/er/f; echo 1 > file
echo 1 > dir/x/y; echo 1 > opaque/old/f; echo 1 > opaque/gone; echo 1 > usr/bin/tool; mkfifo p
ln -s usr/bin bin; echo 1 > plain/f; chmod 4755 usr/bin/tool; echo 1 > whole; cd ..
mkdir -p l2/a l2/opaque l2/file/now l2/b l2/usr/bin; cd l2
touch a/.wh.f a/.wh.sub .wh.whole .wh.nothing opaque/.wh..wh..opq .wh..wh.plnk
echo 2 > opaque/new; echo 2 > file/now/f; echo 2 > dir; touch b/.wh.deep
echo 2 > usr/bin/other; ln usr/bin/other usr/bin/linked; cd ..
mkdir -p l3/opaque l3/dir/again l3/b/deep; cd l3
echo 3 > dir/again/f; echo 3 > b/deep/f; echo 3 > whole; ln -s nowhere plain; rm -f x
echo 3 > opaque/last; mknod null c 1 3; cd ..
for n in 1 2 3; do chown -hR $n:$n l$n/*; layer $n; done
"#;

fn made() -> Result<tempfile::TempDir, Skip> {
    if !rustix::process::geteuid().is_root() {
        return Err(Skip::missing("root"));
    }
    let dir = tempfile::tempdir().expect("the temporary directory can be written");
    shell(dir.path(), &format!("{TOOLS}{LAYERS} unpack right"));
    Ok(dir)
}

/// Compares an image with the tree that the script made.
#[track_caller]
fn assert_right(dir: &Path, image: &str) -> Result<(), Skip> {
    let image = dir.join(image);
    e2fs::assert_clean(&image);
    let nextent = env!("CARGO_BIN_EXE_nextent");
    // The times of directories that a later layer changed without an entry are not defined.
    let mut diff = Command::new(nextent);
    diff.args(["diff", "--ignore", "times"]).arg(&image).arg(dir.join("right"));
    let done = diff.output().expect("it can be run");
    assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stdout));
    let mount = KernelMount::new(&image, Access::ReadOnly)?;
    let mut diff = Command::new("diff");
    diff.args(["-r", "--no-dereference", "-x", "lost+found", "-x", "null", "-x", "p"]);
    let done = diff.arg(mount.path()).arg(dir.join("right")).output().expect("it can be run");
    assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stdout));
    mount.unmount();
    Ok(())
}

#[test]
fn layers_are_those_of_the_specification() {
    let dir = need!(made());
    // A directory as a layer: the middle one.
    for sources in ["-d 1.tar -d 2.tar -d 3.tar", "-d 1.tar -d l2 -d 3.tar"] {
        for size in ["", "64m"] {
            shell(dir.path(), &format!("rm -f i; $N mkfs -q {sources} i {size}"));
            need!(assert_right(dir.path(), "i"));
        }
    }
    shell(dir.path(), "gzip -k 1.tar 2.tar; cat 3.tar | $N mkfs -q -d 1.tar.gz -d 2.tar.gz -d - j");
    need!(assert_right(dir.path(), "j"));
}

/// Makes the OCI layout `layout` of the three layers, with the name `web`: gzip, zstd, and plain.
const LAYOUT: &str = r#"
gzip -c 1.tar > 1.l; zstd -q -c 2.tar > 2.l 2> /dev/null || cp 2.tar 2.l; cp 3.tar 3.l
python3 -c "$LAYOUT"
tar -C layout -cf archive.tar .
"#;

/// Runs `script` with the program that writes the layout.
fn make_layout(dir: &Path, script: &str) {
    let mut command = Command::new("bash");
    command.args(["-e", "-c", script]).env("LAYOUT", include_str!("layout.py"));
    let done = command.current_dir(dir).output().expect("there is a bash");
    assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
}

#[test]
fn images_of_containers_are_those_of_other_tools() {
    let dir = need!(made());
    make_layout(dir.path(), LAYOUT);
    for source in ["layout", "layout:web", "archive.tar", "archive.tar:web", "many"] {
        shell(dir.path(), &format!("rm -f i; $N mkfs -q --oci {source} i"));
        need!(assert_right(dir.path(), "i"));
    }
    if has("skopeo") {
        // Docker has no zstd.
        let plain = LAYOUT.replace("zstd -q -c 2.tar > 2.l 2> /dev/null || ", "");
        shell(dir.path(), "rm -rf layout many archive.tar");
        make_layout(dir.path(), &plain);
        shell(
            dir.path(),
            "for to in oci-archive:b.tar:web docker-archive:c.tar:web:1 docker-archive:d.tar; do \
             skopeo --insecure-policy copy -q oci:layout:web $to; done",
        );
        for source in ["b.tar", "c.tar", "c.tar:web:1", "d.tar"] {
            shell(dir.path(), &format!("rm -f i; $N mkfs -q --oci {source} i"));
            need!(assert_right(dir.path(), "i"));
        }
    } else {
        println!("skipped: no skopeo");
    }
    if has("umoci") {
        shell(
            dir.path(),
            "umoci unpack --image layout:web bundle > /dev/null 2>&1; rm -rf right; \
             mv bundle/rootfs right; $N mkfs -q --oci layout i 64m",
        );
        need!(assert_right(dir.path(), "i"));
    } else {
        println!("skipped: no umoci");
    }
}

fn has(tool: &str) -> bool {
    Command::new(tool).arg("--version").output().is_ok_and(|output| output.status.success())
}

/// One line names what is wrong, and no image is left.
#[test]
fn damaged_images_of_containers_are_refused() {
    let dir = need!(made());
    make_layout(dir.path(), LAYOUT);
    let refused = |change: &str, source: &str, words: &str| {
        let line = format!(
            "rm -rf bad i; cp -r layout bad; cd bad; {change}; cd ..; \
             $N mkfs -q --oci {source} i 2> err; [ $? = 1 ] && [ $(wc -l < err) = 1 ] && \
             grep -q -e '{words}' err && [ ! -e i ] || {{ cat err; ls i; }}"
        );
        shell(dir.path(), &line);
    };
    let layer = "f=$(ls -S blobs/sha256/* | head -1)";
    refused(&format!("{layer}; printf x >> $f"), "bad", "digest");
    refused(&format!("{layer}; truncate -s -100 $f"), "bad", "unpacking\\|digest\\|ends in");
    refused(&format!("{layer}; rm $f"), "bad", "missing");
    refused("rm index.json", "bad", "neither an OCI layout");
    refused("echo x > index.json", "bad", "index.json");
    refused("sed -i s/sha256:./sha256:z/ index.json", "bad", "digits are wrong");
    refused("sed -i 's,sha256:,../../,' index.json", "bad", "digest of another form");
    // Names in a document of Docker do not lead out of the layout.
    for config in ["../secret", "/etc/passwd"] {
        let manifest = format!(
            "rm index.json; echo not-json > ../secret; \
             echo \"[{{\\\"Config\\\":\\\"{config}\\\",\\\"Layers\\\":[]}}]\" > manifest.json"
        );
        refused(&manifest, "bad", "there is no such file\\|No such file");
    }
    refused("true", "bad:other", "web");
    refused("true", "none", "No such file");
    refused("true", "/dev/null", "must be a file");
}

/// Layers that try to leave the tree, or that have marks without a name.
#[test]
fn hostile_layers_stay_in_the_image() {
    let dir = need!(made());
    shell(
        dir.path(),
        "mkdir h; cd h; ln -s / out; touch .wh. .wh... kept; tar -cf ../h.tar .; cd ..; \
         mkdir o; touch o/.wh.x; tar -C o -cf o.tar --transform 's,^,out/etc/,' .wh.x; \
         mkdir v; touch v/.wh.passwd; \
         tar -C v -cf v.tar -P --transform 's,^,../../etc/,' .wh.passwd; \
         mkdir r; touch r/.wh..wh..opq; tar -C r -cf r.tar .wh..wh..opq",
    );
    let fails = "$N mkfs -q -d 1.tar -d h.tar i 64m 2> err; [ $? = 1 ] && \
        [ $(grep -c 'without the name of a file' err) = 2 ] && [ ! -e i ] || cat err";
    shell(dir.path(), fails);
    let fails = "$N mkfs -q -d 1.tar -d v.tar i 64m 2> err; [ $? = 1 ] && grep -q 'leads out' err \
        && [ ! -e i ] || cat err";
    shell(dir.path(), fails);
    // Everything goes except lost+found, without which e2fsck complains.
    shell(
        dir.path(),
        "$N mkfs -q -d 1.tar -d r.tar i 64m; [ \"$($N ls i:/)\" = lost+found ]; \
         e2fsck -fn i > /dev/null 2>&1; ls /etc/passwd > /dev/null",
    );
    e2fs::assert_clean(&dir.path().join("i"));
}

/// A directory may contain the image, which is left out of a layer as of a single directory.
#[test]
fn the_image_is_not_copied_into_itself() {
    let dir = tempfile::tempdir().expect("writable");
    shell(
        dir.path(),
        "mkdir one two; echo > one/a; echo > two/b; for more in '' '-d two'; do \
         ! $N mkfs -q -d one $more one/i 8m 2> err || echo made; \
         grep -q 'one/i: is the image that is being used; left out$' err || cat err; \
         [ $(wc -l < err) = 1 ] || cat err; rm -f one/i; done",
    );
}
