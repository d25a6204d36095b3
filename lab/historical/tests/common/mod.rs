//! The designs under test.

use nextent_historical::Design;
use nextent_sync::LockKind;

/// Every preset but the default. Those that can search by order do; with `both` they are also
/// returned with that option off. Their locks sleep and spin alternately.
pub(crate) fn presets(both: bool) -> Vec<Design> {
    let presets = Design::all().iter().filter(|design| **design != Design::default());
    let variants = presets.flat_map(|design| {
        let with = |option| Design::named(&format!("{design}/{option}")).unwrap();
        match design.choices() {
            [] => vec![*design],
            _ if both => vec![with("s0"), with("s1")],
            _ => vec![with("s1")],
        }
    });
    let kinds = [LockKind::Sleep, LockKind::Spin].into_iter().cycle();
    variants.zip(kinds).map(|(design, kind)| design.with_locks(kind)).collect()
}
