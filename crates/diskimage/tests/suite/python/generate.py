"""Makes an image with the generator scripts, and the raw file that it must read as.

Usage: generate.py SCRIPTS SHIM vhdx|vhd IMAGE RAW SIZE BLOCK_BYTES SECTOR_BYTES SEED
"""
import os
import random
import sys

scripts, shim, kind, image, raw = sys.argv[1:6]
size, block_bytes, sector, seed = map(int, sys.argv[6:10])
# An installed crc32c comes before the plain one.
sys.path[:0] = [scripts]
sys.path.append(shim)
rng = random.Random(seed)
blocks = -(-size // block_bytes)


def chosen():
    """Blocks at both ends, round each 4 and 32 GiB, and anywhere."""
    places = {0, 1, blocks - 1, blocks - 2} | {rng.randrange(blocks) for _ in range(6)}
    for chunk in (4 << 30, 32 << 30):
        places |= {at // block_bytes + d for at in range(chunk, size, chunk) for d in (-1, 0, 1)}
    return sorted(place for place in places if 0 <= place < blocks)


def filled(length):
    """Mostly zeros, so that files stay small, with runs of sectors of noise."""
    data = bytearray(length)
    for _ in range(4):
        run = sector * rng.randrange(1, 5)
        at = rng.randrange((length - run) // sector + 1) * sector
        data[at : at + run] = rng.randbytes(run)
    return data


with open(raw, "wb") as out:
    out.truncate(size)

    def expect(block, data):
        out.seek(block * block_bytes)
        out.write(data[: size - block * block_bytes])

    if kind == "vhdx":
        import mkvhdx

        contents = {}
        for index, block in enumerate(chosen()):
            state = (6, 6, 6, 2, 3, 1, 0, 3)[index % 8]
            # Unmapped blocks come with and without an old place; both must read as zeros.
            data = filled(block_bytes) if state == 6 or index % 8 == 7 else b""
            contents[block] = (state, bytes(data), None)
            if state == 6:
                expect(block, data)
        mkvhdx.mk(image, size, contents, bs=block_bytes, lss=sector, pss=4096)
    else:
        import mkvhd

        contents = {}
        for index, block in enumerate(chosen()):
            data = filled(block_bytes)
            shown, sectors = data, None
            if index % 3:
                # Sectors whose bit is not set read as zeros, whatever lies there: zeros with an odd seed, else noise.
                count = block_bytes // 512
                # Scattered, or all but the last ones.
                some = rng.sample(range(count), rng.randrange(count))
                sectors = sorted(some) if index % 3 == 1 else list(range(count - rng.randrange(1, 9)))
                shown = bytearray(block_bytes)
                for one in sectors:
                    shown[one * 512 : one * 512 + 512] = data[one * 512 : one * 512 + 512]
                if seed % 2:
                    data = shown
                else:
                    for one in set(range(count)) - set(sectors):
                        data[one * 512] = 0xEE
            contents[block] = (sectors, bytes(data))
            expect(block, shown)
        mkvhd.mk(image, size, contents, bs=block_bytes, align=bool(seed // 2 % 2))
