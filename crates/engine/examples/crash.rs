//! Loses power in the middle of work and recovers.
//!
//! The volume lies in memory. A copy of that memory, taken while the volume is in use, is what a
//! disk holds after a power cut.

mod support;

use std::sync::Arc;

use nextent::mkfs::{self, MkfsOptions};
use nextent::{MemoryDevice, OpenOptions};

fn main() -> support::Result<()> {
    let device = Arc::new(MemoryDevice::new(32 << 20));
    mkfs::make(&*device, &MkfsOptions::default())?;
    let volume = OpenOptions::new().open_device(device.clone())?;
    let file = volume.create_file("/ledger")?;
    for entry in 0..100_u64 {
        file.write_at(format!("entry {entry:3}\n").as_bytes(), entry * 10)?;
    }
    file.sync_all()?;
    volume.write("/later", "perhaps")?;
    let after_crash = Arc::new(device.snapshot());

    let volume = OpenOptions::new().open_device(after_crash.clone())?;
    println!("recovered: {:?}", volume.inodes().recovery());
    let ledger = volume.read_to_string("/ledger")?;
    assert_eq!(ledger.lines().count(), 100, "what was synced is there");
    println!("what was not synced exists: {}", volume.exists("/later")?);
    volume.close()?;
    drop(volume);

    let dir = tempfile::tempdir()?;
    let image = dir.path().join("recovered.img");
    after_crash.save(&image)?;
    support::check(&image)
}
