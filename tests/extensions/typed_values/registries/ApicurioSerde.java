import io.apicurio.registry.serde.avro.AvroKafkaSerializer;
import io.apicurio.registry.serde.jsonschema.JsonSchemaKafkaSerializer;
import com.fasterxml.jackson.databind.ObjectMapper;
import java.util.Base64;
import java.util.HashMap;
import java.util.Map;
import org.apache.avro.Schema;
import org.apache.avro.generic.GenericData;
import org.apache.avro.generic.GenericRecord;
import org.apache.kafka.common.header.Header;
import org.apache.kafka.common.header.internals.RecordHeaders;

/** Writes a value by Apicurio's serializer: the value, and the headers as name and bytes, with spaces between. */
public class ApicurioSerde {
    public static void main(String[] args) throws Exception {
        Map<String, Object> configs = new HashMap<>();
        configs.put("apicurio.registry.auto-register", "true");
        for (int i = 2; i < args.length; i += 2) {
            configs.put(args[i], args[i + 1]);
        }
        RecordHeaders headers = new RecordHeaders();
        byte[] written;
        if (args[0].equals("avro")) {
            Schema schema = new Schema.Parser().parse("{\"type\":\"record\",\"name\":\"Order\",\"fields\":["
                + "{\"name\":\"id\",\"type\":\"long\"},{\"name\":\"note\",\"type\":\"string\"}]}");
            GenericRecord order = new GenericData.Record(schema);
            order.put("id", 7L);
            order.put("note", "x");
            AvroKafkaSerializer<GenericRecord> writer = new AvroKafkaSerializer<>();
            writer.configure(configs, false);
            written = writer.serialize(args[1], headers, order);
        } else {
            configs.put("apicurio.registry.auto-register", "false");
            configs.put("apicurio.registry.find-latest", "true");
            configs.put("apicurio.registry.serde.validation-enabled", "false");
            JsonSchemaKafkaSerializer<Object> writer = new JsonSchemaKafkaSerializer<>();
            writer.configure(configs, false);
            written = writer.serialize(args[1], headers, new ObjectMapper().readTree("{\"id\": 7, \"note\": \"x\"}"));
        }
        StringBuilder line = new StringBuilder(Base64.getEncoder().encodeToString(written));
        for (Header header : headers) {
            byte[] value = header.value();
            line.append(' ').append(header.key()).append(' ')
                .append(Base64.getEncoder().encodeToString(value == null ? new byte[0] : value));
        }
        System.out.println(line);
        System.exit(0);
    }
}
