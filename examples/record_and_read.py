"""Record from a program, then read what was recorded: `python examples/record_and_read.py [STORE]`.

What `flush` has acknowledged survives a crash, a kill and a power cut. The recording is read as
Arrow batches here; `hubbub play`, `export`, `pipeline` and `report` read the same folder.
"""

import sys
import tempfile
from pathlib import Path

import hubbub
from hubbub.store import Store

folder = Path(sys.argv[1]) if len(sys.argv) > 1 else Path(tempfile.mkdtemp()) / "recording"

with hubbub.open("plant") as node, hubbub.Recorder(node, "/plant/...", folder) as recorder:
    for number in range(1, 6):
        node.publish("/plant/line1/temp", b"%.1f" % (20 + number / 10))
    node.publish("/office/door", b"open")  # Nobody records it.
    recorder.flush()
    print(f"{recorder.acknowledged} messages are safe in {folder.name}")

for batch in Store(folder).messages(columns=["offset", "subject", "payload"]):
    for row in batch.to_pylist():
        print(f"{row['offset']}: {row['subject']} {row['payload'].decode()}")
