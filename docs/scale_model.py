"""Writes the tables of ``docs/scale.md``: ``python docs/scale_model.py``.

A model of a data set of photographs, from measured constants. A test compares the page with the output of
this script. Change the constants, for example the prices, to your own.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

PAGE = Path(__file__).with_name("scale.md")
SIZES = [10**power for power in range(6, 11)]
MIB, GIB, TIB = 1 << 20, 1 << 30, 1 << 40


@dataclass(frozen=True)
class Constants:
    """The constants of the model, in bytes unless the name says otherwise.

    Assumed: source_image, stored_image (a photograph of 256 pixels as JPEG), classes, and all prices.
    Measured, with the command: see the page.
    """

    source_image: int = 110_000
    stored_image: int = 30_000
    record_overhead: int = 176  # beside the image: beam_jobs.plan.shards.RECORD_OVERHEAD_BYTES
    index_row: int = 281
    inputs_row: int = 63
    listing_row: int = 88
    plan_row_in_one_process: int = 712  # with the listing and the facts
    near_row: int = 2_190  # the search for near-duplicates
    range_row: int = 1_550  # of the range that a process plans
    range_row_on_disk: int = 1_200  # all tables of a plan by ranges, at their largest
    shard_entry: int = 429  # in the manifest, without its class counts
    class_entry: int = 15  # of each class in a shard's entry
    part_entry: int = 192
    classes: int = 1_000
    block_images: int = 128
    inputs_part_rows: int = 8_192
    images_per_core_second: float = 420.0  # decode, scale, encode, write
    plan_seconds: float = 3.5e-6  # of a core, a file, in one process
    ranges_seconds: float = 16e-6
    order_seconds: float = 120e-9  # of a core, a record an epoch, by block
    order_row: int = 4  # with a balance rule
    core_hour_dollars: float = 0.04
    million_writes_dollars: float = 5.0
    million_reads_dollars: float = 0.4
    gib_month_dollars: float = 0.023
    plan_in_one_process_up_to: int = 20_000_000


@dataclass(frozen=True)
class Scale:
    """A data set of so many images."""

    images: int
    constants: Constants = Constants()
    shard_bytes: int = 128 * MIB

    @property
    def data_bytes(self) -> int:
        """Shards, indexes and inputs."""
        one = self.constants
        return self.images * (one.stored_image + one.record_overhead + one.index_row + one.inputs_row)

    @property
    def shards(self) -> int:
        """Number of shards."""
        one = self.constants
        return -(-self.images * (one.stored_image + one.record_overhead) // self.shard_bytes)

    @property
    def manifest_bytes(self) -> int:
        """The manifest names each shard and each part of the inputs."""
        one = self.constants
        of_shard = one.shard_entry + one.class_entry * min(one.classes, self.images // self.shards)
        return self.shards * of_shard + self.images // one.inputs_part_rows * one.part_entry

    @property
    def by_ranges(self) -> bool:
        """Whether a plan is made by ranges."""
        return self.images > self.constants.plan_in_one_process_up_to

    @property
    def plan_bytes(self) -> int:
        """Memory of a process that plans, without the search for near-duplicates."""
        one = self.constants
        return 1_000_000 * one.range_row if self.by_ranges else self.images * one.plan_row_in_one_process

    @property
    def plan_core_seconds(self) -> float:
        """Processor time of planning."""
        one = self.constants
        return self.images * (one.ranges_seconds if self.by_ranges else one.plan_seconds)

    @property
    def encode_core_hours(self) -> float:
        """Processor time of the images."""
        return self.images / self.constants.images_per_core_second / 3600

    @property
    def reads(self) -> int:
        """Requests that read: an object store is asked twice for each source image and each stored one."""
        blocks = self.images // self.constants.block_images
        return 4 * self.images + 2 * blocks + 2 * self.shards

    @property
    def writes(self) -> int:
        """Requests that write: two for a block, three for a shard, one for a part of the inputs."""
        one = self.constants
        return 2 * (self.images // one.block_images) + 3 * self.shards + self.images // one.inputs_part_rows

    @property
    def dollars(self) -> float:
        """Price of preparing the version, for a million images."""
        one = self.constants
        requests = self.reads * one.million_reads_dollars + self.writes * one.million_writes_dollars
        cores = (self.encode_core_hours + self.plan_core_seconds / 3600) * one.core_hour_dollars
        return (requests / 1e6 + cores) / (self.images / 1e6)

    @property
    def month_dollars(self) -> float:
        """Price of keeping the version for a month, for a million images."""
        return self.data_bytes / GIB * self.constants.gib_month_dollars / (self.images / 1e6)


def of_bytes(number: float) -> str:
    """A number of bytes in words."""
    for unit, name in ((TIB, "TiB"), (GIB, "GiB"), (MIB, "MiB")):
        if number >= unit:
            return f"{number / unit:,.3g} {name}" if number / unit < 1000 else f"{number / unit:,.0f} {name}"
    return f"{number / 1024:.3g} KiB"


def of_count(number: float) -> str:
    """A large number, shortened."""
    for unit, name in ((1e9, " G"), (1e6, " M"), (1e3, " k")):
        if number >= unit:
            return f"{number / unit:.3g}{name}"
    return f"{number:.3g}"


def table_of_sizes() -> str:
    """The table of bytes and requests."""
    columns = ("images", "source", "data", "shards", "manifest", "reads", "writes")
    rows = []
    for images in SIZES:
        one = Scale(images)
        source, data = of_bytes(images * one.constants.source_image), of_bytes(one.data_bytes)
        counts = [
            of_count(one.shards),
            of_bytes(one.manifest_bytes),
            of_count(one.reads),
            of_count(one.writes),
        ]
        dollars = [f"${one.dollars:.2f}", f"${one.month_dollars:.2f}"]
        rows.append([of_count(images), source, data, *counts, *dollars])
    return table([*columns, "to prepare a million", "to keep a million, a month"], rows)


def table_of_work() -> str:
    """The table of time and memory."""
    columns = ("images", "encode, core hours", "on 2 cores", "on 256 cores", "plan, core hours")
    memory = (
        "memory of a process that plans",
        "its tables in the spool",
        "listing",
        "near-duplicates, memory",
    )
    rows = []
    for images in SIZES:
        one = Scale(images)
        constants, hours = one.constants, one.encode_core_hours
        times = [f"{hours:,.1f}", _time(hours / 2), _time(hours / 256), f"{one.plan_core_seconds / 3600:.2g}"]
        disk = of_bytes(images * constants.range_row_on_disk) if one.by_ranges else "none"
        sizes = [of_bytes(images * row) for row in (constants.listing_row, constants.near_row)]
        order = [_time(images * constants.order_seconds / 3600), of_bytes(images * constants.order_row)]
        rows.append([of_count(images), *times, of_bytes(one.plan_bytes), disk, *sizes, *order])
    return table([*columns, *memory, "order, an epoch", "order, memory"], rows)


def table(columns: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A table in Markdown."""
    lines = [columns, ["---"] * len(columns), *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def _time(hours: float) -> str:
    if hours >= 48:
        return f"{hours / 24:,.0f} days"
    if hours >= 1:
        return f"{hours:.1f} h"
    return f"{hours * 60:.1f} min" if hours * 60 >= 1 else f"{hours * 3600:.2g} s"


def render(page: str) -> str:
    """The page with its tables made anew."""
    for name, made in (("sizes", table_of_sizes()), ("work", table_of_work())):
        page = re.sub(
            rf"(<!-- table: {name} -->\n).*?(<!-- end -->)",
            lambda found, made=made: f"{found[1]}\n{made}\n\n{found[2]}",
            page,
            flags=re.DOTALL,
        )
    return page


if __name__ == "__main__":
    PAGE.write_text(render(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
    print(f"wrote {PAGE}")
