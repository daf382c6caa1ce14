"""Settings of Kafka's clients that are not options here: refused with a hint, or accepted without effect.

The names are those of ConsumerConfig, ProducerConfig and AdminClientConfig of 3.9 and 4.x that are
not in :mod:`.table`.
"""

from __future__ import annotations

from collections.abc import Mapping

_BYTES = "Keys and values are read as bytes: give key.format or value.format, or use DataFrame operations."
_PROVIDER = "OpenSSL does TLS here, not the JVM: leave it out, and set OpenSSL up instead, for FIPS too."
_CALLBACK = (
    "To hear of record batches that are sent, acknowledged, sent again or failed, give callback.class, a"
    " class of Python, on a write."
)
_INTERCEPTORS = f"To change rows, use DataFrame operations, or give transform. {_CALLBACK}"
_JAVA = "It names a Java class, which cannot be run here: leave it out."
_REFUSED: Mapping[str, str] = {
    "kafka.sasl.login.class": _JAVA,
    "kafka.ssl.engine.factory.class": _JAVA,
    "kafka.ssl.cipher.suites": "Limit kafka.ssl.enabled.protocols instead, or OpenSSL's own configuration.",
    "kafka.bootstrap.controllers": "Controllers hold no records: give kafka.bootstrap.servers.",
    "kafka.config.providers": "Resolve such values before they become options.",
    "kafka.security.providers": _PROVIDER,
    "kafka.ssl.provider": _PROVIDER,
    "kafka.sasl.oauthbearer.jwt.validator.class": "Leave it out: brokers check tokens.",
}

REFUSED_READING: Mapping[str, str] = {
    "kafka.auto.offset.reset": "Set startingOffsets to earliest or latest instead: once smallest or largest.",
    "kafka.key.deserializer": _BYTES,
    "kafka.value.deserializer": _BYTES,
    "kafka.enable.auto.commit": "Leave it out: Spark's checkpoint has the offsets. To commit them to a"
    " group, too, set commitOffsets.",
    "kafka.interceptor.classes": _INTERCEPTORS,
    "kafka.exclude.internal.topics": "Name internal topics by subscribe or assign: a pattern never matches"
    " them.",
    **_REFUSED,
}
"""Settings that a reader refuses (the first five like Spark's source), each with what to do instead."""

REFUSED_WRITING: Mapping[str, str] = {
    "kafka.key.serializer": "Give the column key as string or binary.",
    "kafka.value.serializer": "Give the column value as string or binary.",
    "kafka.interceptor.classes": _INTERCEPTORS,
    "kafka.transaction.two.phase.commit.enable": "Leave it out: nothing here prepares transactions.",
    "kafka.transactional.id": "Leave it out. For transactions, set delivery.guarantee to exactly-once.",
    **_REFUSED,
}
"""Settings that a writer refuses (the first two like Spark's sink)."""

HARMLESS: Mapping[str, tuple[str, ...]] = {
    "kafka.exclude.internal.topics": ("true",),
    "kafka.transaction.two.phase.commit.enable": ("false",),
    "kafka.sasl.oauthbearer.jwt.validator.class": tuple(
        f"org.apache.kafka.common.security.oauthbearer.{name}JwtValidator"
        for name in ("Default", "Client", "Broker")
    ),
}
"""Values of such settings that are accepted, as they change nothing."""

_METRICS = "A write has metrics of its own, by `callback.class` and `metricsLocation`; a stream has Spark's."
_BOOTSTRAP = (
    "If no known broker answers, the bootstrap servers are asked, which must belong to the same cluster."
)
_TICKETS = "Tickets come from a keytab at each login, or from outside: nothing here renews them."
_RENEWAL = (
    "A token is renewed at the first login after 80 % of its life. If that fails, the old one is used until"
    " it expires."
)
_CHECKED = "Brokers check tokens."
_SHARE = "There are no share groups here."
_OPENSSL = "OpenSSL does TLS here, not the JVM."
WITHOUT_EFFECT: Mapping[str, str] = {
    "kafka.allow.auto.create.topics": "Reads create no topics. Writes let brokers do so, as in Java.",
    "kafka.auto.commit.interval.ms": "Commits don't depend on time: see `commitOffsets`.",
    "kafka.auto.include.jmx.reporter": _METRICS,
    "kafka.default.api.timeout.ms": (
        "Waits have limits of their own: `fetchOffset.numRetries`, `kafkaConsumer.pollTimeoutMs`,"
        " `kafka.request.timeout.ms`."
    ),
    "kafka.enable.metrics.push": _METRICS,
    "kafka.internal.leave.group.on.close": "It is Kafka Streams' own. A member leaves as its stream stops.",
    "kafka.internal.throw.on.fetch.stable.offset.unsupported": "It is Kafka Streams' own.",
    "kafka.max.block.ms": "No queue fills here. `kafka.delivery.timeout.ms` limits how long a write waits.",
    "kafka.max.poll.records": "Rows come in larger batches: see `maxOffsetsPerTrigger`.",
    "kafka.metadata.max.idle.ms": "Metadata are kept for the topics of a task.",
    "kafka.metadata.recovery.rebootstrap.trigger.ms": _BOOTSTRAP,
    "kafka.metadata.recovery.strategy": _BOOTSTRAP,
    "kafka.metric.reporters": _METRICS,
    "kafka.metrics.num.samples": _METRICS,
    "kafka.metrics.recording.level": _METRICS,
    "kafka.metrics.sample.window.ms": _METRICS,
    "kafka.partitioner.adaptive.partitioning.enable": "Rows without keys are spread evenly, as with `false`.",
    "kafka.partitioner.availability.timeout.ms": "Rows wait for the leader of their partition, as with `0`.",
    "kafka.sasl.kerberos.kinit.cmd": _TICKETS,
    "kafka.sasl.kerberos.min.time.before.relogin": _TICKETS,
    "kafka.sasl.kerberos.ticket.renew.jitter": _TICKETS,
    "kafka.sasl.kerberos.ticket.renew.window.factor": _TICKETS,
    "kafka.sasl.login.refresh.buffer.seconds": _RENEWAL,
    "kafka.sasl.login.refresh.min.period.seconds": _RENEWAL,
    "kafka.sasl.login.refresh.window.factor": _RENEWAL,
    "kafka.sasl.login.refresh.window.jitter": _RENEWAL,
    "kafka.sasl.oauthbearer.clock.skew.seconds": _CHECKED,
    "kafka.sasl.oauthbearer.expected.audience": _CHECKED,
    "kafka.sasl.oauthbearer.expected.issuer": _CHECKED,
    "kafka.sasl.oauthbearer.jwks.endpoint.refresh.ms": _CHECKED,
    "kafka.sasl.oauthbearer.jwks.endpoint.retry.backoff.max.ms": _CHECKED,
    "kafka.sasl.oauthbearer.jwks.endpoint.retry.backoff.ms": _CHECKED,
    "kafka.sasl.oauthbearer.jwks.endpoint.url": _CHECKED,
    "kafka.sasl.oauthbearer.scope.claim.name": _CHECKED,
    "kafka.sasl.oauthbearer.sub.claim.name": _CHECKED,
    "kafka.share.acknowledgement.mode": _SHARE,
    "kafka.share.acquire.mode": _SHARE,
    "kafka.socket.connection.setup.timeout.max.ms": "The first timeout applies to all attempts.",
    "kafka.ssl.keymanager.algorithm": _OPENSSL,
    "kafka.ssl.secure.random.implementation": _OPENSSL,
    "kafka.ssl.trustmanager.algorithm": _OPENSSL,
}
"""Settings of Kafka's clients that are accepted, each with why it has no effect."""

_AS_COLUMNS = "Leave it out: values are Spark's columns, not Java's objects."
_PASSWORD = (
    "Write kafka.sasl.jaas.config as org.apache.kafka.common.security.plain.PlainLoginModule required"
    ' username="..." password="..."; For SCRAM, the login module is'
    " org.apache.kafka.common.security.scram.ScramLoginModule."
)
_PEM = "Give the PEM file as kafka.ssl.{0}.location, with kafka.ssl.{0}.type=PEM."
_TRIGGER = "Call trigger() of writeStream instead, such as .trigger(availableNow=True)."
_KEYSTORE = f"{_PEM.format('keystore')} It holds the key and the certificate."
_BY_SERVERS = "Leave it out, and give the cluster's brokers as kafka.bootstrap.servers."
_AT_THE_END = "Leave it out: a task gives its counts to the auditor when it ends."
_OF_LINKEDIN: Mapping[str, str] = {
    "max.tracked.messages.per.partition": (
        "Leave it out: a read may begin at any offset, and finds the message segments before it by itself."
    ),
    "treat.bad.segments.as.payload": (
        "Leave it out: a value that only looks like a message segment is a message, as LinkedIn's consumer"
        " has it."
    ),
    "exception.on.invalid.offset.reset": "Did you mean failOnDataLoss?",
    "uuid.factory.class": "Leave it out: message ids are random UUIDs of version 4, LinkedIn's default.",
    "current.producer": "Leave it out: an auditor gets counts, and may send them by a client of its own.",
    "auditor.reporting.interval.ms": _AT_THE_END,
    "auditor.reporting.delay.ms": _AT_THE_END,
    "enable.auto.tick": _AT_THE_END,
    "li.cluster.group": _BY_SERVERS,
    "li.cluster.environment": _BY_SERVERS,
    "li.metadata.service.client": _BY_SERVERS,
    "li.metadata.service.request.timeout.ms": _BY_SERVERS,
}
"""The settings of LinkedIn's clients that are neither options nor settings of Kafka's clients
(LiKafkaProducerConfig, LiKafkaConsumerConfig, LiKafkaCommonClientConfigs and AbstractAuditor of
li-apache-kafka-clients 1.0.66)."""

OF_OTHERS: Mapping[str, str] = {
    **_OF_LINKEDIN,
    "use.latest.version": "Leave it out: the newest version is used, unless value.schema is given.",
    "use.schema.id": "Leave it out, and give the schema as value.schema (key.schema).",
    "specific.avro.reader": _AS_COLUMNS,
    "avro.use.logical.type.converters": _AS_COLUMNS,
    "schema.reflection": _AS_COLUMNS,
    "avrorecordtype": _AS_COLUMNS,
    "protobufmessagetype": _AS_COLUMNS,
    "dataformat": "Leave it out: value.format (key.format) says it, such as glue-avro.",
    "schemaautoregistrationenabled": "Set auto.register.schemas instead.",
    "key.deserializer": _BYTES,
    "value.deserializer": _BYTES,
    "brokers": "Did you mean kafka.bootstrap.servers?",
    "enable.partition.eof": "Leave it out: rows are a table. A batch ends where its topics end, and so does a"
    " stream with .trigger(availableNow=True).",
    "sasl.mechanisms": "Did you mean kafka.sasl.mechanism?",
    "sasl.username": _PASSWORD,
    "sasl.password": _PASSWORD,
    "sasl.plain.username": _PASSWORD,
    "sasl.plain.password": _PASSWORD,
    "ssl.ca.location": _PEM.format("truststore"),
    "ssl.ca.pem": "Give it as kafka.ssl.truststore.certificates, with kafka.ssl.truststore.type=PEM.",
    "ssl.cafile": _PEM.format("truststore"),
    "ssl.certificate.location": _KEYSTORE,
    "ssl.certfile": _KEYSTORE,
    "ssl.key.location": _KEYSTORE,
    "ssl.keyfile": _KEYSTORE,
    "enable.ssl.certificate.verification": (
        "Certificates are always verified: give their authority as kafka.ssl.truststore.location."
    ),
    **dict.fromkeys(("trigger", "processingtime", "availablenow", "once"), _TRIGGER),
    "outputmode": "Call outputMode() of writeStream instead.",
    "partitionby": "Rows go to partitions by key. To choose one, add a column partition of type int.",
    "inferschema": "Leave it out. For fields of JSON set value.format=json, and value.schema.",
    "maxrateperpartition": "Set maxOffsetsPerTrigger to limit a micro-batch of a stream.",
    "topics.regex": "Did you mean subscribePattern?",
    "key.converter": "Did you mean key.format?",
    "value.converter": "Did you mean value.format?",
    "errors.tolerance": ("Set mode=PERMISSIVE with value.format, or includeCorrupt=true for dead letters."),
    "errors.deadletterqueue.topic.name": "Set includeCorrupt=true, and call dead_letters().",
}
"""Settings of LinkedIn's clients, of Confluent's serializers (AbstractKafkaSchemaSerDeConfig,
KafkaAvroDeserializerConfig) and where they are set, of librdkafka, kafka-python (here with dots) and Kafka
Connect, and what Spark has methods for; each with what to do instead."""

STORE_PASSWORDS: frozenset[str] = frozenset({"kafka.ssl.truststore.password", "kafka.ssl.keystore.password"})
"""Passwords of stores. PEM stores have none, so they point to a store in another format."""
