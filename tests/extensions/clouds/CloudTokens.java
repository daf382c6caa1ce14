import java.net.URLDecoder;
import java.nio.charset.StandardCharsets;
import java.security.MessageDigest;
import java.time.ZonedDateTime;
import java.time.format.DateTimeFormatter;
import java.time.ZoneOffset;
import java.util.Base64;
import java.util.HexFormat;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.TreeMap;
import java.util.stream.Collectors;
import javax.crypto.Mac;
import javax.crypto.spec.SecretKeySpec;
import javax.security.auth.callback.Callback;
import javax.security.auth.login.AppConfigurationEntry;
import org.apache.kafka.common.security.auth.AuthenticateCallbackHandler;
import org.apache.kafka.common.security.oauthbearer.OAuthBearerToken;
import org.apache.kafka.common.security.oauthbearer.OAuthBearerValidatorCallback;

/**
 * Checks tokens as the brokers of clouds do: a signed URL of AWS, by its secret key; one of Google, by its three parts;
 * any other, by the time at which it ends, which stands behind its last dot.
 */
public class CloudTokens implements AuthenticateCallbackHandler {
    private String secret;

    public void configure(Map<String, ?> configs, String mechanism, List<AppConfigurationEntry> entries) {
        secret = (String) entries.get(0).getOptions().get("secret");
    }

    public void handle(Callback[] callbacks) {
        for (Callback callback : callbacks) {
            if (!(callback instanceof OAuthBearerValidatorCallback asked)) continue;
            try {
                asked.token(checked(asked.tokenValue()));
            } catch (Exception e) {
                System.out.println("Refused: " + e);
                asked.error("invalid_token", null, null);
            }
        }
    }

    public void close() {}

    private OAuthBearerToken checked(String text) throws Exception {
        String[] parts = text.split("\\.");
        if (parts.length == 1) return ofAws(text);
        String access = text;
        if (parts.length == 3 && parts[0].startsWith("eyJ")) {
            String header = new String(Base64.getUrlDecoder().decode(parts[0]), StandardCharsets.UTF_8);
            if (!header.contains("GOOG_OAUTH2_TOKEN")) throw new SecurityException(header);
            access = new String(Base64.getUrlDecoder().decode(parts[2]), StandardCharsets.UTF_8);
        }
        long end = Long.parseLong(access.substring(access.lastIndexOf('.') + 1));
        return token(text, "cloud", 1000 * end);
    }

    private OAuthBearerToken ofAws(String text) throws Exception {
        String url = new String(Base64.getUrlDecoder().decode(text), StandardCharsets.UTF_8);
        String host = url.substring("https://".length(), url.indexOf("/?"));
        Map<String, String> query = new TreeMap<>();
        for (String pair : url.substring(url.indexOf('?') + 1).split("&"))
            query.put(pair.substring(0, pair.indexOf('=')), pair.substring(pair.indexOf('=') + 1));
        query.remove("User-Agent");
        String signature = query.remove("X-Amz-Signature");
        String canonical = query.entrySet().stream().map(e -> e.getKey() + "=" + e.getValue()).collect(Collectors.joining("&"));
        String request = "GET\n/\n" + canonical + "\nhost:" + host + "\n\nhost\n" + hash("");
        String[] scope = URLDecoder.decode(query.get("X-Amz-Credential"), StandardCharsets.UTF_8).split("/");
        String date = query.get("X-Amz-Date");
        byte[] key = ("AWS4" + secret).getBytes(StandardCharsets.UTF_8);
        for (String part : List.of(scope[1], scope[2], scope[3], scope[4])) key = sign(key, part);
        String signed = String.join("/", scope[1], scope[2], scope[3], scope[4]);
        String expected = HexFormat.of().formatHex(sign(key, "AWS4-HMAC-SHA256\n" + date + "\n" + signed + "\n" + hash(request)));
        if (!expected.equals(signature)) throw new SecurityException("signature");
        DateTimeFormatter form = DateTimeFormatter.ofPattern("yyyyMMdd'T'HHmmss'Z'").withZone(ZoneOffset.UTC);
        long end = ZonedDateTime.parse(date, form).toEpochSecond() + Long.parseLong(query.get("X-Amz-Expires"));
        return token(text, scope[0], 1000 * end);
    }

    private static String hash(String text) throws Exception {
        byte[] bytes = text.getBytes(StandardCharsets.UTF_8);
        return HexFormat.of().formatHex(MessageDigest.getInstance("SHA-256").digest(bytes));
    }

    private static byte[] sign(byte[] key, String text) throws Exception {
        Mac mac = Mac.getInstance("HmacSHA256");
        mac.init(new SecretKeySpec(key, "HmacSHA256"));
        return mac.doFinal(text.getBytes(StandardCharsets.UTF_8));
    }

    private static OAuthBearerToken token(String value, String principal, long end) {
        if (end < System.currentTimeMillis()) throw new SecurityException("expired");
        return new OAuthBearerToken() {
            public String value() { return value; }
            public Set<String> scope() { return Set.of(); }
            public long lifetimeMs() { return end; }
            public String principalName() { return principal; }
            public Long startTimeMs() { return null; }
        };
    }
}
