import java.math.BigDecimal;
import java.math.BigInteger;
import java.util.Date;
import java.util.Map;
import java.util.Random;
import org.apache.kafka.connect.data.Decimal;
import org.apache.kafka.connect.data.Schema;
import org.apache.kafka.connect.data.SchemaBuilder;
import org.apache.kafka.connect.data.Struct;
import org.apache.kafka.connect.data.Time;
import org.apache.kafka.connect.data.Timestamp;
import org.apache.kafka.connect.json.JsonConverter;

/** Prints random values, tab-separated, and the JSON that Kafka Connect's converter makes of them. */
public class ConnectForms {
    public static void main(String[] args) {
        Schema decimal = Decimal.schema(2);
        Schema date = org.apache.kafka.connect.data.Date.SCHEMA;
        Schema schema = SchemaBuilder.struct().field("p", decimal).field("d", date).field("t", Timestamp.SCHEMA)
            .field("c", Time.SCHEMA).field("b", Schema.BYTES_SCHEMA).build();
        JsonConverter base64 = new JsonConverter();
        base64.configure(Map.of("schemas.enable", "false", "decimal.format", "BASE64"), false);
        JsonConverter numeric = new JsonConverter();
        numeric.configure(Map.of("schemas.enable", "false", "decimal.format", "NUMERIC"), false);
        Random random = new Random(Long.parseLong(args[0]));
        for (int row = 0; row < 2000; row++) {
            BigInteger unscaled = new BigInteger(1 + random.nextInt(125), random);
            BigDecimal price = new BigDecimal(random.nextBoolean() ? unscaled.negate() : unscaled, 2);
            long days = random.nextInt(80000) - 40000;
            long at = random.nextLong() >> 16;
            int clock = random.nextInt(86_400_000);
            byte[] bytes = new byte[random.nextInt(7)];
            random.nextBytes(bytes);
            Struct value = new Struct(schema).put("p", price).put("d", new Date(days * 86_400_000L))
                .put("t", new Date(at)).put("c", new Date(clock)).put("b", bytes);
            System.out.println(String.join("\t", price.toPlainString(), "" + days, "" + at, "" + clock,
                new BigInteger(1, bytes).toString(16) + ":" + bytes.length,
                new String(base64.fromConnectData("t", schema, value)),
                new String(numeric.fromConnectData("t", schema, value))));
        }
    }
}
