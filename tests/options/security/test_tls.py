"""What TLS checks and shows."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

from pyspark_kafkalog.errors import OptionError
from pyspark_kafkalog.options.security.pem import certificates, private_key
from pyspark_kafkalog.options.security.tls import TlsOptions
from pyspark_kafkalog.options.settings import place_options
from pyspark_kafkalog.tls import tls_context
from tests.options.security.test_pem import CERTIFICATE, KEY


def tls(spoken: str = "SSL", **values: str) -> TlsOptions | None:
    options = {"kafka.bootstrap.servers": "host:9092", "kafka.security.protocol": spoken}
    options.update((f"kafka.ssl.{name.replace('__', '.')}", value) for name, value in values.items())
    place = place_options(options)
    assert place.brokers is not None
    return place.brokers.security.tls


def test_defaults() -> None:
    assert tls() == TlsOptions()
    assert tls("plaintext") is None


def test_pem_as_text() -> None:
    assert tls(
        truststore__type="PEM",
        truststore__certificates=CERTIFICATE,
        keystore__type="pem",
        keystore__certificate__chain=CERTIFICATE,
        keystore__key=KEY,
        key__password=" p ",
    ) == TlsOptions(
        truststore_certificates=certificates("o", CERTIFICATE),
        keystore_certificate_chain=certificates("o", CERTIFICATE),
        keystore_key=private_key("o", KEY),
        key_password=" p ",
    )


def test_pem_in_files() -> None:
    assert tls(truststore__location="/ca.pem", keystore__location="/me.crt") == TlsOptions(
        truststore_location="/ca.pem", keystore_location="/me.crt"
    )


@pytest.mark.parametrize(
    "values",
    [
        {"type": "JKS"},
        {"type": "pkcs12", "location": "/store.p12"},
        {"type": ""},
        {"location": "/store.jks"},
        {"location": "/store.P12"},
        {"location": "dbfs:/x/client.truststore", "password": "secret"},
        {"location": "/store", "password": "secret"},
        {"type": "PEM", "location": "/store.pem", "password": "secret"},
        {"password": "secret"},
    ],
)
@pytest.mark.parametrize(
    ("store", "commands"),
    [
        ("truststore", "keytool -list -rfc -keystore truststore.jks > truststore.pem"),
        ("keystore", "openssl pkcs12 -in keystore.p12 -out keystore.pem"),
    ],
)
def test_stores_that_java_alone_reads_are_to_be_converted(
    store: str, commands: str, values: dict[str, str]
) -> None:
    with pytest.raises(OptionError, match=rf"'kafka\.ssl\.{store}\.\w+'.*PEM") as caught:
        tls(**{f"{store}__{name}": value for name, value in values.items()})
    assert commands in str(caught.value)
    assert f"kafka.ssl.{store}.type=PEM" in str(caught.value)
    assert "secret" not in str(caught.value)


@pytest.mark.long
@pytest.mark.skipif(shutil.which("openssl") is None, reason="openssl is not installed")
@pytest.mark.slow
def test_the_commands_that_convert_stores_make_files_that_are_read(tmp_path: Path) -> None:
    password, phrase = "of-the-store", "of-the-key"
    make = (  # Java's stores
        "keytool -genkeypair -alias me -keyalg EC -dname CN=me -storetype JKS {0} keystore.jks;"
        " keytool -exportcert -alias me -rfc -file me.pem {0} keystore.jks;"
        " keytool -importcert -noprompt -alias me -file me.pem {0} truststore.jks"
    ).format(f"-storepass {password} -keystore")
    _run(make, [[], [], []], tmp_path)
    asked = {"truststore": [[password]], "keystore": [[password] * 3, [password, phrase, phrase]]}
    for store, answers in asked.items():
        with pytest.raises(OptionError) as caught:
            tls(**{f"{store}__location": f"{store}.jks"})
        commands = str(caught.value).partition("Convert it once with: ")[2].partition(" and give ")[0]
        _run(commands, answers, tmp_path)
    (tmp_path / "key.pem").write_text(_run("openssl ecparam -genkey -name prime256v1 -noout", [[]], tmp_path))
    with pytest.raises(OptionError) as caught:
        private_key("key", KEY.replace("KEY-----\n", "KEY-----\nProc-Type: 4,ENCRYPTED\n\n", 1))
    _run(str(caught.value).partition("Convert the key with: ")[2], [[phrase, phrase]], tmp_path)
    assert private_key("key", (tmp_path / "key8.pem").read_text())
    location = {f"{store}__location": str(tmp_path / f"{store}.pem") for store in ("truststore", "keystore")}
    types = {f"{store}__type": "PEM" for store in ("truststore", "keystore")}
    assert tls_context(tls(**location, **types, key__password=phrase)) is not None


def _run(commands: str, answers: list[list[str]], folder: Path) -> str:
    """What the last of some commands prints; without a terminal each reads its passwords from its input."""
    for command, typed in zip(commands.split(";"), answers, strict=True):
        done = subprocess.run(
            command,
            shell=True,
            cwd=folder,
            input="".join(f"{answer}\n" for answer in typed),
            capture_output=True,
            text=True,
            start_new_session=True,
            check=False,
        )
        assert done.returncode == 0, done.stderr
    return done.stdout


def test_a_location_of_declared_pem_may_have_any_name() -> None:
    options = tls(truststore__type="PEM", truststore__location="/client.truststore")
    assert options == TlsOptions(truststore_location="/client.truststore")


@pytest.mark.parametrize(
    "values",
    [
        {"truststore__location": "/ca.pem", "truststore__certificates": CERTIFICATE},
        {"keystore__location": "/me.pem", "keystore__key": KEY, "keystore__certificate__chain": CERTIFICATE},
        {"keystore__key": KEY},
        {"keystore__certificate__chain": CERTIFICATE},
        {"truststore__certificates": KEY},
        {"keystore__key": CERTIFICATE, "keystore__certificate__chain": CERTIFICATE},
        {"endpoint__identification__algorithm": "none"},
        {"enabled__protocols": "TLSv1.2,SSLv3"},
        {"enabled__protocols": "TLSv1.1,TLSv1.3"},
        {"enabled__protocols": "TLSv1,TLSv1.2,TLSv1.3"},
        {"enabled__protocols": " , "},
        {"enabled__protocols": "TLSv1.3", "protocol": "TLSv1.2"},
        {"protocol": "SSL"},
    ],
)
def test_what_does_not_go_together(values: dict[str, str]) -> None:
    with pytest.raises(OptionError, match=r"kafka\.ssl\."):
        tls(**values)


@pytest.mark.parametrize(("text", "checks"), [("HTTPS", True), ("", False), (" ", False)])
def test_host_names(text: str, checks: bool) -> None:
    assert tls(endpoint__identification__algorithm=text) == TlsOptions(check_hostname=checks)


@pytest.mark.parametrize(
    ("enabled", "newest", "versions"),
    [
        ("TLSv1.2,TLSv1.3", "TLSv1.3", ("TLSv1.2", "TLSv1.3")),
        (" TLSv1.3 ", "TLS", ("TLSv1.3", "TLSv1.3")),
        ("TLSv1.3,TLSv1.2", "TLSv1.2", ("TLSv1.2", "TLSv1.2")),
        ("TLSv1,TLSv1.1,TLSv1.2,TLSv1.3", "TLSv1.2", ("TLSv1", "TLSv1.2")),
    ],
)
def test_versions(enabled: str, newest: str, versions: tuple[str, str]) -> None:
    options = tls(enabled__protocols=enabled, protocol=newest)
    assert options is not None
    assert (options.minimum_version, options.maximum_version) == versions
