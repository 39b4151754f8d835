"""librdkafka's mock cluster as a process: what the tests run on where there is no real Kafka.

    python -m tests.support.kafka_mock

It says in a line of JSON where clients connect, and where it takes orders: a connection each, with a line of
JSON: {"create": "orders", "partitions": 12}, {"down": true} (as a broker that was killed: connections break
and none are taken), {"down": false}. It ends when its stdin does.

It is one broker in memory, with topics, groups of both protocols (classic, and KIP-848 with a range assignor
of its own), generations, offsets and transactions. It has no CreateTopics, which is why it takes orders, and
nothing of AdminClient beside metadata: no configurations of topics, no descriptions of groups. A classic
group that its last member has left takes the next one only after a session timeout: have short ones.
"""

from __future__ import annotations

import ctypes
import json
import socket
import sys
import threading
from pathlib import Path
from typing import Any

import confluent_kafka

_PRODUCER = 0
_ERROR_BYTES = 512
# As short as `SHORT_SESSIONS` of a real broker.
_HEARTBEAT_MS = 500
_SESSION_MS = 6_000


def library() -> ctypes.CDLL:
    """The librdkafka that confluent-kafka is linked with.

    The mock cluster is part of it. confluent-kafka itself can only start one (`test.mock.num.brokers`), whose
    topics all have four partitions.
    """
    beside = Path(confluent_kafka.__file__).parent
    folders = (beside.with_name("confluent_kafka.libs"), beside / ".dylibs")
    found = [path for folder in folders for path in folder.glob("librdkafka*")]
    # Where it is the system's own it is loaded already, with the extension.
    return ctypes.CDLL(str(found[0]) if found else "librdkafka.so.1")


class MockCluster:
    """One broker in memory, which ends with the process."""

    def __init__(self) -> None:
        kafka = library()
        for name, answer in (
            ("rd_kafka_conf_new", ctypes.c_void_p),
            ("rd_kafka_new", ctypes.c_void_p),
            ("rd_kafka_mock_cluster_new", ctypes.c_void_p),
            ("rd_kafka_mock_cluster_bootstraps", ctypes.c_char_p),
        ):
            getattr(kafka, name).restype = answer
        error = ctypes.create_string_buffer(_ERROR_BYTES)
        settings = ctypes.c_void_p(kafka.rd_kafka_conf_new())
        # The client that the cluster belongs to is used for nothing, and would say that it has no servers.
        kafka.rd_kafka_conf_set(settings, b"log_level", b"0", error, _ERROR_BYTES)
        handle = kafka.rd_kafka_new(_PRODUCER, settings, error, _ERROR_BYTES)
        assert handle, error.value.decode()
        self._kafka = kafka
        self._cluster = ctypes.c_void_p(kafka.rd_kafka_mock_cluster_new(ctypes.c_void_p(handle), 1))
        kafka.rd_kafka_mock_set_group_consumer_heartbeat_interval_ms(self._cluster, _HEARTBEAT_MS)
        kafka.rd_kafka_mock_set_group_consumer_session_timeout_ms(self._cluster, _SESSION_MS)
        kafka.rd_kafka_mock_group_initial_rebalance_delay_ms(self._cluster, 0)

    @property
    def address(self) -> str:
        told: bytes = self._kafka.rd_kafka_mock_cluster_bootstraps(self._cluster)
        return told.decode()

    def carry_out(self, order: dict[str, Any]) -> int:
        """An order; gives librdkafka's number of an error, 0 for none."""
        if "create" in order:
            name, partitions = order["create"].encode(), order["partitions"]
            return int(self._kafka.rd_kafka_mock_topic_create(self._cluster, name, partitions, 1))
        change = self._kafka.rd_kafka_mock_broker_set_down if order["down"] else None
        change = change or self._kafka.rd_kafka_mock_broker_set_up
        return int(change(self._cluster, -1))


def main() -> None:
    cluster = MockCluster()
    with socket.create_server(("127.0.0.1", 0)) as server:
        threading.Thread(target=_take_orders, args=(server, cluster), name="orders", daemon=True).start()
        print(json.dumps({"address": cluster.address, "orders": server.getsockname()[1]}), flush=True)
        sys.stdin.read()


def _take_orders(server: socket.socket, cluster: MockCluster) -> None:
    while True:
        client, _ = server.accept()
        with client, client.makefile("rw") as lines:
            for line in lines:
                print(cluster.carry_out(json.loads(line)), file=lines, flush=True)


if __name__ == "__main__":
    main()
