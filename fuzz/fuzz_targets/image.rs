//! Opens an image changed anywhere.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| nextent_fuzz::run(nextent_fuzz::Part::Anything, data));
