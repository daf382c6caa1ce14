import java.io.FileInputStream;
import java.io.InputStream;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import javax.security.auth.login.AppConfigurationEntry;
import javax.security.auth.login.AppConfigurationEntry.LoginModuleControlFlag;
import org.apache.kafka.clients.admin.AdminClientConfig;
import org.apache.kafka.common.security.oauthbearer.JwtRetriever;
import org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule;

/** Gets a token by each of the properties files that are given, as Kafka's own clients do. */
public class RetrieveTokens {
    public static void main(String[] args) throws Exception {
        AppConfigurationEntry entry = new AppConfigurationEntry(
            OAuthBearerLoginModule.class.getName(), LoginModuleControlFlag.REQUIRED, Map.of());
        for (String file : args) {
            Properties properties = new Properties();
            try (InputStream stream = new FileInputStream(file)) { properties.load(stream); }
            AdminClientConfig config = new AdminClientConfig(properties);
            JwtRetriever retriever = config.getConfiguredInstance(
                "sasl.oauthbearer.jwt.retriever.class", JwtRetriever.class, Map.of());
            retriever.configure(config.values(), "OAUTHBEARER", List.of(entry));
            System.out.println(retriever.retrieve());
        }
    }
}
