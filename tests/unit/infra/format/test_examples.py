"""tf.train.Example messages without TensorFlow."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shardmill.infra.errors import CorruptDataError
from shardmill.infra.format.examples import ImageRecord, build_example, parse_example

records = st.builds(
    ImageRecord,
    id=st.text("0123456789abcdef", min_size=16, max_size=16),
    image=st.binary(max_size=500),
    label=st.integers(0, 2**31 - 1),
    label_name=st.text(max_size=30).filter(lambda text: text.encode("utf-8", "ignore").decode() == text),
    height=st.integers(1, 65535),
    width=st.integers(1, 65535),
    channels=st.sampled_from([1, 3]),
)


@given(records)
def test_an_example_comes_back(record: ImageRecord) -> None:
    serialized = build_example(record)
    assert parse_example(serialized) == record
    assert build_example(record) == serialized


def test_the_bytes_are_pinned() -> None:
    """Shards are promised to be the same bytes for the same input, so the serialisation may not drift."""
    record = ImageRecord("00112233445566ff", b"\xff\xd8", 3, "coat", 2, 5, 1)
    assert build_example(record).hex() == (
        "0a89010a110a086368616e6e656c7312051a030a01010a0f0a0668656967687412051a030a01020a1a0a02696412140a120a10"
        "303031313232333334343535363666660a0f0a05696d61676512060a040a02ffd80a0e0a056c6162656c12051a030a01030a16"
        "0a0a6c6162656c5f6e616d6512080a060a04636f61740a0e0a05776964746812051a030a0105"
    )


def test_a_name_that_is_not_utf8_keeps_its_bytes() -> None:
    record = ImageRecord("0" * 16, b"", 0, b"caf\xe9".decode("utf-8", "surrogateescape"), 1, 1, 3)
    assert b"caf\xe9" in build_example(record)
    assert parse_example(build_example(record)) == record


@pytest.mark.parametrize("data", [b"", b"\xff\xff\xff", b"plain text, no message"])
def test_rubbish_is_refused(data: bytes) -> None:
    with pytest.raises(CorruptDataError, match="not an example"):
        parse_example(data)
