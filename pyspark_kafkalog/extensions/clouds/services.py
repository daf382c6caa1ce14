"""The services of clouds: see :class:`pyspark_kafkalog.broker.wire.clouds.Clouds`.

Each cloud's modules are loaded by who names it.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from pyspark_kafkalog.errors import KafkaLogError

if TYPE_CHECKING:
    from pyspark_kafkalog.options.security.aws import AwsOptions

_ZONE = re.compile(r"[A-Za-z0-9_.-]{1,64}")


def zone_of(cloud: str) -> str:
    """See :meth:`.Clouds.zone_of`: MSK's racks have the id of the zone, use1-az1, not its name."""
    from pyspark_kafkalog.extensions.clouds import metadata

    try:
        if cloud == "aws":
            zone = metadata.of_aws("placement/availability-zone-id")
        elif cloud == "gcp":
            zone = metadata.of_gcp("instance/zone").rpartition("/")[2]
        else:
            zone = metadata.of_azure("instance/compute/zone?api-version=2021-02-01&format=text")
    except metadata.MetadataError as e:
        raise KafkaLogError(f"{cloud} does not tell the zone of this machine: {e}") from e
    if not _ZONE.fullmatch(zone):
        raise KafkaLogError(f"{cloud} tells no zone of this machine")
    return zone


def iam_message(options: AwsOptions, host: str) -> bytes:
    """See :meth:`.Clouds.iam_message`."""
    from pyspark_kafkalog.extensions.clouds import aws

    return aws.iam_message(options, host)


def bearer_token(options: AwsOptions, host: str) -> str:
    """See :meth:`.Clouds.bearer_token`."""
    from pyspark_kafkalog.extensions.clouds import aws

    return aws.bearer_token(options, host)


def forget(options: AwsOptions, host: str) -> None:
    """See :meth:`.Clouds.forget`."""
    from pyspark_kafkalog.extensions.clouds import aws

    aws.forget(options, host)


def token_of_gcp() -> tuple[str, float]:
    """See :meth:`.Clouds.token_of_gcp`."""
    from pyspark_kafkalog.extensions.clouds import tokens

    return tokens.token_of_gcp()


def token_of_azure(resource: str, client_id: str | None) -> tuple[str, float]:
    """See :meth:`.Clouds.token_of_azure`."""
    from pyspark_kafkalog.extensions.clouds import tokens

    return tokens.token_of_azure(resource, client_id)
