"""Camera frames to another process as numpy arrays, which lie where the camera wrote them.

`python examples/image_without_a_copy.py [COUNT]`

A payload of 16 KiB or more that goes to a process of this host lies in shared memory. What the
subscriber gets is a view of that memory: `np.frombuffer` makes an array of it without copying. The
memory is kept for as long as the array lives, whatever the publisher does meanwhile. Only the first
frames come as a copy, until both processes have agreed on where that memory is.
"""

import itertools
import multiprocessing
import sys
import time

import numpy as np

import hubbub

HEIGHT, WIDTH = 480, 640


def film() -> None:
    """Publish frames for ever, each a little brighter."""
    with hubbub.open("camera") as node:
        frames = node.publisher("/camera/north/image")
        for number in itertools.count():
            frames.publish(np.full((HEIGHT, WIDTH), number % 256, dtype=np.uint8))
            time.sleep(1 / 30)


def main(count: int) -> None:
    """Look at so many frames of a camera in another process."""
    with hubbub.open("viewer") as node:
        images = node.subscribe("/camera/*/image")
        camera = multiprocessing.get_context("spawn").Process(target=film, daemon=True)
        camera.start()
        for message in images:
            image = np.frombuffer(message.payload, np.uint8).reshape(HEIGHT, WIDTH)
            is_view = isinstance(message.payload, memoryview)
            how = "read where it was written" if is_view else "a copy"
            print(f"{image.shape}, brightness {image.mean():.0f}: {how}")
            count -= is_view
            if count == 0:
                break
        camera.terminate()
        camera.join()


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 5)
