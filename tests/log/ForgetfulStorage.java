import java.io.InputStream;
import java.util.Map;
import java.util.Optional;
import org.apache.kafka.server.log.remote.storage.LogSegmentData;
import org.apache.kafka.server.log.remote.storage.RemoteLogSegmentMetadata;
import org.apache.kafka.server.log.remote.storage.RemoteStorageManager;

/** Remote storage that takes every segment and keeps none: enough for what a broker leaves in its directory. */
public class ForgetfulStorage implements RemoteStorageManager {
    @Override
    public void configure(Map<String, ?> configs) {}

    @Override
    public Optional<RemoteLogSegmentMetadata.CustomMetadata> copyLogSegmentData(
            RemoteLogSegmentMetadata segment, LogSegmentData data) {
        return Optional.empty();
    }

    @Override
    public InputStream fetchLogSegment(RemoteLogSegmentMetadata segment, int start) {
        return InputStream.nullInputStream();
    }

    @Override
    public InputStream fetchLogSegment(RemoteLogSegmentMetadata segment, int start, int end) {
        return InputStream.nullInputStream();
    }

    @Override
    public InputStream fetchIndex(RemoteLogSegmentMetadata segment, IndexType type) {
        return InputStream.nullInputStream();
    }

    @Override
    public void deleteLogSegmentData(RemoteLogSegmentMetadata segment) {}

    @Override
    public void close() {}
}
