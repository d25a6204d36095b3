//! The image of a container: an OCI layout of three layers in gzip.

use crate::bench::measure::seconds;
use crate::bench::pairs::{need, text};
use crate::shell::command;
use serde_json::{Value, json};
use std::fs;
use std::path::{Path, PathBuf};

/// Layers, each with the next third of the tree's sections.
const LAYERS: usize = 3;

pub(super) struct Layout {
    pub(super) place: PathBuf,
    layers: Vec<String>,
}

impl Layout {
    /// Makes a layout in the new directory `place` from `tree`.
    pub(super) fn new(place: &Path, tree: &Path) -> Result<Self, String> {
        need("gzip")?;
        fs::create_dir_all(place.join("blobs/sha256")).map_err(|error| error.to_string())?;
        let mut layout = Self { place: place.into(), layers: Vec::new() };
        let mut sections: Vec<String> = fs::read_dir(tree)
            .map_err(|error| error.to_string())?
            .map_while(Result::ok)
            .map(|entry| entry.file_name().to_string_lossy().into_owned())
            .collect();
        sections.sort();
        let mut descriptors = Vec::new();
        for part in sections.chunks(sections.len().div_ceil(LAYERS)) {
            let packed = place.join("new");
            let mut tar = command("tar", ["-C", &text(tree), "-czf", &text(&packed)]);
            tar.args(part);
            seconds(tar)?;
            let descriptor = layout.add("application/vnd.oci.image.layer.v1.tar+gzip")?;
            descriptors.push(descriptor);
        }
        layout.layers = descriptors.iter().map(|one| layout.blob(one)).collect();
        let config = layout.document(&json!({}), "application/vnd.oci.image.config.v1+json")?;
        let manifest = json!({"schemaVersion": 2, "config": config, "layers": descriptors});
        let manifest = layout.document(&manifest, "application/vnd.oci.image.manifest.v1+json")?;
        let index = json!({"schemaVersion": 2, "manifests": [manifest]}).to_string();
        fs::write(place.join("index.json"), index).map_err(|error| error.to_string())?;
        Ok(layout)
    }

    /// Adds a document; returns its descriptor.
    fn document(&self, document: &Value, media_type: &str) -> Result<Value, String> {
        let written = fs::write(self.place.join("new"), document.to_string());
        written.map_err(|error| error.to_string())?;
        self.add(media_type)
    }

    /// Makes the file `new` a blob; returns its descriptor.
    fn add(&self, media_type: &str) -> Result<Value, String> {
        let new = self.place.join("new");
        let output = command("sha256sum", [&text(&new)]).output();
        let output = output.map_err(|error| format!("sha256sum: {error}"))?.stdout;
        let sum = String::from_utf8_lossy(&output).chars().take(64).collect::<String>();
        let size = fs::metadata(&new).map_err(|error| error.to_string())?.len();
        let descriptor =
            json!({"mediaType": media_type, "digest": format!("sha256:{sum}"), "size": size});
        fs::rename(&new, self.blob(&descriptor)).map_err(|error| error.to_string())?;
        Ok(descriptor)
    }

    /// The path of a blob.
    fn blob(&self, descriptor: &Value) -> String {
        let digest = descriptor["digest"].as_str().unwrap_or_default();
        text(&self.place.join("blobs").join(digest.replace(':', "/")))
    }

    /// Seconds to unpack the layers, one after the other, and drop the bytes.
    pub(super) fn unpack(&self) -> Result<f64, String> {
        let mut sum = 0.0;
        for layer in &self.layers {
            sum += seconds(command("sh", ["-c", "gzip -dc \"$0\" > /dev/null", layer]))?;
        }
        Ok(sum)
    }
}
