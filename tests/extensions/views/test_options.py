"""The option ``view``: which there are, what narrows each, and what is refused."""

from __future__ import annotations

import pytest

from pyspark_kafkalog.errors import OptionError
from pyspark_kafkalog.extensions.views.options import ViewOptions, view_options
from pyspark_kafkalog.options.settings import Selection, read_options


def parsed(**options: str) -> ViewOptions | None:
    return view_options({"path": "/log", **{name.replace("__", "."): text for name, text in options.items()}})


def test_records_are_no_view() -> None:
    assert parsed(subscribe="t") is None


def test_what_narrows_a_view() -> None:
    assert parsed(view="topics", subscribe="a,b") == ViewOptions("topics", Selection(topics=("a", "b")), None)
    assert parsed(view="Groups", kafka__group__id=" a, b,a ") == ViewOptions(
        "groups", Selection(), ("a", "b")
    )
    assert parsed(view="group-offsets", subscribePattern="a.", kafka__group__id="g") == ViewOptions(
        "group-offsets", Selection(pattern="a."), ("g",)
    )
    assert parsed(view="topics", topics__exclude="a,b").selection == Selection(exclude=("a", "b"))


def test_what_a_view_of_batches_takes() -> None:
    given = parsed(view="batches", subscribe="t", checkCrcs="false", minPartitions="4")
    assert given == ViewOptions("batches", Selection(topics=("t",)), None, False, 4)
    assert parsed(view="batches") == ViewOptions("batches", Selection(), None, True, None)


def test_settings_of_clients_stay() -> None:
    options = {"kafka.bootstrap.servers": "host:9092", "kafka.fetch.max.bytes": "1", "view": "topics"}
    assert view_options({**options, "kafka.request.timeout.ms": "100"}) is not None


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"view": "offsets"}, "'view': expected one of group-offsets, groups, topics"),
        (
            {"view": "topics", "startingOffsets": "earliest"},
            "'startingOffsets' does not apply to view=topics",
        ),
        ({"view": "topics", "kafka__group__id": "g"}, "'kafka.group.id' does not apply to view=topics"),
        ({"view": "groups", "subscribe": "t"}, "'subscribe' does not apply to view=groups.*kafka.group.id"),
        ({"view": "groups", "commitOffsets": "true"}, "'commitOffsets' does not apply to view="),
        ({"view": "groups", "kafka__group__id": ", "}, "names no group"),
        ({"view": "topics", "viewe": "x"}, "Unknown option 'viewe'.*view"),
        ({"view": "topics", "topic": "t"}, "'topic' is for writing only"),
        ({"view": "batches", "rawBytes": "measured"}, "Unknown option 'rawBytes'"),
        ({"view": "audit", "subscribe": "t,u"}, "An audit is read from one topic, got 2"),
        ({"view": "audit", "assign": '{"t":[0]}'}, "'assign' does not apply to view=audit.*subscribe"),
    ],
)
def test_what_is_refused(options: dict[str, str], said: str) -> None:
    with pytest.raises(OptionError, match=said):
        parsed(**options)


def test_no_stream_has_a_view() -> None:
    with pytest.raises(OptionError, match="'view' is not valid in streaming queries"):
        read_options({"path": "/log", "view": "topics"}, batch=False)


def test_an_audit_is_shown_of_a_folder_or_of_a_topic() -> None:
    assert parsed(view="audit") == ViewOptions("audit", Selection(), None)
    brokers = {"kafka.bootstrap.servers": "host:9092", "view": "audit"}
    found = view_options({**brokers, "subscribe": "audits"})
    assert found == ViewOptions("audit", Selection(topics=("audits",)), None)
    with pytest.raises(OptionError, match=r"from one topic, got 0.*auditTopic.*subscribe"):
        view_options(brokers)
    with pytest.raises(OptionError, match=r"view=segments reads a folder, not brokers.*view=batches"):
        view_options({"kafka.bootstrap.servers": "host:9092", "view": "segments"})
