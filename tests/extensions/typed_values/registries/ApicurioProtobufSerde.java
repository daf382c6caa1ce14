import com.google.protobuf.DescriptorProtos.FileDescriptorProto;
import com.google.protobuf.Descriptors.FileDescriptor;
import com.google.protobuf.DynamicMessage;
import io.apicurio.registry.serde.protobuf.ProtobufKafkaSerializer;
import java.util.Base64;
import java.util.HashMap;
import java.util.Map;
import org.apache.kafka.common.header.Header;
import org.apache.kafka.common.header.internals.RecordHeaders;

/** Writes a message by Apicurio's serializer: the value, and the headers as name and bytes, with spaces between. */
public class ApicurioProtobufSerde {
    public static void main(String[] args) throws Exception {
        Map<String, Object> configs = new HashMap<>();
        configs.put("apicurio.registry.auto-register", "true");
        for (int i = 4; i < args.length; i += 2) {
            configs.put(args[i], args[i + 1]);
        }
        FileDescriptorProto proto = FileDescriptorProto.parseFrom(Base64.getDecoder().decode(args[1]));
        DynamicMessage message = DynamicMessage.parseFrom(
            FileDescriptor.buildFrom(proto, new FileDescriptor[0]).findMessageTypeByName(args[2]),
            Base64.getDecoder().decode(args[3]));
        ProtobufKafkaSerializer<DynamicMessage> writer = new ProtobufKafkaSerializer<>();
        writer.configure(configs, false);
        RecordHeaders headers = new RecordHeaders();
        byte[] written = writer.serialize(args[0], headers, message);
        StringBuilder line = new StringBuilder(Base64.getEncoder().encodeToString(written));
        for (Header header : headers) {
            line.append(' ').append(header.key()).append(' ')
                .append(Base64.getEncoder().encodeToString(header.value() == null ? new byte[0] : header.value()));
        }
        System.out.println(line);
        System.exit(0);
    }
}
