//! An image or device in use is not written, by any of its names, and the message names its user.
#![cfg(all(feature = "mount", target_os = "linux"))]

use nextent_testkit::{DiskImage, Skip, e2fs, need};
use std::process::Command;

/// Functions of the scripts. Attached devices, mounts and servers end with the shell.
const PRELUDE: &str = r#"
    set -eu
    lo=() pids=()
    tidy() {
        set +e; exec 9>&-
        for m in m m2; do umount -l $m; done
        for pid in "${pids[@]}"; do kill -9 $pid; wait $pid; done
        [ -n "${swapped-}" ] && swapoff $swapped
        for d in "${lo[@]}"; do losetup -d $d; done
    } 2> /dev/null
    trap tidy EXIT
    attach() { d=$(losetup -f --show "$@") || exit 77; lo=($d "${lo[@]}"); }
    # Another test may have the number next.
    detach() { losetup -d $1; lo=(${lo[@]/$1}); }
    # mounted POINT: waits for a server.
    mounted() { for i in $(seq 200); do mountpoint -q $1 && return; sleep .05; done; exit 1; }
    serve() { "$@" > served 2>&1 & pids+=($!); }
    echo u > u; mkdir -p m m2 p
    # The bytes of the image that must not change: all of them, or the first $compared.
    contents() { head -c "${compared:--0}" ${image-img} | sha256sum; }
    # refused NAME TEXT: no command writes to NAME, and each says TEXT.
    refused() {
        local before=$(contents) name=$1 text=$2; shift 2
        for c in "cp -q u $name:/u" "mkfs -q -F $name" "replay $name" "rm $name:/lost+found" \
            "mkdir $name:/d" "mount -f $name p" "tar -x -q $name:/" "truncate -s 1 $name:/x" \
            "resize $name 9m"; do
            if timeout 20 $N $c < /dev/null > messages 2>&1; then
                echo "$name: $c was not refused"; exit 1
            fi
            grep -q -- "$text" messages ||
                { echo "$name: $c says: $(cat messages); not: $text"; exit 1; }
        done
        [ "$(contents)" = "$before" ] || { echo "$name: changed"; exit 1; }
    }
    # allowed NAME: it is written.
    allowed() { $N cp -q u $1:/$2 < /dev/null || { echo "$1: refused"; exit 1; }; }
"#;

/// Runs `script` in a directory with an image `img`; exit code 77 means skipped.
#[track_caller]
fn run(script: &str) -> Result<(), Skip> {
    let root = Command::new("id").arg("-u").output();
    if !root.is_ok_and(|output| output.stdout == b"0\n") {
        return Err(Skip::missing("root"));
    }
    if !std::path::Path::new("/dev/loop-control").exists() {
        return Err(Skip::missing("loop devices"));
    }
    let dir = tempfile::tempdir().unwrap();
    let parts = [("a", 1, 16), ("b", 17, 16)];
    let disk = script
        .contains("image=disk")
        .then(|| DiskImage::gpt(&dir.path().join("disk"), 34, 512, &parts));
    let tool = env!("CARGO_BIN_EXE_nextent");
    let made =
        Command::new(tool).args(["mkfs", "-q", "img", "64m"]).current_dir(dir.path()).status();
    assert!(made.unwrap().success());
    let whole = format!("{PRELUDE}\n{script}");
    let done = Command::new("bash")
        .args(["-c", &whole])
        .env("N", tool)
        .current_dir(dir.path())
        .output()
        .unwrap();
    if done.status.code() == Some(77) {
        return Err(Skip::missing(script.trim().lines().next().unwrap_or_default()));
    }
    let text = [&done.stdout[..], &done.stderr[..]].concat();
    assert!(done.status.success(), "{}: {}", done.status, String::from_utf8_lossy(&text));
    e2fs::assert_clean(&dir.path().join("img"));
    for (_, bytes) in disk.iter().flat_map(|disk| &disk.parts) {
        disk.as_ref().unwrap().extract(bytes, &dir.path().join("part"));
        e2fs::assert_clean(&dir.path().join("part"));
    }
    Ok(())
}

/// A partition that is in use keeps out its own users and those of the whole disk, by any name, and
/// no others. `image=disk` makes a disk with two partitions.
#[test]
fn partitions_of_a_file_are_in_use_for_themselves() {
    need!(run(r#"
        image=disk; $N mkfs -q disk@1; $N mkfs -q disk@2; ln disk twin
        serve $N mount -f disk@1 m; mounted m; serve $N mount -f disk@2 m2; mounted m2
        first="mounted on $PWD/m (fuse.*) by process ${pids[0]} (nextent); unmount"
        second="mounted on $PWD/m2 (fuse.*) by process ${pids[1]} (nextent); unmount"
        for name in disk@1 twin@1 disk@label=a $PWD/disk@offset=1m; do refused $name "in use"; done
        refused disk@1 "disk@1: in use: $first"; refused disk@2 "disk@2: in use: $second"
        refused disk@offset=16m,size=2m "in use"; refused disk "in use"
        for offset in 1m 16m 17m; do
            ! $N mount -f -o offset=$offset disk p > messages 2>&1 || exit 1
            grep -q "in use" messages || exit 1
        done
        ! $N ls disk@1:/ > messages 2>&1 || exit 1
        # The first server has ended, although the second goes on.
        umount m; $N mount disk@1 m; umount m2
        # As the helper of umount(8) finds the server without its socket.
        $N umount m; allowed disk@1 one; wait ${pids[0]} ${pids[1]}; pids=()
        allowed disk@1 two; allowed disk@2 three"#,));
}

/// A loop device over a partition has the bytes of that partition only.
#[test]
fn loop_devices_over_partitions_use_their_bytes() {
    need!(run(r#"
        image=disk; $N mkfs -q disk@1; $N mkfs -q disk@2
        attach -o 1M --sizelimit 16M disk; first=$d; attach -o 17M --sizelimit 16M disk; second=$d
        mount $first m || exit 77
        refused disk@1 "$first.*mounted on $PWD/m (ext4)"; allowed disk@2 one
        umount m
        serve $N mount -f $first m; mounted m
        refused disk@1 "in use.*by process ${pids[0]} (nextent)"; allowed disk@2 two
        refused disk "in use"
        umount m; wait ${pids[0]}; pids=(); detach $second; allowed disk@1 three"#,));
}

/// Partitions of a block device: by the kernel's device for one, and without it by their bytes.
#[test]
fn partitions_of_a_block_device_are_found() {
    need!(run(r#"
        image=disk; attach disk; whole=$d
        for n in 1 2; do $N mkfs -q $whole@$n; $N mkdir $whole@$n:/in$n; done
        [ -b ${whole}p1 ] && exit 77
        serve $N mount -f $whole@2 m; mounted m; [ -d m/in2 ]
        grep -q " $PWD/m .*$whole" /proc/self/mountinfo
        refused $whole@1 "in use\|mounted"; umount m; wait ${pids[0]}; pids=()
        detach $whole; attach -P disk; whole=$d
        for i in $(seq 100); do [ -b ${whole}p2 ] && break; sleep .05; done
        [ -b ${whole}p2 ] || exit 0
        serve $N mount -f $whole@1 m; mounted m; serve $N mount -f $whole@2 m2; mounted m2
        grep -q "${whole}p2" /proc/self/mountinfo; [ -d m/in1 ] && [ -d m2/in2 ]
        refused $whole@1 "${whole}p1.*mounted on $PWD/m\|${whole}p1.*in use"
        umount m m2; wait ${pids[@]}; pids=(); $N ls $whole@1:/ > listed"#,));
}

#[test]
fn an_image_mounted_through_a_loop_device_is_in_use() {
    need!(run(r#"
        attach img; mount $d m || exit 77
        ln img twin; ln -s img link
        for name in img twin link $PWD/img; do refused $name "$d.*mounted on $PWD/m (ext4)"; done
        refused $d "mounted on $PWD/m (ext4); unmount it first"
        # Another loop device over the same file, which nothing uses.
        attach img; refused $d "mounted on $PWD/m (ext4)"
        $N ls img:/ > listed
        umount m
        allowed img one; allowed $d two"#,));
}

#[test]
fn a_renamed_backing_file_is_in_use() {
    need!(run(r#"
        attach img; mount $d m || exit 77
        mv img elsewhere; echo other > img; refused elsewhere "$d.*mounted on $PWD/m"
        mv elsewhere img; umount m; allowed img one"#,));
}

#[test]
fn an_image_mounted_through_two_loop_devices_is_in_use() {
    need!(run(r#"
        attach img; under=$d; attach $under; over=$d
        mount $over m || exit 77
        refused img "$over.*mounted on $PWD/m"; refused $under "$over.*mounted on $PWD/m"
        # One after another: a loop device keeps what it has read as long as it is attached.
        umount m; allowed $over one; detach $over; allowed $under two; detach $under
        allowed img three"#,));
}

/// Partitions of one image are independent: one in use does not block a writer of another.
#[test]
fn partitions_of_an_image_are_independent() {
    need!(run(r#"
        truncate -s 160M disk; $N mkfs -q -E offset=1m disk 64m; $N mkfs -q -E offset=80m disk 64m
        attach -o 1M --sizelimit 64M disk; mount $d m || exit 77
        for at in 1m 0; do
            ! $N mount -f -o offset=$at disk p > messages 2>&1 || exit 1
            grep -q "$d.*mounted on $PWD/m" messages || { cat messages; exit 1; }
        done
        serve $N mount -f -o offset=80m disk m2; mounted m2; umount m2; wait ${pids[0]}
        umount m; e2fsck -fn $d > /dev/null"#,));
}

#[test]
fn swap_space_is_in_use() {
    need!(run(r#"
        rm img; fallocate -l 32M img; chmod 600 img; mkswap -q img; swapon img || exit 77
        # The kernel may use the swap space, but not its header, where a superblock would be, too.
        swapped=$PWD/img compared=4096; ln img twin
        for name in img twin; do refused $name "in use: swap space; swapoff it first"; done
        swapoff img; attach img; swapon $d || exit 77; swapped=$d
        refused img "$d.*in use: swap space"; refused $d "in use: swap space"
        swapoff $d; swapped=; $N mkfs -q -F img 32m"#,));
}

/// A file and its loop devices have one lock, also while a server holds it.
#[test]
fn an_image_served_by_this_program_is_in_use() {
    need!(run(r#"
        attach img
        serve $N mount -f img m; mounted m
        refused img "mounted on $PWD/m (fuse.*) by process ${pids[0]} (nextent); unmount it"
        # The server has the loop device, too, so that the kernel cannot mount it.
        refused $d "by process ${pids[0]} (nextent)"
        ! mount $d m2 2> /dev/null || exit 1
        attach img; refused $d "by process ${pids[0]} (nextent)"
        umount m; wait ${pids[0]}; allowed img one; pids=()
        serve $N mount -f $d m; mounted m; server=${pids[0]}
        refused $d "mounted on $PWD/m (fuse\|by process $server"
        refused img "by process $server (nextent)"; ! mount $d m2 2> /dev/null || exit 1
        ! $N ls img:/ > messages 2>&1 || exit 1
        umount m; wait $server; pids=(); allowed img two; allowed $d three"#,));
}

#[test]
fn an_image_served_by_fuse2fs_is_in_use() {
    need!(run(r#"
        fuse2fs -o fakeroot $PWD/img m 2> /dev/null || exit 77; mounted m
        ln img twin
        for name in img twin; do refused $name "mounted on $PWD/m (fuse"; done
        umount m; sleep 1; fuse2fs -o fakeroot img m; mounted m
        refused img "mounted on $PWD/m (fuse"
        umount m; sleep 1; e2fsck -p img > /dev/null || true; allowed img one"#,));
}

/// Emulators lock byte ranges of their images.
#[test]
fn an_image_with_record_locks_is_in_use() {
    need!(run(r#"
        type python3 > /dev/null || exit 77
        coproc locker { exec python3 -c '
import fcntl, struct, sys
f = open("img", "r+b")
fcntl.fcntl(f, 37, struct.pack("hhqqi4x", fcntl.F_RDLCK, 0, 100, 1, 0))
print("locked", flush=True); sys.stdin.read()'; }
        read -u ${locker[0]} ready; [ "$ready" = locked ]
        refused img "in use by process .* (python3"
        kill $locker_PID; wait $locker_PID || true; allowed img one"#,));
}

/// A disk is in use if one of its partitions is; partitions are independent of each other.
#[test]
fn partitions_of_a_loop_device_are_independent() {
    need!(run(r#"
        truncate -s 160M disk; attach disk; type addpart > /dev/null || exit 77
        addpart $d 1 2048 131072 && addpart $d 2 163840 131072 || exit 77
        for n in 1 2; do
            IFS=: read major minor < /sys/block/${d#/dev/}/${d#/dev/}p$n/dev
            mknod p$n b $major $minor; $N mkfs -q p$n
        done
        mount p1 m || exit 77
        refused $d "mounted on $PWD/m (ext4)"; refused disk "$d.*mounted on $PWD/m (ext4)"
        refused p1 "mounted on $PWD/m (ext4)"; allowed p2 one
        serve $N mount -f p2 m2; mounted m2
        refused p2 "mounted on $PWD/m2"
        umount m
        # The writer of one partition keeps out one of the whole, and no other.
        allowed p1 one; refused disk "by process ${pids[0]} (nextent)"
        refused $d "in use\|mounted on $PWD/m2"
        umount m2; wait ${pids[0]}; e2fsck -fn p1 > /dev/null; e2fsck -fn p2 > /dev/null"#,));
}

#[test]
fn a_device_under_device_mapper_is_in_use() {
    need!(run(r#"
        dmsetup version > /dev/null 2>&1 || exit 77
        attach img; name=nextent-test-$$
        echo "0 131072 linear $d 0" | dmsetup create $name || exit 77
        mount /dev/mapper/$name m
        refused img "$d.*$name"; refused $d "part of .*$name"
        refused /dev/mapper/$name "mounted on $PWD/m"
        umount m
        serve $N mount -f /dev/mapper/$name m; mounted m; refused img "process\|part of"
        umount m; wait ${pids[0]}; dmsetup remove $name; allowed img one"#,));
}
