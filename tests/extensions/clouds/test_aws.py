"""Logins to MSK as Amazon's own libraries make them, with credentials from each place of AWS's chain."""

from __future__ import annotations

import base64
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any
from unittest import mock
from urllib.parse import parse_qsl, urlsplit

import pytest
from aws_msk_iam_sasl_signer import MSKAuthTokenProvider
from botocore.session import get_session
from kafka.net.sasl.msk import AwsMskIamClient

from pyspark_kafkalog.errors import AuthenticationError
from pyspark_kafkalog.extensions.clouds import aws, metadata
from pyspark_kafkalog.extensions.clouds.aws import bearer_token, credentials, iam_message, region_of
from pyspark_kafkalog.options.security.aws import AwsOptions
from tests.extensions.clouds.metadata_services import CONTAINER, STS, MetadataServices, metadata_services
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
    aws._kept.values.clear()
    aws._session.cache_clear()
    yield
    aws._kept.values.clear()
    aws._session.cache_clear()


@pytest.fixture
def keys(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in KEYS.items():
        monkeypatch.setenv(name, value)


@pytest.fixture
def without_botocore(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "botocore.session", None)


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
    """Our clock stopped at a time of AWS's form."""
    clock = mock.Mock(wraps=datetime)
    clock.now.return_value = datetime.strptime(moment, "%Y%m%dT%H%M%SZ")
    return mock.patch.object(aws, "datetime", clock)


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


@pytest.mark.usefixtures("without_botocore")
class TestWithoutBotocore:
    @pytest.mark.usefixtures("keys")
    def test_of_the_environment(self, services: MetadataServices) -> None:
        assert list(given(credentials(AwsOptions())).values()) == list(KEYS.values())
        assert services.asked == []

    def test_of_web_identity(
        self, services: MetadataServices, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
    ) -> None:
        action = "AssumeRoleWithWebIdentity"
        (tmp_path / "token").write_text("token-of-pod\n")
        monkeypatch.setenv("AWS_WEB_IDENTITY_TOKEN_FILE", str(tmp_path / "token"))
        monkeypatch.setenv("AWS_ROLE_ARN", ROLE)
        services.answers[STS] = of_sts(action, LATER)
        assert given(credentials(AwsOptions())) == GIVEN
        (form,) = services.forms
        assert (form["Action"], form["RoleArn"]) == ([action], [ROLE])
        assert form["WebIdentityToken"] == ["token-of-pod"]

    @pytest.mark.parametrize(
        "by", ["AWS_CONTAINER_AUTHORIZATION_TOKEN", "AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE"]
    )
    def test_of_a_container(
        self, services: MetadataServices, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, by: str
    ) -> None:
        (tmp_path / "token").write_text(CONTAINER)
        monkeypatch.setenv("AWS_CONTAINER_CREDENTIALS_FULL_URI", f"http://{services.address}/container/role")
        monkeypatch.setenv(by, str(tmp_path / "token") if by.endswith("FILE") else CONTAINER)
        assert given(credentials(AwsOptions())) == GIVEN

    def test_of_a_container_of_ecs(self, services: MetadataServices, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(aws, "_CONTAINERS", f"http://{services.address}")
        monkeypatch.setenv("AWS_CONTAINER_CREDENTIALS_RELATIVE_URI", "/container/role")
        monkeypatch.setenv("AWS_CONTAINER_AUTHORIZATION_TOKEN", CONTAINER)
        assert given(credentials(AwsOptions())) == GIVEN

    def test_a_container_sends_its_token_to_no_stranger(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("AWS_CONTAINER_CREDENTIALS_FULL_URI", "http://192.0.2.1/container/role")
        monkeypatch.setenv("AWS_EC2_METADATA_SERVICE_ENDPOINT", "http://127.0.0.1:1")
        with pytest.raises(AuthenticationError, match="neither https nor this machine's"):
            credentials(AwsOptions())

    def test_of_the_machine_kept_until_they_end(
        self, services: MetadataServices, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        for _ in range(3):
            assert given(credentials(AwsOptions())) == GIVEN
        assert services.asked.count(f"GET {MACHINE}") == 1
        monkeypatch.setattr(time, "time", lambda: datetime.now().timestamp() + 3400)
        credentials(AwsOptions())
        assert services.asked.count(f"GET {MACHINE}") == 2

    def test_there_are_none(self, services: MetadataServices) -> None:
        services.answers.clear()
        with pytest.raises(AuthenticationError, match="machine: HTTP status 404"):
            credentials(AwsOptions())

    @pytest.mark.parametrize(
        "answer",
        [
            "no json",
            "[]",
            "[" * 10_000,
            json.dumps({**GIVEN, "Expiration": "soon"}),
            json.dumps({**GIVEN, "Token": 5, "Expiration": LATER}),
            json.dumps({"Code": "AssumeRoleUnauthorizedAccess", "Message": "secret-given-1b"}),
        ],
    )
    def test_a_machine_that_gives_something_else(self, services: MetadataServices, answer: str) -> None:
        services.answers[f"{MACHINE}role-of-machine"] = answer
        with pytest.raises(AuthenticationError, match="machine: the answer") as caught:
            credentials(AwsOptions())
        assert "secret-given" not in str(caught.value)

    def test_a_profile_of_the_environment_needs_it_too(
        self, services: MetadataServices, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """The machine's role would be another identity than the one that is named."""
        monkeypatch.setenv("AWS_PROFILE", "etl")
        with pytest.raises(AuthenticationError, match=r"AWS_PROFILE .* botocore"):
            credentials(AwsOptions())
        assert services.asked == []

    @pytest.mark.parametrize(
        ("name", "other"),
        [
            ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"),
            ("AWS_WEB_IDENTITY_TOKEN_FILE", "AWS_ROLE_ARN"),
        ],
    )
    def test_half_of_a_place_is_not_passed_over(
        self, services: MetadataServices, monkeypatch: pytest.MonkeyPatch, name: str, other: str
    ) -> None:
        """botocore refuses it, too: the next place would be another identity."""
        monkeypatch.setenv(name, "x-1")
        with pytest.raises(AuthenticationError, match=f"{name} is set, but not {other}"):
            credentials(AwsOptions())
        assert services.asked == []

    def test_a_pipe_for_the_token_of_a_pod(self, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
        os.mkfifo(tmp_path / "token")
        monkeypatch.setenv("AWS_WEB_IDENTITY_TOKEN_FILE", str(tmp_path / "token"))
        monkeypatch.setenv("AWS_ROLE_ARN", ROLE)
        with pytest.raises(AuthenticationError, match="can't be read: expected a regular file"):
            credentials(AwsOptions())

    def test_of_an_environment_that_changes(self, monkeypatch: pytest.MonkeyPatch) -> None:
        for number in "12":
            for name, value in KEYS.items():
                monkeypatch.setenv(name, value + number)
            assert credentials(AwsOptions()).token == KEYS["AWS_SESSION_TOKEN"] + number

    def test_a_place_that_fails_is_not_passed_over(
        self, services: MetadataServices, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setenv("AWS_WEB_IDENTITY_TOKEN_FILE", "/nowhere/token")
        monkeypatch.setenv("AWS_ROLE_ARN", ROLE)
        with pytest.raises(AuthenticationError, match="web identity: the file"):
            credentials(AwsOptions())
        assert services.asked == []

    def test_the_machine_is_not_asked_if_that_is_disabled(
        self, services: MetadataServices, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "True")
        with pytest.raises(AuthenticationError, match="machine: AWS_EC2_METADATA_DISABLED is true"):
            credentials(AwsOptions())
        assert services.asked == []

    def test_a_container_that_is_too_far_from_the_machine(
        self, services: MetadataServices, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(metadata, "_TIMEOUT", 0.05)
        services.delay = 0.5
        with pytest.raises(AuthenticationError, match=r"no answer in time.*hop limit"):
            credentials(AwsOptions())

    @pytest.mark.parametrize(
        ("answer", "why"), [("x" * (1 << 16) + "y", "more than 65536 bytes"), ("", "not JSON")]
    )
    def test_a_machine_that_says_too_much_or_nothing(
        self, services: MetadataServices, answer: str, why: str
    ) -> None:
        services.answers[f"{MACHINE}role-of-machine"] = answer
        with pytest.raises(AuthenticationError, match=f"machine: the answer .*{why}"):
            credentials(AwsOptions())

    def test_a_token_that_is_no_header_is_not_shown(
        self, services: MetadataServices, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setenv("AWS_CONTAINER_CREDENTIALS_FULL_URI", f"http://{services.address}/container/role")
        monkeypatch.setenv("AWS_CONTAINER_AUTHORIZATION_TOKEN", "secret-line-1\r\nsecret-line-2")
        with pytest.raises(AuthenticationError, match="has a wrong form") as caught:
            credentials(AwsOptions())
        assert "secret-line" not in str(caught.value)

    def test_a_profile_needs_botocore(self) -> None:
        with pytest.raises(AuthenticationError, match="botocore"):
            credentials(AwsOptions(profile="etl"))


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


def test_botocore_is_asked_once_for_those_that_end(services: MetadataServices) -> None:
    credentials(AwsOptions())
    credentials(AwsOptions())
    assert services.asked.count(f"GET {MACHINE}") == 1


def test_a_fork_waits_for_no_lock_of_botocore(
    services: MetadataServices, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A thread of its parent holds it while it renews credentials."""
    credentials(AwsOptions())
    held = aws._session(None, os.getpid()).get_credentials()
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


@pytest.mark.parametrize("fips", ["false", "true"])
@pytest.mark.parametrize(
    "region",
    ["us-east-1", "us-west-2", "cn-north-1", "cn-northwest-1", "us-gov-west-1", "us-gov-east-1"],
)
def test_the_hosts_of_sts_are_those_of_botocore(
    monkeypatch: pytest.MonkeyPatch, region: str, fips: str
) -> None:
    if fips == "true" and region.startswith("cn-"):
        pytest.skip("China has none")
    monkeypatch.setenv("AWS_USE_FIPS_ENDPOINT", fips)
    assert aws._sts(region) == get_session().create_client("sts", region_name=region).meta.endpoint_url


@pytest.mark.usefixtures("keys")
def test_a_role_is_assumed_in_the_region_of_the_brokers(services: MetadataServices) -> None:
    """Credentials of China's are known to China's STS only, and those of the global one not everywhere."""
    bearer_token(AwsOptions(role_arn=ROLE), HOST.replace("us-east-1", "eu-west-3"))
    iam_message(AwsOptions(role_arn=ROLE, sts_region="eu-west-1"), HOST)
    regions = [asked["X-Amz-Credential"].split("/")[2] for asked in services.forms]
    assert regions == ["eu-west-3", "eu-west-1"]


def test_botocore_finds_those_of_the_machine(services: MetadataServices) -> None:
    assert given(credentials(AwsOptions())) == GIVEN


@pytest.mark.usefixtures("keys")
def test_a_role_is_assumed_once(services: MetadataServices) -> None:
    options = AwsOptions(role_arn=ROLE, role_session_name="nightly", role_external_id="x-1")
    assert given(credentials(options)) == given(credentials(options)) == GIVEN
    (asked,) = services.forms
    assert (asked["RoleArn"], asked["RoleSessionName"], asked["ExternalId"]) == (ROLE, "nightly", "x-1")
    assert asked["X-Amz-Credential"].split("/")[2:] == ["us-east-1", "sts", "aws4_request"]


@pytest.mark.usefixtures("keys")
@pytest.mark.parametrize(
    ("status", "answer", "why"),
    [
        (403, "", "HTTP status 403"),
        (
            403,
            f"<Code>AccessDenied</Code><Message>{KEYS['AWS_SESSION_TOKEN']}",
            r"HTTP status 403 \(AccessDenied\)",
        ),
        (403, f"<Code>{KEYS['AWS_SESSION_TOKEN']}</Code>", "HTTP status 403"),
        (200, "<a", "the answer is not XML"),
        (200, "<a/>", "the answer has no credentials"),
    ],
)
def test_a_role_that_is_refused(services: MetadataServices, status: int, answer: str, why: str) -> None:
    services.answers[STS] = answer
    services.failures = [status] if status > 200 else []
    with pytest.raises(AuthenticationError, match=f"assume the role {ROLE}: {why}") as caught:
        credentials(AwsOptions(role_arn=ROLE))
    assert not [value for value in KEYS.values() if value in str(caught.value)]


@pytest.mark.usefixtures("keys")
@pytest.mark.parametrize("code", ["Throttling", "ThrottlingException", "IDPCommunicationError"])
def test_a_service_of_tokens_that_is_busy_is_asked_again(services: MetadataServices, code: str) -> None:
    """AWS says that with status 400."""
    services.answers[STS] = f"<Error><Code>{code}</Code></Error>"
    services.failures = [400, 400]
    with pytest.raises(AuthenticationError, match="the answer has no credentials"):
        credentials(AwsOptions(role_arn=ROLE))
    assert len(services.asked) == 3


@pytest.mark.usefixtures("keys")
def test_no_repr_shows_a_secret() -> None:
    found = credentials(AwsOptions())
    assert not [value for value in KEYS.values() if value in repr(found) + str(found)]
