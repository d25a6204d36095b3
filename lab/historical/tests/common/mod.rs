//! The designs that tests are run for.

use nextent_historical::Design;
use nextent_sync::LockKind;

/// Every preset but the default, by order where it can search by order; with `both`, those also
/// without. Their locks sleep and spin by turns.
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
