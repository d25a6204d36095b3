//! Recovers a damaged journal.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| nextent_fuzz::run(nextent_fuzz::Part::Journal, data));
