//! Idle groups are dropped from memory; groups in use are not.

use super::*;
use nextent_ondisk::GroupNo;

const EIGHT_GROUPS: &str = "-t ext4 -b 1024 -g 8192 -O ^has_journal";
/// A group that no test leases.
const FAR: GroupNo = GroupNo(6);

fn open(image: &Image) -> (Open, BlockRun) {
    let open = image.open();
    open.blocks.groups.set_bound(0);
    let start = BlockNo(open.geo.group_first_block(FAR).0 + 4000);
    (open, BlockRun { start, len: 10 })
}

/// Marks blocks as in use without a lease, as replay does.
fn mark(open: &Open, run: BlockRun) {
    assert_eq!(open.blocks.mark_used(&open.start(), run.start, run.len).unwrap(), run.len);
}

#[test]
fn a_group_stays_while_it_is_in_use() {
    let Some(image) = Image::make(EIGHT_GROUPS, 64) else { return };
    let (open, run) = open(&image);
    let groups = &open.blocks.groups;
    let is_there = |group| {
        open.blocks.drop_groups();
        groups.is_present(group)
    };
    assert!(open.blocks.is_free(run.start, run.len).unwrap());
    assert!(groups.is_present(FAR) && !is_there(FAR), "it is idle");

    mark(&open, run);
    assert!(is_there(FAR), "the running transaction changed it");
    open.store.sync_all().unwrap();
    assert!(!is_there(FAR), "the transaction is durable");
    assert!(!open.blocks.is_free(run.start, run.len).unwrap());

    open.free(run);
    assert!(is_there(FAR), "freed blocks are held back");
    open.store.sync_all().unwrap();
    assert!(!is_there(FAR), "the blocks are released");

    let goal = open.geo.group_first_block(GroupNo(3));
    let mut window = Window::new();
    let kind = BlockKind::Data;
    let (privilege, ino) = (Privilege::User, InodeNo(12));
    for _ in 0..2 {
        let goal = window.next.or(Some(goal));
        let request = BlockRequest { goal, want: 1, min: 1, kind, privilege, ino };
        let run = open.blocks.allocate_growing(&open.start(), &request, &mut window).unwrap();
        window.next = Some(run.end());
    }
    open.store.sync_all().unwrap();
    assert!(!window.is_empty() && is_there(GroupNo(3)), "a window and a lease");
    open.blocks.release(&mut window);
    assert!(is_there(GroupNo(3)), "a lease");
    assert!(groups.usage().0 > 0 && groups.drops() >= 3);
    open.finish();
}

#[test]
fn a_group_read_before_a_drop_is_not_installed_after_it() {
    let Some(image) = Image::make(EIGHT_GROUPS, 64) else { return };
    let (open, run) = open(&image);
    let change = || {
        mark(&open, run);
        open.store.sync_all().unwrap();
        open.blocks.drop_groups();
    };
    assert!(!open.blocks.groups.takes_stale(FAR, change));
    assert!(!open.blocks.is_free(run.start, run.len).unwrap());
    open.free(run);
    open.close(&image);
}
