//! Compares every device with a plain vector, operation by operation.

use nextent_device::{
    BlockDevice, DeltaDevice, DevicePart, FaultDevice, FileDevice, FileOptions, MemoryDevice,
    Overlay, RecordingDevice, ScratchOverlay, SparseRanges,
};
use proptest::collection::vec;
use proptest::prelude::*;
use std::io::IoSlice;

const SIZE: u64 = 200_000;

#[derive(Clone, Debug)]
enum Op {
    Write(u64, Vec<u8>),
    Vectored(u64, Vec<Vec<u8>>),
    Zero(u64, u64),
    Read(u64, u64),
    Flush,
}

fn place() -> impl Strategy<Value = u64> {
    prop_oneof![0..SIZE + 100, (0..SIZE / 4096).prop_map(|block| block * 4096)]
}

fn length() -> impl Strategy<Value = u64> {
    prop_oneof![0..9000u64, Just(4096), Just(512), 0..70_000u64]
}

fn op() -> impl Strategy<Value = Op> {
    prop_oneof![
        (place(), length(), any::<u8>()).prop_map(|(at, len, seed)| {
            Op::Write(at, (0..len).map(|n| (n as u8).wrapping_mul(31) ^ seed).collect())
        }),
        (place(), vec(vec(any::<u8>(), 0..3000), 0..5)).prop_map(|(at, b)| Op::Vectored(at, b)),
        (place(), length()).prop_map(|(at, len)| Op::Zero(at, len)),
        (place(), length()).prop_map(|(at, len)| Op::Read(at, len)),
        Just(Op::Flush),
    ]
}

/// Runs the operations on the device and on a vector.
fn compare(device: &dyn BlockDevice, ops: &[Op]) -> Vec<u8> {
    let mut model = vec![0; SIZE as usize];
    assert_eq!(device.size(), SIZE);
    for op in ops {
        let fits = |at: u64, len: usize| at + len as u64 <= SIZE;
        match op {
            Op::Write(at, bytes) => {
                assert_eq!(device.write_at(*at, bytes).is_ok(), fits(*at, bytes.len()));
                if fits(*at, bytes.len()) {
                    model[*at as usize..*at as usize + bytes.len()].copy_from_slice(bytes);
                }
            }
            Op::Vectored(at, bufs) => {
                let all = bufs.concat();
                if fits(*at, all.len()) {
                    let slices: Vec<_> = bufs.iter().map(|buf| IoSlice::new(buf)).collect();
                    device.write_vectored_at(*at, &slices).unwrap();
                    model[*at as usize..*at as usize + all.len()].copy_from_slice(&all);
                }
            }
            Op::Zero(at, len) => {
                assert_eq!(device.write_zeroes(*at, *len).is_ok(), fits(*at, *len as usize));
                if fits(*at, *len as usize) {
                    model[*at as usize..(*at + *len) as usize].fill(0);
                }
            }
            Op::Read(at, len) => {
                let mut buf = vec![0xa5; *len as usize];
                let ok = device.read_at(*at, &mut buf).is_ok();
                assert_eq!(ok, fits(*at, buf.len()));
                if ok {
                    assert_eq!(buf, &model[*at as usize..*at as usize + buf.len()]);
                }
            }
            Op::Flush => device.flush().unwrap(),
        }
    }
    let mut all = vec![0; SIZE as usize];
    device.read_at(0, &mut all).unwrap();
    assert!(all == model, "the whole device differs from the model");
    check_sparse(device, &all);
    model
}

/// Checks that all bytes outside the data ranges are zeros.
fn check_sparse(device: &dyn BlockDevice, all: &[u8]) {
    let mut at = 0;
    for range in SparseRanges::new(device) {
        let range = range.unwrap();
        assert!(range.start >= at && range.start < range.end && range.end <= SIZE);
        assert!(all[at as usize..range.start as usize].iter().all(|&byte| byte == 0));
        at = range.end;
    }
    assert!(all[at as usize..].iter().all(|&byte| byte == 0));
}

fn new_file(dir: &tempfile::TempDir, options: FileOptions) -> FileDevice {
    FileDevice::open(dir.path().join("device"), &options.create(true).size(SIZE)).unwrap()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    #[test]
    fn a_memory_device_equals_a_vector(ops in vec(op(), 1..40)) {
        let device = MemoryDevice::new(SIZE);
        let model = compare(&device, &ops);
        prop_assert!(device.to_bytes() == model);
        let copy = device.snapshot();
        device.write_at(0, &[7; 50_000]).unwrap();
        prop_assert!(copy.to_bytes() == model);
        prop_assert!(MemoryDevice::from_bytes(&model).to_bytes() == model);
    }

    #[test]
    fn a_part_of_a_device_equals_a_vector(ops in vec(op(), 1..40), offset in 0..9000u64) {
        let whole = MemoryDevice::new(SIZE + 10_000);
        whole.write_at(0, &[9; 10_000]).unwrap();
        whole.write_at(SIZE, &[9; 10_000]).unwrap();
        whole.write_zeroes(offset, SIZE).unwrap();
        compare(&DevicePart::new(&whole, offset..offset + SIZE).unwrap(), &ops);
        let all = whole.to_bytes();
        prop_assert!(all[..offset as usize].iter().all(|byte| *byte == 9));
        prop_assert!(all[(offset + SIZE) as usize..].iter().all(|byte| *byte == 9));
    }

    #[test]
    fn a_file_device_equals_a_vector(
        ops in vec(op(), 1..40),
        offset in prop_oneof![Just(0u64), Just(1000), Just(8192)],
    ) {
        let dir = tempfile::tempdir().unwrap();
        compare(&new_file(&dir, FileOptions::new().offset(offset)), &ops);
    }

    #[test]
    fn a_direct_file_device_equals_a_vector(
        ops in vec(op(), 1..30),
        offset in prop_oneof![Just(0u64), Just(1000)],
    ) {
        let dir = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
        let options = FileOptions::new().offset(offset).direct(true).create(true).size(SIZE);
        // Some file systems refuse O_DIRECT, for example older tmpfs.
        if let Ok(device) = FileDevice::open(dir.path().join("device"), &options) {
            compare(&device, &ops);
            drop(device);
            let length = std::fs::metadata(dir.path().join("device")).unwrap().len();
            prop_assert_eq!(length, offset + SIZE);
        }
    }

    #[test]
    fn an_overlay_equals_a_vector(ops in vec(op(), 1..40)) {
        let base = MemoryDevice::new(SIZE);
        let device = Overlay::new(&base);
        let model = compare(&device, &ops);
        prop_assert_eq!(base.stats().chunks, 0);
        device.apply_to(&base).unwrap();
        prop_assert!(base.to_bytes() == model);
    }

    #[test]
    fn a_scratch_overlay_equals_a_vector(ops in vec(op(), 1..40)) {
        let base = MemoryDevice::new(SIZE);
        let device = ScratchOverlay::new(&base, tempfile::tempfile().unwrap());
        let model = compare(&device, &ops);
        prop_assert_eq!(base.stats().chunks, 0);
        // The written ranges hold all changes, and pages as a whole.
        let mut at = 0;
        while let Some(range) = device.next_written(at) {
            prop_assert!(range.start >= at && range.start.is_multiple_of(4096));
            prop_assert!(range.end.is_multiple_of(4096) || range.end == SIZE);
            let mut bytes = vec![0; (range.end - range.start) as usize];
            device.read_at(range.start, &mut bytes).unwrap();
            base.write_at(range.start, &bytes).unwrap();
            at = range.end;
        }
        prop_assert!(base.to_bytes() == model);
    }

    /// Zeros that the base has, or that were written over it.
    #[test]
    fn a_delta_equals_a_vector(ops in vec(op(), 1..40), fill in prop_oneof![Just(0), Just(9u8)]) {
        let base = MemoryDevice::new(SIZE);
        base.write_at(0, &[fill; SIZE as usize]).unwrap();
        let store = MemoryDevice::new(DeltaDevice::<MemoryDevice, MemoryDevice>::file_len(SIZE)
            .expect("it is small"));
        let device = DeltaDevice::create(&base, &store, vec![0]).unwrap();
        if fill > 0 {
            device.write_zeroes(0, SIZE).unwrap();
        }
        let model = compare(&device, &ops);
        device.flush().unwrap();
        drop(device);
        let mut device = DeltaDevice::open(&base, &store).unwrap();
        let mut all = vec![0; SIZE as usize];
        device.read_at(0, &mut all).unwrap();
        prop_assert!(all == model);
        prop_assert!(base.to_bytes().iter().all(|byte| *byte == fill));
        device.commit().unwrap();
        prop_assert!(base.to_bytes() == model);
    }

    #[test]
    fn a_recording_device_equals_a_vector(ops in vec(op(), 1..40)) {
        let faulty = FaultDevice::new(MemoryDevice::new(SIZE), 1);
        let device = RecordingDevice::over(faulty, MemoryDevice::new(SIZE));
        let model = compare(&device, &ops);
        prop_assert!(device.image_at(device.events()).to_bytes() == model);
    }
}

#[test]
fn a_saved_device_loads_unchanged() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("image");
    let device = MemoryDevice::new(1 << 40);
    device.write_at(5, b"hello").unwrap();
    device.write_at((1 << 40) - 7, b"the end").unwrap();
    assert_eq!(device.stats().chunks, 2);
    device.save(&path).unwrap();
    let again = MemoryDevice::load(&path).unwrap();
    let mut buf = [0; 7];
    again.read_at((1 << 40) - 7, &mut buf).unwrap();
    assert_eq!(&buf, b"the end");
    assert_eq!(again.size(), 1 << 40);
    assert!(again.stats().chunks <= 2);
}
