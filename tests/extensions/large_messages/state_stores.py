"""Where Spark keeps the state of a stateful step: the API that ``reassemble`` uses follows from it."""

PROVIDER = "spark.sql.streaming.stateStore.providerClass"
_PACKAGE = "org.apache.spark.sql.execution.streaming.state"
NEWEST = "transformWithStateInPandas"
STORES = {
    NEWEST: f"{_PACKAGE}.RocksDBStateStoreProvider",
    "applyInPandasWithState": f"{_PACKAGE}.HDFSBackedStateStoreProvider",
}
