//! Recognises streams: consecutive requests that move much data.

/// Bytes of a long request: copying them takes longer than waking a core.
const LONG: usize = 512 << 10;

/// Consecutive long requests that make a stream.
const STREAM: u32 = 3;

/// A thread's last requests.
#[derive(Debug, Default)]
pub(crate) struct Stream {
    /// Long requests since the last short one.
    long: u32,
}

impl Stream {
    /// Counts a request with `bytes` in it or its answer, besides headers; whether the last
    /// requests were a stream.
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
    fn consecutive_long_requests_are_a_stream() {
        let mut stream = Stream::default();
        for _ in 0..2 {
            assert!((1..STREAM).all(|_| !stream.moved(LONG)));
            assert!(stream.moved(LONG) && stream.moved(2 * LONG) && stream.is_here());
            assert!(!stream.moved(LONG - 1) && !stream.moved(LONG));
            stream.moved(0);
        }
    }
}
