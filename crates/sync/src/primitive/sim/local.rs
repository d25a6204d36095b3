//! Values of each simulated thread.

use super::world::with;

/// A value for each simulated thread.
#[cfg_attr(not(debug_assertions), allow(dead_code))]
pub(crate) struct Local<T: 'static>(pub(crate) fn() -> T);

#[cfg_attr(not(debug_assertions), allow(dead_code))]
impl<T: 'static> Local<T> {
    /// Runs `f` on the caller's value; `Err` outside of a simulation.
    pub(crate) fn try_with<R>(&'static self, f: impl FnOnce(&T) -> R) -> Result<R, ()> {
        let key = std::ptr::from_ref(self).addr();
        let value = with(|world| {
            let locals = &mut world.me().locals;
            let at = locals.iter().position(|(local, _)| *local == key).unwrap_or_else(|| {
                locals.push((key, Box::new((self.0)())));
                locals.len() - 1
            });
            std::ptr::from_ref(&*locals[at].1)
        })
        .ok_or(())?;
        // SAFETY: the box stays where it is until its thread is gone, which is the caller's.
        let value = unsafe { &*value };
        value.downcast_ref().map(f).ok_or(())
    }
}

/// As the standard one, a value for each simulated thread.
#[cfg(debug_assertions)]
macro_rules! local {
    (static $name:ident: $type:ty = $init:expr;) => {
        static $name: $crate::primitive::local::Local<$type> =
            $crate::primitive::local::Local(|| $init);
    };
}
#[cfg(debug_assertions)]
pub(crate) use local;
