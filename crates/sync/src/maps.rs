//! Hash tables of the standard library, with the hash keys of the back end.

use crate::primitive::HashKeys;

/// A map. It is made by `HashMap::default()`: `new` exists for one kind of keys only.
pub type HashMap<K, V> = std::collections::HashMap<K, V, HashKeys>;

/// A set, as [`HashMap`].
pub type HashSet<T> = std::collections::HashSet<T, HashKeys>;
