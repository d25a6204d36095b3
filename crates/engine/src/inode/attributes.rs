//! Extended attributes of an inode.

use nextent_store::Handle;
use nextent_sync::Arc;

use super::fs::Fs;
use super::object::Inode;
use crate::error::{Error, Result};
use crate::{Cred, FileType, XattrMode};

/// What a new file takes from its directory.
pub(crate) struct Inherited {
    /// Its permission bits.
    pub(crate) mode: u16,
}

pub(crate) fn inherit(_fs: &Fs, _dir: &Inode, _kind: FileType, mode: u16, umask: u16) -> Result<Inherited> {
    Ok(Inherited { mode: mode & !umask })
}
pub(crate) fn give(_fs: &Fs, _h: &Handle<'_>, _inode: &Arc<Inode>, _inherited: &Inherited) -> Result<()> {
    Ok(())
}
pub(crate) fn acl_grant(_fs: &Fs, _cred: &Cred, _inode: &Inode, _uid: u32, _gid: u32) -> Result<Option<u16>> {
    Ok(None)
}
pub(crate) fn acl_chmod(_fs: &Fs, _h: &Handle<'_>, _inode: &Arc<Inode>, _bits: u16) -> Result<()> {
    Ok(())
}
pub(crate) fn drop_all(_fs: &Fs, _h: &Handle<'_>, _inode: &Arc<Inode>) -> Result<()> {
    Ok(())
}
pub(crate) fn get(_fs: &Fs, _inode: &Inode, _name: &[u8]) -> Result<Option<Vec<u8>>> {
    Err(Error::NotSupported)
}
pub(crate) fn list(_fs: &Fs, _inode: &Inode) -> Result<Vec<Vec<u8>>> {
    Ok(Vec::new())
}
pub(crate) fn set(_fs: &Fs, _h: &Handle<'_>, _inode: &Arc<Inode>, _name: &[u8], _value: Option<&[u8]>, _mode: XattrMode, _cred: &Cred) -> Result<()> {
    Err(Error::NotSupported)
}
pub(crate) fn read_inline(_fs: &Fs, _inode: &Inode, _offset: u64, _buf: &mut [u8]) -> Result<()> {
    Err(Error::NotSupported)
}
pub(crate) fn inline_rest(_fs: &Fs, _inode: &Inode) -> Result<Vec<u8>> {
    Err(Error::NotSupported)
}
