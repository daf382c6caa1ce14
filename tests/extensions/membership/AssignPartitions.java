// What Kafka's own assignors give to each member of a group. Each line of the file is a case, with tabs: the
// assignor, the partitions of topics ("a=3,b=1"), each of which may be followed by the racks of each partition's
// replicas ("a=3/r1 r2/r2/"), and for each member "id|instance id|topics|rack". Printed are the partitions of each
// member, in the order of the case.

import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.Collections;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.stream.Collectors;
import org.apache.kafka.clients.consumer.ConsumerPartitionAssignor;
import org.apache.kafka.clients.consumer.ConsumerPartitionAssignor.GroupSubscription;
import org.apache.kafka.clients.consumer.ConsumerPartitionAssignor.Subscription;
import org.apache.kafka.clients.consumer.RangeAssignor;
import org.apache.kafka.clients.consumer.RoundRobinAssignor;
import org.apache.kafka.common.Cluster;
import org.apache.kafka.common.Node;
import org.apache.kafka.common.PartitionInfo;

public class AssignPartitions {
    public static void main(String[] file) throws Exception {
        for (String line : Files.readAllLines(Path.of(file[0]))) {
            String[] words = line.split("\t");
            ConsumerPartitionAssignor assignor =
                words[0].equals("range") ? new RangeAssignor() : new RoundRobinAssignor();
            List<PartitionInfo> partitions = new ArrayList<>();
            for (String topic : items(words[1], ",")) {
                String[] counted = topic.split("/", -1), sized = counted[0].split("=");
                for (int number = 0; number < Integer.parseInt(sized[1]); number++) {
                    Node[] replicas = counted.length == 1 ? new Node[0]
                        : items(counted[number + 1], " ").stream()
                            .map(rack -> new Node(1, "h", 1, rack.equals("-") ? null : rack))
                            .toArray(Node[]::new);
                    partitions.add(new PartitionInfo(sized[0], number, null, replicas, new Node[0]));
                }
            }
            Cluster cluster =
                new Cluster("c", Collections.emptyList(), partitions, Collections.emptySet(), Collections.emptySet());
            Map<String, Subscription> members = new HashMap<>();
            List<String> order = new ArrayList<>();
            for (String member : Arrays.asList(words).subList(2, words.length)) {
                String[] told = member.split("\\|", -1);
                Subscription subscription = new Subscription(items(told[2], ","));
                if (!told[1].isEmpty())
                    subscription.setGroupInstanceId(Optional.of(told[1]));
                if (!told[3].isEmpty())
                    subscription = withRack(subscription, told[3]);
                members.put(told[0], subscription);
                order.add(told[0]);
            }
            var assigned = assignor.assign(cluster, new GroupSubscription(members)).groupAssignment();
            System.out.println(order.stream().map(member -> assigned.get(member).partitions().stream()
                .map(Object::toString).sorted().collect(Collectors.joining(",")))
                .collect(Collectors.joining("\t")));
        }
    }

    private static Subscription withRack(Subscription found, String rack) {
        Subscription made = new Subscription(
            found.topics(), found.userData(), found.ownedPartitions(), -1, Optional.of(rack));
        made.setGroupInstanceId(found.groupInstanceId());
        return made;
    }

    private static List<String> items(String text, String separator) {
        return text.isEmpty() ? Collections.emptyList() : Arrays.asList(text.split(separator));
    }
}
