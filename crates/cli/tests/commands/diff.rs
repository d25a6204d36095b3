//! `diff`: equal trees are equal, and each change is named.

use super::{Image, shell};
use nextent_testkit::e2fs;

/// A directory `s` with files of all kinds, and an image made of it.
fn made() -> Image {
    let image = Image::new();
    shell(
        &image,
        "mkdir -p s/d/e; echo text > s/f; ln s/f s/d/g; ln -s f s/l; mkfifo s/p; touch s/empty; \
         seq 90000 > s/long; truncate -s 9M s/sparse; echo x >> s/sparse; ln s/sparse s/d/sparse; \
         $N mkfs -q -d s $i 64m",
    );
    image
}

/// The exit code and the output of `diff LEFT RIGHT`.
fn diff(image: &Image, args: &[&str]) -> (i32, String) {
    let dir = image.dir.path().to_str().unwrap();
    let all: Vec<String> = args.iter().map(|arg| arg.replace("DIR", dir)).collect();
    let mut words = vec!["diff"];
    words.extend(all.iter().map(String::as_str));
    let output = image.run(&words);
    let text = String::from_utf8(output.stdout).unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.code() == Some(2) || said.is_empty(), "{said}");
    (output.status.code().unwrap(), text.replace(dir, "DIR"))
}

#[test]
fn equal_trees_have_no_difference() {
    let image = made();
    let equal = (0, String::new());
    for args in [["IMAGE", "DIR/s"], ["DIR/s", "IMAGE"], ["DIR/s", "DIR/s"], ["IMAGE", "IMAGE"]] {
        assert_eq!(diff(&image, &args), equal, "{args:?}");
    }
    assert_eq!(diff(&image, &["IMAGE:/d", "DIR/s/d"]), equal);
    assert_eq!(diff(&image, &["IMAGE:/f", "IMAGE:/d/g"]), equal);
    assert_eq!(diff(&image, &["--json", "IMAGE", "DIR/s"]), (0, "[]\n".to_owned()));
    // Another file system, of other block size, with other inode numbers.
    shell(&image, "$N tar -c $i:/ > t; $N mkfs -q -b 1024 -d t other 64m");
    assert_eq!(diff(&image, &["IMAGE", "DIR/other"]), equal);
}

#[test]
fn each_change_is_named() {
    let image = made();
    let changes = [
        ("$N chmod 640 b:/f", "/d/g: mode 0644, 0640\n/f: mode 0644, 0640\n"),
        ("$N chown 5:6 b:/p", "/p: owner 0:0, 5:6\n"),
        ("$N touch -d @77 b:/d/e", "/d/e: times differ\n"),
        ("$N setxattr b:/p trusted.x y", "/p: attribute trusted.x differs\n"),
        ("$N rm b:/f", "only in IMAGE: /f (file)\n"),
        (
            "$N rm -r b:/d; $N mkdir b:/d",
            "only in IMAGE: /d/e (directory)\nonly in IMAGE: /d/g \
            (file)\nonly in IMAGE: /d/sparse (file)\n",
        ),
        ("$N mkdir b:/z", "only in DIR/b: /z (directory)\n"),
        ("$N rm b:/l; $N ln -s d/f b:/l", "/l: to f, to d/f\n"),
        ("$N rm b:/p; $N mknod b:/p c 1 3", "/p: fifo, character device\n"),
        ("$N truncate -s 4 b:/f", "/d/g: 5 bytes, 4 bytes\n/f: 5 bytes, 4 bytes\n"),
        (
            "cp s/long n; printf X | dd of=n bs=1 seek=70000 conv=notrunc status=none; \
            $N cp -q n b:/long",
            "/long: contents differ at byte 70000\n",
        ),
        ("$N rm b:/d/g; $N cp -q s/f b:/d/g", "/f: linked to other names\n"),
    ];
    for (line, expected) in changes {
        shell(&image, &format!("cp $i b; {line}"));
        let ignored = if expected.contains("times") { "links" } else { "times,owners" };
        let ignored = if expected.contains("owner") { "times" } else { ignored };
        let (code, said) = diff(&image, &["--ignore", ignored, "IMAGE", "DIR/b"]);
        let said = said.replace("DIR/image", "IMAGE");
        let said: Vec<_> = said.lines().filter(|line| !line.starts_with("/:")).collect();
        assert_eq!(said.join("\n") + "\n", expected, "{line}");
        assert_eq!(code, 1, "{line}");
        assert_eq!(diff(&image, &["-q", "--ignore", ignored, "IMAGE", "DIR/b"]).0, 1, "{line}");
        let (code, json) = diff(&image, &["--json", "--ignore", ignored, "IMAGE", "DIR/b"]);
        let json: serde_json::Value = serde_json::from_str(&json).unwrap();
        assert_eq!((code, json.as_array().unwrap().len()), (1, said.len()), "{line}: {json}");
        e2fs::assert_clean(&image.dir.path().join("b"));
    }
    e2fs::assert_clean(&image.path());
}

#[test]
fn what_cannot_be_compared_is_trouble() {
    let image = made();
    image.fails(&["diff", "IMAGE", "/nonexistent"], 2);
    image.fails(&["diff", "IMAGE:/none", "IMAGE"], 2);
    image.fails(&["diff", "IMAGE", "/dev/null"], 2);
    image.fails(&["diff", "IMAGE", "IMAGE:/f", "--ignore", "names"], 2);
}
