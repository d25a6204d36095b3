"""Names files by handle, and opens the handles.

Arguments: what to do, a directory, and a file for the handles. `save` makes files and writes their
handles; `open` opens these in another mount of the same volume, and changes files; `gone` opens
them again.
"""

import ctypes
import errno
import json
import os
import stat
import sys
import time

LIBC = ctypes.CDLL(None, use_errno=True)
AT_FDCWD = -100
O_PATH = 0o10000000
# A handle of FUSE: the upper and lower half of the node's number, and the generation.
HANDLE = 12
# How often all numbers of free inodes are tried.
ATTEMPTS = 20


class Handle(ctypes.Structure):
    _fields_ = [("bytes", ctypes.c_uint), ("kind", ctypes.c_int), ("data", ctypes.c_uint * 32)]


def save(path):
    handle, mount = Handle(bytes=128), ctypes.c_int()
    named = LIBC.name_to_handle_at(
        AT_FDCWD, path.encode(), ctypes.byref(handle), ctypes.byref(mount), 0
    )
    assert named == 0, os.strerror(ctypes.get_errno())
    assert handle.bytes == HANDLE, handle.bytes
    return [handle.kind, *handle.data[:3]]


def opened(mount, saved, flags=os.O_RDONLY):
    """A descriptor, or the error."""
    handle = Handle(bytes=HANDLE, kind=saved[0])
    handle.data[:3] = saved[1:]
    fd = LIBC.open_by_handle_at(mount, ctypes.byref(handle), flags)
    return fd if fd >= 0 else OSError(ctypes.get_errno(), "open_by_handle_at")


def is_stale(mount, saved, flags=os.O_RDONLY):
    found = opened(mount, saved, flags)
    return isinstance(found, OSError) and found.errno == errno.ESTALE


def check_open(top, mount, saved):
    for path in ["file", "a/b/c/file"]:
        fd = opened(mount, saved[path])
        assert os.read(fd, 99) == path.encode(), path
        os.close(fd)
    for path in ["a/b/c", "a", "."]:
        fd = opened(mount, saved[path])
        assert stat.S_ISDIR(os.fstat(fd).st_mode), path
        assert sorted(os.listdir(fd)) == sorted(os.listdir(os.path.join(top, path))), path
        place = os.readlink(f"/proc/self/fd/{fd}")
        assert place == os.path.realpath(os.path.join(top, path)), place
        os.close(fd)
    fd = opened(mount, saved["link"], O_PATH | os.O_NOFOLLOW)
    assert os.readlink("", dir_fd=fd) == "target"
    os.close(fd)


def check_never_files(mount, saved):
    """Numbers of inodes that no name has: reserved, free, beyond the last."""
    kind, high, _, generation = saved["file"]
    for number in [0, 2, 3, 5, 7, 8, 9, 10, 3000, (1 << 32) - 1]:
        for generation in [0, generation]:
            fake = [kind, high, number, generation]
            assert is_stale(mount, fake), number
    assert is_stale(mount, [kind, 1, saved["file"][2], generation])


def reuse(path, number):
    """Makes a file with the number of a removed one. Any thread of the server may make it, and each
    has its own stretch of free numbers; so files are kept until all numbers are in use."""
    for _ in range(ATTEMPTS):
        made = []
        try:
            while True:
                made.append(f"{path}{len(made)}")
                open(made[-1], "w").close()
                if os.stat(made[-1]).st_ino == number:
                    made.pop()
                    return
        except OSError as error:
            assert error.errno == errno.ENOSPC, error
            made.pop()
        finally:
            for new in made:
                os.unlink(new)
        # The kernel forgets the removed file late.
        time.sleep(0.1)
    sys.exit("no new file has the number of the old one")


def main(what, top, where):
    paths = ["file", "a/b/c/file", "a/b/c", "a", "link", "gone", "gone-directory", "reused", "."]
    mount = os.open(top, os.O_RDONLY)
    if what == "save":
        os.makedirs(os.path.join(top, "a/b/c"))
        os.mkdir(os.path.join(top, "gone-directory"))
        os.symlink("target", os.path.join(top, "link"))
        for path in ["file", "a/b/c/file", "gone", "reused"]:
            with open(os.path.join(top, path), "w") as file:
                file.write(path)
        saved = {path: save(os.path.join(top, path)) for path in paths}
        with open(where, "w") as file:
            json.dump(saved, file)
        check_open(top, mount, saved)
        return
    with open(where) as file:
        saved = json.load(file)
    if what == "open":
        check_never_files(mount, saved)
        check_open(top, mount, saved)
        check_never_files(mount, saved)
        with open("/proc/sys/vm/drop_caches", "w") as file:
            file.write("2")
        check_open(top, mount, saved)
        os.rename(os.path.join(top, "file"), os.path.join(top, "a/renamed"))
        os.symlink("a/renamed", os.path.join(top, "file"))
        os.unlink(os.path.join(top, "gone"))
        os.rmdir(os.path.join(top, "gone-directory"))
        path = os.path.join(top, "reused")
        number = os.stat(path).st_ino
        os.unlink(path)
        reuse(path, number)
        return
    check_open(top, mount, saved)
    for path in ["gone", "gone-directory", "reused"]:
        assert is_stale(mount, saved[path]), path


main(*sys.argv[1:])
