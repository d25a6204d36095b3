//! The kernel's names of locks, for reports about historical designs.

/// The kernel's name of the lock that a lock class stands for.
#[must_use]
pub fn kernel_lock(class: &str) -> Option<&'static str> {
    let (area, name) = class.split_once('.')?;
    Some(match (area, name) {
        ("inode", "rw") => "i_rwsem",
        ("inode", "map") => "i_data_sem",
        // Locks of our own design, which has none of those below.
        ("alloc" | "cache" | "inode" | "journal" | "volume", _) => return None,
        (_, "super") => "s_lock",
        (_, "group") => "ext4_lock_group",
        (_, "md") => "s_md_lock",
        (_, "j-state" | "j-state-rw") => "j_state_lock",
        (_, "t-handle") => "t_handle_lock",
        (_, "order-list" | "order-map") => "s_mb_largest_free_orders_locks",
        (_, "locality") => "lg_mutex",
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn locks_of_historical_designs_have_kernel_names() {
        assert_eq!(kernel_lock("historical.group"), Some("ext4_lock_group"));
        assert_eq!(kernel_lock("historical.j-state-rw"), Some("j_state_lock"));
        assert_eq!(kernel_lock("inode.rw"), Some("i_rwsem"));
        assert_eq!(kernel_lock("alloc.group"), None);
        assert_eq!(kernel_lock("(atomics)"), None);
    }
}
