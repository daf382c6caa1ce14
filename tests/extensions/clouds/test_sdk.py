"""SDKs of clouds: where one is missing, and what they log in a process that has not used them yet."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from pyspark_kafkalog.broker.wire.oauth import OAuthTokens
from pyspark_kafkalog.errors import AuthenticationError
from pyspark_kafkalog.extensions.clouds import sdk
from pyspark_kafkalog.options.security.aws import AwsOptions
from pyspark_kafkalog.options.security.oauth import OAuthOptions
from tests.extensions.clouds.metadata_services import SESSION, metadata_services
from tests.extensions.clouds.test_aws import GIVEN, LATER, MACHINE
from tests.extensions.clouds.test_tokens import ACCOUNT, EMAIL, MANAGED, TOKEN

LOGIN = """
import logging
logging.basicConfig(level=logging.DEBUG)
from pyspark_kafkalog.broker.wire.oauth import OAuthTokens
from pyspark_kafkalog.options.security.aws import AwsOptions
from pyspark_kafkalog.options.security.oauth import OAuthOptions
assert OAuthTokens(OAuthOptions(aws=AwsOptions("us-east-1")), "demo").token()
for cloud in ("gcp", "azure"):
    assert OAuthTokens(OAuthOptions(cloud=cloud), "demo").token()
logging.debug("this process logs all")
"""


@pytest.mark.parametrize("cloud", ["aws", "gcp", "azure"])
def test_one_that_is_missing_is_named(monkeypatch: pytest.MonkeyPatch, cloud: str) -> None:
    for module in sdk._SDKS[cloud].modules:
        monkeypatch.setitem(sys.modules, module, None)
    options = OAuthOptions(aws=AwsOptions("us-east-1")) if cloud == "aws" else OAuthOptions(cloud=cloud)
    with pytest.raises(AuthenticationError) as caught:
        OAuthTokens(options, f"missing-{cloud}").token()
    package = sdk._SDKS[cloud].package
    assert f"need the Python package {package}, which can't be imported" in caught.value.message
    assert str(caught.value.hint).startswith(f"Install pyspark-kafkalog[{cloud}] on the driver and on each")
    assert str(caught.value.hint).endswith(f"pip install {package}")


def test_a_new_process_logs_no_secret(tmp_path: Path) -> None:
    answer = {"access_token": TOKEN, "expires_in": 3600, "expires_on": str(int(time.time()) + 3600)}
    with metadata_services() as services:
        services.answers = {
            MACHINE: "role-of-machine",
            f"{MACHINE}role-of-machine": json.dumps({**GIVEN, "Code": "Success", "Expiration": LATER}),
            f"{ACCOUNT}/": json.dumps({"email": EMAIL, "scopes": []}),
            f"{ACCOUNT}/token": json.dumps(answer),
            MANAGED: json.dumps(answer),
        }
        kept = ("AWS_E", "GCE_", "AZURE_POD", "PYTHON")
        environment = {name: value for name, value in os.environ.items() if name.startswith(kept)}
        environment["HOME"] = str(tmp_path)
        done = subprocess.run(
            [sys.executable, "-c", LOGIN], env=environment, capture_output=True, text=True, check=False
        )
    assert done.stderr.endswith("this process logs all\n"), done.stderr
    secrets = [GIVEN["SecretAccessKey"], GIVEN["Token"], SESSION, TOKEN]
    assert not [secret for secret in secrets if secret in done.stderr], done.stderr
