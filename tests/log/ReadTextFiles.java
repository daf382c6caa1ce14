// What Kafka's own classes read from each file in a folder: a line with its name and the entries, or "refused".
// Of a folder in there they read the name, as a broker does that loads its logs.

import java.io.File;
import java.nio.charset.StandardCharsets;
import java.util.Arrays;
import java.util.HexFormat;
import java.util.stream.Collectors;
import org.apache.kafka.storage.internals.checkpoint.LeaderEpochCheckpointFile;
import org.apache.kafka.storage.internals.checkpoint.OffsetCheckpointFile;
import org.apache.kafka.storage.internals.checkpoint.PartitionMetadataFile;
import org.apache.kafka.storage.internals.log.LogDirFailureChannel;
import org.apache.kafka.storage.internals.log.UnifiedLog;

public class ReadTextFiles {
    public static void main(String[] folder) {
        File[] files = new File(folder[0]).listFiles();
        Arrays.sort(files);
        for (File file : files) {
            String found;
            try {
                found = read(file);
            } catch (Throwable e) {
                found = "refused";
            }
            System.out.println(file.getName() + "\t" + found);
        }
    }

    private static String read(File file) throws Exception {
        if (file.isDirectory()) {
            return UnifiedLog.parseTopicPartitionName(file).toString();
        }
        LogDirFailureChannel failures = new LogDirFailureChannel(1);
        if (file.getName().startsWith("epochs")) {
            return new LeaderEpochCheckpointFile(file, failures).read().stream()
                .map(entry -> entry.epoch() + " " + entry.startOffset()).collect(Collectors.joining(","));
        } else if (file.getName().startsWith("offsets")) {
            return new OffsetCheckpointFile(file, failures).read().entrySet().stream()
                .map(entry -> hex(entry.getKey().topic()) + " " + entry.getKey().partition() + " " + entry.getValue())
                .sorted().collect(Collectors.joining(","));
        }
        return new PartitionMetadataFile(file, failures).read().topicId().toString();
    }

    private static String hex(String text) {
        return HexFormat.of().formatHex(text.getBytes(StandardCharsets.UTF_8));
    }
}
