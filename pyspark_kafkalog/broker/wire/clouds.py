"""Questions and signatures of machines in clouds, for logins and racks: an extension has them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from pyspark_kafkalog.options.security.aws import AwsOptions


class Clouds(Protocol):
    """AWS, Google Cloud and Azure, as a process there sees them."""

    def zone_of(self, cloud: str) -> str:
        """The zone of this machine, as the racks of brokers there are named.

        :param cloud: ``aws``, ``gcp`` or ``azure``.
        :raises KafkaLogError: if it is not told.
        """

    def iam_message(self, options: AwsOptions, host: str) -> bytes:
        """The message of AWS_MSK_IAM to a broker.

        :raises AuthenticationError: if there are no credentials.
        """

    def bearer_token(self, options: AwsOptions, host: str) -> str:
        """A token of MSK for a broker.

        :raises AuthenticationError: if there are no credentials.
        """

    def forget(self, options: AwsOptions, host: str) -> None:
        """Ask for credentials of AWS again the next time: a broker refused these."""

    def token_of_gcp(self) -> tuple[str, float]:
        """A token of Google Cloud, and its end in seconds since the epoch.

        :raises AuthenticationError: if there is none.
        """

    def token_of_azure(self, resource: str, client_id: str | None) -> tuple[str, float]:
        """A token of Azure for a resource, and its end in seconds since the epoch.

        :raises AuthenticationError: if there is none.
        """
