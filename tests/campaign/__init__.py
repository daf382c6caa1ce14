"""A standing campaign of faults: streams run while a cluster suffers, and then their histories are checked.

``ci/campaign --minutes 60 --seed 7`` runs it, in rounds. A round takes a seeded
schedule (:mod:`~tests.campaign.schedule`), does its faults (:mod:`~tests.campaign.faults`)
to a cluster of three brokers and to a Spark application (:mod:`~tests.campaign.driver`
runs :mod:`~tests.campaign.application`), while records are written
(:mod:`~tests.campaign.workload`). Then all is healed, the streams run to the end, and
what came where is held against what was acknowledged (:mod:`~tests.campaign.histories`).
"""
