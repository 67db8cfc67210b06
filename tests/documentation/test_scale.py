"""The tables of the page about scale agree with its model, and the constants of the model with the code."""

from __future__ import annotations

import importlib.util
from types import ModuleType

import pytest

from shardmill.beam_jobs.config import PrepareConfig
from shardmill.beam_jobs.plan import RECORD_OVERHEAD_BYTES, num_shards
from shardmill.beam_jobs.publish.outline import ROWS_OF_A_PART
from tests.documentation.blocks import ROOT


@pytest.fixture(scope="module")
def model() -> ModuleType:
    spec = importlib.util.spec_from_file_location("scale_model", ROOT / "docs/scale_model.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    import sys

    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


def test_the_tables_of_the_page_are_current(model: ModuleType) -> None:
    page = model.PAGE.read_text(encoding="utf-8")
    assert page == model.render(page), "run: python docs/scale_model.py"
    assert page.count("| 10 G |") == 3


def test_the_model_has_the_constants_of_the_code(model: ModuleType) -> None:
    one, config = model.Constants(), PrepareConfig()
    assert one.record_overhead == RECORD_OVERHEAD_BYTES
    assert one.block_images == config.runner.block_images
    assert one.inputs_part_rows == ROWS_OF_A_PART
    images = 10**7
    num_bytes = images * (one.stored_image + one.record_overhead)
    assert model.Scale(images).shards == num_shards(images, num_bytes, config.shards)
