"""Changes a file, and checks that a process that has cached its contents sees each change.

Arguments: a directory. The reader has read the whole file, through read(2) and a mapping; another
process then changes the file, while a third one reads it.
"""

import ctypes
import mmap
import os
import platform
import signal
import struct
import sys

LIBC = ctypes.CDLL(None, use_errno=True)
PAGE = 4096
SIZE = 64 * PAGE
ROUNDS = 8
KEEP_SIZE, PUNCH, ZERO = 1, 2, 16
# Numbers of io_setup, io_submit and io_getevents.
CALLS = {"x86_64": (206, 209, 208), "aarch64": (0, 2, 4)}


def checked(result):
    if result < 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))
    return result


def aligned(data):
    room = mmap.mmap(-1, len(data))
    room[:] = data
    return room


def asynchronous(path, parts):
    """Writes all parts (offset, data) at once by Linux's asynchronous I/O, with O_DIRECT."""
    setup, submit, getevents = CALLS[platform.machine()]
    fd = os.open(path, os.O_WRONLY | os.O_DIRECT)
    context = ctypes.c_ulong(0)
    checked(LIBC.syscall(setup, ctypes.c_long(64), ctypes.byref(context)))
    rooms = [aligned(data) for _, data in parts]
    blocks = []
    for (offset, data), room in zip(parts, rooms):
        address = ctypes.addressof(ctypes.c_char.from_buffer(room))
        block = struct.pack(
            "QIIHhIQQqQII", 0, 0, 0, 1, 0, fd, address, len(data), offset, 0, 0, 0
        )
        blocks.append(ctypes.create_string_buffer(block, len(block)))
    count = len(blocks)
    pointers = (ctypes.c_void_p * count)(*[ctypes.addressof(block) for block in blocks])
    done = checked(LIBC.syscall(submit, context, ctypes.c_long(count), pointers))
    assert done == count, done
    events = ctypes.create_string_buffer(32 * count)
    checked(
        LIBC.syscall(getevents, context, ctypes.c_long(count), ctypes.c_long(count), events, None)
    )
    for n, (_, data) in enumerate(parts):
        result = struct.unpack_from("q", events, 32 * n + 16)[0]
        assert result == len(data), result
    os.close(fd)


def fallocate(path, mode, offset, length):
    fd = os.open(path, os.O_WRONLY)
    where = (ctypes.c_long(offset), ctypes.c_long(length))
    checked(LIBC.fallocate(fd, mode, *where))
    os.close(fd)


def write(path, flags, offset, data):
    fd = os.open(path, os.O_WRONLY | flags)
    assert os.pwrite(fd, data, offset) == len(data)
    os.close(fd)


def put(old, offset, data):
    old = old.ljust(offset, b"\0")
    return old[:offset] + data + old[offset + len(data):]


def each_eighth(path, old):
    parts = [(n * 8 * PAGE, bytes([200 + n]) * PAGE * 2) for n in range(8)]
    asynchronous(path, parts)
    for offset, data in parts:
        old = put(old, offset, data)
    return old


def appended(path, old):
    data = b"a" * PAGE * 3
    asynchronous(path, [(len(old), data)])
    return old + data


def direct(path, old):
    data = b"d" * PAGE * 2
    write(path, os.O_DIRECT, PAGE * 7, aligned(data))
    return put(old, PAGE * 7, data)


def buffered(path, old):
    data = b"b" * 5000
    write(path, 0, 9001, data)
    return put(old, 9001, data)


def copied(path, old):
    source = os.open(path + ".source", os.O_RDWR | os.O_CREAT)
    os.pwrite(source, b"c" * 20000, 0)
    to = os.open(path, os.O_WRONLY)
    assert os.copy_file_range(source, to, 20000, 0, 5003) == 20000
    os.close(source)
    os.close(to)
    return put(old, 5003, b"c" * 20000)


def punched(path, old):
    fallocate(path, PUNCH | KEEP_SIZE, 6000, 30000)
    return put(old, 6000, b"\0" * 30000)


def zeroed(path, old):
    fallocate(path, ZERO, 3000, 30000)
    return put(old, 3000, b"\0" * 30000)


def shorter(path, old):
    os.truncate(path, 10001)
    os.truncate(path, len(old))
    return put(old, 10001, b"\0" * (len(old) - 10001))


def shorter_by_descriptor(path, old):
    fd = os.open(path, os.O_RDWR)
    os.ftruncate(fd, 10001)
    os.close(fd)
    return old[:10001]


def longer(path, old):
    os.truncate(path, len(old) + 9999)
    return old + b"\0" * 9999


def rewritten(path, old):
    data = b"r" * len(old)
    write(path, os.O_TRUNC, 0, data)
    return data


def through_a_mapping(path, old):
    fd = os.open(path, os.O_RDWR)
    mapped = mmap.mmap(fd, 0)
    mapped[4000:9000] = b"m" * 5000
    mapped.close()
    os.close(fd)
    return put(old, 4000, b"m" * 5000)


def in_another_process(change, path, old):
    """Runs a change; the contents after it."""
    here, there = os.pipe()
    child = os.fork()
    if child == 0:
        status = 1
        try:
            new = change(path, old)
            with os.fdopen(there, "wb") as pipe:
                pipe.write(new)
            status = 0
        finally:
            os._exit(status)
    os.close(there)
    with os.fdopen(here, "rb") as pipe:
        new = pipe.read()
    assert os.waitpid(child, 0)[1] == 0, change.__name__
    return new


def whole(fd):
    return os.pread(fd, SIZE * 2, 0)


class BusyReader:
    """A process that reads pages of a file again and again."""

    def __init__(self, path, offsets):
        self.child = os.fork()
        if self.child == 0:
            fd = os.open(path, os.O_RDONLY)
            while True:
                for offset in offsets:
                    os.pread(fd, PAGE, offset)

    def end(self):
        os.kill(self.child, signal.SIGKILL)
        os.waitpid(self.child, 0)


def check(path, change):
    """Lists what a reader of the file at `path` does not see of a change."""
    old = b"o" * SIZE
    with open(path, "wb") as file:
        file.write(old)
    fd = os.open(path, os.O_RDONLY)
    mapped = mmap.mmap(fd, SIZE, prot=mmap.PROT_READ)
    late = os.open(path, os.O_RDONLY)
    assert whole(fd) == old and mapped[:] == old
    busy = BusyReader(path, range(0, SIZE, PAGE))
    new = in_another_process(change, path, old)
    busy.end()
    faults = []
    # What is behind the end of the file cannot be read through a mapping.
    seen = min(len(new), SIZE)
    if mapped[:seen] != new[:seen]:
        faults.append("mapping")
    if whole(fd) != new:
        faults.append("read(2)")
    if whole(late) != new:
        faults.append("read(2) of another descriptor")
    if open(path, "rb").read() != new:
        faults.append("a later open")
    if os.fstat(fd).st_size != len(new):
        faults.append("size")
    mapped.close()
    os.close(fd)
    os.close(late)
    return [f"{change.__name__}: old {fault}" for fault in faults]


def check_long_writes(path):
    """Many long asynchronous writes, the last page of each of which is read meanwhile."""
    step, count = 1 << 20, 24
    with open(path, "wb") as file:
        file.write(b"o" * (step * count))
    last = range(step - PAGE, step * count, step)
    readers = [BusyReader(path, last) for _ in range(2)]
    old = 0
    for number in range(ROUNDS):
        data = bytes([number + 1]) * step
        asynchronous(path, [(n * step, data) for n in range(count)])
        fd = os.open(path, os.O_RDONLY)
        old += sum(os.pread(fd, PAGE, offset) != data[:PAGE] for offset in last)
        os.close(fd)
    for reader in readers:
        reader.end()
    return [f"long writes: {old} old pages"] if old else []


CHANGES = [
    each_eighth, appended, direct, buffered, copied, punched, zeroed, shorter,
    shorter_by_descriptor, longer, rewritten, through_a_mapping,
]
if platform.machine() not in CALLS:
    CHANGES = CHANGES[2:]
    found = []
else:
    found = check_long_writes(os.path.join(sys.argv[1], "long"))
for number, change in enumerate(CHANGES * ROUNDS):
    found += check(os.path.join(sys.argv[1], f"file{number % len(CHANGES)}"), change)
print("\n".join(found))
sys.exit(1 if found else 0)
