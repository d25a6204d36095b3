//! Paths in trees of any depth. Files share the names of their common parents, so that a tree costs
//! memory for its names and not for its paths.

use nextent_sync::Arc;

/// The path of a file: its name, and the path of its parent.
#[derive(Debug)]
pub(crate) struct Trail {
    up: Option<Arc<Self>>,
    name: Vec<u8>,
}

impl Trail {
    /// The top of a tree, with the path `path`.
    pub(crate) fn top(path: &[u8]) -> Arc<Self> {
        Arc::new(Self { up: None, name: path.to_vec() })
    }

    /// The entry `name` of the directory `dir`.
    pub(crate) fn below(dir: &Arc<Self>, name: &[u8]) -> Arc<Self> {
        Arc::new(Self { up: Some(Arc::clone(dir)), name: name.to_vec() })
    }

    /// The last name.
    pub(crate) fn name(&self) -> &[u8] {
        &self.name
    }

    /// The whole path, with slashes between names.
    pub(crate) fn path(&self) -> Vec<u8> {
        let mut names = vec![self.name.as_slice()];
        let mut at = &self.up;
        while let Some(dir) = at {
            names.push(&dir.name);
            at = &dir.up;
        }
        let len = names.iter().map(|name| name.len() + 1).sum();
        let mut path: Vec<u8> = Vec::with_capacity(len);
        for name in names.into_iter().rev() {
            if !path.is_empty() && !path.ends_with(b"/") {
                path.push(b'/');
            }
            path.extend_from_slice(name);
        }
        path
    }
}

impl Drop for Trail {
    /// Iterative, since a tree may be deeper than the stack.
    fn drop(&mut self) {
        let mut up = self.up.take();
        while let Some(dir) = up {
            up = Arc::into_inner(dir).and_then(|mut dir| dir.up.take());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths() {
        let root = Trail::top(b"/");
        let a = Trail::below(&root, b"a");
        assert_eq!(Trail::below(&a, b"b").path(), b"/a/b");
        assert_eq!(a.path(), b"/a");
        assert_eq!(root.path(), b"/");
        assert_eq!(Trail::below(&Trail::top(b"/x/"), b"y").path(), b"/x/y");
        assert_eq!(Trail::below(&Trail::top(b""), b"y").path(), b"y");
    }

    /// A recursive drop would overflow the stack.
    #[test]
    fn a_path_of_a_million_levels_is_dropped() {
        let mut trail = Trail::top(b"/");
        for _ in 0..1_000_000 {
            trail = Trail::below(&trail, b"d");
        }
        assert_eq!(trail.path().len(), 2_000_000);
    }
}
