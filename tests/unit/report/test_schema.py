"""The JSON contract: published, complete, and safe from silent changes."""

import importlib.util
import json
from dataclasses import dataclass, make_dataclass
from datetime import UTC, datetime
from pathlib import Path

import pytest
from jsonschema import Draft202012Validator
from referencing import Registry, Resource

from cluster.model.deployment import State
from cluster.model.events import Failed, Finding, Progress, Severity, StatusReport
from cluster.report.schema import KINDS, all_schemas, breaks, event_name, event_schema, to_json
from tests.fakes.events import filled

ROOT = Path(__file__).resolve().parents[3]
AT = datetime(2026, 11, 30, 17, 31, 2, 123999, tzinfo=UTC)


def script():
    """The command that writes the schemas, as a module; `scripts` is no package."""
    spec = importlib.util.spec_from_file_location("schemas", ROOT / "scripts" / "schemas.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def closed(schema):
    """The schema with every object shut, so that a field that is not published fails."""
    if isinstance(schema, list):
        return [closed(one) for one in schema]
    if not isinstance(schema, dict):
        return schema
    shut = {"additionalProperties": False} if "properties" in schema else {}
    return {key: closed(value) for key, value in schema.items()} | shut


def test_the_published_schemas_are_up_to_date():
    schemas = script()
    assert schemas.differing(schemas.FOLDER) == []


def test_the_committed_version_still_holds():
    schemas = script()
    assert schemas.broken(schemas.FOLDER) == []


@pytest.mark.parametrize("kind", KINDS, ids=event_name)
def test_every_event_is_what_its_schema_says(kind):
    schema = closed(event_schema(kind))
    Draft202012Validator.check_schema(schema)
    Draft202012Validator(schema).validate(json.loads(json.dumps(to_json(filled(kind, "text"), AT))))


@pytest.mark.parametrize("kind", KINDS, ids=event_name)
def test_every_line_is_exactly_one_of_the_published_events(kind):
    resources = [Resource.from_contents(schema) for schema in all_schemas().values()]
    registry = Registry().with_resources([(one.contents["$id"], one) for one in resources])
    validator = Draft202012Validator(all_schemas()["any.schema.json"], registry=registry)
    validator.validate(to_json(filled(kind, "text"), AT))


def test_an_event_without_a_field_is_refused():
    shown = to_json(filled(Finding, "text"), AT)
    del shown["observed"]
    assert not Draft202012Validator(event_schema(Finding)).is_valid(shown)


def test_an_event_is_its_fields_in_an_envelope():
    assert to_json(Finding("PORT.FREE", Severity.REFUSAL, "a", "held", fix="free it"), AT) == {
        "schema": "sparkctl/1",
        "event": "finding",
        "time": "2026-11-30T17:31:02.123Z",
        "id": "PORT.FREE",
        "severity": "refusal",
        "node": "a",
        "observed": "held",
        "expected": "",
        "fix": "free it",
        "details": [],
    }


def test_a_report_is_named_by_what_it_reports():
    names = [event_name(kind) for kind in (StatusReport, Failed, Progress)]
    assert names == ["status", "failed", "progress"]


def test_a_number_that_json_does_not_have_becomes_null():
    report = StatusReport("demo", State.SERVING, "", "", (), (), (), running=float("nan"))
    assert to_json(report, AT)["running"] is None


def test_an_event_may_not_use_the_names_of_the_envelope():
    with pytest.raises(TypeError, match="envelope's field time"):
        event_schema(make_dataclass("Late", [("time", str)]))


def test_an_event_may_not_hold_what_json_cannot_show():
    with pytest.raises(TypeError, match="may not hold"):
        event_schema(make_dataclass("Odd", [("raw", bytes)]))


@dataclass(frozen=True)
class Inner:
    severity: Severity
    size: int


@dataclass(frozen=True)
class Old:
    inner: tuple[Inner, ...]
    name: str
    size: int | None


def changed(*swaps):
    """The schema of Old as text with pieces swapped."""
    text = json.dumps(event_schema(Old))
    for before, after in swaps:
        assert before in text
        text = text.replace(before, after)
    return breaks(event_schema(Old), json.loads(text))


def test_the_same_schema_breaks_nothing():
    assert changed() == []


def test_a_new_field_or_choice_breaks_nothing():
    assert changed(('"name": {', '"more": {"type": "string"}, "name": {'), ('"refusal"', '"refusal", "new"')) == []


@pytest.mark.parametrize(
    ("swap", "said"),
    [
        (('"name": {', '"title": {'), ["name is gone"]),
        (('"severity": {', '"level": {'), ["Inner.severity is gone"]),
        (('"refusal"', '"no"'), ["Inner.severity no longer is 'refusal'"]),
        (('["integer", "null"]', '"integer"'), ["size changed its type"]),
        (('"size": {"type": "integer"}', '"size": {"type": "string"}'), ["Inner.size changed its type"]),
        (('"const": "old"', '"const": "new"'), ["event changed its const"]),
    ],
)
def test_what_a_reader_could_trip_over_is_named(swap, said):
    assert changed(swap) == said
