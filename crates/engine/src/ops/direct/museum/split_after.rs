//! Linux 7.0: blocks that hold data need no alignment to be shared, and an unwritten extent is
//! split when it is converted, from the reserved pool; nothing is journaled before the data.

use super::{Lie, Rule, Way};

pub(super) static RULE: Rule = Rule { way, splits_before: false };

fn way(lie: Lie) -> Way {
    match lie {
        Lie { aligned: false, unwritten: true, .. } => Way::Alone,
        _ => Way::Shared,
    }
}
