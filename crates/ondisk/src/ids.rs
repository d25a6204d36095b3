//! One type for each kind of number, so that the compiler refuses a mix-up.

use std::fmt;

macro_rules! number {
    ($(#[$doc:meta])* $name:ident, $inner:ty) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub struct $name(pub $inner);

        impl $name {
            /// The number itself.
            #[must_use]
            pub const fn get(self) -> $inner {
                self.0
            }

            /// This number plus `n`, or `None` if it does not fit.
            #[must_use]
            pub const fn checked_add(self, n: $inner) -> Option<Self> {
                match self.0.checked_add(n) {
                    Some(sum) => Some(Self(sum)),
                    None => None,
                }
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                fmt::Display::fmt(&self.0, f)
            }
        }
    };
}

number!(
    /// A block of the volume, in file system blocks from its start.
    BlockNo,
    u64
);
number!(
    /// A block of a file, in file system blocks from the file's start.
    FileBlock,
    u32
);
number!(
    /// A block group, counted from 0.
    GroupNo,
    u32
);
number!(
    /// An inode number, counted from 1. On disk, 0 means no inode.
    InodeNo,
    u32
);
number!(
    /// A transaction's sequence number. It wraps around; compare with [`Tid::is_after`].
    Tid,
    u32
);

impl Tid {
    /// Whether this transaction is later than `other`, with 32-bit wrap-around.
    #[must_use]
    pub const fn is_after(self, other: Tid) -> bool {
        (self.0.wrapping_sub(other.0) as i32) > 0
    }

    /// Whether this transaction is `other` or a later one.
    #[must_use]
    pub const fn is_at_least(self, other: Tid) -> bool {
        (self.0.wrapping_sub(other.0) as i32) >= 0
    }

    /// The next transaction.
    #[must_use]
    pub const fn next(self) -> Tid {
        Tid(self.0.wrapping_add(1))
    }
}
