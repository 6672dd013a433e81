"""Takes memory and holds it, as a program does that somebody uses. From standard input it reads

    take BYTES BYTES_PER_S     more of it, at that speed
    drop                       none any more

and answers each line by `done` when that has happened. The pages are random bytes, which no swap can compress."""

import mmap
import os
import sys
import time

PIECE = 4 << 20


def take(held, size, speed, noise):
    """Writes pieces at the pace that the speed allows; appends them to `held`."""
    begin = time.monotonic()
    for taken in range(0, size, PIECE):
        piece = mmap.mmap(-1, PIECE, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
        for at in range(0, PIECE, len(noise)):
            piece[at:at + len(noise)] = noise
        held.append(piece)
        time.sleep(max(0.0, begin + (taken + PIECE) / speed - time.monotonic()))


def main():
    with open("/proc/self/comm", "w") as name:
        name.write("hog")
    held, noise = [], os.urandom(1 << 20)
    for line in sys.stdin:
        words = line.split()
        if words[0] == "take":
            take(held, int(words[1]), int(words[2]), noise)
        else:
            for piece in held:
                piece.close()
            held = []
        print("done", flush=True)


if __name__ == "__main__":
    main()
