//! What a crew's threads do around each request.
//!
//! The crate that reads requests has threads of its own, so each finds its place when its first
//! request comes, and leaves it as it ends.

use std::cell::RefCell;

use nextent_sync::atomic::{AtomicUsize, Ordering};
use nextent_sync::{Arc, OnceLock};

use super::crew::Crew;
use super::follow::Follow;
use super::{Place, Sentry, Served, Shared};
use crate::stream::Stream;

/// Requests of nobody, one after another, that are not between two of a client's.
const NOBODY: u32 = 8;

thread_local! {
    /// The calling thread's.
    static MEMBER: RefCell<Option<Member>> = const { RefCell::new(None) };
}

/// Where threads of a mount find their places; nobody has one before there is a sentry.
#[derive(Clone, Default)]
pub(crate) struct Places(Arc<OnceLock<Free>>);

struct Free {
    shared: Arc<Shared>,
    next: AtomicUsize,
}

/// A thread of a crew.
struct Member {
    served: Served,
    client: u32,
    changes: u64,
    /// Requests of nobody, one after another.
    nobody: u32,
    stream: Stream,
    /// While this thread answers alone.
    follow: Option<Follow>,
}

/// A request, from before it is answered until after that: it is dropped then, and the thread
/// perhaps rests.
#[derive(Default)]
pub(crate) struct Turn {
    bytes: usize,
}

impl Places {
    /// Has the threads of a mount be of the crew that `sentry` watches.
    pub(crate) fn open(&self, sentry: &Sentry) {
        let free = Free { shared: Arc::clone(&sentry.shared), next: AtomicUsize::new(0) };
        let _ = self.0.set(free);
    }

    /// The calling thread has a request of `client`; none where nobody watches.
    pub(crate) fn turn(&self, client: u32) -> Option<Turn> {
        let free = self.0.get()?;
        MEMBER.with_borrow_mut(|member| {
            if member.is_none() {
                *member = free.member();
            }
            member.as_mut()?.begin(client);
            Some(Turn::default())
        })
    }
}

impl Free {
    fn member(&self) -> Option<Member> {
        let n = self.next.fetch_add(1, Ordering::Relaxed);
        let (client, changes, nobody) = (0, 0, 0);
        let (stream, follow) = (Stream::default(), None);
        // Past the crew's end only if threads are added.
        self.shared.cores[0].seats.get(n)?;
        let served = Place { shared: Arc::clone(&self.shared), at: (0, n) }.take();
        Some(Member { served, client, changes, nobody, stream, follow })
    }
}

impl Turn {
    /// `bytes` go with the request or its answer.
    pub(crate) fn moves(&mut self, bytes: usize) {
        self.bytes = bytes;
    }
}

impl Drop for Turn {
    fn drop(&mut self) {
        MEMBER.with_borrow_mut(|member| {
            if let Some(member) = member {
                member.end(self.bytes);
            }
        });
    }
}

impl Member {
    fn crew(&self) -> Option<&Crew> {
        self.served.shared.crew()
    }

    fn begin(&mut self, client: u32) {
        // The kernel itself is nobody: it writes times and pages back between a client's requests.
        // So is who cannot be seen from here.
        self.nobody = if client == 0 { self.nobody.saturating_add(1) } else { 0 };
        if client != self.client && (client != 0 || self.nobody > NOBODY) {
            (self.client, self.changes) = (client, self.changes + 1);
        }
        let n = self.served.at.1;
        let Some((crew, scout)) = &self.served.shared.crew else { return };
        crew.note(n).begin(self.client, self.changes);
        if !crew.is_lead(n) {
            self.follow = None;
            return;
        }
        let follow = self.follow.get_or_insert_with(|| {
            scout.keep_on(crew.anywhere());
            Follow::new()
        });
        if let Some(core) = follow.step(self.client, scout) {
            crew.as_lead(n, || follow.go(core, crew.anywhere(), scout));
        }
    }

    fn end(&mut self, bytes: usize) {
        let stream = self.stream.moved(bytes);
        self.served.one();
        if let Some(crew) = self.crew() {
            crew.note(self.served.at.1).end(stream);
            crew.rest(self.served.at.1);
        }
    }
}

impl Drop for Member {
    fn drop(&mut self) {
        if let Some(crew) = self.crew() {
            crew.close();
        }
    }
}
