//! Reads and changes files with damaged maps.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| nextent_fuzz::run(nextent_fuzz::Part::Maps, data));
