"""Writes the tables of ``docs/scale.md``: ``python docs/scale_model.py``.

A model of a dataset of photographs, from measured constants. A test compares the page with the output of
this script. Change the constants, for example the prices, to your own.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

PAGE = Path(__file__).with_name("scale.md")
SIZES = [10**6, 10**8, 10**10]
MIB, GIB, TIB = 1 << 20, 1 << 30, 1 << 40


@dataclass(frozen=True)
class Constants:
    """The constants of the model, in bytes unless the name says otherwise.

    Assumed: source_image, stored_image (a photograph of 256 pixels as JPEG), classes, and all prices.
    Measured, with the command: see the page.
    """

    source_image: int = 110_000
    stored_image: int = 30_000
    record_overhead: int = 176  # beside the image: shardmill.beam_jobs.plan.shards.RECORD_OVERHEAD_BYTES
    index_row: int = 281
    inputs_row: int = 63
    listing_row: int = 88
    plan_row_in_one_process: int = 712  # with the listing and the facts
    near_row: int = 950  # the search for near-duplicates
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
    split_row: int = 36  # of the table of a split, in each rank
    core_hour_dollars: float = 0.04
    million_writes_dollars: float = 5.0  # of S3, as the next two, for requests from its own region
    million_reads_dollars: float = 0.4
    gib_month_dollars: float = 0.023
    free_memory: int = 8 * GIB  # assumed; a plan in one process takes at most half of it
    files_of_a_range: int = 1_000_000
    exchanges: int = 6  # of rows between all ranges, in a plan by ranges
    requests_of_an_opening: int = 4  # of a table in an object store: size, end, list of batches, a batch
    jobs_in_one_process: int = 2  # of Beam: encode, assemble
    jobs_by_ranges: int = 9  # and seven of planning
    embedded_job_seconds: float = 1.0  # assumed: to start a job on the embedded runner
    flink_job_seconds: float = 30.0  # the most that was seen
    flink_share: float = 0.9  # of the embedded runner's rate on the same cores: the least that was seen
    cores_of_a_machine: int = 32  # assumed


@dataclass(frozen=True)
class Scale:
    """A dataset of so many images."""

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
        return 2 * self.images * self.constants.plan_row_in_one_process > self.constants.free_memory

    @property
    def plan_bytes(self) -> int:
        """Memory of a process that plans, without the search for near-duplicates."""
        one = self.constants
        if not self.by_ranges:
            return self.images * one.plan_row_in_one_process
        return one.files_of_a_range * one.range_row

    @property
    def ranges(self) -> int:
        """Number of ranges of a plan; 1 if one process makes it."""
        return -(-self.images // self.constants.files_of_a_range) if self.by_ranges else 1

    @property
    def plan_reads(self) -> int:
        """Requests that read tables of a plan by ranges: in an exchange each range opens a table of each."""
        one = self.constants
        if not self.by_ranges:
            return 0
        return one.exchanges * self.ranges**2 * one.requests_of_an_opening

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
        return 4 * self.images + 2 * blocks + 2 * self.shards + self.plan_reads

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

    @property
    def hours_on_one_machine(self) -> float:
        """Time to prepare the version with the embedded runner on a machine."""
        return self._hours(self.constants.cores_of_a_machine, self.constants.embedded_job_seconds)

    def hours_on_flink(self, machines: int) -> float:
        """Time to prepare the version on a Flink cluster with a TaskManager on each machine."""
        one = self.constants
        return self._hours(one.cores_of_a_machine * machines * one.flink_share, one.flink_job_seconds)

    def _hours(self, cores: float, job_seconds: float) -> float:
        one = self.constants
        jobs = one.jobs_by_ranges if self.by_ranges else one.jobs_in_one_process
        planning = self.plan_core_seconds / (min(cores, self.ranges) * 3600)
        return jobs * job_seconds / 3600 + self.encode_core_hours / cores + planning


def of_bytes(number: float) -> str:
    """A number of bytes in words."""
    for unit, name in ((TIB, "TiB"), (GIB, "GiB"), (MIB, "MiB")):
        if number >= unit:
            return f"{number / unit:,.3g} {name}" if number / unit < 1000 else f"{number / unit:,.0f} {name}"
    return f"{number / 1024:.3g} KiB"


def of_count(number: float) -> str:
    """A large number, shortened."""
    if not number:
        return "none"
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
    columns = ("images", "encode, core hours", "plan, core hours")
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
        times = [f"{hours:,.1f}", f"{one.plan_core_seconds / 3600:.2g}"]
        disk = of_bytes(images * constants.range_row_on_disk) if one.by_ranges else "none"
        sizes = [of_bytes(images * row) for row in (constants.listing_row, constants.near_row)]
        rank = [of_bytes(images * row) for row in (constants.split_row, constants.order_row)]
        order = [_time(images * constants.order_seconds / 3600), *rank]
        rows.append([of_count(images), *times, of_bytes(one.plan_bytes), disk, *sizes, *order])
    return table([*columns, *memory, "order, an epoch", "table of the split, a rank", "labels, a rank"], rows)


def table_of_engines() -> str:
    """The table of time by engine."""
    machines = (4, 32)
    flink = [f"Flink, {count} TaskManagers" for count in machines]
    rows = []
    for images in SIZES:
        one = Scale(images)
        times = [_time(one.hours_on_one_machine), *(_time(one.hours_on_flink(count)) for count in machines)]
        rows.append([of_count(images), f"{one.ranges:,}", of_count(one.plan_reads), *times])
    return table(["images", "ranges", "reads of planning", "embedded, one machine", *flink], rows)


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
    tables = {
        "sizes": table_of_sizes(),
        "work": table_of_work(),
        "engines": table_of_engines(),
    }
    for name, made in tables.items():
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
