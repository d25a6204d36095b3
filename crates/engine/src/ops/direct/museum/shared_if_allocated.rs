//! Linux 6.3, the seed's change: an aligned overwrite of one run of allocated blocks shares the
//! file, unwritten or not.

use super::{Lie, Rule, Way};

pub(super) static RULE: Rule = Rule { way, splits_before: true };

fn way(lie: Lie) -> Way {
    match lie {
        Lie { aligned: true, one_run: true, .. } => Way::Shared,
        Lie { aligned: false, .. } => Way::Alone,
        _ => Way::Exclusive,
    }
}
