//! A caller's function that learns of damage.

use std::fmt;

use nextent_sync::Arc;

use crate::error::Error;

type Function = dyn Fn(&Error) + Send + Sync;

/// Called with each error that reports damage, in the thread that found it. The thread may hold
/// locks of files, so the function must not call the volume.
#[derive(Clone, Default)]
pub(crate) struct DamageObserver(Option<Arc<Function>>);

impl DamageObserver {
    pub(crate) fn new(function: impl Fn(&Error) + Send + Sync + 'static) -> Self {
        Self(Some(Arc::new(function)))
    }

    pub(crate) fn observe(&self, error: &Error) {
        if let Some(function) = &self.0 {
            function(error);
        }
    }
}

impl fmt::Debug for DamageObserver {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("DamageObserver").field(&self.0.is_some()).finish()
    }
}
