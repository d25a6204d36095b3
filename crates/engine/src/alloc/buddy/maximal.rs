//! Searches by order. Only replacement allocators and tests use them.

use super::{Buddy, LEVELS};
use nextent_num::{low_half, must_fit, to_u64};
use nextent_sync::{computes, reads};

impl Buddy {
    /// A free chunk of `1 << order` clusters, in a maximal buddy of the lowest order possible.
    #[cfg(test)]
    pub fn find_chunk(&self, order: usize) -> Option<u32> {
        (order..LEVELS).find_map(|at| self.find_maximal(at).map(|i| i << at))
    }

    /// A free chunk of `order` whose parent is not free.
    pub fn find_maximal(&self, order: usize) -> Option<u32> {
        let parents = self.counts.get(order + 1).copied().unwrap_or(0);
        if self.counts[order] <= 2 * parents {
            return None;
        }
        let level = self.level(order);
        let above = if order + 1 < LEVELS { self.level(order + 1) } else { &[] };
        for (word, &free) in level.iter().enumerate() {
            if free == 0 {
                continue;
            }
            let half = above.get(word / 2).copied().unwrap_or(0) >> (32 * (word % 2));
            let maximal = free & !doubled(low_half(half));
            if maximal != 0 {
                // Instructions by callgrind: 4 for each word, 22 for each order without a chunk.
                // The sum is about 12 for each word.
                computes(12 * (to_u64(word) + 1));
                reads(&level[..=word]);
                return Some(must_fit::<u32, _>(word) * 64 + maximal.trailing_zeros());
            }
        }
        None
    }
}

/// Copies bit `i` to bits `2i` and `2i + 1`.
fn doubled(half: u32) -> u64 {
    let mut x = u64::from(half);
    x = (x | x << 16) & 0x0000_ffff_0000_ffff;
    x = (x | x << 8) & 0x00ff_00ff_00ff_00ff;
    x = (x | x << 4) & 0x0f0f_0f0f_0f0f_0f0f;
    x = (x | x << 2) & 0x3333_3333_3333_3333;
    x = (x | x << 1) & 0x5555_5555_5555_5555;
    x | x << 1
}
