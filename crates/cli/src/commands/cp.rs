//! `cp`: into, out of, between and within images.
//!
//! This decides, as cp(1) does, which source goes to which target. [`nextent_image::transfer`]
//! copies.

use crate::failure::{Failure, Result};
use crate::faked;
use crate::image::{Image, Purpose, at, cred};
use crate::location::{Inside, Location};
use crate::progress::Progress;
use crate::scope::Scope;
use crate::show;
use crate::target::ImageSpec;
use nextent::inodes::{InodeNo, Inodes, ROOT_INO};
use nextent::{Error, FileType};
use nextent_image::EntryError;
use nextent_image::transfer::{
    FileId, HostDir, HostNode, HostSink, HostSource, ImageDir, ImageNode, ImageSink, ImageSource,
    Kind, Links, Meta, PART, Report, Sink, Source, Tree, host_id,
};
use nextent_num::to_u64;
use std::collections::{HashMap, HashSet};
use std::ffi::OsString;
use std::fs::Metadata;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

/// Copy into, out of, between or within images; either side may be IMAGE:/PATH
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Copy directories and their contents
    #[arg(short, short_alias = 'R', long)]
    recursive: bool,
    /// Keep owner, mode, times, attributes and access lists
    #[arg(short, long)]
    preserve: bool,
    /// Same as -r -p, and keep hard links
    #[arg(short, long)]
    archive: bool,
    /// Show no progress
    #[arg(short, long)]
    quiet: bool,
    /// Threads that copy
    #[arg(long, value_name = "N", hide = true)]
    threads: Option<usize>,
    /// Sources, then the target
    #[arg(required = true, num_args = 2.., value_name = "PATH")]
    paths: Vec<OsString>,
}

impl Args {
    fn recursive(&self) -> bool {
        self.recursive || self.archive
    }

    fn preserve(&self) -> bool {
        self.preserve || self.archive
    }
}

/// An open image and its identity.
struct OpenImage<'v> {
    spec: ImageSpec,
    /// The host's file.
    id: Option<FileId>,
    volume: &'v Inodes,
    name: String,
    /// Takes the place of a host's device number.
    tag: u64,
}

/// Where sources are copied to.
struct Target<T: Sink> {
    sink: T,
    /// `DST` if it is a directory, else its parent.
    dir: T::Dir,
    /// The name of `DST` in `dir`, unless it is a directory.
    name: Option<Vec<u8>>,
    /// The end of `DST` if it is a symbolic link: a file is written there, as by cp(1).
    link: Option<LinkEnd<T::Dir>>,
    /// `DST` ends in a slash: it must be a directory.
    slash: bool,
}

/// The end of a chain of symbolic links.
pub(super) enum LinkEnd<D> {
    /// A file, by its directory and name.
    File(D, Vec<u8>),
    /// Nothing.
    Dangling,
}

impl LinkEnd<ImageDir> {
    /// Whether it is the name `place`.
    pub(super) fn is(&self, place: (InodeNo, &[u8])) -> bool {
        matches!(self, Self::File(dir, name) if (dir.0, &name[..]) == place)
    }
}

/// One source and its name in the target.
struct Item<N> {
    node: N,
    meta: Meta,
    /// Its own name; none when only its contents are copied.
    name: Option<Vec<u8>>,
    /// The parent directory of that name.
    dir: Option<FileId>,
    /// The file that it leads to, if it is a symbolic link that is copied as a link.
    end: Option<FileId>,
}

/// `nextent cp`.
///
/// # Errors
/// A failure without a message, if a file could not be copied.
pub(crate) fn run(args: &Args, scope: Scope<'_>) -> Result<()> {
    match scope {
        Scope::EachPath => between_places(args),
        Scope::Open { volume, root } => into_volume(args, volume, root),
    }
}

/// Copies sources of the host into an open volume.
fn into_volume(args: &Args, volume: &Inodes, root: &Inside) -> Result<()> {
    let scope = Scope::Open { volume, root };
    let (shown, sources) = args.paths.split_last().expect("clap asks for two paths at least");
    let inside = scope.inside(shown)?;
    let places: Vec<_> =
        sources.iter().map(|source| (source, Location::Host(source.into()))).collect();
    let (spec, id) = (root.image.clone(), image_id(&root.image.host_file()));
    let name = spec.to_string();
    let images = [OpenImage { spec, id, volume, name, tag: u64::MAX }];
    let progress = Progress::new("cp", show::path(shown), args.quiet);
    let report = Report::new(&progress);
    let job = Copy { args, places: &places, images: &images, report: &report };
    job.copy_in(&images[0], &inside)?;
    if report.failed() { Err(Failure::reported(1)) } else { Ok(()) }
}

/// Copies between the host and images.
fn between_places(args: &Args) -> Result<()> {
    let mut places: Vec<(&OsString, Location)> = Vec::new();
    for path in &args.paths {
        places.push((path, Location::parse(path)?));
    }
    if places.iter().all(|(_, place)| matches!(place, Location::Host(_))) {
        let text = "cp: no path is inside an image (IMAGE:/PATH); use cp(1)";
        return Err(Failure::usage(text));
    }
    let (shown, target) = places.pop().expect("clap asks for two paths at least");
    let opened = open(&target, &places)?;
    let images: Vec<OpenImage<'_>> = opened.iter().map(OpenedImage::borrow).collect();
    let progress = Progress::new("cp", show::path(shown), args.quiet);
    let report = Report::new(&progress);
    let job = Copy { args, places: &places, images: &images, report: &report };
    let done = match &target {
        Location::Host(path) => job.host_target(path).map(|target| job.all(&target, None)),
        Location::Image(inside) => {
            find(&images, &inside.image).and_then(|opened| job.copy_in(opened, inside))
        }
    };
    let failed = report.failed();
    drop(progress);
    // Close all images, also after an error.
    let closed: Vec<_> = opened.into_iter().map(|opened| opened.image.close()).collect();
    done?;
    closed.into_iter().collect::<Result<()>>()?;
    if failed { Err(Failure::reported(1)) } else { Ok(()) }
}

/// An image that this command has opened.
struct OpenedImage {
    spec: ImageSpec,
    id: Option<FileId>,
    image: Image,
    name: String,
    tag: u64,
}

impl OpenedImage {
    fn borrow(&self) -> OpenImage<'_> {
        let Self { spec, id, image, name, tag } = self;
        let (spec, name, volume) = (spec.clone(), name.clone(), &image.volume);
        OpenImage { spec, id: *id, volume, name, tag: *tag }
    }
}

fn image_id(path: &Path) -> Option<FileId> {
    std::fs::metadata(path).ok().map(|meta| host_id(&meta))
}

fn find<'i, 'v>(images: &'i [OpenImage<'v>], spec: &ImageSpec) -> Result<&'i OpenImage<'v>> {
    let opened = images.iter().find(|opened| opened.spec.is_same(spec));
    opened.ok_or_else(|| Failure::new(format!("{spec}: disappeared")))
}

/// Opens every image once: the target's for changes, others for reading.
fn open(target: &Location, places: &[(&OsString, Location)]) -> Result<Vec<OpenedImage>> {
    let mut images: Vec<OpenedImage> = Vec::new();
    let target = std::iter::once((target, Purpose::Change));
    let sources = places.iter().map(|(_, place)| (place, Purpose::Read));
    for (place, purpose) in target.chain(sources) {
        let Location::Image(inside) = place else { continue };
        if images.iter().any(|opened| opened.spec.is_same(&inside.image)) {
            continue;
        }
        let image = Image::open(&inside.image, purpose)?;
        let (id, spec) = (image_id(&inside.image.host_file()), inside.image.clone());
        let tag = u64::MAX - to_u64(images.len());
        let name = spec.to_string();
        images.push(OpenedImage { spec, id, image, name, tag });
    }
    Ok(images)
}

/// A run of the command.
struct Copy<'a> {
    args: &'a Args,
    /// Sources: the arguments and their meanings.
    places: &'a [(&'a OsString, Location)],
    images: &'a [OpenImage<'a>],
    report: &'a Report<'a>,
}

/// The sources that were copied into the target directory.
#[derive(Default)]
struct Seen {
    /// By its own name, the last file that is no directory, and its parent.
    files: HashMap<Vec<u8>, (FileId, Option<FileId>)>,
    /// Directories. Without a name only its contents were copied.
    dirs: HashSet<(Option<Vec<u8>>, FileId)>,
}

/// Whether a source was copied before.
enum Repeated {
    No,
    Same,
    /// Another file has its name.
    Other,
}

impl Seen {
    /// Whether the source `name` in the directory `dir` was copied before.
    fn repeats(&self, name: Option<&[u8]>, meta: &Meta, dir: Option<FileId>) -> Repeated {
        if meta.kind == Kind::Dir {
            return match self.dirs.contains(&(name.map(<[u8]>::to_vec), meta.id)) {
                true => Repeated::Same,
                false => Repeated::No,
            };
        }
        let Some(name) = name else { return Repeated::No };
        match self.files.get(name) {
            Some(before) if dir.is_some() && *before == (meta.id, dir) => Repeated::Same,
            None if !self.dirs.iter().any(|(other, _)| other.as_deref() == Some(name)) => {
                Repeated::No
            }
            _ => Repeated::Other,
        }
    }

    fn add(&mut self, name: Option<Vec<u8>>, is_dir: bool, id: FileId, dir: Option<FileId>) {
        match (is_dir, name) {
            (true, name) => {
                self.dirs.insert((name, id));
            }
            (false, Some(name)) => {
                self.files.insert(name, (id, dir));
            }
            (false, None) => {}
        }
    }
}

/// The image that is written, and the directory in it that receives the copies.
type Into<'a> = Option<(u64, &'a Inodes, InodeNo)>;

impl Copy<'_> {
    fn host_target(&self, path: &Path) -> Result<Target<HostSink>> {
        if self.args.preserve() {
            faked::check().map_err(|why| Failure::new(format!("cp {}: {why}", path.display())))?;
        }
        let sink = HostSink::new(self.args.preserve(), self.in_use());
        let sink = sink.parting_names(self.args.archive);
        let slash = path.as_os_str().as_bytes().ends_with(b"/");
        match std::fs::metadata(path) {
            Ok(meta) if meta.is_dir() => {
                return Ok(Target {
                    sink,
                    dir: HostSink::dir(path),
                    name: None,
                    link: None,
                    slash,
                });
            }
            Ok(_) if self.places.len() > 1 => return Err(self.no_dir(&show::path(path))),
            Err(_) if self.places.len() > 1 => return Err(self.no_dir(&show::path(path))),
            _ => {}
        }
        let split = |path: &Path| -> Result<(HostDir, Vec<u8>)> {
            // A path that ends in `.` or `..` names a directory. The standard library drops a
            // final `.`.
            let has_name = own_name(path.as_os_str().as_bytes()).0.is_some();
            let name = path.file_name().filter(|_| has_name);
            let name = name.ok_or_else(|| self.no_dir(&show::path(path)))?;
            let parent = path.parent().filter(|p| !p.as_os_str().is_empty());
            let parent = parent.unwrap_or_else(|| Path::new("."));
            if !parent.is_dir() {
                return Err(self.no_dir(&show::path(parent)));
            }
            Ok((HostSink::dir(parent), name.as_bytes().to_vec()))
        };
        let parted = |meta: &Metadata| self.args.archive && !meta.is_dir() && meta.nlink() > 1;
        let is_link = std::fs::symlink_metadata(path).is_ok_and(|meta| meta.is_symlink())
            && !std::fs::metadata(path).is_ok_and(|end| parted(&end));
        let link = match is_link.then(|| std::fs::canonicalize(path)) {
            None => None,
            // Only the system can follow this link, as /dev/stdout to a pipe.
            Some(Ok(end)) if end.exists() => {
                let (dir, name) = split(&end)?;
                Some(LinkEnd::File(dir, name))
            }
            Some(_) if path.exists() => Some(LinkEnd::File(HostSink::opened(path), b"-".to_vec())),
            Some(_) => Some(LinkEnd::Dangling),
        };
        let (dir, name) = split(path)?;
        Ok(Target { sink, dir, name: Some(name), link, slash })
    }

    /// Copies all sources to a path of an open image.
    fn copy_in(&self, opened: &OpenImage<'_>, inside: &Inside) -> Result<()> {
        let target = self.image_target(opened, inside)?;
        self.all(&target, Some((opened.tag, opened.volume, target.dir.0)));
        Ok(())
    }

    fn image_target<'v>(
        &self,
        opened: &OpenImage<'v>,
        inside: &Inside,
    ) -> Result<Target<ImageSink<'v>>> {
        let volume = opened.volume;
        let sink = ImageSink::new(volume, opened.tag, self.args.preserve());
        let sink = sink.parting_names(self.args.archive);
        let slash = inside.path.ends_with(b"/");
        match volume.resolve(&cred(), &inside.path, true) {
            Ok(attr) if attr.kind == FileType::Directory => {
                let dir = ImageDir(attr.ino);
                return Ok(Target { sink, dir, name: None, link: None, slash });
            }
            Ok(_) | Err(Error::NotFound | Error::NotDir) if self.places.len() > 1 => {
                return Err(self.no_dir(inside));
            }
            Ok(_) | Err(Error::NotFound) => {}
            Err(error) => return at("cp", inside, Err(error)),
        }
        let found = volume.resolve_parent(&cred(), &inside.path);
        let (parent, name) = at("cp", inside, found)?;
        let link = at("cp", inside, link_end(volume, parent, name, self.args.archive))?;
        let (dir, name) = (ImageDir(parent), Some(name.to_vec()));
        Ok(Target { sink, dir, name, link, slash })
    }

    fn no_dir(&self, shown: &dyn std::fmt::Display) -> Failure {
        Failure::new(format!("cp {shown}: is not a directory"))
    }

    /// The image files that are open.
    fn in_use(&self) -> Vec<FileId> {
        self.images.iter().filter_map(|opened| opened.id).collect()
    }

    /// Copies the sources one after the other, so the last one wins.
    fn all<T: Sink>(&self, target: &Target<T>, into: Into<'_>) {
        let mut seen = Seen::default();
        let host = HostSource::new(self.args.preserve(), self.in_use());
        let host_links = Links::new();
        let images: Vec<_> = self
            .images
            .iter()
            .map(|opened| {
                let (volume, preserve) = (opened.volume, self.args.preserve());
                let source = ImageSource::new(volume, &opened.name, opened.tag, preserve);
                (opened, source, Links::new())
            })
            .collect();
        for (shown, place) in self.places {
            if self.report.stopped() {
                return;
            }
            match place {
                Location::Host(path) => {
                    if let Some(item) = self.accept(shown, self.host_item(&host, path)) {
                        self.one(&host, &host_links, target, item, &mut seen);
                    }
                }
                Location::Image(inside) => {
                    let is_it = |opened: &OpenImage<'_>| opened.spec.is_same(&inside.image);
                    let found = images.iter().find(|(opened, ..)| is_it(opened));
                    let Some((opened, source, links)) = found else { continue };
                    let item = self.image_item(source, opened, inside, into);
                    if let Some(item) = self.accept(shown, item) {
                        self.one(source, links, target, item, &mut seen);
                    }
                }
            }
        }
    }

    fn accept<N>(
        &self,
        shown: &OsString,
        found: std::result::Result<Item<N>, EntryError>,
    ) -> Option<Item<N>> {
        let checked = found.and_then(|item| match item.meta.kind {
            Kind::Dir if !self.args.recursive() => {
                Err(EntryError::new("is a directory; -r copies it"))
            }
            Kind::Dir | Kind::File => Ok(item),
            _ if !self.args.recursive() => {
                Err(EntryError::new("is not a regular file; -r copies it as it is"))
            }
            _ => Ok(item),
        });
        let report = |trouble: EntryError| self.report.fail(&show::path(shown), &trouble.mild());
        checked.map_err(report).ok()
    }

    fn host_item(
        &self,
        source: &HostSource,
        path: &Path,
    ) -> std::result::Result<Item<HostNode>, EntryError> {
        let (name, slash) = own_name(path.as_os_str().as_bytes());
        let node = match self.args.recursive() {
            true => HostNode::top(path, slash || name.is_none()),
            // As cp(1): the contents of a pipe or a device are copied.
            false => HostNode::contents(path),
        };
        let meta = source.meta(&node)?;
        if !meta.stream {
            faked::check().map_err(EntryError::new)?;
        }
        let is_link = matches!(meta.kind, Kind::Symlink(_));
        let end = is_link.then(|| std::fs::metadata(path).ok().map(|end| host_id(&end)));
        let dir = path.parent().map(|dir| if dir == Path::new("") { Path::new(".") } else { dir });
        let dir = dir.and_then(|dir| std::fs::metadata(dir).ok()).map(|dir| host_id(&dir));
        Ok(Item { node, meta, name, dir, end: end.flatten() })
    }

    fn image_item(
        &self,
        source: &ImageSource<'_>,
        opened: &OpenImage<'_>,
        inside: &Inside,
        into: Into<'_>,
    ) -> std::result::Result<Item<ImageNode>, EntryError> {
        let (name, slash) = own_name(&inside.path);
        let follow = !self.args.recursive() || slash || name.is_none();
        let attr = opened.volume.resolve(&cred(), &inside.path, follow)?;
        if let Some((tag, volume, dir)) = into
            && tag == opened.tag
            && attr.kind == FileType::Directory
            && lies_in(volume, dir, attr.ino)?
        {
            return Err(EntryError::new("cannot copy a directory into itself"));
        }
        let node = ImageNode::top(attr.ino, &inside.path);
        let meta = source.meta(&node)?;
        let end = match meta.kind {
            Kind::Symlink(_) => {
                let end = opened.volume.resolve(&cred(), &inside.path, true).ok();
                end.map(|end| FileId { volume: opened.tag, ino: u64::from(end.ino.0) })
            }
            _ => None,
        };
        let dir = opened.volume.resolve_parent(&cred(), &inside.path).ok();
        let dir = dir.map(|(dir, _)| FileId { volume: opened.tag, ino: u64::from(dir.0) });
        Ok(Item { node, meta, name, dir, end })
    }

    /// Copies one source and its contents.
    fn one<S: Source, T: Sink>(
        &self,
        source: &S,
        links: &Links<S, T>,
        target: &Target<T>,
        item: Item<S::Node>,
        seen: &mut Seen,
    ) {
        let Item { node, meta, name, dir, end } = item;
        let fail = |text: &str| self.report.fail(&source.show(&node), &EntryError::new(text));
        if let Some(end) = end
            && let Some(name) = target.name.as_ref().or(name.as_ref())
            && target.sink.identity(&target.dir, name) == Some(end)
        {
            return fail("the target is the file that the link leads to");
        }
        if meta.kind != Kind::Dir && target.slash && target.name.is_some() {
            return fail("the target is not a directory");
        }
        let threads = self.args.threads.unwrap_or_else(nextent_sync::available_cores);
        // A single file needs no threads unless it is copied in parts.
        let workers = if meta.kind == Kind::Dir || meta.size > PART { threads } else { 1 };
        // As cp(1): without -a each name of a file becomes a file.
        let links = self.args.archive.then_some(links);
        let tree = Tree::new(source, &target.sink, self.report, links);
        let (mut made, failures) = (None, self.report.failures());
        if target.name.is_none() {
            match seen.repeats(name.as_deref(), &meta, dir) {
                Repeated::No => made = Some((name.clone(), meta.kind == Kind::Dir, meta.id, dir)),
                // As cp(1): a source that is named twice is not a failure.
                Repeated::Same => {
                    let note = EntryError::note("is named more than once; copied once");
                    return self.report.fail(&source.show(&node), &note);
                }
                Repeated::Other => return fail("would overwrite what was just copied"),
            }
        }
        match (&target.name, name) {
            (Some(name), _) => match &target.link {
                Some(LinkEnd::File(dir, end)) if meta.kind == Kind::File => {
                    tree.add(node, dir, end, meta);
                }
                Some(LinkEnd::Dangling) if meta.kind == Kind::File => {
                    return fail("the target is a dangling link; not written through it");
                }
                _ => tree.add(node, &target.dir, name, meta),
            },
            (None, Some(name)) => tree.add(node, &target.dir, &name, meta),
            (None, None) => tree.add_contents(node, target.dir.clone(), meta),
        }
        tree.run(workers);
        // A later source of the same name may be copied if this one failed.
        if self.report.failures() == failures
            && let Some((name, is_dir, id, dir)) = made
        {
            seen.add(name, is_dir, id, dir);
        }
    }
}

/// The end of `name` in `parent` if it is a symbolic link that a copy writes through. A link to a
/// file with several names is replaced instead if `parts`, as by cp(1) -a.
pub(super) fn link_end(
    volume: &Inodes,
    parent: InodeNo,
    name: &[u8],
    parts: bool,
) -> nextent::Result<Option<LinkEnd<ImageDir>>> {
    let (mut parent, mut name, mut link) = (parent, name.to_vec(), false);
    for _ in 0..LINKS_MAX {
        match volume.lookup(&cred(), parent, &name) {
            Ok(attr) if attr.kind == FileType::Symlink => {
                let target = volume.readlink(attr.ino)?;
                let (dir, last) = match volume.resolve_parent_from(&cred(), parent, &target) {
                    Err(Error::NotFound) => return Ok(Some(LinkEnd::Dangling)),
                    found => found?,
                };
                (parent, name, link) = (dir, last.to_vec(), true);
            }
            Ok(end) => {
                let parted = parts && end.kind != FileType::Directory && end.links > 1;
                return Ok((link && !parted).then_some(LinkEnd::File(ImageDir(parent), name)));
            }
            Err(Error::NotFound) => return Ok(link.then_some(LinkEnd::Dangling)),
            Err(error) => return Err(error),
        }
    }
    Err(Error::Loop)
}

/// The most symbolic links that are followed in a row, as in Linux.
const LINKS_MAX: usize = 40;

/// The last name of a path, none for `/`, `.` and `..`; and whether a slash follows it.
fn own_name(path: &[u8]) -> (Option<Vec<u8>>, bool) {
    let end = path.iter().rposition(|byte| *byte != b'/').map_or(0, |at| at + 1);
    let name = path[..end].rsplit(|byte| *byte == b'/').next().unwrap_or_default();
    let name = (!matches!(name, b"" | b"." | b"..")).then(|| name.to_vec());
    (name, end < path.len())
}

/// Whether `dir` is `above` or is below it.
fn lies_in(volume: &Inodes, mut dir: InodeNo, above: InodeNo) -> nextent::Result<bool> {
    // No path of ext4 is deeper than this; parents in a damaged image may form a cycle.
    for _ in 0..1 << 20 {
        if dir == above {
            return Ok(true);
        }
        if dir == ROOT_INO {
            return Ok(false);
        }
        dir = volume.lookup(&cred(), dir, b"..")?.ino;
    }
    Err(Error::Loop)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sources_have_their_last_name() {
        assert_eq!(own_name(b"a/b"), (Some(b"b".to_vec()), false));
        assert_eq!(own_name(b"a/b//"), (Some(b"b".to_vec()), true));
        assert_eq!(own_name(b"a/."), (None, false));
        assert_eq!(own_name(b".."), (None, false));
        assert_eq!(own_name(b"/"), (None, true));
    }
}
