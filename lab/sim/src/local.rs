//! Thread-local values of simulated threads.

use crate::simulation::with;

/// A value for each simulated thread.
pub struct Local<T: 'static>(pub fn() -> T);

impl<T: 'static> Local<T> {
    /// Runs `f` on the caller's value.
    ///
    /// # Errors
    /// Outside of a simulation there is no value.
    #[allow(clippy::result_unit_err)] // as the standard one, whose error says no more
    pub fn try_with<R>(&'static self, f: impl FnOnce(&T) -> R) -> Result<R, ()> {
        let key = std::ptr::from_ref(self).addr();
        let value = with(|sim| {
            let locals = &mut sim.me().locals;
            let at = locals.iter().position(|(local, _)| *local == key).unwrap_or_else(|| {
                locals.push((key, Box::new((self.0)())));
                locals.len() - 1
            });
            std::ptr::from_ref(&*locals[at].1)
        })
        .ok_or(())?;
        // SAFETY: the box stays where it is until its thread, which is the caller, has ended.
        let value = unsafe { &*value };
        value.downcast_ref().map(f).ok_or(())
    }
}

/// As [`std::thread_local`], a value for each simulated thread.
#[macro_export]
macro_rules! simulated_thread_local {
    (static $name:ident: $type:ty = $init:expr;) => {
        static $name: $crate::Local<$type> = $crate::Local(|| $init);
    };
}
