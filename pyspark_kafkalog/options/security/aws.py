"""The login to AWS: the options of Amazon's login module for MSK (aws-msk-iam-auth)."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

from pyspark_kafkalog.errors import OptionError
from pyspark_kafkalog.options.user_options import UserOptions

REGION = "kafka.sasl.aws.region"
_JAAS = "kafka.sasl.jaas.config"
_FIELDS = {
    "awsProfileName": "profile",
    "awsRoleArn": "role_arn",
    "awsRoleSessionName": "role_session_name",
    "awsRoleExternalId": "role_external_id",
    "awsStsRegion": "sts_region",
}
_WITHOUT_EFFECT = ("awsDebugCreds", "awsMaxRetries", "awsMaxBackOffTimeMs")
"""The settings of Amazon's library without effect here: how often it asks again, and what it logs."""
_ARN = re.compile(r"arn:aws[\w-]*:iam::\d{12}:role/[\w+=,.@/-]+")
_REGION_NAME = re.compile(r"[a-z]{2,}(-[a-z]+)+-\d+")


@dataclass(frozen=True, slots=True, repr=False)
class AwsOptions:
    """The credentials that sign, and the region; None is found as AWS's SDKs find it.

    With ``role_arn`` they are those of the role, which the found ones assume.
    """

    region: str | None = None
    profile: str | None = None
    role_arn: str | None = None
    role_session_name: str | None = None
    role_external_id: str | None = None
    sts_region: str | None = None


def aws_options(user: UserOptions, login: Mapping[str, str]) -> AwsOptions:
    """Parse the options of the login module.

    :raises OptionError: for a setting that is unknown, or a role or region of the wrong form.
    """
    known = (*_FIELDS, *_WITHOUT_EFFECT)
    if not set(login) <= set(known):
        raise OptionError(
            f"Option {_JAAS!r} has a setting that a login to AWS does not know",
            hint=f"It knows {', '.join(known)}.",
        )
    given = {field: login[name].strip() or None for name, field in _FIELDS.items() if name in login}
    options = AwsOptions(user.value(REGION), **given)
    if options.role_arn is not None and not _ARN.fullmatch(options.role_arn):
        raise OptionError(f"Option {_JAAS!r} expected an awsRoleArn of the form arn:aws:iam::ID:role/NAME")
    if options.role_arn is None and (options.role_session_name or options.role_external_id):
        raise OptionError(
            f"Option {_JAAS!r} says how to assume a role, but lacks awsRoleArn, which says which"
        )
    for name, region in ((REGION, options.region), (_JAAS, options.sts_region)):
        if region is not None and not _REGION_NAME.fullmatch(region):
            raise OptionError(f"Option {name!r}: expected a region of AWS, such as us-east-1")
    return options
