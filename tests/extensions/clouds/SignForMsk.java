import java.util.Base64;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import javax.security.auth.callback.Callback;
import javax.security.auth.login.AppConfigurationEntry;
import javax.security.auth.login.AppConfigurationEntry.LoginModuleControlFlag;
import javax.security.sasl.Sasl;
import javax.security.sasl.SaslClient;
import org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule;
import org.apache.kafka.common.security.oauthbearer.OAuthBearerTokenCallback;
import software.amazon.msk.auth.iam.IAMClientCallbackHandler;
import software.amazon.msk.auth.iam.IAMLoginModule;
import software.amazon.msk.auth.iam.IAMOAuthBearerLoginCallbackHandler;

/** Prints what Amazon's own library sends for SASL OAUTHBEARER and AWS_MSK_IAM to the broker that is given. */
public class SignForMsk {
    private static List<AppConfigurationEntry> entry(Class<?> module) {
        return List.of(new AppConfigurationEntry(module.getName(), LoginModuleControlFlag.REQUIRED, Map.of()));
    }

    public static void main(String[] args) throws Exception {
        IAMOAuthBearerLoginCallbackHandler bearer = new IAMOAuthBearerLoginCallbackHandler();
        bearer.configure(Map.of(), "OAUTHBEARER", entry(OAuthBearerLoginModule.class));
        OAuthBearerTokenCallback token = new OAuthBearerTokenCallback();
        bearer.handle(new Callback[] {token});
        System.out.println(token.token().value());

        new IAMLoginModule();
        IAMClientCallbackHandler client = new IAMClientCallbackHandler();
        client.configure(Map.of(), "AWS_MSK_IAM", entry(IAMLoginModule.class));
        String[] mechanisms = {"AWS_MSK_IAM"};
        SaslClient sasl = Sasl.createSaslClient(mechanisms, null, "kafka", args[0], new HashMap<>(), client);
        System.out.println(Base64.getEncoder().encodeToString(sasl.evaluateChallenge(new byte[0])));
    }
}
