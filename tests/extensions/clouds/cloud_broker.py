"""A broker that takes tokens of clouds: SASL OAUTHBEARER, checked by ``CloudTokens.java``."""

from __future__ import annotations

import subprocess
import zipfile
from pathlib import Path

from tests.kafka import Broker, Listener
from tests.kafka_jars import kafka_jars
from tests.kafka_process import free_ports, java_server

SECRET = "secret-of-aws-93c1"
_LISTENER = "listener.name.cloud.oauthbearer"
_MODULE = "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule"


class CloudBroker(Broker):
    """Its listener at ``address`` ends sessions when their tokens end (KIP-368)."""

    def __init__(self, folder: Path) -> None:
        (port,) = free_ports(1)
        listener = Listener("CLOUD", "SASL_PLAINTEXT", port)
        self.address = listener.address
        login = f'{_MODULE} required secret="{SECRET}" unsecuredLoginStringClaim_sub="broker";'
        settings = {
            "sasl.enabled.mechanisms": "OAUTHBEARER",
            f"{_LISTENER}.sasl.jaas.config": login,
            f"{_LISTENER}.sasl.server.callback.handler.class": "CloudTokens",
            f"{_LISTENER}.connections.max.reauth.ms": 3_600_000,
        }
        super().__init__(folder, settings, listeners=[listener])
        jars = folder / "jars"
        jars.mkdir()
        for jar in kafka_jars().glob("*.jar"):
            (jars / jar.name).symlink_to(jar)
        _compile(Path(__file__).with_name("CloudTokens.java"), folder / "classes", jars / "tokens.jar")
        self._server = java_server(
            jars, "kafka.Kafka", folder / "server.properties", self.output, ["-Xmx512m"]
        )


def _compile(source: Path, classes: Path, jar: Path) -> None:
    command = ["javac", "-cp", f"{jar.parent}/*", "-d", str(classes), str(source)]
    subprocess.run(command, check=True, capture_output=True)
    with zipfile.ZipFile(jar, "w") as packed:
        for file in classes.glob("*.class"):
            packed.write(file, file.name)
