"""The package as it is installed: imports little and without fail, and says what it needs."""

from __future__ import annotations

import importlib.metadata
import subprocess
import sys

import pytest
from packaging.requirements import Requirement

import pyspark_kafkalog
from tests.fixtures_dir import SMALL_FIXTURES

SEGMENT = SMALL_FIXTURES / "logs/v2-lz4/v2-lz4-0/00000000000000000000.log"


def run(code: str) -> str:
    return subprocess.run(
        [sys.executable, "-c", code], check=True, capture_output=True, text=True, timeout=60
    ).stdout.strip()


def test_importing_loads_its_version_and_little_of_python() -> None:
    """PySpark imports it in each driver and worker, be it used or not."""
    code = "import sys; before = {*sys.modules}; import pyspark_kafkalog; print(*{*sys.modules} - before)"
    loaded = run(code).split()
    ours = {name for name in loaded if name.split(".")[0] not in sys.stdlib_module_names}
    assert ours == {"pyspark_kafkalog", "pyspark_kafkalog._version"}
    assert len(loaded) < 40, "typing brings 25"


def test_planning_loads_neither_arrow_nor_numba() -> None:
    loaded = run("import sys, pyspark_kafkalog.stream.planner; print(*sys.modules)").split()
    assert not {"pyspark", "pyarrow", "numpy", "numba"} & set(loaded)


def test_reading_loads_no_pandas() -> None:
    """pyarrow imports it for the first value that it is given, which would take each worker 0.2 s."""
    code = f"""
from pathlib import Path
import sys
import pyarrow as pa
from pyspark_kafkalog import OffsetRange, TopicPartition, decode
from pyspark_kafkalog.codec.rows import ROW_TYPES
rows = decode(
    Path({str(SEGMENT)!r}).read_bytes(),
    topic_partition=TopicPartition("v2-lz4", 0),
    offsets=OffsetRange(0, 1 << 62),
    visible=None,
    schema=pa.schema(ROW_TYPES),
)
print(sum(batch.num_rows for batch, _ in rows), "pandas" in sys.modules)
"""
    rows, pandas = run(code).split()
    assert int(rows) > 0
    assert pandas == "False"


WITHOUT_PYSPARK = "import sys; sys.modules['pyspark'] = None; import pyspark_kafkalog as package;"


def test_without_pyspark_all_is_there_but_what_spark_runs() -> None:
    run(f"{WITHOUT_PYSPARK} help(package)")
    missing = run(f"{WITHOUT_PYSPARK} print(*sorted({{*package.__all__}} - {{*dir(package)}}))")
    assert missing.split() == [
        "AuditListener",
        "DefaultSource",
        "LagListener",
        "QueryCheckpoint",
        "Registration",
        "backup",
        "by_value",
        "dead_letters",
        "doctor",
        "reassemble",
        "register",
    ]
    used = "from pyspark_kafkalog import connect, decode; from pyspark_kafkalog.tools import cli"
    run(f"{WITHOUT_PYSPARK} {used}; connect('x').records")


@pytest.mark.parametrize("code", ["from pyspark_kafkalog import DefaultSource", "package.DefaultSource"])
def test_without_pyspark_an_import_names_the_extra(code: str) -> None:
    code = f"{WITHOUT_PYSPARK} {code}"
    done = subprocess.run([sys.executable, "-c", code], check=False, capture_output=True, text=True)
    assert done.stderr.splitlines()[-1] == (
        "ImportError: pyspark_kafkalog.DefaultSource needs PySpark: pip install pyspark pandas,"
        " or use an environment that has PySpark already"
    )


def test_only_the_fixtures_need_pytest() -> None:
    without = "import sys; sys.modules['pytest'] = None;"
    assert "LocalBroker" in run(f"{without} from pyspark_kafkalog import LocalBroker; print(LocalBroker)")
    with pytest.raises(subprocess.CalledProcessError):
        run(f"{without} import pyspark_kafkalog.testing")
    assert "kafka_broker" in run("import pyspark_kafkalog.testing as fixtures; print(fixtures.__all__)")


def test_a_pyspark_that_is_too_old_hides_no_other_data_source() -> None:
    """Spark asks each package for a DefaultSource by ``hasattr``, which lets only an AttributeError pass."""
    code = "import sys; sys.modules['pyspark.sql.datasource'] = None; import pyspark_kafkalog as package;"
    assert run(f"{code} print(hasattr(package, 'DefaultSource'))") == "False"


def test_windows_is_told_in_a_sentence() -> None:
    code = "import sys; sys.platform = 'win32'; import pyspark_kafkalog, pyspark_kafkalog.places"
    done = subprocess.run([sys.executable, "-c", code], check=False, capture_output=True, text=True)
    last = done.stderr.splitlines()[-1]
    assert last == "ImportError: pyspark-kafkalog runs on Linux and macOS, not on Windows"


def test_the_data_source_is_there_for_spark_to_find() -> None:
    assert pyspark_kafkalog.DefaultSource.name() == "kafkalog"


def test_the_listener_is_there_for_users() -> None:
    from pyspark_kafkalog import LagListener

    assert LagListener().latest == {}


def test_metadata() -> None:
    metadata = importlib.metadata.metadata("pyspark-kafkalog")
    assert metadata["Version"] == pyspark_kafkalog.__version__
    requirements = importlib.metadata.requires("pyspark-kafkalog") or []
    needed = [Requirement(requirement) for requirement in requirements if "extra" not in requirement]
    assert all(">=" in str(requirement.specifier) for requirement in needed), "oldest versions are known"
    assert {"pyspark", "pandas"}.isdisjoint(requirement.name for requirement in needed)
    assert "spark" in metadata.get_all("Provides-Extra", [])


def test_names_that_do_not_exist_are_attribute_errors() -> None:
    assert not hasattr(pyspark_kafkalog, "NoSuchThing")
