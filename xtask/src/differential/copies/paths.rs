//! Draws and shows names and paths.

use super::entry::{Spec, What};
use crate::differential::cases::Rng;

/// `above/name`.
pub(super) fn join(above: &[u8], name: &[u8]) -> Vec<u8> {
    match above.is_empty() {
        true => name.to_vec(),
        false => [above, b"/", name].concat(),
    }
}

/// Draws a name for a file of that kind. There are few names, so that trees collide. Special files
/// mostly have their own names, since a copy onto a pipe waits for its reader.
pub(super) fn name(rng: &mut Rng, what: &What) -> Vec<u8> {
    let odd: [&[u8]; 8] = [
        b"new\nline",
        b"esc\x1b[31m",
        b"\xff\xfe",
        b"-dash",
        b"\xc3\xa4 \xc3\xb6",
        b"a b",
        b"...",
        b"quote'\"\\",
    ];
    let special: [&[u8]; 3] = [b"p1", b"p2", b"p3"];
    match what {
        What::Fifo | What::Socket | What::Device(..) if rng.chance(96) => {
            rng.pick(&special).to_vec()
        }
        _ if rng.chance(12) => rng.pick(&odd).to_vec(),
        _ if rng.chance(3) => vec![b'n'; *rng.pick(&[254, 255, 100, 101])],
        _ => rng.pick(&[b"a", b"b", b"c", b"d", b"e", b"f"]).to_vec(),
    }
}

/// Draws a path for a command: of a file of `spec`, rarely of none, in one of the forms in which
/// users write paths.
pub(super) fn path(rng: &mut Rng, spec: &Spec, wanted: fn(&What) -> bool) -> Vec<u8> {
    let fitting: Vec<_> = spec.iter().filter(|entry| wanted(&entry.what)).collect();
    let (path, is_link) = match fitting.is_empty() || rng.chance(4) {
        true => (name(rng, &What::Dir), false),
        false => {
            let entry = rng.pick(&fitting);
            (entry.path.clone(), matches!(entry.what, What::Symlink(_)))
        }
    };
    // A path must not leave the image: for coreutils its root is a directory with siblings.
    let forms = if is_link { 6 } else { 40 };
    let tail: &[u8] = match rng.below(forms) {
        // Some links without a suffix, too.
        0..3 if is_link => b"",
        0..3 => b"/",
        3 => b"//",
        4..6 => b"/.",
        6 => b"/..",
        7 => return [b"./", &path[..]].concat(),
        8 => {
            let last = path.rsplit(|b| *b == b'/').next().unwrap_or_default();
            return [&path[..], b"/../", last].concat();
        }
        _ => b"",
    };
    [&path[..], tail].concat()
}

/// Quotes `word` for a shell.
pub(super) fn quoted(word: &[u8]) -> String {
    let plain = |b: &u8| b.is_ascii_alphanumeric() || b"/._-+=:,%@".contains(b);
    if !word.is_empty() && word.iter().all(plain) {
        return String::from_utf8_lossy(word).into_owned();
    }
    let text: String = word
        .iter()
        .map(|byte| match byte {
            b'\'' | b'\\' => format!("\\{}", char::from(*byte)),
            b' '..=b'~' => char::from(*byte).to_string(),
            _ => format!("\\x{byte:02x}"),
        })
        .collect();
    if word.len() > 60 {
        return format!("<{} bytes: {}...>", word.len(), &text[..20.min(text.len())]);
    }
    format!("$'{text}'")
}
