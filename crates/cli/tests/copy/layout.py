"""Writes the OCI layouts `layout` and `many` of the layers 1.l, 2.l and 3.l, packed from N.tar."""

import hashlib
import json
import os

OCI = "application/vnd.oci.image."
NAME = {"org.opencontainers.image.ref.name": "web"}


def read(name):
    with open(name, "rb") as file:
        return file.read()


def write(name, document):
    with open(name, "w") as file:
        json.dump(document, file)


def blob(data, kind, **more):
    digest = hashlib.sha256(data).hexdigest()
    with open("layout/blobs/sha256/" + digest, "wb") as file:
        file.write(data)
    return {"mediaType": OCI + kind, "digest": "sha256:" + digest, "size": len(data), **more}


def document(kind, contents, **more):
    return blob(json.dumps(contents).encode(), kind, **more)


def layout(name, manifest):
    write(name + "/oci-layout", {"imageLayoutVersion": "1.0.0"})
    write(name + "/index.json", {"schemaVersion": 2, "manifests": [manifest]})


os.makedirs("layout/blobs/sha256")
numbers = (1, 2, 3)
ids = ["sha256:" + hashlib.sha256(read(f"{n}.tar")).hexdigest() for n in numbers]
packed = ["+gzip", "+zstd" if read("2.l")[:1] == b"(" else "", ""]
layers = [blob(read(f"{n}.l"), "layer.v1.tar" + packed[n - 1]) for n in numbers]
config = {"architecture": "amd64", "os": "linux", "config": {}}
config = document("config.v1+json", {**config, "rootfs": {"type": "layers", "diff_ids": ids}})
manifest = {"schemaVersion": 2, "mediaType": OCI + "manifest.v1+json"}
manifest = {**manifest, "config": config, "layers": layers}
manifest = document("manifest.v1+json", manifest, annotations=NAME)
layout("layout", manifest)

# One image for each of some machines, and an attestation.
os.makedirs("many")
os.symlink("../layout/blobs", "many/blobs")
platforms = [("linux", arch) for arch in ("amd64", "arm64", "s390x")] + [("unknown", "unknown")]
images = [{**manifest, "platform": {"os": os, "architecture": arch}} for os, arch in platforms]
layout("many", document("index.v1+json", {"schemaVersion": 2, "manifests": images}))
