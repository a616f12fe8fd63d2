"""The public face of the library: its names, its parameters, and what a mistake in them gives."""

from __future__ import annotations

import dataclasses
import inspect
import subprocess
import sys
from collections.abc import Callable

import pytest

import commonplace
from commonplace import Commonplace, Filters, errors
from commonplace.engine import parts
from commonplace.engine.content import clusters, links
from commonplace.engine.content.memories import DRAFT_FIELDS, Changes, Details
from commonplace.engine.finding.filters import Conditions
from commonplace.errors import InvalidInput
from commonplace.storage.fields import FIELDS, FILTERABLE, MemoryFields

ENGINE_ONLY = (
    "call", "chains", "count_by_attrs", "count_reads_now", "files", "lease", "likeness", "locate",
    "memories_by_number", "memory_columns", "embed_all", "numbers_read_since",
    "similar_pairs", "similarity", "unembedded", "usages",
)  # fmt: skip


def test_the_parameters_of_a_memory_are_those_of_its_table_of_fields() -> None:
    changeable = {name for name, known in FIELDS.items() if known.changeable}
    assert Changes.__annotations__.keys() == changeable - {"text"}
    assert Details.__annotations__.keys() == set(DRAFT_FIELDS) - {"text", "origin"}
    declared = {field.name: field.type for field in dataclasses.fields(MemoryFields)}
    for name, hint in Details.__annotations__.items():
        if name in declared:
            written = hint.__forward_arg__.replace("When", "datetime | str")
            assert written == declared[name], name


def test_the_conditions_of_a_search_are_those_of_filters() -> None:
    declared = {field.name: str(field.type) for field in dataclasses.fields(Filters)}
    written = {
        name: hint.__forward_arg__.replace("When", "datetime | str")
        for name, hint in Conditions.__annotations__.items()
    }
    assert written == declared | dict.fromkeys(FILTERABLE, "str | None")


@pytest.mark.parametrize(
    ("function", "names"),
    [
        (Commonplace.remember, {"text", "origin", *Details.__annotations__}),
        (Commonplace.revise, {"text", "expected_version", *Changes.__annotations__}),
        (Commonplace.supersede, {"reason", *Details.__annotations__}),
        (Commonplace.recall, {"query", "limit", *Conditions.__annotations__}),
        (Commonplace.recall_sessions, {"query", *Conditions.__annotations__}),
        (Commonplace.browse, {"order", *Conditions.__annotations__}),
        (Commonplace.find_text, {"needle", *Conditions.__annotations__}),
        (parts.Links.revise, {"origin", *links.LinkChanges.__annotations__}),
        (parts.Clusters.revise, {"origin", *clusters.ClusterChanges.__annotations__}),
    ],
)
def test_help_and_completion_show_every_parameter(
    function: Callable[..., object], names: set[str]
) -> None:
    parameters = inspect.signature(function).parameters
    assert names <= parameters.keys()
    assert all(each.kind is not each.VAR_KEYWORD for each in parameters.values())
    assert inspect.getdoc(function)


def test_the_defaults_that_are_shown_are_those_of_the_fields() -> None:
    shown = inspect.signature(Commonplace.remember).parameters
    assert (shown["kind"].default, shown["importance"].default) == ("note", 0.5)
    assert inspect.signature(Commonplace.recall).parameters["kinds"].default is None
    assert inspect.signature(Commonplace.revise).parameters["kind"].default is ...


@pytest.mark.parametrize(
    ("call", "name"),
    [
        (lambda memory: memory.remember("text", knd="note"), "knd"),
        (lambda memory: memory.supersede("one", "text", knd="note"), "knd"),
        (lambda memory: memory.revise("one", created_at="2026-01-01"), "created_at"),
        (lambda memory: memory.recall("text", kind="note"), "kind"),
        (lambda memory: memory.recall_sessions("text", kind="note"), "kind"),
        (lambda memory: memory.browse(sort="oldest"), "sort"),
        (lambda memory: memory.find_text("text", tag="a"), "tag"),
        (lambda memory: memory.links.revise("one", kind="a"), "kind"),
        (lambda memory: memory.clusters.revise("one", title="a"), "title"),
    ],
)
def test_a_field_that_there_is_not_is_named_with_those_that_there_are(
    memory: Commonplace, call: Callable[[Commonplace], object], name: str
) -> None:
    memory.remember("text", ref="one")
    before = memory.history.operations()
    with pytest.raises(InvalidInput) as caught:
        call(memory)
    assert caught.value.field == name and name in caught.value.message and caught.value.hint
    assert memory.history.operations() == before


def test_another_misspelt_argument_is_a_type_error_that_names_it(memory: Commonplace) -> None:
    for call in (
        lambda: memory.links.add("a", "b", "cites", wait=0.5),  # type: ignore[call-arg]
        lambda: memory.facts.query(entty="Alice"),  # type: ignore[call-arg]
        lambda: memory.undo(operaton="x"),  # type: ignore[call-arg]
    ):
        with pytest.raises(TypeError, match=r"wait|entty|operaton"):
            call()


def test_a_text_is_revised_by_position_or_by_name_and_none_leaves_it(memory: Commonplace) -> None:
    one = memory.remember("first")
    assert memory.revise(one.id, "second").text == "second"
    assert memory.revise(one.id, text="third").text == "third"
    assert memory.revise(one.id, title="named").text == "third"
    version = memory.get(one.id).version
    assert memory.revise(one.id).version == version


def test_what_is_for_the_engines_own_use_is_not_on_the_public_class(memory: Commonplace) -> None:
    assert [name for name in ENGINE_ONLY if hasattr(memory, name)] == []


def test_every_public_name_can_be_imported_and_every_error_is_one() -> None:
    for name in commonplace.__all__:
        assert getattr(commonplace, name) is not None, name
    raised = {
        name
        for name, value in vars(errors).items()
        if inspect.isclass(value) and issubclass(value, errors.CommonplaceError)
    }
    assert raised <= set(commonplace.__all__)


def test_what_a_method_returns_can_be_imported_from_the_package() -> None:
    built_in = {"None", "str", "int", "float", "list", "tuple", "dict", "datetime", "Iterator"}
    for owner in parts.Part.__subclasses__():  # Commonplace is one, too
        for name, function in inspect.getmembers(owner, inspect.isfunction):
            returned = inspect.signature(function).return_annotation
            if name.startswith("_") or not isinstance(returned, str):
                continue
            words = set(returned.replace("[", " ").replace("]", " ")
                        .replace(",", " ").replace("|", " ").split())  # fmt: skip
            assert words - built_in <= set(commonplace.__all__), (name, returned)


def test_importing_the_package_loads_nothing_of_it() -> None:
    code = (
        "import sys, commonplace\n"
        "loaded = [name for name in sys.modules if name.startswith('commonplace.')]\n"
        "assert loaded == [], loaded\n"
        "assert not {'numpy', 'apsw', 'inspect', 'dataclasses'} & sys.modules.keys()\n"
        "from commonplace import NotFound\n"
        "assert not {'numpy', 'apsw'} & sys.modules.keys()\n"
        "from commonplace import Commonplace\n"
        "assert 'numpy' not in sys.modules\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60)
