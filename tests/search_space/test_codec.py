"""The JSON codec: everything round-trips, and nothing else is accepted."""

from __future__ import annotations

import json
import math
from dataclasses import dataclass
from typing import Any, Literal

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from stitchtune.graphs.dtypes import DType
from stitchtune.graphs.subgraph import (
    AxisVar,
    Bound,
    FloorDiv,
    Index,
    Int,
    Lookup,
    Mod,
    Read,
    Slot,
    Subgraph,
    Sum,
    Value,
)
from stitchtune.search_space import codec
from stitchtune.search_space.plan import PLAN_SCHEMA, Edge, Group, Kernel, Phase, Plan, Stage
from stitchtune.search_space.target import DeviceModel, Target

numbers = st.integers(0, 2**40)
ints = st.lists(st.integers(0, 99), max_size=3).map(tuple)
scalars = st.one_of(st.integers(-(2**63), 2**64 - 1), st.floats(), st.booleans())


def reads(index: st.SearchStrategy[Any]) -> st.SearchStrategy[Read]:
    bounds = st.builds(Bound, index, numbers)
    return st.builds(
        Read,
        numbers,
        st.lists(index, max_size=2).map(tuple),
        st.lists(bounds, max_size=1).map(tuple),
        st.none() | scalars,
    )


indices: st.SearchStrategy[Any] = st.recursive(
    st.builds(AxisVar, numbers) | st.builds(Int, numbers) | st.builds(Slot, numbers),
    lambda inner: (
        st.builds(Sum, st.lists(st.tuples(st.integers(-9, 9), inner), min_size=1, max_size=2).map(tuple))
        | st.builds(FloorDiv, inner, numbers)
        | st.builds(Mod, inner, numbers)
        | st.builds(Lookup, reads(inner), numbers)
    ),
    max_leaves=4,
)
texts = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), max_size=5)
attrs = st.lists(st.tuples(texts, scalars | texts), max_size=2).map(tuple)
values = st.builds(
    Value,
    st.sampled_from(["input", "add", "sum"]),
    st.sampled_from(DType),
    ints,
    ints,
    st.lists(reads(indices), max_size=2).map(tuple),
    attrs,
    st.none() | indices,
)
subgraphs = st.builds(Subgraph, st.lists(values, max_size=3).map(tuple), ints, ints, ints)
places: tuple[Literal["inline", "register", "block", "global"], ...] = ("inline", "register", "block", "global")
stages = st.builds(Stage, ints, ints, ints, st.integers(-1, 9), st.integers(1, 16))
groups = st.builds(Group, st.lists(st.tuples(numbers, numbers), max_size=2).map(tuple), st.lists(stages).map(tuple))
kernels = st.builds(Kernel, st.lists(st.builds(Phase, st.lists(groups, max_size=2).map(tuple))).map(tuple))
plans = st.builds(
    Plan,
    st.lists(kernels, max_size=2).map(tuple),
    st.lists(st.builds(Edge, numbers, numbers, st.sampled_from(places)), max_size=3).map(tuple),
    dynamic=ints,
)


@settings(max_examples=60, deadline=None)
@given(subgraphs)
def test_subgraph_round_trips(sub: Subgraph) -> None:
    again = codec.loads(Subgraph, codec.dumps(sub))
    assert repr(again) == repr(sub)  # repr: NaN is not equal to itself, 1 equals True
    assert codec.dumps(again) == codec.dumps(sub)


@settings(max_examples=60, deadline=None)
@given(plans)
def test_plan_round_trips(plan: Plan) -> None:
    assert codec.loads(Plan, codec.dumps(plan)) == plan


json_data = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | texts | st.just("schema"),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(["schema", "kernels", "is"]), inner),
)


@settings(max_examples=100, deadline=None)
@given(json_data)
def test_arbitrary_data_is_a_value_or_one_line(data: Any) -> None:
    for kind in (Plan, Subgraph, Index, Target):
        complaint = refusal(kind, data)
        assert "\n" not in complaint
        assert len(complaint) < 400


def refusal(kind: Any, data: Any) -> str:
    try:
        codec.from_json(kind, data)
    except codec.CodecError as error:
        return str(error)
    return ""


def test_target_and_device() -> None:
    target = Target("cpu", "cpu", "avx2", 2, 32, 1, 1 << 18, 1 << 15, 1 << 25)
    model = DeviceModel(target, math.inf, 2e11, 1e12, 1e-6, 1e-7, 5e-7, (("add", 1e9), ("exp", 2e8)))
    data = codec.to_json(model)
    assert data["dram_bandwidth"] == {"float": "inf"}
    assert "source" not in data  # the default
    assert codec.from_json(DeviceModel, json.loads(json.dumps(data))) == model


def test_schema_versions() -> None:
    data = codec.to_json(Plan(()))
    assert data == {"schema": PLAN_SCHEMA, "kernels": []}
    assert codec.from_json(Plan, {"schema": 1, "kernels": []}) == Plan(()), "what older versions wrote is read"
    with pytest.raises(codec.NewerSchema, match=f"schema {PLAN_SCHEMA + 1} is newer"):
        codec.from_json(Plan, {"schema": PLAN_SCHEMA + 1, "kernels": [], "unheard": 1})
    with pytest.raises(codec.CodecError, match="schema"):
        codec.from_json(Plan, {"kernels": []})


@dataclass(frozen=True)
class Versioned:
    plan: Plan | None
    size: float = 1.0


def test_newer_schema_inside_another_value_keeps_its_kind() -> None:
    assert codec.loads(Versioned, codec.dumps(Versioned(Plan(())))) == Versioned(Plan(()))
    with pytest.raises(codec.NewerSchema, match=r"^plan: schema 9"):
        codec.from_json(Versioned, {"plan": {"schema": 9}})


@pytest.mark.parametrize(
    ("data", "message"),
    [
        ({"schema": 1}, "Plan needs the field 'kernels'"),
        ({"schema": 1, "kernels": {}}, "kernels: expected an array, got dict"),
        (
            {"schema": 1, "kernels": [{"phases": [{"groups": [3]}]}]},
            r"kernels\[0\].phases\[0\].groups\[0\]: expected an",
        ),
        ({"schema": 1, "kernels": [], "code": "import os"}, 'Plan has no field "code"'),
        ({"schema": 1, "kernels": [], "dynamic": [True]}, r"dynamic\[0\]: expected an integer, got true"),
        ({"schema": 1, "kernels": [], "dynamic": [1.0]}, r"dynamic\[0\]: expected an integer, got 1.0"),
        ({"schema": 1, "kernels": [], "dynamic": [2**70]}, "beyond 64 bits"),
        ({"schema": 1, "kernels": [], "edges": [{"value": 0, "consumer": 1, "place": "x" * 999}]}, r"place: .*\.\.\.$"),
        ([], r"expected an object \(Plan\), got list"),
    ],
)
def test_bad_plans_name_the_path(data: Any, message: str) -> None:
    with pytest.raises(codec.CodecError, match=message):
        codec.from_json(Plan, data)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "{",
        '{"schema":1,"schema":1,"kernels":[]}',
        '{"schema":1,"kernels":[],"dynamic":[NaN]}',
        '{"schema":1,"kernels":[],"dynamic":[' + "9" * 9999 + "]}",
        "[" * 100_000,
        b"\xff\xfe\xfd",
    ],
    ids=["empty", "cut", "repeated", "nan", "digits", "deep", "encoding"],
)
def test_bad_text_is_one_line(text: str | bytes) -> None:
    with pytest.raises(codec.CodecError) as caught:
        codec.loads(Plan, text)
    assert "\n" not in str(caught.value)
    assert len(str(caught.value)) < 200


def test_limits() -> None:
    with pytest.raises(codec.CodecError, match="more than 100 bytes"):
        codec.loads(Plan, " " * 101, limit=100)
    with pytest.raises(codec.CodecError, match="more than 100 bytes"):
        codec.parse("é" * 60, limit=100)
    assert codec.parse('"' + "é" * 40 + '"', limit=100) == "é" * 40
    index: Any = {"is": "AxisVar", "axis": 0}
    for _ in range(200):
        index = {"is": "Mod", "term": index, "divisor": 2}
    with pytest.raises(codec.CodecError, match="nested too deeply"):
        codec.from_json(Index, index)  # type: ignore[arg-type]


@pytest.mark.parametrize("text", ["\ud800", "a\0b"])
def test_strings_that_databases_refuse(text: str) -> None:
    with pytest.raises(codec.CodecError):
        codec.from_json(str, text)


def test_our_own_mistakes_are_type_errors() -> None:
    with pytest.raises(TypeError):
        codec.to_json(Plan(kernels=[]))  # type: ignore[arg-type]
    with pytest.raises(TypeError):
        codec.to_json(Plan((), dynamic=(1.5,)))  # type: ignore[arg-type]
    with pytest.raises(TypeError):
        codec.to_json(object())
