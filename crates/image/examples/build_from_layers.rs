//! Makes an image of a container's layers, without root.
//!
//!     cargo run -p nextent-image --example build_from_layers                    # two small layers
//!     cargo run -p nextent-image --example build_from_layers LAYOUT IMAGE       # an OCI layout
//!
//! All files belong to root, and a tenth of the image is free. Problems of single files are
//! printed.

use nextent::Volume;
use nextent::mkfs::{Fit, Free, MkfsOptions};
use nextent_image::{Attributes, Contents, ImageBuilder, Observer, Problem};
use std::error::Error;
use std::path::{Path, PathBuf};

struct Printer;

impl Observer for Printer {
    fn problem(&self, problem: &Problem<'_>) {
        eprintln!("{}: {}", problem.path, problem.error);
    }
}

fn main() -> Result<(), Box<dyn Error>> {
    let scratch = tempfile::tempdir()?;
    let mut args = std::env::args_os().skip(1).map(PathBuf::from);
    let (contents, image) = match (args.next(), args.next()) {
        (Some(layout), Some(image)) => (Contents::oci(layout, None)?, image),
        _ => (small_layers(scratch.path())?, scratch.path().join("root.img")),
    };
    let built = ImageBuilder::new(MkfsOptions::default())
        .contents(contents)
        .attributes(Attributes::new().owner(0, 0))
        .fit(Fit::new(Free::Percent(10.0)))
        .build(&image, &Printer)?;
    let blocks = built.geometry().blocks_count;
    println!("{}: {blocks} blocks of {} bytes", image.display(), built.geometry().block_size);

    let volume = Volume::open(&image)?;
    for entry in volume.read_dir("/")? {
        println!("  {}", entry?.path().display());
    }
    volume.close()?;
    Ok(())
}

/// A layer with two files, and one that removes the first and adds a third.
fn small_layers(dir: &Path) -> Result<Contents<'static>, Box<dyn Error>> {
    let (base, top) = (dir.join("base"), dir.join("top"));
    std::fs::create_dir_all(&base)?;
    std::fs::create_dir_all(&top)?;
    std::fs::write(base.join("old"), "removed by the next layer")?;
    std::fs::write(base.join("kept"), "in both")?;
    std::fs::write(top.join(".wh.old"), "")?;
    std::fs::write(top.join("new"), "of the second layer")?;
    Ok(Contents::layers([Contents::open(base)?, Contents::open(top)?]))
}
