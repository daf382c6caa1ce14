"""Logins to MSK as Amazon's own libraries make them, with credentials that botocore finds."""

from __future__ import annotations

import base64
import json
import logging
import os
import re
import signal
import subprocess
from collections.abc import Iterator
from contextlib import suppress
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any
from unittest import mock
from urllib.parse import parse_qsl, urlsplit

import pytest
from aws_msk_iam_sasl_signer import MSKAuthTokenProvider
from kafka.net.sasl.msk import AwsMskIamClient

from pyspark_kafkalog.errors import AuthenticationError
from pyspark_kafkalog.extensions.clouds import aws
from pyspark_kafkalog.extensions.clouds.aws import bearer_token, credentials, iam_message, region_of
from pyspark_kafkalog.options.security.aws import AwsOptions
from tests.extensions.clouds.metadata_services import (
    CONTAINER,
    SESSION,
    STS,
    MetadataServices,
    metadata_services,
)
from tests.kafka_jars import java, kafka_jars, msk_iam_jars

HOST = "b-1.demo.ab12.c2.kafka.us-east-1.amazonaws.com"
KEYS = {
    "AWS_ACCESS_KEY_ID": "AKIDEXAMPLE",
    "AWS_SECRET_ACCESS_KEY": "secret-of-aws-93c1",
    "AWS_SESSION_TOKEN": "tok/+=en-of-aws",
}
ROLE = "arn:aws:iam::123456789012:role/reader"
LATER = (datetime.now(timezone.utc) + timedelta(hours=1)).strftime("%Y-%m-%dT%H:%M:%SZ")
GIVEN = {"AccessKeyId": "ASIA-GIVEN", "SecretAccessKey": "secret-given-1b", "Token": "token-given-2c"}
MACHINE = "/latest/meta-data/iam/security-credentials/"


@pytest.fixture(autouse=True)
def nowhere(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Nothing in the environment, and nothing kept from other tests."""
    for name in os.environ:
        if name.startswith("AWS_"):
            monkeypatch.delenv(name)
    monkeypatch.setenv("AWS_CONFIG_FILE", "/nowhere/config")
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", "/nowhere/credentials")
    aws._credentials_cache.values.clear()
    aws._session.cache_clear()
    yield
    aws._credentials_cache.values.clear()
    aws._session.cache_clear()


@pytest.fixture
def keys(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in KEYS.items():
        monkeypatch.setenv(name, value)


@pytest.fixture
def services() -> Iterator[MetadataServices]:
    with metadata_services() as server:
        server.answers = {
            MACHINE: "role-of-machine",
            f"{MACHINE}role-of-machine": json.dumps({**GIVEN, "Code": "Success", "Expiration": LATER}),
            "/container/role": json.dumps({**GIVEN, "Expiration": LATER}),
            STS: of_sts("AssumeRole", LATER),
        }
        yield server


def of_sts(action: str, expiration: str) -> str:
    """As STS answers, and moto."""
    return (
        f'<{action}Response xmlns="https://sts.amazonaws.com/doc/2011-06-15/"><{action}Result><Credentials>'
        f"<SessionToken>token-given-2c</SessionToken><SecretAccessKey>secret-given-1b</SecretAccessKey>"
        f"<Expiration>{expiration}</Expiration><AccessKeyId>ASIA-GIVEN</AccessKeyId></Credentials>"
        f"<AssumedRoleUser><Arn>{ROLE}</Arn></AssumedRoleUser></{action}Result></{action}Response>"
    )


def of_error(code: str, message: str) -> str:
    error = f"<Error><Type>Sender</Type><Code>{code}</Code><Message>{message}</Message></Error>"
    return f'<ErrorResponse xmlns="https://sts.amazonaws.com/doc/2011-06-15/">{error}</ErrorResponse>'


def signed_url(token: str) -> dict[str, str]:
    """What a token for OAUTHBEARER says."""
    url = urlsplit(base64.urlsafe_b64decode(token + "=" * (-len(token) % 4)).decode())
    assert url.scheme == "https"
    assert url.path in ("", "/")
    said = dict(parse_qsl(url.query, strict_parsing=True))
    said["host"] = url.netloc
    assert said.pop("User-Agent")
    return said


def at(moment: str) -> Any:
    """botocore's clock stopped at a time of AWS's form."""
    now = datetime.strptime(moment, "%Y%m%dT%H%M%SZ")
    return mock.patch("botocore.auth.get_current_datetime", return_value=now)


@pytest.mark.usefixtures("keys")
@pytest.mark.parametrize("session", [True, False])
def test_a_bearer_token_is_that_of_amazons_signer(monkeypatch: pytest.MonkeyPatch, session: bool) -> None:
    if not session:
        monkeypatch.delenv("AWS_SESSION_TOKEN")
    theirs = signed_url(MSKAuthTokenProvider.generate_auth_token("us-east-1")[0])
    with at(theirs["X-Amz-Date"]):
        assert signed_url(bearer_token(AwsOptions(), HOST)) == theirs


@pytest.mark.usefixtures("keys")
def test_a_message_is_that_of_kafka_python() -> None:
    theirs = AwsMskIamClient(HOST, *list(KEYS.values())[:2], "us-east-1", KEYS["AWS_SESSION_TOKEN"])
    expected = json.loads(theirs.first_message())
    with at(expected["x-amz-date"]):
        ours = json.loads(iam_message(AwsOptions(), HOST))
    assert ours.pop("user-agent") != expected.pop("user-agent")
    assert ours == expected


def test_both_are_those_of_amazons_java_library(monkeypatch: pytest.MonkeyPatch) -> None:
    source = Path(__file__).with_name("SignForMsk.java")
    command = [java(), "-cp", f"{msk_iam_jars()}/*:{kafka_jars()}/*", str(source), HOST]
    environment = {**os.environ, **KEYS, "AWS_REGION": "us-east-1"}
    printed = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    token, message = printed.stdout.split()
    their_token, their_message = signed_url(token), json.loads(base64.b64decode(message))
    seconds = int(their_token["X-Amz-Expires"])
    assert seconds in (899, 900), "it is one less where Java's clock goes on meanwhile"
    with mock.patch.dict(os.environ, KEYS):
        with at(their_token["X-Amz-Date"]):
            monkeypatch.setattr(aws, "_LIFETIME", seconds)
            assert signed_url(bearer_token(AwsOptions(), HOST)) == their_token
        with at(their_message["x-amz-date"]):
            monkeypatch.setattr(aws, "_LIFETIME", int(their_message["x-amz-expires"]))
            ours = json.loads(iam_message(AwsOptions(), HOST))
    assert ours.pop("user-agent") != their_message.pop("user-agent")
    assert ours == their_message


@pytest.mark.parametrize(
    ("host", "region"),
    [
        (HOST, "us-east-1"),
        ("boot-x1.c1.kafka-serverless.eu-central-1.amazonaws.com", "eu-central-1"),
        ("b-2.iam.demo.ab.c3.kafka.cn-north-1.amazonaws.com.cn", "cn-north-1"),
        ("b-1.demo.kafka.us-gov-west-1.amazonaws.com", "us-gov-west-1"),
        ("b-1.demo.kafka.eusc-de-east-1.amazonaws.eu", "eusc-de-east-1"),
    ],
)
def test_the_region_is_in_the_brokers_name(host: str, region: str) -> None:
    assert region_of(AwsOptions(), host) == region
    assert region_of(AwsOptions(region="ap-south-1"), host) == "ap-south-1"


def test_another_name_needs_the_region(monkeypatch: pytest.MonkeyPatch) -> None:
    for host in ("broker", "kafka.us-east-1.amazonaws.com.example.org", "127.0.0.1"):
        with pytest.raises(AuthenticationError, match=r"kafka\.sasl\.aws\.region, or AWS_REGION"):
            region_of(AwsOptions(), host)
    monkeypatch.setenv("AWS_DEFAULT_REGION", "us-west-2")
    assert region_of(AwsOptions(), "broker") == "us-west-2"


def given(found: aws.Credentials) -> dict[str, str | None]:
    return {"AccessKeyId": found.access_key, "SecretAccessKey": found.secret_key, "Token": found.token}


@pytest.fixture(params=["web identity", "container", "machine"])
def place(
    request: pytest.FixtureRequest,
    services: MetadataServices,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
) -> str:
    """One of AWS's chain, set up in this environment, and what it is asked."""
    file = tmp_path / "token"
    if request.param == "machine":
        return f"GET {MACHINE}role-of-machine"
    if request.param == "container":
        file.write_text(CONTAINER)
        monkeypatch.setenv("AWS_CONTAINER_CREDENTIALS_FULL_URI", f"http://{services.address}/container/role")
        monkeypatch.setenv("AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE", str(file))
        return "GET /container/role"
    file.write_text("token-of-pod")
    monkeypatch.setenv("AWS_WEB_IDENTITY_TOKEN_FILE", str(file))
    monkeypatch.setenv("AWS_ROLE_ARN", ROLE)
    services.answers[STS] = of_sts("AssumeRoleWithWebIdentity", LATER)
    return f"POST {STS}"


REGION = AwsOptions(region="us-east-1")


def test_botocore_asks_each_place_once_for_those_that_end(place: str, services: MetadataServices) -> None:
    for _ in range(3):
        assert given(credentials(REGION)) == GIVEN
    assert services.asked.count(place) == 1


def test_a_busy_place_is_asked_again(place: str, services: MetadataServices) -> None:
    services.failures = [503, 503]
    assert given(credentials(REGION)) == GIVEN


def test_no_log_of_botocore_shows_a_secret(
    place: str, services: MetadataServices, caplog: pytest.LogCaptureFixture
) -> None:
    """Its own at DEBUG have requests, answers, and what is signed."""
    caplog.set_level(logging.DEBUG)
    options = AwsOptions(role_arn=ROLE, role_external_id="external-5d")
    services.answers[STS] = of_sts(
        "AssumeRole" if place.startswith("GET") else "AssumeRoleWithWebIdentity", LATER
    )
    with suppress(AuthenticationError):  # the double gives a role of web identity no other one
        bearer_token(options, HOST)
    bearer_token(AwsOptions(), HOST)
    secrets = ("secret-given-1b", "token-given-2c", "external-5d", CONTAINER, "token-of-pod", SESSION)
    assert not [secret for secret in secrets if secret in caplog.text]


def test_another_use_of_botocore_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    with suppress(AuthenticationError):
        credentials(AwsOptions(profile="other"))
    logging.getLogger("botocore.auth").debug("another use")
    assert caplog.messages == ["another use"]


@pytest.mark.usefixtures("services")
def test_of_an_environment_that_changes(monkeypatch: pytest.MonkeyPatch) -> None:
    for number in "12":
        for name, value in KEYS.items():
            monkeypatch.setenv(name, value + number)
        assert list(given(credentials(AwsOptions())).values()) == [value + number for value in KEYS.values()]


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("AWS_ACCESS_KEY_ID", "PartialCredentialsError"),
        ("AWS_PROFILE", "ProfileNotFound"),
        ("AWS_WEB_IDENTITY_TOKEN_FILE", "InvalidConfigError"),
    ],
)
def test_half_of_a_place_is_not_passed_over(
    services: MetadataServices, monkeypatch: pytest.MonkeyPatch, name: str, value: str
) -> None:
    """The next place would be another identity."""
    monkeypatch.setenv(name, "x-1")
    with pytest.raises(AuthenticationError, match=f"no credentials of AWS here: {value}"):
        credentials(REGION)
    assert services.asked == []


@pytest.mark.parametrize(
    "answer",
    [
        "no json",
        "[" * 10_000,
        json.dumps({**GIVEN, "Expiration": "soon"}),
        json.dumps({"Code": "AssumeRoleUnauthorizedAccess", "Message": "secret-given-1b"}),
    ],
)
def test_a_machine_that_gives_something_else(
    services: MetadataServices, answer: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    services.answers[f"{MACHINE}role-of-machine"] = answer
    with pytest.raises(AuthenticationError, match="no credentials of AWS here") as caught:
        credentials(REGION)
    assert "secret-given" not in str(caught.value) + caplog.text


@pytest.mark.parametrize("number", [None, "7"])
def test_the_environment_says_how_often_the_machine_is_asked(
    monkeypatch: pytest.MonkeyPatch, number: str | None
) -> None:
    if number:
        monkeypatch.setenv("AWS_METADATA_SERVICE_NUM_ATTEMPTS", number)
    session = aws._session(REGION, os.getpid())
    assert session.get_config_variable("metadata_service_num_attempts") == int(number or 3)
    assert session.get_config_variable("metadata_service_timeout") == 2


def test_botocore_reads_profiles(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    file = tmp_path / "credentials"
    file.write_text("[etl]\naws_access_key_id = AKIDPROFILE\naws_secret_access_key = secret-of-profile\n")
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(file))
    assert credentials(AwsOptions(profile="etl")).access_key == "AKIDPROFILE"
    with pytest.raises(AuthenticationError, match="ProfileNotFound"):
        credentials(AwsOptions(profile="other"))


def test_a_file_of_credentials_that_changes(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """As those who log in by single sign-on write it each hour."""
    file = tmp_path / "credentials"
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(file))
    for number in "12":
        file.write_text(f"[etl]\naws_access_key_id = KEY{number}\naws_secret_access_key = s\n")
        assert credentials(AwsOptions(profile="etl")).access_key == f"KEY{number}"


def test_a_fork_waits_for_no_lock_of_botocore(
    services: MetadataServices, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A thread of its parent holds it while it renews credentials."""
    credentials(AwsOptions())
    held = aws._session(AwsOptions(), os.getpid()).get_credentials()
    held._expiry_time = datetime.now(timezone.utc)
    with held._refresh_lock:
        child = os.fork()
        if child == 0:
            signal.alarm(60)
            os._exit(0 if given(credentials(AwsOptions())) == GIVEN else 1)
        assert os.waitpid(child, 0)[1] == 0


@pytest.mark.usefixtures("keys")
def test_a_role_that_was_refused_is_assumed_again(services: MetadataServices) -> None:
    options = AwsOptions(role_arn=ROLE)
    bearer_token(options, HOST)
    aws.forget(options, HOST)
    bearer_token(options, HOST)
    assert len(services.forms) == 2


@pytest.mark.usefixtures("keys")
def test_a_role_is_assumed_in_the_region_of_the_brokers(services: MetadataServices) -> None:
    """Credentials of China's are known to China's STS only, and those of the global one not everywhere."""
    bearer_token(AwsOptions(role_arn=ROLE), HOST.replace("us-east-1", "eu-west-3"))
    iam_message(AwsOptions(role_arn=ROLE, sts_region="eu-west-1"), HOST)
    assert [signature.split("/")[2] for signature in services.signatures] == ["eu-west-3", "eu-west-1"]


@pytest.mark.usefixtures("keys")
def test_a_role_is_assumed_once(services: MetadataServices) -> None:
    options = AwsOptions("us-east-1", None, ROLE, role_session_name="nightly", role_external_id="x-1")
    assert given(credentials(options)) == given(credentials(options)) == GIVEN
    (asked,) = services.forms
    assert (asked["RoleArn"], asked["RoleSessionName"], asked["ExternalId"]) == (ROLE, "nightly", "x-1")
    assert services.signatures[0].split(",")[0].split("/")[2:] == ["us-east-1", "sts", "aws4_request"]


@pytest.mark.usefixtures("keys")
@pytest.mark.parametrize(
    ("status", "answer", "why"),
    [
        (403, "", "ResponseParserError"),
        (403, of_error("AccessDenied", KEYS["AWS_SESSION_TOKEN"]), r"ClientError \(AccessDenied\)"),
        (403, of_error(KEYS["AWS_SESSION_TOKEN"], ""), "ClientError$"),
        (200, "<a", "ResponseParserError"),
        (200, "<a/>", "KeyError"),
    ],
)
def test_a_role_that_is_refused(
    services: MetadataServices, status: int, answer: str, why: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    services.answers[STS] = answer
    services.failures = [status] if status > 200 else []
    with pytest.raises(AuthenticationError) as caught:
        credentials(AwsOptions("us-east-1", role_arn=ROLE))
    assert re.search(f"assume the role {ROLE}: {why}", caught.value.message)
    assert not [value for value in KEYS.values() if value in str(caught.value) + caplog.text]


@pytest.mark.usefixtures("keys")
@pytest.mark.parametrize("code", ["Throttling", "ThrottlingException"])
def test_a_service_of_tokens_that_is_busy_is_asked_again(services: MetadataServices, code: str) -> None:
    """AWS says that with status 400."""
    services.answers[STS] = of_error(code, "")
    services.failures = [400, 400, 400]
    with pytest.raises(AuthenticationError, match=code):
        credentials(AwsOptions("us-east-1", role_arn=ROLE))
    assert len(services.asked) == 3


@pytest.mark.usefixtures("keys")
def test_no_repr_shows_a_secret() -> None:
    found = credentials(AwsOptions())
    assert not [value for value in KEYS.values() if value in repr(found) + str(found)]
