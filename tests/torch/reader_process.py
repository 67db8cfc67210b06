"""One rank that only reads, as a process to be killed: ``python -m tests.torch.reader_process JSON``.

For each batch that it is given it prints a line: epoch, step, the records' ids, and the loader's state.
"""

from __future__ import annotations

import json
import sys
import time

from shardmill import open_dataset

BATCH_SIZE = 4
SEED = 5


def main() -> None:
    """Read from the state to the end of the last epoch."""
    told = json.loads(sys.argv[1])
    dataset = open_dataset("set@1", root=told["root"])
    loader = dataset.torch(
        "train",
        batch_size=BATCH_SIZE,
        image_size=16,
        seed=SEED,
        balance=told["balance"],
        last_batch="pad",
        rank=told["rank"],
        num_ranks=told["num_ranks"],
        num_epochs=told["epochs"],
        num_workers=told["num_workers"],
        prefetch_factor=3,
        multiprocessing_context=told.get("context"),
    )
    if told["state"] is not None:
        loader.load_state_dict(told["state"])
    table = dataset.table("train")
    while loader.epoch < told["epochs"]:
        for batch in loader:
            line = {
                "epoch": batch.epoch,
                "step": batch.step,
                "ids": table.ids(batch.ordinals.numpy()),
                "state": loader.state_dict(),
            }
            print(json.dumps(line), flush=True)
            time.sleep(told["seconds_a_step"])


if __name__ == "__main__":
    main()
