"""Who logs in, and that nothing of it shows."""

from __future__ import annotations

import logging
import pickle
from collections.abc import Callable, Iterator

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pyspark_kafkalog.errors import OptionError
from pyspark_kafkalog.options.security.aws import AwsOptions
from pyspark_kafkalog.options.security.oauth import OAuthOptions
from pyspark_kafkalog.options.security.protocol import KerberosOptions, SecurityOptions
from pyspark_kafkalog.options.security.tls import TlsOptions
from pyspark_kafkalog.options.settings import common_read_options, place_options, read_options, write_options

KAFKA = "org.apache.kafka.common.security"
PLAIN = f"{KAFKA}.plain.PlainLoginModule"
SCRAM = f"{KAFKA}.scram.ScramLoginModule"
OAUTH = f"{KAFKA}.oauthbearer.OAuthBearerLoginModule"
IAM = "software.amazon.msk.auth.iam.IAMLoginModule"
KERBEROS = "com.sun.security.auth.module.Krb5LoginModule"
ENDPOINT = "kafka.sasl.oauthbearer.token.endpoint.url"
ALLOWED = "org.apache.kafka.sasl.oauthbearer.allowed.urls"
CLIENT_LOGIN = 'clientId="me" clientSecret="hush"'
CLIENT = "kafka.sasl.oauthbearer.client.credentials.client"
HANDLER = "kafka.sasl.login.callback.handler.class"
PROVIDER = "kafka.sasl.oauthbearer.provider"


def security(
    mechanism: str | None, jaas: str | None, protocol: str = "SASL_PLAINTEXT", **values: str
) -> SecurityOptions:
    options = {"kafka.bootstrap.servers": "host:9092", "kafka.security.protocol": protocol}
    if mechanism is not None:
        options["kafka.sasl.mechanism"] = mechanism
    if jaas is not None:
        options["kafka.sasl.jaas.config"] = jaas
    place = place_options({**options, **values})
    assert place.brokers is not None
    assert write_options({**options, **values}).brokers == place.brokers
    return place.brokers.security


def oauth(jaas: str | None, **values: str) -> OAuthOptions:
    options = security("OAUTHBEARER", None if jaas is None else f"{OAUTH} required {jaas};", **values)
    assert options.oauth is not None
    return options.oauth


class TestProtocols:
    @pytest.mark.parametrize("protocol", ["plaintext", "PLAINTEXT", "ssl"])
    def test_without_sasl(self, protocol: str) -> None:
        options = security(None, None, protocol)
        assert options.protocol == protocol.upper()
        assert (options.mechanism, options.tls is None) == (None, protocol != "ssl")

    def test_sasl_over_tls(self) -> None:
        options = security("PLAIN", f'{PLAIN} required username="u" password="p";', "sasl_ssl")
        assert options == SecurityOptions("SASL_SSL", "PLAIN", "u", "p", tls=TlsOptions())

    def test_options_of_a_safer_protocol_are_warned_of(self, caplog: pytest.LogCaptureFixture) -> None:
        security("PLAIN", "hush", "PLAINTEXT", **{"kafka.ssl.truststore.location": "hush.jks"})
        text = caplog.text
        assert "kafka.sasl.jaas.config, kafka.sasl.mechanism have no effect" in text
        assert (
            "kafka.ssl.truststore.location have no effect, because kafka.security.protocol is PLAINT" in text
        )
        assert "hush" not in text


class TestPasswords:
    @pytest.mark.parametrize(
        ("mechanism", "module"),
        [
            ("PLAIN", PLAIN),
            ("plain", f"kafkashaded.{PLAIN}"),
            ("SCRAM-SHA-256", SCRAM),
            ("SCRAM-SHA-512", f"kafkashaded.{SCRAM}"),
        ],
    )
    def test_name_and_password(self, mechanism: str, module: str) -> None:
        options = security(mechanism, f'{module} required username="u" password="";')
        assert options == SecurityOptions("SASL_PLAINTEXT", mechanism.upper(), "u", "")

    @pytest.mark.parametrize(
        ("mechanism", "jaas", "message"),
        [
            ("PLAIN", None, r"PLAIN needs the option 'kafka\.sasl\.jaas\.config'.*PlainLoginModule required"),
            ("PLAIN", f"{PLAIN} required username='hush';", "lacks password"),
            ("PLAIN", f"{PLAIN} required;", "lacks username and password"),
            (
                "PLAIN",
                f"{SCRAM} required username='u' password='hush';",
                "Set kafka.sasl.mechanism to SCRAM-SHA-256",
            ),
            ("SCRAM-SHA-256", f"{PLAIN} required username='u' password='hush';", "ScramLoginModule"),
            (
                None,
                f"{PLAIN} required username='u' password='hush';",
                "is not set, so GSSAPI is taken, but .* PLAIN",
            ),
            ("SCRAM-SHA-1", f"{SCRAM} required username='u' password='hush';", "expected one of PLAIN"),
            (
                "AWS_MSK_IAM",
                f"{PLAIN} required;",
                "is AWS_MSK_IAM, but .* of PLAIN. Set .* to PLAIN, or give .* software.amazon.msk.auth",
            ),
            (
                "SCRAM-SHA-512",
                f"{SCRAM} required username='u' password='hush' tokenauth=true;",
                "delegation tokens are not supported",
            ),
        ],
    )
    def test_what_is_missing_or_does_not_fit(
        self, mechanism: str | None, jaas: str | None, message: str
    ) -> None:
        with pytest.raises(OptionError, match=message) as caught:
            security(mechanism, jaas)
        assert "hush" not in str(caught.value)


class TestKerberos:
    def test_with_a_keytab(self) -> None:
        jaas = f'{KERBEROS} required useKeyTab=true keyTab="/k" principal="me@X" serviceName="kafka";'
        options = security("GSSAPI", jaas)
        assert options.kerberos == KerberosOptions("kafka", "me@X", "/k")

    @pytest.mark.parametrize("jaas", [None, f"{KERBEROS} required useTicketCache=true;"])
    def test_with_a_ticket_which_is_kafkas_default(self, jaas: str | None) -> None:
        options = security(None, jaas, **{"kafka.sasl.kerberos.service.name": "kafka"})
        assert options == SecurityOptions("SASL_PLAINTEXT", "GSSAPI", kerberos=KerberosOptions("kafka"))

    def test_a_service_has_one_name(self) -> None:
        with pytest.raises(OptionError, match=r"do not name.*usually to kafka\."):
            security("GSSAPI", None)
        with pytest.raises(OptionError, match=r"do not name.*mechanism, which is GSSAPI by default"):
            security(None, None)
        with pytest.raises(OptionError, match="give different names"):
            security(
                "GSSAPI",
                f"{KERBEROS} required serviceName=a;",
                **{"kafka.sasl.kerberos.service.name": "b"},
            )


class TestTokens:
    def test_a_fixed_token(self) -> None:
        assert oauth('oauth.access.token="a.b.c"') == OAuthOptions(token="a.b.c")

    @pytest.mark.parametrize(
        "jaas",
        [
            "unsecuredLoginStringClaim_sub=hush",
            "oauth.access.token=a unsecuredLoginLifetimeSeconds='60'",
            "oauth.access.token=a unsecuredLoginExtension_traceId='1'",
        ],
    )
    def test_an_unsecured_token_is_not_made(self, jaas: str) -> None:
        with pytest.raises(OptionError, match=rf"unsecured token, which is not.*{ENDPOINT}") as caught:
            oauth(jaas)
        assert "hush" not in str(caught.value)

    @pytest.mark.parametrize(
        ("jaas", "values"),
        [
            ('clientId="me" clientSecret="p" scope="s"', {}),
            ('oauth.client.id="me" oauth.client.secret="p" oauth.scope="s"', {}),
            (None, {f"{CLIENT}.id": "me", f"{CLIENT}.secret": "p", "kafka.sasl.oauthbearer.scope": "s"}),
            ('clientId="x" clientSecret="x"', {f"{CLIENT}.id": "me", f"{CLIENT}.secret": "p"}),
        ],
    )
    def test_an_endpoint(self, jaas: str | None, values: dict[str, str]) -> None:
        options = oauth(
            jaas,
            **values,
            **{
                ENDPOINT: "https://idp/token",
                f"{HANDLER}": f"{KAFKA}.oauthbearer.secured.OAuthBearerLoginCallbackHandler",
            },
        )
        scope = "s" if "scope" in f"{jaas}{values}" else None
        assert options == OAuthOptions(
            endpoint="https://idp/token", client_id="me", client_secret="p", scope=scope
        )

    def test_settings_of_an_endpoint(self) -> None:
        options = oauth(
            'clientId="me" clientSecret="p" extension_logicalCluster="lkc-1" extension_identityPoolId="x"',
            **{
                ENDPOINT: "https://idp/token",
                "kafka.sasl.oauthbearer.header.urlencode": "true",
                "kafka.sasl.login.connect.timeout.ms": "1",
                "kafka.sasl.login.read.timeout.ms": "2",
                "kafka.sasl.login.retry.backoff.ms": "3",
                "kafka.sasl.login.retry.backoff.max.ms": "4",
            },
        )
        assert options.urlencode_header is True
        times = (options.connect_timeout_ms, options.read_timeout_ms)
        assert (*times, options.retry_backoff_ms, options.retry_backoff_max_ms) == (1, 2, 3, 4)
        assert options.extensions == (("logicalCluster", "lkc-1"), ("identityPoolId", "x"))

    @pytest.mark.parametrize("allowed", ["http://127.0.0.1:1/t", " https://idp ,http://127.0.0.1:1/t,"])
    def test_an_endpoint_without_tls_that_is_named(self, allowed: str) -> None:
        options = oauth(CLIENT_LOGIN, **{ENDPOINT: "http://127.0.0.1:1/t", ALLOWED: allowed})
        assert options.endpoint == "http://127.0.0.1:1/t"

    def test_a_file_needs_no_client(self) -> None:
        assert oauth(None, **{ENDPOINT: "file:///token"}) == OAuthOptions(endpoint="file:///token")

    @pytest.mark.parametrize("protocol", ["SSL", "TLS", "TLSv1.2", "TLSv1.3"])
    def test_as_databricks_documents_it(self, protocol: str) -> None:
        options = security(
            "OAUTHBEARER",
            f'kafkashaded.{OAUTH} required\n clientId="me"\n clientSecret="hush"\n'
            f' scope="https://demo.servicebus.windows.net/.default"\n ssl.protocol="{protocol}";',
            "SASL_SSL",
            **{
                ENDPOINT: "https://login.microsoft.com/tenant/oauth2/v2.0/token",
                HANDLER: f"kafkashaded.{KAFKA}.oauthbearer.secured.OAuthBearerLoginCallbackHandler",
            },
        )
        assert options.oauth is not None
        assert options.oauth.client_secret == "hush"
        assert options.oauth.scope == "https://demo.servicebus.windows.net/.default"

    def test_a_callable(self) -> None:
        options = oauth(None, **{HANDLER: "package.module:token"})
        assert options == OAuthOptions(provider="package.module:token", given=options.given)

    @pytest.mark.parametrize(
        ("jaas", "values", "message"),
        [
            (None, {}, "expected one source of tokens, got none"),
            ("", {}, "expected one source of tokens, got none"),
            ("oauth.access.token='a'", {ENDPOINT: "file:/t"}, "expected one source of tokens, got several"),
            ("oauth.access.token='hu sh'", {}, "other than visible ASCII"),
            ("clientId='hush'", {ENDPOINT: "https://idp"}, "needs a client's id and secret"),
            (None, {ENDPOINT: "ftp://hush/idp"}, "expected a URL that begins with https:"),
            ("clientId=a clientSecret=b ssl.protocol=SSLv3", {ENDPOINT: "https://idp"}, "SSL_CERT_FILE"),
            ("clientId=a clientSecret=b ssl.truststore.type=PEM", {ENDPOINT: "https://idp"}, "SSL_CERT_FILE"),
            (None, {ENDPOINT: "https://[hush"}, "expected a URL that begins with https:"),
            (None, {ENDPOINT: "https://hush:x/"}, "expected a URL that begins with https:"),
            (None, {ENDPOINT: "https:/hush"}, "expected a URL that begins with https:"),
            (None, {ENDPOINT: "https://idp/hush\nhush"}, "expected a URL that begins with https:"),
            (CLIENT_LOGIN, {ENDPOINT: "http://hush/"}, f"unencrypted.*name this one in {ALLOWED}"),
            (CLIENT_LOGIN, {ENDPOINT: "HTTP://127.0.0.1:1/hush"}, "unencrypted"),
            (
                CLIENT_LOGIN,
                {ENDPOINT: "http://hush/a", ALLOWED: "http://hush, http://hush/"},
                "is not one of",
            ),
            (CLIENT_LOGIN, {ENDPOINT: "https://hush/a", ALLOWED: "https://hush/b"}, "is not one of"),
            (CLIENT_LOGIN, {ENDPOINT: "https://me:hush@idp/token"}, "has a user, a password"),
            (CLIENT_LOGIN, {ENDPOINT: "https://hush@idp/token"}, "has a user, a password"),
            (CLIENT_LOGIN, {ENDPOINT: "https://me%3Ahush%40idp/token"}, "or an escape"),
            (None, {ENDPOINT: "file://hush/token"}, "expected only a path"),
            (None, {ENDPOINT: "file:///hush?x"}, "expected only a path"),
            (
                None,
                {HANDLER: "com.example.Handler"},
                f"Java class, which cannot be run here.*{PROVIDER} as aws",
            ),
            (None, {HANDLER: "a hush:c"}, "expected an import path"),
            (
                None,
                {HANDLER: "a.OAuthBearerUnsecuredLoginCallbackHandler"},
                "Java class, which cannot",
            ),
            ("oauth.access.token=a extension_auth='hush'", {}, "RFC 7628"),
            ("oauth.access.token=a extension_a1='hush'", {}, "RFC 7628"),
            ("oauth.access.token=a extension_a=''", {}, "RFC 7628"),
        ],
    )
    def test_what_is_missing_or_does_not_fit(
        self, jaas: str | None, values: dict[str, str], message: str
    ) -> None:
        with pytest.raises(OptionError, match=message) as caught:
            oauth(jaas, **values)
        assert "hush" not in str(caught.value)
        assert "hu sh" not in str(caught.value)


JAAS = "kafka.sasl.jaas.config"
SSL = "kafka.ssl."
ASSERTION = "kafka.sasl.oauthbearer.assertion.private.key.passphrase"
PEM = "-----BEGIN {0}-----{1}-----END {0}-----"
MODULES = {
    "PLAIN": PLAIN,
    "SCRAM-SHA-512": SCRAM,
    "OAUTHBEARER": OAUTH,
    "GSSAPI": KERBEROS,
    "AWS_MSK_IAM": IAM,
}
SETTINGS = (
    "{}",
    "a={}",
    "a {}",
    "{}",
    'username="u" password={}',
    'password="p" username={}',
    'tokenauth=true username="u" password={}',
    'clientId="c" clientSecret={}',
    "oauth.access.token={}",
    "unsecuredLoginStringClaim_sub={}",
    'unsecuredLoginLifetimeSeconds={} oauth.access.token="t"',
    'extension_a={} oauth.access.token="t"',
    'serviceName="s" principal={}',
)
SECRETS = [
    *(
        (mechanism, JAAS, frame)
        for mechanism, module in MODULES.items()
        for frame in (
            "{}",
            "{} required;",
            *(
                f"{module} required {setting.format(quoted)};"
                for setting in SETTINGS
                for quoted in ("{}", '"{}"', "'{}'")
            ),
        )
    ),
    *(
        ("OAUTHBEARER", name, frame)
        for name in (f"{CLIENT}.secret", ENDPOINT, ASSERTION)
        for frame in ("{}", "https://user:{}@idp/token", "file:///{}")
    ),
    *(
        ("PLAIN", f"{SSL}{name}", frame)
        for name in ("keystore.key", "keystore.certificate.chain", "truststore.certificates")
        for kind in ("PRIVATE KEY", "CERTIFICATE")
        for frame in ("{}", PEM.format(kind, "{}"), PEM.format(kind, "\nA: {}\n\nAAAA\n"))
    ),
    *(("PLAIN", f"{SSL}{name}.password", "{}") for name in ("key", "keystore", "truststore")),
    ("PLAIN", "kafka.some.other.password", "{}"),
    ("PLAIN", "password", "{}"),
]
"""A mechanism, and what of its login may be secret: an option, and what may surround the secret there."""

USES: tuple[Callable[[dict[str, str]], object], ...] = (
    place_options,
    common_read_options,
    write_options,
    lambda options: read_options(options, batch=False),
)


class _Lines(logging.Handler):
    """What is logged, at any level."""

    def __init__(self) -> None:
        super().__init__(0)
        self.lines: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.lines.append(record.getMessage())


@pytest.mark.parametrize("mechanism", MODULES)
@settings(max_examples=250)
@given(data=st.data())
def test_no_secret_shows(mechanism: str, data: st.DataObject) -> None:
    """Neither well-formed nor malformed, in no repr, error, cause or log line."""
    name, frame = data.draw(
        st.sampled_from(
            [(name, frame) for secret_mechanism, name, frame in SECRETS if secret_mechanism == mechanism]
        )
    )
    tail = data.draw(st.text(st.sampled_from("aZ9+/=_-.@'\"\\ ;\n"), max_size=6))
    cut = data.draw(st.sampled_from([0, 0, 0, 1, 3]))
    text = frame.format("Hush7Hush7" + tail)
    options = {
        "kafka.bootstrap.servers": "host:9092",
        "kafka.security.protocol": data.draw(st.sampled_from(["SASL_SSL", "SASL_SSL", "PLAINTEXT"])),
        "kafka.sasl.mechanism": mechanism,
        JAAS: f'{MODULES[mechanism]} required username="Hush" password="Hush" clientId="Hush";',
        name: text[: len(text) - cut],
    }
    logger, handler = logging.getLogger("pyspark_kafkalog"), _Lines()
    level = logger.level
    logger.addHandler(handler)
    logger.setLevel(logging.DEBUG)
    shown = []
    try:
        for use in USES:
            direction = {"topic": "t"} if use is write_options else {"subscribe": "t"}
            try:
                result = use({**options, **direction})
            except OptionError as e:
                shown += [text for error in _chain(e) for text in (str(error), repr(error))]
            else:
                shown += [str(result), repr(result), *_parts(result)]
    finally:
        logger.removeHandler(handler)
        logger.setLevel(level)
    assert not [line for line in (*shown, *handler.lines) if "Hush" in line]


def _chain(error: BaseException | None) -> Iterator[BaseException]:
    """An error and what it came from, as a traceback shows it."""
    while error is not None:
        yield error
        error = error.__cause__ or (None if error.__suppress_context__ else error.__context__)


def _parts(options: object) -> list[str]:
    """The texts of what hangs below the options that are asked for."""
    found = []
    brokers = getattr(options, "brokers", None)
    if brokers is not None:
        found = [
            brokers,
            brokers.security,
            brokers.security.oauth,
            brokers.security.kerberos,
            brokers.security.tls,
        ]
    return [text for part in found for text in (repr(part), str(part))]


ROLE = "arn:aws:iam::123456789012:role/reader"
FROM_IAM = "kafka.sasl.client.callback.handler.class"


class TestAws:
    @pytest.mark.parametrize("shaded", ["", "shadedmskiam."])
    def test_as_java_and_databricks_have_it(self, shaded: str) -> None:
        login = f'awsRoleArn="{ROLE}" awsRoleSessionName="s" awsProfileName="etl" awsStsRegion="eu-west-1"'
        options = security(
            "AWS_MSK_IAM",
            f"{shaded}{IAM} required {login} awsDebugCreds=true;",
            "SASL_SSL",
            **{FROM_IAM: f"{shaded}software.amazon.msk.auth.iam.IAMClientCallbackHandler"},
        )
        expected = AwsOptions(None, "etl", ROLE, "s", None, "eu-west-1")
        assert options == SecurityOptions("SASL_SSL", "AWS_MSK_IAM", aws=expected, tls=TlsOptions())

    def test_without_settings(self) -> None:
        assert security("AWS_MSK_IAM", None).aws == AwsOptions()
        region = {"kafka.sasl.aws.region": " eu-central-1 "}
        assert security("AWS_MSK_IAM", None, **region).aws == AwsOptions("eu-central-1")

    @pytest.mark.parametrize(
        "values",
        [
            {PROVIDER: "AWS"},
            {HANDLER: "software.amazon.msk.auth.iam.IAMOAuthBearerLoginCallbackHandler"},
        ],
    )
    def test_tokens(self, values: dict[str, str]) -> None:
        assert oauth(f'awsRoleArn="{ROLE}"', **values) == OAuthOptions(aws=AwsOptions(role_arn=ROLE))
        assert security("OAUTHBEARER", None, **values).oauth == OAuthOptions(aws=AwsOptions())

    @pytest.mark.parametrize(
        ("cloud", "handler"),
        [
            ("gcp", "com.google.cloud.hosted.kafka.auth.GcpLoginCallbackHandler"),
            (
                "azure",
                "com.azure.spring.cloud.service.implementation.kafka.KafkaOAuth2AuthenticateCallbackHandler",
            ),
        ],
    )
    def test_tokens_of_other_clouds(self, cloud: str, handler: str) -> None:
        for values in ({PROVIDER: cloud}, {HANDLER: handler}):
            assert oauth("extension_a=b", **values) == OAuthOptions(cloud=cloud, extensions=(("a", "b"),))

    def test_who_logs_in_to_azure_and_for_what(self) -> None:
        expected = OAuthOptions(cloud="azure", client_id="me", scope="api://1/.default")
        login = 'clientId="me" scope="api://1/.default" azure.configured="true"'
        assert oauth(login, **{PROVIDER: "azure"}) == expected
        given = {f"{CLIENT}.id": "me", "kafka.sasl.oauthbearer.scope": "api://1/.default"}
        assert oauth(None, **given, **{PROVIDER: "azure"}) == expected

    @pytest.mark.parametrize(
        ("cloud", "login", "values"),
        [
            ("azure", 'clientId="me" clientSecret="hush"', {}),
            ("azure", 'azure.credential.client-secret="hush"', {}),
            ("azure", None, {f"{CLIENT}.secret": "hush"}),
            ("gcp", 'clientId="hush"', {}),
            ("gcp", 'scope="hush"', {}),
            ("gcp", None, {"kafka.sasl.oauthbearer.scope": "hush"}),
            ("aws", None, {f"{CLIENT}.id": "hush"}),
            ("aws", None, {f"{CLIENT}.secret": "hush"}),
        ],
    )
    def test_a_login_that_the_cloud_would_not_use(
        self, cloud: str, login: str | None, values: dict[str, str]
    ) -> None:
        """The identity of the machine would log in instead of the one that is given."""
        with pytest.raises(OptionError, match=f"no effect with the tokens of {cloud}") as caught:
            oauth(login, **values, **{PROVIDER: cloud})
        assert "hush" not in str(caught.value)
        assert ENDPOINT in str(caught.value)

    @pytest.mark.parametrize("mechanism", [None, "PLAIN", "AWS_MSK_IAM"])
    def test_a_cloud_that_would_not_be_asked(self, mechanism: str | None) -> None:
        with pytest.raises(
            OptionError, match=f"needs the SASL mechanism OAUTHBEARER, got {mechanism or 'GSS'}"
        ):
            security(mechanism, None, **{PROVIDER: "azure"})
        assert security("AWS_MSK_IAM", None, **{PROVIDER: "aws"}).aws == AwsOptions()

    def test_what_another_login_does_not_use_is_warned_of(self, caplog: pytest.LogCaptureFixture) -> None:
        plain = f'{PLAIN} required username="u" password="p";'
        security("PLAIN", plain, **{ENDPOINT: "https://idp", "kafka.sasl.aws.region": "us-east-1"})
        names = f"kafka.sasl.aws.region, {ENDPOINT}"
        assert f"Options {names} have no effect, because kafka.sasl.mechanism is PLAIN" in caplog.text
        oauth(None, **{PROVIDER: "gcp", "kafka.sasl.aws.region": "us-east-1"})
        assert "kafka.sasl.aws.region have no effect, because kafka.sasl.oauthbearer.prov" in caplog.text
        security(None, None, "SSL", **{PROVIDER: "gcp"})
        assert f"Options {PROVIDER} have no effect, because kafka.security.protocol is SSL" in caplog.text

    @pytest.mark.parametrize(
        ("login", "message"),
        [
            ('awsRoleArn="reader"', "awsRoleArn of the form arn:aws"),
            ('awsRoleSessionName="s"', "lacks awsRoleArn"),
            ('awsStsRegion="Frankfurt"', "expected a region"),
            ('password="hush"', "a setting that a login to AWS does not know.*awsProfileName, awsRoleArn"),
        ],
    )
    def test_what_is_wrong(self, login: str, message: str) -> None:
        with pytest.raises(OptionError, match=message) as caught:
            security("AWS_MSK_IAM", f"{IAM} required {login};")
        assert "hush" not in str(caught.value)

    def test_a_class_for_another_mechanism(self) -> None:
        handler = "software.amazon.msk.auth.iam.IAMClientCallbackHandler"
        for mechanism, name in (("PLAIN", handler), ("AWS_MSK_IAM", "com.example.Handler")):
            with pytest.raises(OptionError, match="Java class, which cannot be run"):
                security(mechanism, f'{PLAIN} required username="u" password="p";', **{FROM_IAM: name})

    def test_one_source_of_tokens(self) -> None:
        with pytest.raises(
            OptionError, match=r"got several: oauth\.access\.token in kafka.*config, aws\. Give"
        ):
            oauth('oauth.access.token="t"', **{PROVIDER: "aws"})

    def test_one_cloud_by_name_and_by_class(self) -> None:
        google = {HANDLER: "com.google.cloud.hosted.kafka.auth.GcpLoginCallbackHandler"}
        assert oauth(None, **google, **{PROVIDER: "gcp"}).cloud == "gcp"
        with pytest.raises(OptionError, match="got several"):
            oauth(None, **google, **{PROVIDER: "azure"})

    def test_an_unencrypted_login_is_warned_of(self, caplog: pytest.LogCaptureFixture) -> None:
        oauth(None, **{PROVIDER: "gcp"})
        assert "go to brokers unencrypted, because kafka.security.protocol is SASL_PLAIN" in caplog.text


def test_a_callable_gets_kafkas_options() -> None:
    options = oauth(None, **{HANDLER: "pkg:give", "kafka.client.id": "me"})
    assert options.provider == "pkg:give"
    assert dict(options.given)["kafka.client.id"] == "me"
    assert "me" not in repr(options)


def test_secrets_reach_the_tasks() -> None:
    options = security(
        "PLAIN",
        f'{PLAIN} required username="u" password="p";',
        "SASL_SSL",
        **{"kafka.ssl.key.password": "k"},
    )
    copy = pickle.loads(pickle.dumps(options))
    assert copy == options
    assert (copy.password, copy.tls.key_password) == ("p", "k")
    assert len({options, copy}) == 1
    assert options != security("PLAIN", f'{PLAIN} required username="u" password="q";', "SASL_SSL")
