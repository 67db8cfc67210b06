"""Patterns of parameters, on the form's side (JSON schema) and in the run (Pydantic)."""

from __future__ import annotations

import re
from typing import Any

import pytest
from pydantic import TypeAdapter, ValidationError

from shardmill.beam_jobs.config import ImageConfig
from shardmill.flows.parameters import AliasWord, DatasetName, DatasetRef, RunRef

CASES = [
    (DatasetName, "photos-2.b", True),
    (DatasetName, "photos\n", False),
    (DatasetName, "photos\nmore", False),
    (DatasetName, "", False),
    (DatasetRef, "photos@3?width > 800", True),
    (DatasetRef, "photos@latest\n", False),
    (DatasetRef, "photos@3; train += web; missing classes are ignored", True),
    (RunRef, "photos@production", True),
    (RunRef, "photos+web-v1-0123456789", True),
    (RunRef, "../photos+web", False),
    (RunRef, "photos@production\n", False),
    (AliasWord, "staging", True),
    (AliasWord, "staging\n", False),
    (ImageConfig.model_fields["background"].rebuild_annotation(), "#00ff00", True),
    (ImageConfig.model_fields["background"].rebuild_annotation(), "#00ff00\n", False),
]


@pytest.mark.parametrize(("kind", "text", "is_good"), CASES)
def test_form_and_run_take_the_same_texts(kind: Any, text: str, is_good: bool) -> None:
    adapter: TypeAdapter[str] = TypeAdapter(kind)
    # Prefect's server checks by this expression in Python, and the browser in JavaScript, where $ is the end.
    pattern = adapter.json_schema()["pattern"]
    assert (re.search(pattern, text) is not None) is is_good
    try:
        adapter.validate_python(text)
    except ValidationError:
        assert not is_good
    else:
        assert is_good
