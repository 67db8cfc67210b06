"""The forms of the deployments: every field is described and bounded, and the important ones come first."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any

import jsonschema
import pytest
from prefect.utilities.callables import parameter_schema

from shardmill.flows.evaluate import evaluate
from shardmill.flows.maintain import maintain
from shardmill.flows.pipeline import pipeline
from shardmill.flows.prepare import prepare
from shardmill.flows.promote import promote
from shardmill.flows.server.answers import wrong_parameters
from shardmill.flows.train import train
from shardmill.flows.train_torch import train_torch

FLOWS = {flow.name: flow for flow in (prepare, train, train_torch, pipeline, evaluate, promote, maintain)}
Schema = Mapping[str, Any]


def schema_of(flow: str) -> dict[str, Any]:
    """The schema that the form is made of, and that the server checks parameters against."""
    return parameter_schema(FLOWS[flow]).model_dump_for_openapi()


def fields(schema: Schema, definitions: Schema, path: str = "") -> Iterator[tuple[str, Schema]]:
    """Every field of a form with its schema, those of groups after the group."""
    if "$ref" in schema:
        schema = {**definitions[schema["$ref"].rpartition("/")[2]], **schema}
    for name, field in schema.get("properties", {}).items():
        yield f"{path}{name}", field
        yield from fields(field, definitions, f"{path}{name}.")
    for choice in schema.get("anyOf", ()):
        yield from fields(choice, definitions, path)


def numbers(field: Schema) -> Iterator[Schema]:
    """The schemas of numbers that a field may have."""
    for choice in (field, *field.get("anyOf", ())):
        if choice.get("type") in ("integer", "number") and "enum" not in choice:
            yield choice


@pytest.mark.parametrize("flow", FLOWS)
def test_every_field_is_described_and_every_number_has_bounds(flow: str) -> None:
    schema = schema_of(flow)
    found = list(fields(schema, schema["definitions"]))
    assert len(found) > 100 or flow not in ("prepare", "train", "pipeline"), "the groups were looked into"
    assert [name for name, field in found if not field.get("description")] == []
    unbounded = [
        name
        for name, field in found
        for number in numbers(field)
        if not {"minimum", "exclusiveMinimum"} & number.keys()
        or not {"maximum", "exclusiveMaximum"} & number.keys()
    ]
    assert unbounded == []


@pytest.mark.parametrize(
    ("parameters", "said"),
    [
        ({"dataset": "x\n"}, "does not match"),
        ({"dataset": "x@new"}, "does not match"),
        ({"dataset": "x", "config": {"run": {"epochs": 0}}}, "0 is less than the minimum of 1"),
        ({"dataset": "x", "config": {"run": {"epochs": 10**9}}}, "is greater than the maximum of 1000000"),
        (
            {"dataset": "x", "config": {"run": {"framework": "jax"}}},
            "'jax' is not one of ['tensorflow', 'torch']",
        ),
        ({"dataset": "x", "config": {"rum": {}}}, "'rum' was unexpected"),
        ({}, "'dataset' is a required property"),
    ],
)
def test_a_bad_value_is_refused_in_words(parameters: dict[str, Any], said: str) -> None:
    with pytest.raises(jsonschema.ValidationError) as refused:
        jsonschema.validate(parameters, schema_of("train"))
    assert said in refused.value.message


@pytest.mark.parametrize("run", [None, {}, {"epochs": 3}, {"framework": "torch"}])
def test_the_flow_of_pytorch_trains_with_it_whatever_is_given(run: dict[str, Any] | None) -> None:
    given = {"dataset": "x", "config": {"model": {"name": "resnet50"}, "run": run}}
    jsonschema.validate(given, schema_of("train-torch"))
    assert train_torch.validate_parameters(given)["config"].run.framework == "torch"


def test_the_flow_of_pytorch_refuses_tensorflow() -> None:
    given = {"dataset": "x", "config": {"run": {"framework": "tensorflow"}}}
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate(given, schema_of("train-torch"))


@pytest.mark.parametrize("flow", FLOWS)
def test_a_form_names_no_types_of_python(flow: str) -> None:
    """Prefect's form shows the title of each kind of value, and "str", "int" or "None" without one."""
    schema = schema_of(flow)
    untitled = [
        name
        for name, field in fields(schema, schema["definitions"])
        for choice in field.get("anyOf", ())
        if "title" not in choice and "$ref" not in choice
    ]
    assert untitled == []


def test_every_wrong_parameter_is_named_with_what_is_right() -> None:
    config = {"image": {"size": 1}, "shrad": 1}
    body = json.dumps({"parameters": {"source": "rel/x", "dataset": "not a name", "config": config}}).encode()
    said = list(wrong_parameters(schema_of("prepare"), body))
    assert "source: 'rel/x' does not match what is asked for, such as /data/photos" in said
    assert "dataset: 'not a name' does not match what is asked for, such as photos" in said
    assert any(each.startswith("config") for each in said), said
    assert "^" not in "".join(said)
    assert list(wrong_parameters(schema_of("train"), b"{}")) == ["'dataset' is a required property"]
    assert list(wrong_parameters(schema_of("train"), b"no json")) == []
    assert list(wrong_parameters(schema_of("train"), b'{"parameters": {"dataset": "x"}}')) == []
