//! The words that prose avoids, and what to write instead.

/// Words that no comment, string or Markdown text may have.
pub(super) struct Phrase {
    /// The words in order, in lower case; `|` separates alternatives.
    pub(super) words: &'static str,
    pub(super) instead: &'static str,
}

const fn phrase(words: &'static str, instead: &'static str) -> Phrase {
    Phrase { words, instead }
}

/// The words that may precede "who": people, not threads.
pub(super) const PEOPLE: [&str; 12] = [
    "user",
    "users",
    "people",
    "person",
    "engineer",
    "engineers",
    "author",
    "authors",
    "maintainer",
    "maintainers",
    "developer",
    "developers",
];

const ACTOR: &str = "name the actor: the reader, the writer, the lock holder, the caller";

pub(super) const PHRASES: [Phrase; 41] = [
    phrase("whoever|whomever|whom|somebody|someone|nobody|anybody|anyone", ACTOR),
    phrase("no one", ACTOR),
    phrase("put|puts|putting off", "write: deferred"),
    phrase("settle|settles|settled|settling|unsettled", "write: complete, completed, flush"),
    phrase("file|inode alone", "write: exclusive"),
    phrase("has|have|had|holds|hold|held|take|takes|taken it|them alone", "write: exclusive"),
    phrase("asked|ask|asks for alone", "write: exclusive"),
    phrase("counted in|out and out|in", "write: the in-flight I/O count"),
    phrase("edition|editions", "write: generation, sequence number"),
    phrase("told", "write: published, passed, distinguished"),
    phrase("tells those|readers|them|others", "write: publishes to"),
    phrase("ownmutex", "write: biased lock"),
    phrase("own locks", "write: biased locks"),
    phrase("an|the own lock", "write: biased lock"),
    phrase("light|heavy barrier|barriers", "write: asymmetric barrier, its fast or slow side"),
    phrase("write|writes|written|writing|wrote home", "write: checkpoint"),
    phrase("go|goes|going|went|gone|come|comes|came home", "write: checkpoint"),
    phrase("home block|blocks|write|writes", "write: in-place block"),
    phrase("at home", "write: in place"),
    phrase("is|are|was|gate|gates sharp", "write: the name of the gate's state"),
    phrase("sharp gate|gates", "write: the name of the gate's state"),
    phrase("floors", "write: layers"),
    phrase("lower|higher|upper|own|same|a|the|its floor", "write: layer"),
    phrase("door|doors", "write: entry point"),
    phrase("house|houses", "write: module, workspace"),
    phrase("museum|museums", "write: historical designs"),
    phrase("sentry|sentries", "write: scheduling policy, watchdog"),
    phrase("scout|scouts", "write: scheduling policy, poller"),
    phrase("crew|crews", "write: worker group"),
    phrase("seat|seats", "write: worker state"),
    phrase("the|a|its lead", "write: leader"),
    phrase("way of a|the line", "write: cache-line transfer latency"),
    phrase("ways of a|the line", "write: cache-line transfer latency"),
    phrase("dear|dearer|dearest|dearness", "write: cost, cost factor, expensive"),
    phrase("crowd|crowds|crowded|crowding", "write: more than two contending cores"),
    phrase("looks again|once", "write: polls"),
    phrase("rests", "write: is idle"),
    phrase("nobody|thread|worker looks", "write: polls"),
    phrase("what is found of", "write: result"),
    phrase("what it|they makes|make of", "write: effect"),
    phrase("planted", "write: an injected bug (mutant)"),
];
