"""What a process loads of kafka-python, and that others find all of it."""

from __future__ import annotations

import subprocess
import sys

import pytest

READ = "import pyspark_kafkalog.broker.place, pyspark_kafkalog.broker.fetch.fetcher"


def run(code: str) -> str:
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    return done.stdout.strip()


def test_a_reader_loads_none_of_its_clients() -> None:
    code = f"{READ}; import sys; print(*sorted(name for name in sys.modules if name.startswith('kafka.')))"
    loaded = run(code).split()
    assert "kafka.protocol.consumer.fetch" in loaded
    clients = ("kafka.admin", "kafka.consumer", "kafka.producer", "kafka.net", "kafka.protocol.admin")
    assert not [name for name in loaded if name.startswith(clients)]


LOGIN = f"""
{READ}
from pyspark_kafkalog.broker.fetch import first, link
from pyspark_kafkalog.broker.wire.sasl import sasl_configs
from pyspark_kafkalog.broker.fetch.rack import rack_of
from pyspark_kafkalog.options.settings import place_options
sasl_configs(place_options({{"kafka.bootstrap.servers": "host:9092", **GIVEN}}).brokers.security, "host")
rack_of(RACK)
import sys
found = ("pyspark_kafkalog.extensions.clouds.", "urllib.req")
print(*sorted(name for name in sys.modules if name.startswith(found)))
"""
"""A process that reads and logs in; the names in capitals are given."""


def login(mechanism: str, module: str, **more: str) -> dict[str, str]:
    jaas = f"org.apache.kafka.common.security.{module};"
    sasl = {"kafka.security.protocol": "SASL_SSL", "kafka.sasl.mechanism": mechanism}
    return {**sasl, "kafka.sasl.jaas.config": jaas, **more}


@pytest.mark.parametrize(
    ("given", "rack"),
    [
        ({}, "use1-az1"),
        ({}, "env:HOME"),
        (login("PLAIN", "plain.PlainLoginModule required username=u password=p"), ""),
        (login("SCRAM-SHA-256", "scram.ScramLoginModule required username=u password=p"), ""),
    ],
)
def test_who_names_no_cloud_loads_none(given: dict[str, str], rack: str) -> None:
    """Nor HTTP, which is as much again as the rest of a read."""
    loaded = run(LOGIN.replace("GIVEN", repr(given)).replace("RACK", repr(rack))).split()
    assert not loaded


def test_a_token_of_no_cloud_loads_none() -> None:
    module = "oauthbearer.OAuthBearerLoginModule required oauth.access.token=t"
    code = LOGIN.replace("GIVEN", repr(login("OAUTHBEARER", module))).replace("RACK", "''")
    loaded = [name.rpartition(".")[2] for name in run(code).split()]
    assert not {"aws", "tokens", "metadata"} & {*loaded}


@pytest.mark.parametrize(
    "use",
    [
        "from kafka import KafkaConsumer as client",
        "import kafka; client = kafka.KafkaConsumer",
        "import kafka; assert kafka.__version__; client = kafka.KafkaConsumer",
        "from kafka import *; client = KafkaConsumer",
        "import kafka.consumer; client = kafka.consumer.KafkaConsumer",
        "import importlib, kafka; client = importlib.reload(kafka).KafkaConsumer",
    ],
)
def test_its_package_is_whole_for_others(use: str) -> None:
    before, after = (
        run(f"{code}; print(client.__module__, client.__name__)") for code in (use, f"{READ}; {use}")
    )
    assert after == before == "kafka.consumer.group KafkaConsumer"


def test_threads_that_ask_at_once_find_it_whole() -> None:
    code = f"""
{READ}
import kafka
from concurrent.futures import ThreadPoolExecutor
with ThreadPoolExecutor(16) as threads:
    print(len(set(threads.map(lambda _: id(kafka.KafkaProducer), range(64)))))
"""
    assert run(code) == "1"


def test_what_it_lacks_is_an_error_as_before() -> None:
    code = f"{READ}; import kafka; print(hasattr(kafka, 'nothing'), hasattr(kafka, '__wrapped__'))"
    assert run(code) == "False False"


def test_a_package_that_was_loaded_before_is_left_alone() -> None:
    code = f"import kafka; before = kafka; {READ}; import kafka; print(kafka is before, type(kafka).__name__)"
    assert run(code) == "True module"
