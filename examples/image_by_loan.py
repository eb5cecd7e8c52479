"""Images drawn straight into the memory where another process looks at them: no copy at all.

`python examples/image_by_loan.py [COUNT]`

`publisher.loan(size)` lends memory that the subscriber reads, as soon as both processes have agreed
on where that is; until then, and for subscribers on other hosts, it is ordinary memory, and nothing
else changes. Nothing may still lead to a loan that is published: `draw` makes an array of it that
goes when it returns.
"""

import itertools
import multiprocessing
import sys
import time

import numpy as np

import hubbub

HEIGHT, WIDTH = 480, 640


def draw(number: int, memory: memoryview) -> None:
    """Draw a bright bar that moves, into memory that somebody else gave us."""
    image = np.frombuffer(memory, np.uint8).reshape(HEIGHT, WIDTH)
    image[:] = 0
    image[:, number % WIDTH] = 255


def film() -> None:
    """Publish images for ever."""
    with hubbub.open("camera") as node:
        images = node.publisher("/camera/north/image")
        for number in itertools.count():
            with images.loan(HEIGHT * WIDTH) as loan:
                draw(number, loan.view)
                images.publish(loan)
            time.sleep(1 / 30)


def main(count: int) -> None:
    """Look at so many images of a camera in another process."""
    with hubbub.open("viewer") as node:
        images = node.subscribe("/camera/*/image")
        camera = multiprocessing.get_context("spawn").Process(target=film, daemon=True)
        camera.start()
        for message in images:
            image = np.frombuffer(message.payload, np.uint8).reshape(HEIGHT, WIDTH)
            is_view = isinstance(message.payload, memoryview)
            how = "read where it was drawn" if is_view else "a copy"
            print(f"{image.shape}, bar at {image[0].argmax()}: {how}")
            count -= is_view
            if count == 0:
                break
        camera.terminate()
        camera.join()


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 5)
