// Writes one dead letter as Kafka Connect does. Arguments: brokers, the topic of dead letters, then of the record
// its topic, partition, offset, timestamp, key, value, the name and value of a header, and why it is one.

import java.nio.charset.StandardCharsets;
import java.util.Map;
import java.util.Optional;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.common.header.internals.RecordHeaders;
import org.apache.kafka.common.record.TimestampType;
import org.apache.kafka.common.serialization.ByteArraySerializer;
import org.apache.kafka.common.utils.Time;
import org.apache.kafka.connect.converters.ByteArrayConverter;
import org.apache.kafka.connect.errors.DataException;
import org.apache.kafka.connect.runtime.ConnectMetrics;
import org.apache.kafka.connect.runtime.SinkConnectorConfig;
import org.apache.kafka.connect.runtime.errors.DeadLetterQueueReporter;
import org.apache.kafka.connect.runtime.errors.ErrorHandlingMetrics;
import org.apache.kafka.connect.runtime.errors.ProcessingContext;
import org.apache.kafka.connect.runtime.errors.Stage;
import org.apache.kafka.connect.runtime.isolation.Plugins;
import org.apache.kafka.connect.runtime.standalone.StandaloneConfig;
import org.apache.kafka.connect.util.ConnectorTaskId;

public class ReportDeadLetter {
    public static void main(String[] given) throws Exception {
        String converter = ByteArrayConverter.class.getName();
        Map<String, String> worker = Map.of(
            "bootstrap.servers", given[0], "key.converter", converter, "value.converter", converter,
            "offset.storage.file.filename", "/dev/null");
        Map<String, String> connector = Map.of(
            "name", "orders-sink", "connector.class", "None", "topics", given[2],
            "errors.deadletterqueue.topic.name", given[1],
            "errors.deadletterqueue.topic.replication.factor", "1",
            "errors.deadletterqueue.context.headers.enable", "true");
        ConnectorTaskId task = new ConnectorTaskId("orders-sink", 0);
        ConnectMetrics metrics = new ConnectMetrics("worker", new StandaloneConfig(worker), Time.SYSTEM, "cluster");
        String serializer = ByteArraySerializer.class.getName();
        Map<String, Object> brokers = Map.of("bootstrap.servers", given[0]);
        DeadLetterQueueReporter reporter = DeadLetterQueueReporter.createAndSetup(
            brokers, task, new SinkConnectorConfig(new Plugins(Map.of()), connector),
            Map.of("bootstrap.servers", given[0], "key.serializer", serializer, "value.serializer", serializer),
            new ErrorHandlingMetrics(task, metrics));
        RecordHeaders headers = new RecordHeaders();
        headers.add(given[8], bytes(given[9]));
        ConsumerRecord<byte[], byte[]> record = new ConsumerRecord<>(
            given[2], Integer.parseInt(given[3]), Long.parseLong(given[4]), Long.parseLong(given[5]),
            TimestampType.CREATE_TIME, given[6].length(), given[7].length(), bytes(given[6]), bytes(given[7]),
            headers, Optional.empty());
        ProcessingContext<ConsumerRecord<byte[], byte[]>> context = new ProcessingContext<>(record);
        context.currentContext(Stage.VALUE_CONVERTER, ByteArrayConverter.class);
        context.error(new DataException(given[10]));
        reporter.report(context).get();
        reporter.close();
    }

    private static byte[] bytes(String text) {
        return text.getBytes(StandardCharsets.UTF_8);
    }
}
