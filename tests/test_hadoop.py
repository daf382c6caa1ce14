"""A path of a checkpoint is looked for where Spark looks for it."""

from __future__ import annotations

from pathlib import Path

import pytest

from pyspark_kafkalog.errors import LogDirectoryError
from pyspark_kafkalog.filesystem.hadoop import locate_as_hadoop, qualified

_CONF_DIRS = ("SPARK_CONF_DIR", "HADOOP_CONF_DIR", "YARN_CONF_DIR")


@pytest.fixture(autouse=True)
def no_hadoop(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in _CONF_DIRS:
        monkeypatch.delenv(name, raising=False)


@pytest.mark.parametrize(
    ("location", "default", "found"),
    [
        ("/a/b", None, "/a/b"),
        ("a/b", None, "a/b"),
        ("/a/b", "file:///", "/a/b"),
        ("file:/a", "hdfs://h:1", "file:/a"),
        ("/a/b", "hdfs://h:1", "hdfs://h:1/a/b"),
        ("/a/b", "viewfs://c/", "viewfs://c/a/b"),
        ("hdfs:/a", "hdfs://h:1/", "hdfs://h:1/a"),
        ("hdfs:///a", "hdfs://h:1/", "hdfs://h:1/a"),
        ("hdfs://other/a", "hdfs://h:1/", "hdfs://other/a"),
        ("s3a://bucket/a", "hdfs://h:1", "s3a://bucket/a"),
        ("s3a:/a", "hdfs://h:1", "s3a:/a"),
        ("/with:colon/a", "hdfs://h:1", "hdfs://h:1/with:colon/a"),
    ],
)
def test_a_path_belongs_to_the_default_file_system(location: str, default: str | None, found: str) -> None:
    assert qualified(location, default) == found


def test_a_relative_path_elsewhere_is_refused() -> None:
    with pytest.raises(LogDirectoryError, match=r"user's folder in hdfs://h:1.*absolute path, or a URI"):
        qualified("a/b", "hdfs://user:secret@h:1")


@pytest.mark.parametrize("name", _CONF_DIRS)
def test_hadoops_configuration(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(name, str(tmp_path))
    assert qualified("/a") == "/a"
    file = tmp_path / "core-site.xml"
    for content, found in (
        ("<configuration><property><name>fs.defaultFS</name><value>hdfs://h:1</value></property>", "/a"),
        ("<configuration><property><name>x</name><value>hdfs://h:1</value></property></configuration>", "/a"),
        (
            "<configuration><property><value>hdfs://h:1</value><name>fs.defaultFS</name></property>"
            "</configuration>",
            "hdfs://h:1/a",
        ),
    ):
        file.write_text(content)
        assert qualified("/a") == found
    assert qualified("/a", "file:///") == "/a"
    assert qualified("/a", "viewfs://c") == "viewfs://c/a"


@pytest.mark.parametrize("name", ["a b", "ä", "a%20b", "a?b#c", "a+b"])
def test_names_are_as_they_are(tmp_path: Path, name: str) -> None:
    for prefix in ("", "file:", "file://", "file://localhost"):
        assert locate_as_hadoop(f"{prefix}{tmp_path}/{name}").path == f"{tmp_path}/{name}"


def test_a_local_path_is_opened(tmp_path: Path) -> None:
    assert locate_as_hadoop(str(tmp_path)).path == str(tmp_path)
    assert locate_as_hadoop(f"file:{tmp_path}", "hdfs://h:1").path == str(tmp_path)
