//! Images of containers: the layers of an OCI layout, in a directory or an archive, or of an
//! archive of Docker.
//!
//! | file | job |
//! |---|---|
//! | `store` | opens blobs by their name, in a directory or a tar file |
//! | `format` | the JSON documents |
//! | `digest` | digests, and readers that check them |
//! | this | chooses a manifest, and lists its layers |
//!
//! Formats: OCI image specification 1.1 (image-layout.md, image-index.md, manifest.md); for
//! archives of Docker, `manifest.json` as `docker save` writes it. Every document and layer that
//! has a digest is checked against it. A document of more than 4 MiB is refused, as registries do.

mod digest;
mod format;
mod store;

use self::digest::{Checked, Digest};
use self::format::{Config, Descriptor, DockerImage, Index, Manifest};
use self::store::Store;
use crate::escape;
use nextent_num::to_u64;
use nextent_sync::Arc;
use std::fmt;
use std::io::{self, Read};
use std::path::Path;

/// The most bytes of a document.
const DOCUMENT_MAX: u64 = 4 << 20;
/// The most indexes below each other.
const NESTING: usize = 4;

/// Why an image cannot be used.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum LayoutError {
    /// A file cannot be read.
    #[error("{name}: {source}")]
    Io {
        /// Its name in the layout.
        name: String,
        /// The system's error.
        source: io::Error,
    },
    /// There is no image of a container.
    #[error("is neither an OCI layout nor an archive of Docker (no index.json, no manifest.json)")]
    Foreign,
    /// A document is not what the format says.
    #[error("{name}: {what}")]
    Damaged {
        /// Its name in the layout.
        name: String,
        /// What is wrong.
        what: String,
    },
    /// No image has the name, or several images could be meant.
    #[error("{what}; there are: {}", names.join(", "))]
    Choice {
        /// What is missing.
        what: String,
        /// The names that can be given.
        names: Vec<String>,
    },
}

type Result<T> = std::result::Result<T, LayoutError>;

/// A layer, which can be read again and again.
pub(crate) struct Blob {
    store: Arc<Store>,
    name: String,
    digest: Digest,
    /// Whether the digest is that of the unpacked bytes.
    of_unpacked: bool,
}

impl Blob {
    /// Its name, for messages.
    pub(crate) fn shown(&self) -> String {
        escape::name(self.name.as_bytes())
    }

    /// Reads it. The digest is compared when `read` has returned.
    pub(crate) fn read<R>(&self, read: impl FnOnce(&mut dyn Read) -> R) -> io::Result<R> {
        let input = self.store.open(&self.name)?;
        if self.of_unpacked {
            let mut input = Checked::new(crate::packed::Unpacked::new(input)?, &self.digest);
            let done = read(&mut input);
            return input.finish().map(|()| done);
        }
        let mut input = Checked::new(input, &self.digest);
        let done = read(&mut input);
        input.finish().map(|()| done)
    }
}

impl fmt::Debug for Blob {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Blob").field("name", &self.name).finish_non_exhaustive()
    }
}

/// The layers of the image at `path`, the lowest first. Without `reference` there must be one
/// image, or one for this machine's architecture.
///
/// # Errors
///
/// [`LayoutError`].
pub(crate) fn layers(path: &Path, reference: Option<&str>) -> Result<Vec<Blob>> {
    let store = Arc::new(Store::at(path)?);
    if store.has("index.json") {
        return of_layout(&store, reference);
    }
    if store.has("manifest.json") {
        return of_docker(&store, reference);
    }
    Err(LayoutError::Foreign)
}

fn of_layout(store: &Arc<Store>, reference: Option<&str>) -> Result<Vec<Blob>> {
    let index: Index = format::parse("index.json", &document(store, "index.json", None)?)?;
    let mut chosen = choose_by_name(&index.manifests, reference)?;
    for _ in 0..NESTING {
        let name = chosen.blob_name()?;
        let bytes = document(store, &name, Some(chosen.digest()?))?;
        if !chosen.is_index(&bytes) {
            let manifest: Manifest = format::parse(&name, &bytes)?;
            return manifest.layers.iter().map(|layer| blob(store, layer)).collect();
        }
        let index: Index = format::parse(&name, &bytes)?;
        chosen = choose_by_platform(&index.manifests)?;
    }
    Err(damaged("index.json", "indexes are nested too deeply"))
}

fn blob(store: &Arc<Store>, layer: &Descriptor) -> Result<Blob> {
    let name = layer.blob_name()?;
    if !store.has(&name) {
        return Err(damaged(
            &name,
            "this layer is missing; images with foreign layers are incomplete",
        ));
    }
    let digest = layer.digest()?;
    Ok(Blob { store: Arc::clone(store), name, digest, of_unpacked: false })
}

/// The manifest with a name; without one, the only image.
fn choose_by_name(all: &[Descriptor], reference: Option<&str>) -> Result<Descriptor> {
    let names = || all.iter().filter_map(Descriptor::name).map(str::to_owned).collect::<Vec<_>>();
    let Some(wanted) = reference else {
        return match all {
            [only] => Ok(only.clone()),
            _ => choose_by_platform(all).map_err(|_| {
                let what = "it has several images; give the name of one (PATH:NAME)".to_owned();
                LayoutError::Choice { what, names: names() }
            }),
        };
    };
    let named = |one: &&Descriptor| one.name() == Some(wanted) || one.digest == wanted;
    all.iter().find(named).cloned().ok_or_else(|| LayoutError::Choice {
        what: format!("no image is called {}", escape::name(wanted.as_bytes())),
        names: names(),
    })
}

/// The only image for Linux on this machine's architecture; without platforms, the only image.
fn choose_by_platform(all: &[Descriptor]) -> Result<Descriptor> {
    let images: Vec<_> = all.iter().filter(|one| !one.is_attestation()).collect();
    if let [only] = images[..] {
        return Ok(only.clone());
    }
    let mut here = images.iter().filter(|one| one.is_for(format::architecture()));
    match (here.next(), here.next()) {
        (Some(only), None) => Ok((*only).clone()),
        _ => Err(LayoutError::Choice {
            what: format!("no single image is for linux/{}", format::architecture()),
            names: images.iter().map(|one| one.digest.clone()).collect(),
        }),
    }
}

fn of_docker(store: &Arc<Store>, reference: Option<&str>) -> Result<Vec<Blob>> {
    let bytes = document(store, "manifest.json", None)?;
    let images: Vec<DockerImage> = format::parse("manifest.json", &bytes)?;
    let names = || images.iter().flat_map(|image| image.tags()).map(str::to_owned).collect();
    let image = match (reference, &images[..]) {
        (None, [only]) => only,
        (Some(wanted), all) if all.iter().any(|image| image.has_tag(wanted)) => {
            all.iter().find(|image| image.has_tag(wanted)).expect("one has it")
        }
        (Some(wanted), _) => {
            let what = format!("no image is called {}", escape::name(wanted.as_bytes()));
            return Err(LayoutError::Choice { what, names: names() });
        }
        (None, _) => {
            let what = "it has several images; give the name of one (PATH:NAME)".to_owned();
            return Err(LayoutError::Choice { what, names: names() });
        }
    };
    let config = store.resolve(&image.config)?;
    let config: Config = format::parse(&config, &document(store, &config, None)?)?;
    if config.rootfs.diff_ids.len() != image.layers.len() {
        return Err(damaged(&image.config, "it has another number of layers than manifest.json"));
    }
    let pairs = image.layers.iter().zip(&config.rootfs.diff_ids);
    let layers = pairs.map(|(name, digest)| {
        let digest = Digest::parse(digest).map_err(|what| damaged(&image.config, &what))?;
        let name = store.resolve(name)?;
        Ok(Blob { store: Arc::clone(store), name, digest, of_unpacked: true })
    });
    layers.collect()
}

/// A small file, whose digest is checked.
fn document(store: &Store, name: &str, digest: Option<Digest>) -> Result<Vec<u8>> {
    let io = |source| LayoutError::Io { name: escape::name(name.as_bytes()), source };
    let mut bytes = Vec::new();
    store.open(name).map_err(io)?.take(DOCUMENT_MAX + 1).read_to_end(&mut bytes).map_err(io)?;
    if to_u64(bytes.len()) > DOCUMENT_MAX {
        return Err(damaged(name, "a document of more than 4 MiB"));
    }
    if let Some(digest) = digest {
        let mut checked = Checked::new(&bytes[..], &digest);
        checked.finish().map_err(io)?;
    }
    Ok(bytes)
}

fn damaged(name: &str, what: &str) -> LayoutError {
    LayoutError::Damaged { name: escape::name(name.as_bytes()), what: what.to_owned() }
}
