"""The options of brokers: Spark's own, and what its ``kafka.`` prefix hands to Kafka's clients.

The names are those of Kafka's ConsumerConfig, ProducerConfig and AdminClientConfig
in 3.9 and 4.x. Each is used, or has no effect here, or is refused with a reason.
"""

from __future__ import annotations

from collections.abc import Mapping

from pyspark_kafkalog.options.names import Option, Use, Where

SERVERS = "kafka.bootstrap.servers"


def _option(name: str, use: Use, default: str | None, meaning: str) -> Option:
    return Option(name, use, default, meaning, where=Where.BROKERS)


_CONNECTION = (
    _option(SERVERS, Use.ALL, None, "Brokers to begin with: `host:port`, separated by commas."),
    _option("kafka.client.id", Use.ALL, "pyspark-kafkalog", "Name for the brokers' logs and quotas."),
    _option(
        "kafka.request.timeout.ms",
        Use.ALL,
        "30000",
        "The longest that a broker may send nothing of an answer.",
    ),
    _option(
        "kafka.socket.connection.setup.timeout.ms",
        Use.ALL,
        "10000",
        "The longest wait for a connection, and for the first broker.",
    ),
    _option(
        "kafka.connections.max.idle.ms",
        Use.ALL,
        "540000",
        "A connection that is idle for longer is closed; -1: never.",
    ),
    _option(
        "kafka.metadata.max.age.ms", Use.ALL, "300000", "The longest that topics and leaders are believed in."
    ),
    _option("kafka.retry.backoff.ms", Use.ALL, "100", "The first wait before a request is repeated."),
    _option("kafka.retry.backoff.max.ms", Use.ALL, "1000", "The longest such wait."),
    _option("kafka.reconnect.backoff.ms", Use.ALL, "50", "The first wait before a broker is called again."),
    _option("kafka.reconnect.backoff.max.ms", Use.ALL, "1000", "The longest such wait."),
    _option(
        "kafka.client.dns.lookup",
        Use.ALL,
        "use_all_dns_ips",
        "Or `resolve_canonical_bootstrap_servers_only`.",
    ),
    _option(
        "kafka.receive.buffer.bytes", Use.ALL, "-1", "The socket's receive buffer; -1: the system's default."
    ),
    _option("kafka.send.buffer.bytes", Use.ALL, "-1", "The socket's send buffer; -1: the system's default."),
)

_FETCH = (
    _option(
        "kafkaConsumer.pollTimeoutMs",
        Use.READ,
        "120000",
        "The longest that a task goes on with no answer to its fetches.",
    ),
    _option("fetchOffset.numRetries", Use.READ, "3", "How often offsets are asked for, at most."),
    _option("fetchOffset.retryIntervalMs", Use.READ, "1000", "The wait between two of these."),
    _option("kafka.fetch.min.bytes", Use.READ, "1", "Bytes for which a broker lets a fetch wait."),
    _option("kafka.fetch.max.wait.ms", Use.READ, "500", "The longest such wait."),
    _option("kafka.fetch.max.bytes", Use.READ, "52428800", "About the most bytes of a fetch."),
    _option(
        "kafka.max.partition.fetch.bytes",
        Use.READ,
        "8388608",
        "About the most bytes of a partition in a fetch (Kafka's default: 1 MiB).",
    ),
    _option(
        "kafka.client.rack", Use.READ, "", "Where the readers are: they fetch from a replica that is there."
    ),
    _option("kafka.check.crcs", Use.READ, "true", "As `checkCrcs`, which beats it."),
)

_PRODUCE = (
    _option("kafka.acks", Use.WRITE, "all", "`all`, `1` (the leader) or `0` (nobody acknowledges)."),
    _option(
        "kafka.enable.idempotence",
        Use.WRITE,
        "true",
        "A request that is repeated adds no record twice."
        " Off by itself with other `acks`, no `retries`, or more than 5 in flight.",
    ),
    _option("kafka.compression.type", Use.WRITE, "none", "`none`, `gzip`, `snappy`, `lz4` or `zstd`."),
    _option(
        "kafka.batch.size",
        Use.WRITE,
        "262144",
        "Bytes of records, uncompressed, that fill a record batch. Kafka's default, 16 KiB, serves latency;"
        " a task has its rows at hand.",
    ),
    _option("kafka.max.request.size", Use.WRITE, "1048576", "Bytes of the largest request."),
    _option("kafka.linger.ms", Use.WRITE, "0", "Accepted: nothing lingers, as a task has its rows at hand."),
    _option("kafka.buffer.memory", Use.WRITE, "33554432", "Bytes that may wait for acknowledgement."),
    _option(
        "kafka.max.in.flight.requests.per.connection",
        Use.WRITE,
        "5",
        "Requests that may wait for one broker's answer.",
    ),
    _option("kafka.retries", Use.WRITE, "2147483647", "How often a record batch may be sent again."),
    _option(
        "kafka.delivery.timeout.ms",
        Use.WRITE,
        "120000",
        "The longest that a record batch may take in all, not counting the time in which rows are computed.",
    ),
    _option(
        "kafka.partitioner.class",
        Use.WRITE,
        None,
        "Full name of Kafka's `DefaultPartitioner`, `UniformStickyPartitioner` or `RoundRobinPartitioner`."
        " For your own: `partitioner`.",
    ),
    _option("kafka.partitioner.ignore.keys", Use.WRITE, "false", "Spread rows with keys as those without."),
)

_SECURITY = (
    _option(
        "kafka.security.protocol", Use.ALL, "PLAINTEXT", "`PLAINTEXT`, `SSL`, `SASL_PLAINTEXT` or `SASL_SSL`."
    ),
    _option(
        "kafka.sasl.mechanism",
        Use.ALL,
        "GSSAPI",
        "`PLAIN`, `SCRAM-SHA-256`, `SCRAM-SHA-512`, `OAUTHBEARER` or `GSSAPI`.",
    ),
    _option(
        "kafka.sasl.jaas.config",
        Use.ALL,
        None,
        "Who logs in, as Java's clients are told: see below.",
    ),
    _option("kafka.sasl.kerberos.service.name", Use.ALL, None, "The brokers' Kerberos service."),
    _option(
        "kafka.sasl.login.callback.handler.class",
        Use.ALL,
        None,
        "Import path `package.module:callable` of what returns an OAuth token.",
    ),
    _option(
        "kafka.sasl.oauthbearer.token.endpoint.url",
        Use.ALL,
        None,
        "Where OAuth tokens come from: `https:` or `file:`.",
    ),
    _option(
        "org.apache.kafka.sasl.oauthbearer.allowed.urls",
        Use.ALL,
        None,
        "Token endpoints, separated by commas: only these are asked, `http:` too. Java's system property.",
    ),
    _option(
        "kafka.sasl.oauthbearer.client.credentials.client.id",
        Use.ALL,
        None,
        "As `clientId` in the JAAS text.",
    ),
    _option(
        "kafka.sasl.oauthbearer.client.credentials.client.secret",
        Use.ALL,
        None,
        "As `clientSecret` in the JAAS text.",
    ),
    _option("kafka.sasl.oauthbearer.scope", Use.ALL, None, "As `scope` in the JAAS text."),
    _option(
        "kafka.sasl.oauthbearer.header.urlencode",
        Use.ALL,
        "false",
        "URL-encode client id and secret in the authorization header.",
    ),
    _option("kafka.sasl.login.connect.timeout.ms", Use.ALL, "10000", "The longest wait for that endpoint."),
    _option("kafka.sasl.login.read.timeout.ms", Use.ALL, "10000", "The longest wait for its answer."),
    _option("kafka.sasl.login.retry.backoff.ms", Use.ALL, "100", "The first wait before it is asked again."),
    _option("kafka.sasl.login.retry.backoff.max.ms", Use.ALL, "10000", "The longest such wait."),
    _option("kafka.ssl.truststore.type", Use.ALL, "PEM", "`PEM`: others are to be converted."),
    _option(
        "kafka.ssl.truststore.certificates", Use.ALL, None, "The authorities' certificates, as PEM text."
    ),
    _option(
        "kafka.ssl.truststore.location",
        Use.ALL,
        None,
        "PEM file of them, on every machine. With neither: the system's authorities.",
    ),
    _option("kafka.ssl.keystore.type", Use.ALL, "PEM", "`PEM`: others are to be converted."),
    _option(
        "kafka.ssl.keystore.certificate.chain", Use.ALL, None, "The client's certificate chain, as PEM text."
    ),
    _option("kafka.ssl.keystore.key", Use.ALL, None, "The client's private key, as PEM text."),
    _option("kafka.ssl.keystore.location", Use.ALL, None, "PEM file of both, on every machine."),
    _option("kafka.ssl.key.password", Use.ALL, None, "What the private key is encrypted with."),
    _option(
        "kafka.ssl.endpoint.identification.algorithm",
        Use.ALL,
        "https",
        "`https`: check the host name in a broker's certificate; empty: don't.",
    ),
    _option(
        "kafka.ssl.enabled.protocols", Use.ALL, "TLSv1.2,TLSv1.3", "TLS versions that are offered to brokers."
    ),
    _option("kafka.ssl.protocol", Use.ALL, "TLSv1.3", "The newest of them."),
)

KAFKA_OPTIONS: tuple[Option, ...] = _CONNECTION + _FETCH + _PRODUCE + _SECURITY
"""The options of brokers that are used, in the order of the README's table."""

_BYTES = "Keys and values are read as bytes: use DataFrame operations to deserialize them."
_JAVA = "It names a Java class, and no JVM takes part here: leave it out."
_ASSERTIONS = (
    "Give kafka.sasl.login.callback.handler.class the import path of a Python callable that gets the token."
)

_REFUSED: Mapping[str, str] = {
    "kafka.sasl.client.callback.handler.class": _JAVA,
    "kafka.sasl.login.class": _JAVA,
    "kafka.ssl.engine.factory.class": _JAVA,
    "kafka.ssl.cipher.suites": "Limit kafka.ssl.enabled.protocols instead, or OpenSSL's own configuration.",
    "kafka.bootstrap.controllers": "Controllers hold no records: give kafka.bootstrap.servers.",
    "kafka.config.providers": "Resolve such values before they become options.",
    **{
        f"kafka.sasl.oauthbearer.assertion.{name}": _ASSERTIONS
        for name in """
        algorithm claim.aud claim.exp.seconds claim.iss claim.jti.include claim.nbf.seconds claim.sub file
        private.key.file private.key.passphrase template.file
        """.split()  # noqa: SIM905
    },
}

REFUSED_READING: Mapping[str, str] = {
    "kafka.auto.offset.reset": "Set startingOffsets to earliest or latest instead.",
    "kafka.key.deserializer": _BYTES,
    "kafka.value.deserializer": _BYTES,
    "kafka.enable.auto.commit": "Spark keeps track of what is read.",
    "kafka.interceptor.classes": "Use DataFrame operations instead.",
    **_REFUSED,
}
"""What a reader refuses, the first five as Spark's source does, each with what to do instead."""

REFUSED_WRITING: Mapping[str, str] = {
    "kafka.key.serializer": "Give the column key as string or binary.",
    "kafka.value.serializer": "Give the column value as string or binary.",
    "kafka.interceptor.classes": "Use DataFrame operations instead.",
    "kafka.transactional.id": "Writing is idempotent, and at least once: leave it out.",
    **_REFUSED,
}
"""What a writer refuses, the first two as Spark's sink does."""

WITHOUT_EFFECT: frozenset[str] = frozenset(
    f"kafka.{name}"
    for name in """
    allow.auto.create.topics auto.commit.interval.ms auto.include.jmx.reporter compression.gzip.level
    compression.lz4.level compression.zstd.level default.api.timeout.ms enable.metrics.push
    exclude.internal.topics group.instance.id group.protocol group.remote.assignor heartbeat.interval.ms
    internal.leave.group.on.close internal.throw.on.fetch.stable.offset.unsupported max.block.ms
    max.poll.interval.ms max.poll.records metadata.max.idle.ms metadata.recovery.rebootstrap.trigger.ms
    metadata.recovery.strategy metric.reporters metrics.num.samples metrics.recording.level
    metrics.sample.window.ms partition.assignment.strategy partitioner.adaptive.partitioning.enable
    partitioner.availability.timeout.ms sasl.kerberos.kinit.cmd sasl.kerberos.min.time.before.relogin
    sasl.kerberos.ticket.renew.jitter sasl.kerberos.ticket.renew.window.factor
    sasl.login.refresh.buffer.seconds sasl.login.refresh.min.period.seconds
    sasl.login.refresh.window.factor sasl.login.refresh.window.jitter sasl.oauthbearer.clock.skew.seconds
    sasl.oauthbearer.expected.audience sasl.oauthbearer.expected.issuer
    sasl.oauthbearer.jwks.endpoint.refresh.ms sasl.oauthbearer.jwks.endpoint.retry.backoff.max.ms
    sasl.oauthbearer.jwks.endpoint.retry.backoff.ms sasl.oauthbearer.jwks.endpoint.url
    sasl.oauthbearer.jwt.retriever.class sasl.oauthbearer.jwt.validator.class
    sasl.oauthbearer.scope.claim.name sasl.oauthbearer.sub.claim.name security.providers session.timeout.ms
    share.acknowledgement.mode share.acquire.mode socket.connection.setup.timeout.max.ms
    ssl.keymanager.algorithm ssl.provider ssl.secure.random.implementation ssl.trustmanager.algorithm
    transaction.timeout.ms transaction.two.phase.commit.enable
    """.split()  # noqa: SIM905
)
"""Settings of Kafka's clients without effect: what they steer does not exist here, or is done otherwise."""

STORE_PASSWORDS: frozenset[str] = frozenset({"kafka.ssl.truststore.password", "kafka.ssl.keystore.password"})
"""Passwords that stores in PEM don't have: given, they tell of a store in another form."""
