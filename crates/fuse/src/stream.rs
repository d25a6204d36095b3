//! Requests that move a stream.

/// Bytes from which on a request is long: copying them takes longer than waking a core.
const LONG: usize = 512 << 10;

/// Long requests one after another that make a stream.
const STREAM: u32 = 3;

/// What a thread's last requests were.
#[derive(Debug, Default)]
pub(crate) struct Stream {
    /// Long requests since the last short one.
    long: u32,
}

impl Stream {
    /// A request with `bytes` beside its header, or in its answer, is done; whether the last ones
    /// were a stream.
    pub(crate) fn moved(&mut self, bytes: usize) -> bool {
        self.long = if bytes < LONG { 0 } else { self.long.saturating_add(1) };
        self.is_here()
    }

    pub(crate) fn is_here(&self) -> bool {
        self.long >= STREAM
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_ones_in_a_row() {
        let mut stream = Stream::default();
        for _ in 0..2 {
            assert!((1..STREAM).all(|_| !stream.moved(LONG)));
            assert!(stream.moved(LONG) && stream.moved(2 * LONG) && stream.is_here());
            assert!(!stream.moved(LONG - 1) && !stream.moved(LONG));
            stream.moved(0);
        }
    }
}
