"""What a file from outside may hold, and what may leave its reader."""

import contextlib
import os
import resource
import struct
import warnings
import zlib
from pathlib import Path

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st

from losspool.segmentation.base.errors import UserError
from real_runs import until

many = settings(max_examples=150, deadline=None, derandomize=True, suppress_health_check=list(HealthCheck))


def damaged(files):
    """Files cut short, with bytes replaced and pieces repeated."""
    place = st.integers(0, 1 << 16)
    edits = st.lists(st.tuples(place, st.binary(max_size=8), st.integers(0, 12)), max_size=6)

    def apply(content, edits, keep):
        for where, inserted, removed in edits:
            at = where % (len(content) + 1)
            content = content[:at] + inserted + content[at + removed :]
        return content[:keep] if keep is not None else content

    return st.builds(apply, st.sampled_from(files), edits, st.none() | place)


def png(width, height, rows, depth=8, color=0, interlace=0, palette=None, more=()):
    """A grey PNG, unless asked otherwise, that claims a size and holds what it likes.

    Its checksums are right, so that what it says is believed. ``more`` are further chunks, by name and content.
    """
    head = struct.pack(">IIBBBBB", width, height, depth, color, 0, 0, interlace)
    chunks = [(b"IHDR", head), *more, *([] if palette is None else [(b"PLTE", palette)])]
    chunks += [(b"IDAT", zlib.compress(rows, 9)), (b"IEND", b"")]
    return b"\x89PNG\r\n\x1a\n" + b"".join(
        struct.pack(">I", len(content)) + name + content + struct.pack(">I", zlib.crc32(name + content))
        for name, content in chunks
    )


def read_or_refused(read):
    """What was read, or None where a sentence says what to mend. Whatever else is raised, leaves."""
    with warnings.catch_warnings():  # Pillow's, of odd files
        warnings.simplefilter("ignore")
        try:
            return read()
        except UserError:
            return None


@contextlib.contextmanager
def bounded_memory(more):
    """As much address space as the process has, and ``more`` bytes: beyond that an allocation fails."""
    size = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    before = resource.getrlimit(resource.RLIMIT_AS)
    resource.setrlimit(resource.RLIMIT_AS, (size + more, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_AS, before)


def hang(path):
    """From now on every reader of this file waits, as for a network disk that is gone. At no moment is it missing."""
    pipe = path.with_name(f"{path.name}.pipe")
    os.mkfifo(pipe)
    os.replace(pipe, path)


@contextlib.contextmanager
def hung(path):
    """Begins once somebody reads such a file."""
    found = []

    def read():
        with contextlib.suppress(OSError):  # no reader yet
            found.append(os.open(path, os.O_WRONLY | os.O_NONBLOCK))
        return found

    assert until(read)
    try:
        yield
    finally:
        os.close(found[0])
