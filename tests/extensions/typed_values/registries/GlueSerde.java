import com.amazonaws.services.schemaregistry.deserializers.GlueSchemaRegistryKafkaDeserializer;
import com.amazonaws.services.schemaregistry.serializers.GlueSchemaRegistryKafkaSerializer;
import com.amazonaws.services.schemaregistry.serializers.json.JsonDataWithSchema;
import com.google.protobuf.DescriptorProtos.FileDescriptorProto;
import com.google.protobuf.Descriptors.Descriptor;
import com.google.protobuf.Descriptors.FileDescriptor;
import com.google.protobuf.DynamicMessage;
import com.google.protobuf.Message;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.Base64;
import java.util.HashMap;
import java.util.Map;
import org.apache.avro.Schema;
import org.apache.avro.generic.GenericData;
import org.apache.avro.generic.GenericRecord;

/** Writes values by awslabs' serializers, a line each, and reads those of a file by their deserializer. */
public class GlueSerde {
    public static void main(String[] args) throws Exception {
        Map<String, Object> configs = new HashMap<>();
        configs.put("endpoint", args[0]);
        configs.put("region", "eu-west-1");
        configs.put("registry.name", "shop");
        configs.put("schemaAutoRegistrationEnabled", "true");
        configs.put("avroRecordType", "GENERIC_RECORD");
        Base64.Encoder encoder = Base64.getEncoder();
        if (args.length == 4) {
            // A file's descriptor, the name of one of its messages, and the bytes of one.
            FileDescriptorProto proto = FileDescriptorProto.parseFrom(Base64.getDecoder().decode(args[1]));
            Descriptor message = FileDescriptor.buildFrom(proto, new FileDescriptor[0])
                .findMessageTypeByName(args[2].split("/")[0]);
            for (String inner : args[2].contains("/") ? args[2].split("/")[1].split("/") : new String[0]) {
                message = message.findNestedTypeByName(inner);
            }
            configs.put("dataFormat", "PROTOBUF");
            for (String compression : new String[] {"NONE", "ZLIB"}) {
                configs.put("compression", compression);
                GlueSchemaRegistryKafkaSerializer writer = new GlueSchemaRegistryKafkaSerializer(configs);
                Message value = DynamicMessage.parseFrom(message, Base64.getDecoder().decode(args[3]));
                System.out.println(encoder.encodeToString(writer.serialize("orders", value)));
            }
            return;
        }
        if (args.length > 1) {
            GlueSchemaRegistryKafkaDeserializer reader = new GlueSchemaRegistryKafkaDeserializer(configs);
            for (String line : Files.readAllLines(Path.of(args[1]))) {
                Object value = reader.deserialize("orders", Base64.getDecoder().decode(line));
                if (value instanceof Message) {
                    Message message = (Message) value;
                    String body = encoder.encodeToString(message.toByteArray());
                    System.out.println(message.getDescriptorForType().getName() + " " + body);
                    continue;
                }
                System.out.println(value instanceof JsonDataWithSchema
                    ? ((JsonDataWithSchema) value).getPayload() : value);
            }
            return;
        }
        Schema schema = new Schema.Parser().parse("{\"type\":\"record\",\"name\":\"Order\",\"fields\":["
            + "{\"name\":\"id\",\"type\":\"long\"},{\"name\":\"note\",\"type\":\"string\"}]}");
        for (String compression : new String[] {"NONE", "ZLIB"}) {
            configs.put("compression", compression);
            configs.put("dataFormat", "AVRO");
            GlueSchemaRegistryKafkaSerializer writer = new GlueSchemaRegistryKafkaSerializer(configs);
            for (long id = 0; id < 3; id++) {
                GenericRecord order = new GenericData.Record(schema);
                order.put("id", id);
                order.put("note", "x".repeat((int) (id * 100)));
                System.out.println(encoder.encodeToString(writer.serialize("orders", order)));
            }
            configs.put("dataFormat", "JSON");
            writer = new GlueSchemaRegistryKafkaSerializer(configs);
            JsonDataWithSchema json = JsonDataWithSchema.builder(
                "{\"$schema\":\"http://json-schema.org/draft-07/schema#\",\"type\":\"object\","
                    + "\"properties\":{\"id\":{\"type\":\"integer\"}}}", "{\"id\": 7}").build();
            System.out.println(encoder.encodeToString(writer.serialize("events", json)));
        }
    }
}
