//! A device that fails once, or from then on, during a resize. The resize returns an error, and the
//! image is as after a power cut.

use nextent::Error;
use nextent_device::{Fault, FaultDevice, MemoryDevice, OpKind, RecordingDevice, Rule};
use nextent_sync::{Arc, Duration};
use nextent_testkit::need;

use super::crash::{Case, Change, SMALL, UNRESERVED};
use super::volume::{self, verify};

const EIO: i32 = 5;

/// Points at which the device fails, of each kind.
const POINTS: u64 = 5;

/// Resizes on a device with `rule`. Returns how often the device failed.
fn inject(case: &Case, kind: OpKind, rule: Rule) -> u64 {
    let what = format!("{}: {rule:?}", case.name);
    let recorded = RecordingDevice::new(case.device.snapshot());
    let device = Arc::new(FaultDevice::new(recorded, 1));
    device.add(rule);
    let result = case.run(device.clone());
    let struck = device.struck();
    if struck == 0 {
        result.unwrap_or_else(|error| panic!("{what}: {error}"));
        return 0;
    }
    if result.is_ok() && kind == OpKind::Read {
        // What needed the block goes on without it.
        let image = volume::with_size(device.inner().inner(), case.new * 1024);
        verify(&image, &case.before).unwrap_or_else(|text| panic!("{what}: {text}"));
        return struck;
    }
    // The check reports what it cannot read.
    let expected = match &result {
        Err(Error::Io(_) | Error::Aborted(_)) => true,
        Err(error @ Error::Corrupt(_)) => error.to_string().contains("cannot be read"),
        _ => false,
    };
    assert!(expected, "{what}: {result:?}");
    let recorded = device.inner();
    let recording = recorded.recording();
    let bare = recording.image_at(recording.stable_at(recording.events().len()));
    for (kind, image) in [("all writes", recorded.inner().snapshot()), ("stable writes", bare)] {
        case.check(&image).unwrap_or_else(|text| panic!("{what}, {kind}: {text}"));
    }
    struck
}

/// The number of operations of `kind` in a resize without faults.
fn operations(case: &Case, kind: OpKind) -> u64 {
    let device = Arc::new(FaultDevice::new(case.device.snapshot(), 1));

    device.add(Rule::on(kind, Fault::Delay(Duration::ZERO)));
    case.run(device.clone()).unwrap_or_else(|error| panic!("{}: {error}", case.name));
    device.struck()
}

fn inject_everywhere(case: &Case) {
    for kind in [OpKind::Read, OpKind::Write, OpKind::Flush] {
        let all = operations(case, kind);
        for n in 0..POINTS {
            let at = all * n / POINTS;
            let rule = Rule::on(kind, Fault::Error(EIO)).after(at);
            let rule = if n % 2 == 0 { rule.times(1) } else { rule };
            assert!(inject(case, kind, rule) > 0 || all == 0, "{}: no fault", case.name);
        }
    }
}

#[test]
fn growth_fails() {
    let args = ["-t ext4", UNRESERVED].join(" ");
    inject_everywhere(&need!(Case::new("growth", &args, Change::Groups(20))));
}

#[test]
fn shrinking_fails() {
    let args = ["-t ext4", SMALL].join(" ");
    inject_everywhere(&need!(Case::new("shrinking", &args, Change::Minimum)));
}

/// The device is smaller than the new size.
#[test]
fn a_device_that_is_too_small_is_refused() {
    let case = need!(Case::new("small device", &["-t ext4", SMALL].join(" "), Change::Groups(8)));
    let small = MemoryDevice::from_bytes(&case.device.to_bytes()[..case.old as usize * 1024]);
    let device = Arc::new(RecordingDevice::new(small));
    case.run(device.clone()).expect_err("the device ends before the new size");
    assert_eq!(device.events(), 0, "a refused resize wrote to the device");
}
