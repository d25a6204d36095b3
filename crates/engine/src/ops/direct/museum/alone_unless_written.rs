//! Linux up to 6.2: only an aligned overwrite of one run of blocks that hold data shares the file.

use super::{Lie, Rule, Way};

pub(super) static RULE: Rule = Rule { way, splits_before: true };

fn way(lie: Lie) -> Way {
    match lie {
        Lie { aligned: true, one_run: true, unwritten: false } => Way::Shared,
        Lie { aligned: false, .. } => Way::Alone,
        _ => Way::Exclusive,
    }
}
