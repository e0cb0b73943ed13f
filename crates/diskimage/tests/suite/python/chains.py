"""Makes a chain of differencing images with the generator scripts, and the raw file that its leaf must read as.

Usage: chains.py SCRIPTS SHIM vhdx|vhd FOLDER RAW SECTOR_BYTES SEED SIZE:BLOCK_BYTES...

One SIZE:BLOCK_BYTES for each file, the base first; they are called 0.vhdx, 1.vhdx and so on. A block of a VHDX child
comes in any state, those that are partially present with scattered sectors, runs that are not aligned to bytes of the
bitmap, or nearly all; unmapped blocks with and without an old place; fully present ones over whatever bits.
"""
import os
import random
import sys
import uuid

scripts, shim, kind, folder, raw = sys.argv[1:6]
sector, seed = map(int, sys.argv[6:8])
files = [tuple(map(int, shape.split(":"))) for shape in sys.argv[8:]]
sys.path[:0] = [scripts]
sys.path.append(shim)
rng = random.Random(seed)
largest = max(size for size, _ in files)

# Where things happen: the same places in all files, so that they hide one another. Both ends of every file's disk, round
# each 4 and 32 GiB, and anywhere.
places = [0] + [rng.randrange(largest) for _ in range(4)] + [size - sector for size, _ in files]
places += [at + d for step in (4 << 30, 32 << 30) for at in range(step, largest, step) for d in (-1, 0)]


def filled(length):
    """Mostly zeros, so that files stay small, with runs of sectors of noise."""
    data = bytearray(length)
    for _ in range(6):
        run = sector * rng.randrange(1, 5)
        at = rng.randrange((length - run) // sector + 1) * sector
        data[at : at + run] = rng.randbytes(run)
    return data


def some(count):
    """Sectors of a block that are there: runs, single ones, all but a few, one half."""
    way = rng.randrange(4)
    if way == 0:
        picked = set()
        for _ in range(rng.randrange(1, 6)):
            at = rng.randrange(count)
            picked |= set(range(at, min(count, at + rng.randrange(1, 40))))
        return sorted(picked)
    if way == 1:
        return sorted(rng.sample(range(count), rng.randrange(1, count // 4)))
    if way == 2:
        return sorted(set(range(count)) - {rng.randrange(count) for _ in range(3)})
    return list(range(rng.randrange(1, count)))


class Disk:
    """What the disk reads as, on a sparse file."""

    def __init__(self, path):
        self.file = open(path, "wb+")

    def resize(self, size):
        # Of a parent that is larger, what lies behind the child's end is gone; a smaller one is followed by zeros.
        self.file.truncate(size)
        self.size = size

    def put(self, at, data):
        self.file.seek(at)
        self.file.write(data[: max(0, self.size - at)])


disk = Disk(raw)
ending = kind
parent, parent_id, page83 = None, None, uuid.UUID(int=rng.getrandbits(128))
for number, (size, block_bytes) in enumerate(files):
    path = os.path.join(folder, f"{number}.{ending}")
    # A child that is larger than its parent: a hole of the truncated file must not bring old bytes back.
    disk.resize(size)
    blocks = -(-size // block_bytes)
    chosen = {at // block_bytes for at in places if at < size} | {rng.randrange(blocks) for _ in range(2)}
    contents = {}
    for block in sorted(chosen):
        at, count = block * block_bytes, block_bytes // sector
        if kind == "vhdx":
            state = rng.choice((0, 1, 2, 3, 6, 6, 7, 7, 7, 7) if parent else (0, 1, 2, 3, 6, 6, 6, 6))
            has_place = state in (6, 7) or (state == 3 and rng.random() < 0.5)
            data = filled(block_bytes) if has_place else b""
            sectors = some(count) if state == 7 else None
            contents[block] = (state, bytes(data), sectors)
            if state in (1, 2, 3):
                disk.put(at, bytes(block_bytes))
        else:
            state, data = 6, filled(block_bytes)
            sectors = some(count) if rng.random() < 0.7 else None
            if sectors is not None:
                state = 7
                if not parent:
                    # 7-Zip calls a base damaged that has anything in sectors whose bit is not set.
                    for one in set(range(count)) - set(sectors):
                        data[one * sector : (one + 1) * sector] = bytes(sector)
                    disk.put(at, bytes(block_bytes))
            contents[block] = (sectors, bytes(data))
        if state == 6:
            disk.put(at, data)
        elif state == 7:
            for one in sectors:
                disk.put(at + one * sector, data[one * sector : (one + 1) * sector])
    if kind == "vhdx":
        import mkvhdx

        mkvhdx.mk(path, size, contents, bs=block_bytes, lss=sector, pss=4096, parent=parent, p83=page83)
    else:
        import mkvhd

        align = bool(rng.randrange(2))
        parent_id = mkvhd.mk(path, size, contents, bs=block_bytes, parent=parent, puid=parent_id, align=align)
    parent = path
