//! The JSON documents of image layouts.

use super::digest::Digest;
use super::{Result, damaged};
use serde::Deserialize;
use serde::de::DeserializeOwned;
use std::collections::HashMap;

const REF_NAME: &str = "org.opencontainers.image.ref.name";
const ATTESTATION: &str = "vnd.docker.reference.type";

/// What Docker puts before a name without a registry.
const REGISTRIES: [&str; 3] = ["docker.io/library/", "docker.io/", ""];

/// Parses a document.
pub(super) fn parse<T: DeserializeOwned>(name: &str, bytes: &[u8]) -> Result<T> {
    serde_json::from_slice(bytes).map_err(|error| damaged(name, &error.to_string()))
}

/// This machine's architecture, as Go names it.
pub(super) fn architecture() -> &'static str {
    match std::env::consts::ARCH {
        "x86_64" => "amd64",
        "x86" => "386",
        "aarch64" => "arm64",
        "powerpc64" if cfg!(target_endian = "little") => "ppc64le",
        "loongarch64" => "loong64",
        other => other,
    }
}

/// A reference to a blob.
#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Descriptor {
    #[serde(default)]
    media_type: String,
    pub(super) digest: String,
    #[serde(default)]
    annotations: HashMap<String, String>,
    platform: Option<Platform>,
}

#[derive(Clone, Debug, Deserialize)]
struct Platform {
    architecture: String,
    os: String,
}

/// `index.json`, or an index among the blobs.
#[derive(Debug, Deserialize)]
pub(super) struct Index {
    pub(super) manifests: Vec<Descriptor>,
}

/// The manifest of an image.
#[derive(Debug, Deserialize)]
pub(super) struct Manifest {
    pub(super) layers: Vec<Descriptor>,
}

/// The configuration of an image.
#[derive(Debug, Deserialize)]
pub(super) struct Config {
    pub(super) rootfs: RootFs,
}

#[derive(Debug, Deserialize)]
pub(super) struct RootFs {
    pub(super) diff_ids: Vec<String>,
}

/// An image in Docker's `manifest.json`.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "PascalCase")]
pub(super) struct DockerImage {
    pub(super) config: String,
    repo_tags: Option<Vec<String>>,
    pub(super) layers: Vec<String>,
}

impl Descriptor {
    /// The name that tools give an image of a layout.
    pub(super) fn name(&self) -> Option<&str> {
        self.annotations.get(REF_NAME).map(String::as_str)
    }

    pub(super) fn digest(&self) -> Result<Digest> {
        Digest::parse(&self.digest).map_err(|what| damaged(&self.digest, &what))
    }

    /// The blob's file in the layout.
    pub(super) fn blob_name(&self) -> Result<String> {
        let digest = self.digest()?;
        Ok(format!("blobs/{}/{}", digest.algorithm(), digest.hex()))
    }

    /// Whether the blob with these contents is an index.
    pub(super) fn is_index(&self, bytes: &[u8]) -> bool {
        let by_type =
            self.media_type.contains("image.index") || self.media_type.contains("manifest.list");
        by_type || self.media_type.is_empty() && serde_json::from_slice::<Index>(bytes).is_ok()
    }

    /// Whether it describes how another image was built.
    pub(super) fn is_attestation(&self) -> bool {
        let unknown = |one: &Platform| one.os == "unknown" || one.architecture == "unknown";
        self.annotations.contains_key(ATTESTATION) || self.platform.as_ref().is_some_and(unknown)
    }

    pub(super) fn is_for(&self, architecture: &str) -> bool {
        let is = |one: &Platform| one.os == "linux" && one.architecture == architecture;
        self.platform.as_ref().is_some_and(is)
    }
}

impl DockerImage {
    pub(super) fn tags(&self) -> impl Iterator<Item = &str> {
        self.repo_tags.iter().flatten().map(String::as_str)
    }

    /// Whether it has this tag, which may lack the parts that Docker adds: the registry, and the
    /// tag `latest`.
    pub(super) fn has_tag(&self, wanted: &str) -> bool {
        let is_it = |short: &str| matches!(short.strip_prefix(wanted), Some("" | ":latest"));
        let shortened = |tag: &str| {
            REGISTRIES.iter().filter_map(|registry| tag.strip_prefix(registry)).any(is_it)
        };
        self.tags().any(shortened)
    }
}
