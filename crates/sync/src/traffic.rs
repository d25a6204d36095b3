//! What moves with a lock, and how long it is held: what a simulation is told of.
//!
//! Code that uses much data under a lock, or computes much there, says so here, and where hardly
//! anything lies between two operations. Only a simulated build listens.

/// Says that the caller reads all of `data`.
#[inline(always)]
pub fn reads<T: ?Sized>(data: &T) {
    tell(data, false);
}

/// Says that the caller stores in all of `data`.
#[inline(always)]
pub fn writes<T: ?Sized>(data: &T) {
    tell(data, true);
}

/// Says that the caller finds the place `at` of `data` by halves: it reads an entry for each step.
#[inline(always)]
pub fn searches<T>(data: &[T], at: usize) {
    #[cfg(feature = "simulated")]
    {
        let (mut from, mut to) = (0, data.len());
        while from < to {
            let middle = from + (to - from) / 2;
            reads(&data[middle]);
            crate::sim::follows();
            if middle < at { from = middle + 1 } else { to = middle }
        }
    }
    #[cfg(not(feature = "simulated"))]
    let _ = (data, at);
}

/// Says that the caller computes about so many instructions here, without a lock or an atomic
/// among them. What nobody says is taken to be spread evenly.
#[inline(always)]
pub fn computes(instructions: u64) {
    #[cfg(feature = "simulated")]
    crate::sim::stretch(instructions);
    #[cfg(not(feature = "simulated"))]
    let _ = instructions;
}

/// As [`computes`], and nothing else lies before the next operation on a lock or an atomic: of
/// loops that are short, of which a simulated build has other code than the real one.
#[inline(always)]
pub fn computes_only(instructions: u64) {
    #[cfg(feature = "simulated")]
    crate::sim::stretch_only(instructions);
    #[cfg(not(feature = "simulated"))]
    let _ = instructions;
}

/// Sums up all of `data` by `sum`, and says so. Processors have instructions for that, so how long
/// it takes is a thing of the machine's own and not of how many instructions they are.
#[inline(always)]
pub fn sums<T>(data: &[u8], sum: impl FnOnce(&[u8]) -> T) -> T {
    reads(data);
    #[cfg(feature = "simulated")]
    return crate::sim::sum(data.len(), || sum(data));
    #[cfg(not(feature = "simulated"))]
    sum(data)
}

/// Says that where the next operations go is told by what was loaded last: none of them is begun
/// before that is there.
#[inline(always)]
pub fn leads_on() {
    #[cfg(feature = "simulated")]
    crate::sim::leads_on();
}

/// Says that the caller has just taken a lock whose line says where the data lies, that it reads
/// that now, and that none of it is begun before that line is there. Heard where lines migrate: of
/// other machines nothing of this was measured, and what a line takes there is fitted without it.
#[inline(always)]
pub fn leads_to<'d, T: ?Sized + 'd>(data: impl FnOnce() -> Option<&'d T>) {
    #[cfg(feature = "simulated")]
    if crate::sim::leads_to() {
        data().into_iter().for_each(reads);
    }
    #[cfg(not(feature = "simulated"))]
    let _ = data;
}

/// Says that the next operation on a lock or an atomic follows at once: where it decides how often
/// others come in between.
#[inline(always)]
pub fn at_once() {
    #[cfg(feature = "simulated")]
    crate::sim::at_once();
}

#[cfg(not(feature = "simulated"))]
#[inline(always)]
fn tell<T: ?Sized>(_: &T, _: bool) {}

#[cfg(feature = "simulated")]
fn tell<T: ?Sized>(data: &T, stores: bool) {
    crate::sim::traffic(std::ptr::from_ref(data).cast::<()>().addr(), size_of_val(data), stores);
}
