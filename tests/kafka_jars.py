"""The jars of servers and of tools that only tests run, fetched like Kafka's."""

from __future__ import annotations

import importlib.metadata
import tarfile
from pathlib import Path

from pyspark_kafkalog.tools.try_out.jars import KAFKA_VERSION, java, kafka_jars, once, resolve, run_ivy

__all__ = [
    "KAFKA_VERSION",
    "OLDEST_KAFKA_VERSION",
    "OLD_KAFKA_VERSION",
    "apicurio_protobuf_serde_jars",
    "apicurio_registry",
    "apicurio_serde_jars",
    "delta_jars",
    "glue_serde_jars",
    "java",
    "kafka_jars",
    "kafka_jars_of",
    "mirror_maker_jars",
    "msk_iam_jars",
    "s3proxy_jars",
    "spark_avro_jars",
    "spark_kafka_connector_jars",
    "zookeeper_jars",
]

OLD_KAFKA_VERSION = "2.8.2"
OLDEST_KAFKA_VERSION = "1.1.1"
ZOOKEEPER_VERSION = "3.9.4"
_OLD_KAFKA = {
    OLD_KAFKA_VERSION: (f"org.apache.kafka:kafka_2.13:{OLD_KAFKA_VERSION}", "org.slf4j:slf4j-simple:1.7.36"),
    OLDEST_KAFKA_VERSION: (
        f"org.apache.kafka:kafka_2.12:{OLDEST_KAFKA_VERSION}",
        "org.slf4j:slf4j-simple:1.7.36",
    ),
    **{
        version: (f"org.apache.kafka:kafka_2.11:{version}", "org.slf4j:slf4j-simple:1.7.36")
        for version in ("0.8.2.2", "0.9.0.1", "0.10.0.1")
    },
}
# The server's own distribution brings the second and the third.
_ZOOKEEPER = (
    f"org.apache.zookeeper:zookeeper:{ZOOKEEPER_VERSION}",
    "io.dropwizard.metrics:metrics-core:4.1.12.1",
    "org.xerial.snappy:snappy-java:1.1.10.5",
    "org.slf4j:slf4j-simple:2.0.13",
)
_S3PROXY = ("org.gaul:s3proxy:4.1.0",)
_APICURIO = ("io.apicurio", "apicurio-registry-app", "3.0.9")
# Other versions of Spark than 4.2 can't load its connector.
_SPARK_CONNECTORS = {"4.0": ("4.0.0", "4.0.0"), "4.1": ("4.1.1", "4.1.1")}
_SPARK_CONNECTOR = "4.2.0", "4.1.0-preview1"
_MSK_IAM = ("software.amazon.msk:aws-msk-iam-auth:2.3.5",)
_GLUE_SERDE = ("software.amazon.glue:schema-registry-serde:1.1.24",)
_APICURIO_SERDE = (
    "io.apicurio:apicurio-registry-avro-serde-kafka:3.1.7",
    "io.apicurio:apicurio-registry-jsonschema-serde-kafka:3.1.7",
    "org.apache.kafka:kafka-clients:3.9.2",
)
_APICURIO_PROTOBUF_SERDE = (
    "io.apicurio:apicurio-registry-protobuf-serde-kafka:3.1.7",
    "org.apache.kafka:kafka-clients:3.9.2",
)
_DELTA = ("io.delta:delta-spark_4.2_2.13:4.4.0", "io.delta:delta-storage:4.4.0")
_SPARK_AVRO = ("org.apache.spark:spark-avro_2.13:4.2.0",)
_MIRROR_MAKER = (f"org.apache.kafka:connect-mirror:{KAFKA_VERSION}", "org.slf4j:slf4j-simple:1.7.36")


def kafka_jars_of(version: str) -> Path:
    """The folder with the jars of an old broker, its consumers and its ZooKeeper."""
    return resolve(f"kafka-{version}", _OLD_KAFKA[version])


def zookeeper_jars() -> Path:
    """The folder with the jars of ZooKeeper."""
    return resolve(f"zookeeper-{ZOOKEEPER_VERSION}", _ZOOKEEPER)


def spark_kafka_connector_jars() -> list[Path]:
    """The jars of Spark's own ``kafka`` source and sink, for the PySpark that is installed."""
    release = ".".join(importlib.metadata.version("pyspark").split(".")[:2])
    version, of_provider = _SPARK_CONNECTORS.get(release, _SPARK_CONNECTOR)
    # Taken one by one: what they depend on is among PySpark's own jars.
    jars = (
        f"org.apache.spark:spark-sql-kafka-0-10_2.13:{version}",
        f"org.apache.spark:spark-token-provider-kafka-0-10_2.13:{of_provider}",
        "org.apache.kafka:kafka-clients:3.9.2",
        "org.apache.commons:commons-pool2:2.12.1",
    )
    return sorted(resolve(f"spark-kafka-connector-{version}", jars, transitive=False).glob("*.jar"))


def spark_avro_jars() -> list[Path]:
    """The jar of Spark's ``from_avro``."""
    return sorted(resolve("spark-avro-4.2.0", _SPARK_AVRO, transitive=False).glob("*.jar"))


def delta_jars() -> list[Path]:
    """The jars of Delta Lake. A session needs its extension and its catalog, too."""
    return sorted(resolve("delta-4.4.0", _DELTA, transitive=False).glob("*.jar"))


def s3proxy_jars() -> Path:
    """The folder with the jars of S3Proxy, an S3 server."""
    return resolve("s3proxy-4.1.0", _S3PROXY)


def msk_iam_jars() -> Path:
    """The folder with the jars of Amazon's logins to MSK."""
    return resolve("aws-msk-iam-auth-2.3.5", _MSK_IAM)


def glue_serde_jars() -> Path:
    """The folder with the jars of awslabs' serializers for the Glue Schema Registry."""
    return resolve("schema-registry-serde-1.1.24", _GLUE_SERDE)


def apicurio_serde_jars() -> Path:
    """The folder with the jars of Apicurio's serializers."""
    return resolve("apicurio-serde-3.1.7", _APICURIO_SERDE)


def apicurio_protobuf_serde_jars() -> Path:
    """The folder with the jars of Apicurio's serializers of Protobuf."""
    return resolve("apicurio-protobuf-serde-3.1.7", _APICURIO_PROTOBUF_SERDE)


def mirror_maker_jars() -> Path:
    """The folder with the jars of MirrorMaker 2."""
    return resolve(f"mirror-maker-{KAFKA_VERSION}", _MIRROR_MAKER)


def apicurio_registry() -> Path:
    """The folder with Apicurio Registry, which serves Confluent's API; ``*-runner.jar`` starts it."""
    organisation, name, version = _APICURIO
    artifact = f'<artifact name="{name}" type="tar.gz" ext="tar.gz" m:classifier="all"/>'

    def unpack(folder: Path, ivy_cache: Path) -> None:
        settings = folder / "ivysettings.xml"
        # Its .pom names a parent that Maven Central does not have.
        settings.write_text(
            '<ivysettings><settings defaultResolver="central"/><resolvers>'
            '<ibiblio name="central" m2compatible="true" usepoms="false"/></resolvers></ivysettings>'
        )
        dependency = f'<dependency org="{organisation}" name="{name}" rev="{version}" transitive="false">'
        run_ivy(
            ivy_cache / "without-poms",
            folder,
            f"{dependency}{artifact}</dependency>",
            "-settings",
            str(settings),
        )
        (archive,) = folder.glob("*.tar.gz")
        with tarfile.open(archive) as packed:
            packed.extractall(folder, filter="data")
        archive.unlink()

    return once(f"{name}-{version}", unpack)
