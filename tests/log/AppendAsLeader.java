// What a broker's log does with record batches, by a topic's configurations. Each folder in that of the first
// argument is a case: "configs" (properties), "data" (record batches) and "batches" (a line for each, with its
// size in bytes and the clock in milliseconds). The log is left in "t-0". Prints a line for each case: its name,
// and for each batch "stored", or the name of the error.
//
// With "values" as the first argument: reads lines of a configuration's name and value, and prints for each
// whether Kafka takes it. With "defaults": prints the names of all configurations and their defaults.

import java.io.BufferedReader;
import java.io.File;
import java.io.InputStreamReader;
import java.io.Reader;
import java.lang.reflect.InvocationTargetException;
import java.lang.reflect.Proxy;
import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.util.Arrays;
import java.util.Map;
import java.util.Optional;
import java.util.Properties;
import java.util.concurrent.atomic.AtomicLong;
import org.apache.kafka.common.record.internal.MemoryRecords;
import org.apache.kafka.common.utils.Time;
import org.apache.kafka.server.util.KafkaScheduler;
import org.apache.kafka.storage.internals.log.LogConfig;
import org.apache.kafka.storage.internals.log.LogDirFailureChannel;
import org.apache.kafka.storage.internals.log.ProducerStateManagerConfig;
import org.apache.kafka.storage.internals.log.UnifiedLog;
import org.apache.kafka.storage.log.metrics.BrokerTopicStats;

public class AppendAsLeader {
    public static void main(String[] arguments) throws Exception {
        if (arguments[0].equals("values")) {
            checkValues();
            return;
        } else if (arguments[0].equals("defaults")) {
            Map<String, ?> defaults = new LogConfig(Map.of()).values();
            LogConfig.nonInternalConfigNames().forEach(name -> System.out.println(name + "\t" + defaults.get(name)));
            return;
        }
        KafkaScheduler scheduler = new KafkaScheduler(1);
        scheduler.startup();
        File[] cases = new File(arguments[0]).listFiles(File::isDirectory);
        Arrays.sort(cases);
        for (File folder : cases) {
            System.out.println(folder.getName() + "\t" + append(folder, scheduler));
        }
        scheduler.shutdown();
    }

    private static String append(File folder, KafkaScheduler scheduler) throws Exception {
        Properties configs = new Properties();
        try (Reader reader = Files.newBufferedReader(new File(folder, "configs").toPath())) {
            configs.load(reader);
        }
        AtomicLong now = new AtomicLong();
        File logFolder = new File(folder, "t-0");
        Files.createDirectories(logFolder.toPath());
        UnifiedLog log = UnifiedLog.create(
            logFolder, new LogConfig(configs), 0, 0, scheduler, new BrokerTopicStats(), clock(now), 3600000,
            new ProducerStateManagerConfig(86400000, false), 600000, new LogDirFailureChannel(1), true,
            Optional.empty());
        ByteBuffer data = ByteBuffer.wrap(Files.readAllBytes(new File(folder, "data").toPath()));
        StringBuilder outcomes = new StringBuilder();
        for (String line : Files.readAllLines(new File(folder, "batches").toPath())) {
            String[] fields = line.split(" ");
            byte[] batch = new byte[Integer.parseInt(fields[0])];
            data.get(batch);
            now.set(Long.parseLong(fields[1]));
            try {
                log.appendAsLeader(MemoryRecords.readableRecords(ByteBuffer.wrap(batch)), 0);
                outcomes.append(" stored");
            } catch (Exception e) {
                outcomes.append(" ").append(e.getClass().getSimpleName());
            }
        }
        log.close();
        return outcomes.toString().trim();
    }

    private static Time clock(AtomicLong now) {
        return (Time) Proxy.newProxyInstance(
            Time.class.getClassLoader(), new Class<?>[] {Time.class}, (proxy, method, arguments) -> {
                if (method.getName().equals("milliseconds")) {
                    return now.get();
                }
                try {
                    return method.invoke(Time.SYSTEM, arguments);
                } catch (InvocationTargetException e) {
                    throw e.getCause();
                }
            });
    }

    private static void checkValues() throws Exception {
        BufferedReader lines = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line = lines.readLine(); line != null; line = lines.readLine()) {
            String[] fields = line.split("\t", -1);
            try {
                LogConfig.validate(Map.of(fields[0], fields[1]));
                System.out.println("taken");
            } catch (Exception e) {
                System.out.println("refused");
            }
        }
    }
}
