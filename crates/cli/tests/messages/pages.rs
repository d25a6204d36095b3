//! The manual and the completions are complete, and accepted by the programs that read them.

use crate::shell;
use std::path::Path;

const SECTIONS: [&str; 8] =
    ["NAME", "SYNOPSIS", "DESCRIPTION", "OPTIONS", "EXIT STATUS", "FILES", "EXAMPLES", "SEE ALSO"];

fn pages(dir: &Path) -> Vec<(String, String)> {
    let mut all = Vec::new();
    for section in ["man1", "man8"] {
        for entry in std::fs::read_dir(dir.join(section)).expect("it was made").flatten() {
            let text = std::fs::read_to_string(entry.path()).expect("roff is text");
            all.push((entry.path().display().to_string(), text));
        }
    }
    all.sort();
    all
}

#[test]
fn pages_are_complete() {
    let dir = tempfile::tempdir().expect("a temporary directory");
    let dir = dir.path();
    shell(dir, "$N generate-docs .");
    let pages = pages(dir);
    assert!(pages.len() > 20, "{}", pages.len());
    for (path, text) in &pages {
        for section in SECTIONS {
            let title = text.lines().any(|line| {
                line.strip_prefix(".SH ").is_some_and(|title| title.trim_matches('"') == section)
            });
            assert!(title, "{path} has no {section}");
        }
    }
    let page = |name: &str| &pages.iter().find(|page| page.0.ends_with(name)).expect(name).1;
    let mkfs = page("nextent-mkfs.1");
    for word in ["SOURCE_DATE_EPOCH", "hash_seed=UUID", "lazy_itable_init", "metadata_csum_seed"] {
        assert!(mkfs.contains(word), "{word}");
    }
    // A synopsis has the names of values.
    assert!(mkfs.contains("\\fB\\-b\\fR\\ \\fIBYTES\\fR"), "{mkfs}");
    assert!(page("nextent-mount.1").contains("cache_size=BYTES"));
    assert!(page("nextent-fsck.1").contains("8"));
}

/// Checked by man-db and mandoc, where installed.
#[test]
fn pages_are_rendered_without_warnings() {
    let dir = tempfile::tempdir().expect("a temporary directory");
    let dir = dir.path();
    shell(dir, "$N generate-docs .");
    let said = shell(
        dir,
        "command -v man > /dev/null && for page in man1/* man8/*; do \
         MANROFFSEQ= MANWIDTH=80 man --warnings -E UTF-8 -l -Tutf8 -Z $page 2>&1 > /dev/null; \
         done; \
         command -v mandoc > /dev/null && mandoc -T lint -W error man1/* man8/*; true",
    );
    assert!(said.is_empty(), "{said}");
}

#[test]
fn completions_know_words() {
    let dir = tempfile::tempdir().expect("a temporary directory");
    let dir = dir.path();
    shell(dir, "$N generate-docs .");
    shell(
        dir,
        "for file in bash/*; do bash -n $file || exit; done; \
         ! command -v zsh > /dev/null || for file in zsh/*; do zsh -n $file || exit; done; \
         ! command -v fish > /dev/null || for file in fish/*; do fish -n $file || exit; done",
    );
    // Call the completion as bash does when a user presses the key.
    let ask = |file: &str, line: &str| {
        let words: Vec<&str> = line.split(' ').collect();
        let at = words.len() - 1;
        let quoted: Vec<String> = words.iter().map(|word| format!("'{word}'")).collect();
        let (function, before) = (words[0].to_owned(), words[at - 1]);
        shell(
            dir,
            &format!(
                ". bash/{file}; COMP_WORDS=({}); COMP_CWORD={at}; \
                 f=$(complete -p {function} | grep -o -- '-F [^ ]*' | cut -c4-); \
                 $f {function} '{}' '{before}'; printf '%s\\n' \"${{COMPREPLY[@]}}\"",
                quoted.join(" "),
                words[at]
            ),
        )
    };
    for (file, line, word) in [
        ("nextent", "nextent mkf", "mkfs"),
        ("nextent", "nextent mkfs -O 64", "64bit"),
        ("nextent", "nextent mkfs -O ^has_journal,orph", "^has_journal,orphan_file"),
        ("nextent", "nextent mkfs -E stri", "stride="),
        ("nextent", "nextent mkfs -t ext", "ext4"),
        ("nextent", "nextent mount -o ro,nor", "ro,norecovery"),
        ("mkfs.nextent", "mkfs.nextent -O 64", "64bit"),
        ("mount.fuse.nextent", "mount.fuse.nextent -o allow_", "allow_other"),
    ] {
        let offered = ask(file, line);
        assert!(offered.lines().any(|offer| offer.starts_with(word)), "{line}: {offered}");
    }
    for (shell, file) in [("zsh", "zsh/_nextent"), ("fish", "fish/nextent.fish")] {
        let text = std::fs::read_to_string(dir.join(file)).expect("it was made");
        for word in ["orphan_file", "norecovery", "hash_seed="] {
            assert!(text.contains(word), "{shell}: {word}");
        }
    }
}
