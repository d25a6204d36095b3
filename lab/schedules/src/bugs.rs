//! The injected bugs (mutants) that random schedules must find: the one table of them.
//!
//! The name of a bug is what the engine passes to `nextent_sync::injected`. `cargo xtask tidy`
//! checks that each name in the engine has a row here and each row a name in the engine.

/// A bug that a line of the engine can have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct InjectedBug {
    /// The name by which the engine asks for it.
    pub name: &'static str,
    /// What the engine does wrong.
    pub effect: &'static str,
}

/// All bugs, in the order in which `nextent-lab mutants` tries them.
pub const BUGS: &[InjectedBug] = &[
    bug("gate-checked-early", "a handle checks the gate before it pins its slot, not after"),
    bug("recall-unfenced", "credits leased by slots are recalled without waiting for handles"),
    bug("window-epoch-kept", "windows are revoked for lack of space, but their epoch stays"),
    bug("inode-bit-unchecked", "the bit of an inode number is not checked again under the lock"),
    bug("completion-unreserved", "the conversion after a direct write may not use reserved blocks"),
    bug("state-lock-across-start", "a thread holds an inode's state lock while it starts a handle"),
    bug("freed-too-early", "a freed block is allocated before the commit that frees it"),
    bug("orphan-forgotten", "an open file that loses its last name is not made an orphan"),
    bug("slot-forgotten", "a commit leaves out the changes of one slot"),
    bug("counter-lost-update", "the free-block counter is changed by a load and a store"),
    bug("conversion-unpublished", "a running deferred conversion is not published to readers"),
    bug("revoke-forgotten", "a freed metadata block is not revoked"),
    bug("frozen-state-forgotten", "an inode that changes during its commit does not keep a copy"),
    bug("generation-forgotten", "names change, but the generation of their directory stays"),
    bug("lost-wakeup", "a thread sleeps for a commit without a check under the waiters' lock"),
    bug("data-unflushed", "a commit writes its blocks without flushing data first"),
    bug("attributes-unvalidated", "a permission check uses an access list read during a change"),
    bug("promise-forgotten", "blocks named by a fast commit are reused in the same transaction"),
    bug("names-stay-fast", "an inode whose names changed is fast-committed"),
    bug("attributes-stay-fast", "an inode whose attributes changed is fast-committed"),
    bug("lost-blocks-stay-fast", "an inode that lost blocks is fast-committed"),
    bug("commit-during-close", "other threads commit while close empties the log"),
    bug("inode-table-unbounded", "an inode is read from a table block never initialised"),
    bug("removed-directory-listed", "an open directory that was removed is listed by its index"),
    bug("estimate-too-low", "removing a name reserves fewer credits than it uses"),
];

const fn bug(name: &'static str, effect: &'static str) -> InjectedBug {
    InjectedBug { name, effect }
}

/// The bug of that name.
#[must_use]
pub fn named(name: &str) -> Option<&'static InjectedBug> {
    BUGS.iter().find(|bug| bug.name == name)
}
