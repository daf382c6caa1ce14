"""Settings of Kafka's clients that are not options here: refused with a hint, or accepted without effect.

The names are those of ConsumerConfig, ProducerConfig and AdminClientConfig of 3.9 and 4.x that are
not in :mod:`.table`.
"""

from __future__ import annotations

from collections.abc import Mapping

_BYTES = "Keys and values are read as bytes: give key.format or value.format, or use DataFrame operations."
_JAVA = "It names a Java class, which cannot be run here: leave it out."
_REFUSED: Mapping[str, str] = {
    "kafka.sasl.login.class": _JAVA,
    "kafka.ssl.engine.factory.class": _JAVA,
    "kafka.ssl.cipher.suites": "Limit kafka.ssl.enabled.protocols instead, or OpenSSL's own configuration.",
    "kafka.bootstrap.controllers": "Controllers hold no records: give kafka.bootstrap.servers.",
    "kafka.config.providers": "Resolve such values before they become options.",
}

REFUSED_READING: Mapping[str, str] = {
    "kafka.auto.offset.reset": "Set startingOffsets to earliest or latest instead.",
    "kafka.key.deserializer": _BYTES,
    "kafka.value.deserializer": _BYTES,
    "kafka.enable.auto.commit": "Spark keeps track of what is read.",
    "kafka.interceptor.classes": "Use DataFrame operations instead.",
    **_REFUSED,
}
"""Settings that a reader refuses (the first five like Spark's source), each with what to do instead."""

REFUSED_WRITING: Mapping[str, str] = {
    "kafka.key.serializer": "Give the column key as string or binary.",
    "kafka.value.serializer": "Give the column value as string or binary.",
    "kafka.interceptor.classes": "Use DataFrame operations instead.",
    "kafka.transactional.id": "Leave it out. For transactions, set delivery.guarantee to exactly-once.",
    **_REFUSED,
}
"""Settings that a writer refuses (the first two like Spark's sink)."""

WITHOUT_EFFECT: frozenset[str] = frozenset(
    f"kafka.{name}"
    for name in """
    allow.auto.create.topics auto.commit.interval.ms auto.include.jmx.reporter default.api.timeout.ms
    enable.metrics.push exclude.internal.topics internal.leave.group.on.close
    internal.throw.on.fetch.stable.offset.unsupported max.block.ms max.poll.records metadata.max.idle.ms
    metadata.recovery.rebootstrap.trigger.ms metadata.recovery.strategy metric.reporters
    metrics.num.samples metrics.recording.level metrics.sample.window.ms
    partitioner.adaptive.partitioning.enable partitioner.availability.timeout.ms sasl.kerberos.kinit.cmd
    sasl.kerberos.min.time.before.relogin sasl.kerberos.ticket.renew.jitter
    sasl.kerberos.ticket.renew.window.factor sasl.login.refresh.buffer.seconds
    sasl.login.refresh.min.period.seconds sasl.login.refresh.window.factor
    sasl.login.refresh.window.jitter sasl.oauthbearer.clock.skew.seconds
    sasl.oauthbearer.expected.audience sasl.oauthbearer.expected.issuer
    sasl.oauthbearer.jwks.endpoint.refresh.ms sasl.oauthbearer.jwks.endpoint.retry.backoff.max.ms
    sasl.oauthbearer.jwks.endpoint.retry.backoff.ms sasl.oauthbearer.jwks.endpoint.url
    sasl.oauthbearer.jwt.validator.class
    sasl.oauthbearer.scope.claim.name sasl.oauthbearer.sub.claim.name security.providers
    share.acknowledgement.mode share.acquire.mode socket.connection.setup.timeout.max.ms
    ssl.keymanager.algorithm ssl.provider ssl.secure.random.implementation ssl.trustmanager.algorithm
    transaction.two.phase.commit.enable
    """.split()  # noqa: SIM905
)
"""Settings of Kafka's clients without effect: what they control does not exist or works differently here."""

_SUBJECTS = (
    "Leave it out: subjects are TopicNameStrategy's, such as orders-value. Values of any subject are read, by"
    " their ids, if you give value.schema (key.schema)."
)
_AS_COLUMNS = "Leave it out: values are Spark's columns, not Java's objects."
OF_SERIALIZERS: Mapping[str, str] = {
    "key.subject.name.strategy": _SUBJECTS,
    "value.subject.name.strategy": _SUBJECTS,
    "use.latest.version": "Leave it out: the newest version is used, unless value.schema is given.",
    "use.schema.id": "Leave it out, and give the schema as value.schema (key.schema).",
    "specific.avro.reader": _AS_COLUMNS,
    "avro.use.logical.type.converters": _AS_COLUMNS,
    "schema.reflection": _AS_COLUMNS,
    "key.deserializer": _BYTES,
    "value.deserializer": _BYTES,
}
"""Settings of Confluent's serializers (AbstractKafkaSchemaSerDeConfig, KafkaAvroDeserializerConfig) and where
they are set, each with what to do instead."""

STORE_PASSWORDS: frozenset[str] = frozenset({"kafka.ssl.truststore.password", "kafka.ssl.keystore.password"})
"""Passwords of stores. PEM stores have none, so they point to a store in another format."""
