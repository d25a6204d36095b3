//! Hash tables of the standard library, hashed as it does by itself; on simulated cores with the
//! same keys each time, for what a table has given back and in which order decides where memory
//! lies that is got afterwards, and with it which lines are shared.

#[cfg(not(feature = "simulated"))]
use std::collections::hash_map::RandomState as Keys;

#[cfg(feature = "simulated")]
type Keys = std::hash::BuildHasherDefault<std::collections::hash_map::DefaultHasher>;

/// A map; by `HashMap::default()`, since `new` is only of those with keys by chance.
pub type HashMap<K, V> = std::collections::HashMap<K, V, Keys>;

/// A set, as [`HashMap`].
pub type HashSet<T> = std::collections::HashSet<T, Keys>;

#[cfg(all(test, feature = "simulated"))]
mod tests {
    use super::*;

    #[test]
    fn tables_of_the_same_are_in_the_same_order() {
        let numbers = || (0..100).collect::<HashSet<u32>>().into_iter().collect::<Vec<u32>>();
        assert_eq!(numbers(), numbers());
    }
}
