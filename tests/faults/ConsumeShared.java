// A consumer of a group: it appends partition and offset of each record to a file, flushes it, and commits.
// Arguments: brokers, group, topic, file, and settings of the consumer such as "max.poll.records=100".

import java.io.FileOutputStream;
import java.time.Duration;
import java.util.List;
import java.util.Properties;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.consumer.CommitFailedException;
import org.apache.kafka.common.errors.RebalanceInProgressException;
import org.apache.kafka.common.errors.WakeupException;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;

public class ConsumeShared {
    public static void main(String[] args) throws Exception {
        Properties settings = new Properties();
        settings.put("bootstrap.servers", args[0]);
        settings.put("group.id", args[1]);
        settings.put("enable.auto.commit", "false");
        settings.put("auto.offset.reset", "earliest");
        for (int i = 4; i < args.length; i++)
            settings.put(args[i].split("=")[0], args[i].split("=")[1]);
        KafkaConsumer<byte[], byte[]> consumer =
            new KafkaConsumer<>(settings, new ByteArrayDeserializer(), new ByteArrayDeserializer());
        Thread main = Thread.currentThread();
        Runtime.getRuntime().addShutdownHook(new Thread(() -> {
            consumer.wakeup();
            try {
                main.join();
            } catch (InterruptedException e) {
                throw new IllegalStateException(e);
            }
        }));
        try (FileOutputStream file = new FileOutputStream(args[3], true)) {
            consumer.subscribe(List.of(args[2]));
            while (true) {
                StringBuilder rows = new StringBuilder();
                for (ConsumerRecord<byte[], byte[]> record : consumer.poll(Duration.ofMillis(200)))
                    rows.append(record.partition()).append(' ').append(record.offset()).append('\n');
                file.write(rows.toString().getBytes());
                try {
                    consumer.commitSync();
                } catch (CommitFailedException | RebalanceInProgressException e) {
                    System.err.println("not committed: " + e.getMessage());
                }
            }
        } catch (WakeupException e) {
            // asked to end
        } finally {
            consumer.close();
        }
    }
}
