"""The page from the specifications' names to hansa's has all of theirs, and only real ones of ours."""

import importlib
import inspect
import re
from collections.abc import Sequence
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PAGE = ROOT / "docs" / "reference" / "from-the-specs.md"

# Every name that begins with zmq in the documents on service discovery and on topics.
NAMES = """
ZMQ_EXPORT ZMQ_GATEWAY_LB_ROUND_ROBIN ZMQ_GATEWAY_LB_WEIGHTED ZMQ_REQUEST_TIMEOUT_DEFAULT ZMQ_ROUTING_ID
ZMQ_SNDMORE zmq_ctx_new zmq_ctx_term zmq_discovery_connect_registry zmq_discovery_destroy
zmq_discovery_get_providers zmq_discovery_new zmq_discovery_provider_count zmq_discovery_service_available
zmq_discovery_subscribe zmq_discovery_unsubscribe zmq_gateway_completion_t zmq_gateway_connection_count
zmq_gateway_destroy zmq_gateway_new zmq_gateway_recv zmq_gateway_request zmq_gateway_request_cb_fn
zmq_gateway_request_recv zmq_gateway_request_send zmq_gateway_send zmq_gateway_set_lb_strategy
zmq_gateway_threadsafe_router zmq_msg_close zmq_msg_data zmq_msg_init zmq_msg_init_data zmq_msg_init_size
zmq_msg_more zmq_msg_recv zmq_msg_send zmq_msg_t zmq_msgv_close zmq_provider_bind
zmq_provider_connect_registry zmq_provider_destroy zmq_provider_info_t zmq_provider_new
zmq_provider_register zmq_provider_register_result zmq_provider_threadsafe_router zmq_provider_unregister
zmq_provider_update_weight zmq_registry_add_peer zmq_registry_destroy zmq_registry_new
zmq_registry_set_broadcast_interval zmq_registry_set_endpoints zmq_registry_set_heartbeat zmq_registry_set_id
zmq_registry_start zmq_request_send zmq_request_recv zmq_routing_id_t zmq_spot_new zmq_spot_node_bind
zmq_spot_node_connect_registry zmq_spot_node_new zmq_spot_node_register zmq_spot_node_set_discovery
zmq_spot_subscribe zmq_spot_destroy zmq_spot_new_threadsafe zmq_spot_node_destroy zmq_spot_node_unregister
zmq_spot_publish zmq_spot_recv zmq_spot_subscribe_pattern zmq_spot_topic_create zmq_spot_topic_destroy
zmq_spot_unsubscribe
"""

# Every name of the document on nodes and routing on etcd, and of that on the cluster module.
CLUSTER_NAMES = """
NodeRegistry NewNodeRegistry NodeRegistry.client NodeRegistry.ttl Register Deregister ListNodes
NodeEventType NodeJoined NodeLeft NodeEvent NodeEvent.Type NodeEvent.Node MembershipWatcher
NewMembershipWatcher MembershipWatcher.Watch last_known_nodes RoutingTableStore NewRoutingTableStore Save Load
RoutingTableStore.Watch domain.NodeInfo domain.RoutingTable clientv3.Client routingTableDTO routeEntryDTO
version entries partitionId keyRangeStart keyRangeEnd nodeId nodeAddress nodeStatus PS PM SDK
registry.go membership.go routing.go
ClusterNode ClusterNodeInfo ClusterStateRepository ClusterMembershipService MembershipEvent HeartbeatMonitor
LeaderElectionService LeaderInfo DistributedLockService AssignmentService ClusterEventPublisher TopologyEvent
metadata-store Kafka Raft Ratis join leave rebalance assigned revoked active standby SUSPECT DOWN LEFT
status lastHeartbeat roles zone metadata heartbeatTimeout groupId peers equipmentGroup requestedAt endpoint
joinTimeout ownerNodeId leaseUntil meta partition equipmentIds workflowHandoff lastOffset lastProcessedAt
updatedAt lastAppliedIndex requestJoin RaftJoinRequest JoinTicket awaitAcceptance JoinAcceptance peerId
effectiveIndex completeSync AddPeer addPeer HealthIndicator Micrometer
"""
CLUSTER_SETTINGS = """
ees.cluster.heartbeat.interval .timeout .lease.duration .roles .zone .assignments.rebalance-interval
ees.cluster.mode ees.cluster.raft.groups kafka raft
"""
# Keys, which are more than a word.
CLUSTER_KEYS = """
/actorbase/nodes/{nodeID} /actorbase/routing cluster:nodes/{nodeId} cluster:leader cluster:raft/groups/{app}
cluster:raft/metadata/{app} cluster:raft/join-requests/{app}/{nodeId} cluster:locks/{name}
cluster:assignments/{group} cluster:assignments/{group}/{partition} internal/cluster internal/domain
go.etcd.io/etcd/client/v3
"""

# Its structs with their fields, its events, states, messages and settings.
FIELDS = """
registry_state_t registry_state_t.registry_id registry_state_t.list_seq registry_state_t.services
service_entry_t service_entry_t.service_name service_entry_t.endpoint service_entry_t.routing_id
service_entry_t.registered_at service_entry_t.last_heartbeat service_entry_t.weight
zmq_provider_info_t.service_name zmq_provider_info_t.endpoint zmq_provider_info_t.routing_id
zmq_provider_info_t.weight zmq_provider_info_t.registered_at
zmq_gateway_completion_t.service_name zmq_gateway_completion_t.request_id zmq_gateway_completion_t.error
zmq_gateway_completion_t.parts zmq_gateway_completion_t.part_count
resolved_endpoint error_message bind_endpoint advertise_endpoint
"""
WORDS = """
PROVIDER_ADDED PROVIDER_REMOVED SERVICE_AVAILABLE SERVICE_UNAVAILABLE
INIT RUNNING STOPPED BOUND CONNECTED REGISTERED UNREGISTERED EMPTY AVAILABLE UNAVAILABLE NO_POOL POOL_READY
REGISTER REGISTER_ACK UNREGISTER HEARTBEAT SERVICE_LIST REGISTRY_SYNC UPDATE_WEIGHT
0x0001 0x0002 0x0003 0x0004 0x0005 0x0006 0x0007 0x00 0x01 0x02 0xFF
registry_id list_seq service_count provider_count request_id msgId
5000 15000 30000 200 spot-node
PUBLISH SUBSCRIBE UNSUBSCRIBE QUERY QUERY_RESP TOPIC_ANNOUNCE TOPIC_REMOVE MESSAGE
0x03 0x04 0x05 0x06 0x07 0x08 OWNED ROUTED Pending Active EEXIST ENOENT LOCAL
"""
TESTS = """
test_registry_basic test_provider_bind test_provider_register test_provider_update_weight
test_update_weight_broadcast test_update_weight_invalid_target test_provider_register_ack
test_discovery_subscribe test_discovery_get_providers test_gateway_send_recv test_gateway_request_callback
test_gateway_request_send_recv test_gateway_request_timeout test_gateway_threadsafe_router
test_gateway_router_mixing_guard test_gateway_auto_connect test_gateway_auto_disconnect test_heartbeat_timeout
test_request_id test_load_balancing test_weighted_lb_update test_registry_cluster test_registry_failover
test_endpoint_auto_detect test_service_list_seq
test_spot_topic_unique test_spot_pending_subscribe test_spot_publish_no_owner test_spot_local_fanout
test_spot_remote_fanout test_spot_refcount_subscribe test_spot_pattern_subscribe test_spot_owner_conflict
test_spot_pending_reactivate
"""

_ROW = re.compile(r"^\| (?P<theirs>.+?) \| (?P<ours>.*?) \|", re.MULTILINE)
_OURS = re.compile(r"`(?P<name>hansa(?:\.\w+)+)(?:\((?P<argument>\w+)\))?`")

_PLANNED_WORD = "*planned*"
_PLANNED = re.compile(r"^\*planned\*, `(?P<name>hansa(?:\.\w+)+)`$")

TEXT = PAGE.read_text(encoding="utf-8")
ROWS = [(row["theirs"], row["ours"]) for row in _ROW.finditer(TEXT)]
OUR_NAMES = sorted(
    {
        match.group(0).strip("`")
        for _, ours in ROWS
        if _PLANNED_WORD not in ours
        for match in _OURS.finditer(ours)
    }
)


def words_of(text: str) -> set[str]:
    """Whole names: zmq_gateway_request is not found in zmq_gateway_request_send."""
    return set(re.findall(r"[\w.-]+", text))


def resolve(path: str) -> object:
    """What a dotted name stands for. Raises AttributeError when it stands for nothing."""
    parts = path.split(".")
    found: object = importlib.import_module(parts[0])
    for count, part in enumerate(parts[1:], 2):
        try:
            found = getattr(found, part)
        except AttributeError:
            try:
                found = importlib.import_module(".".join(parts[:count]))
            except ModuleNotFoundError:
                raise AttributeError(f"there is no {path}") from None
    return found


def check(name: str) -> None:
    """Raises AttributeError unless the name exists, and takes the argument behind it, if there is one."""
    path, _, argument = name.rstrip(")").partition("(")
    found = resolve(path)
    if argument and argument not in inspect.signature(found).parameters:  # type: ignore[arg-type]
        raise AttributeError(f"{path} has no argument {argument}")


def is_real(name: str) -> bool:
    try:
        check(name)
    except AttributeError:
        return False
    return True


def planned_problems(rows: Sequence[tuple[str, str]]) -> list[str]:
    """Rows that call something planned and do not say what, or call so what exists."""
    problems = []
    for theirs, ours in rows:
        if _PLANNED_WORD in ours:
            match = _PLANNED.match(ours)
            if match is None:
                problems.append(f"{theirs}: it does not say which name is planned, or says more than that")
            elif is_real(match["name"]):
                problems.append(f"{theirs}: {match['name']} exists; say what it is")
    return problems


@pytest.mark.parametrize(
    "names",
    [NAMES, FIELDS, WORDS, TESTS, CLUSTER_NAMES, CLUSTER_SETTINGS],
    ids=["names", "fields", "words", "tests", "cluster names", "cluster settings"],
)
def test_every_name_of_the_specification_is_in_the_page(names: str) -> None:
    known = words_of(" ".join(theirs for theirs, _ in ROWS))
    assert [name for name in names.split() if name not in known] == []


def test_every_key_of_the_specification_is_in_the_page() -> None:
    known = {word for theirs, _ in ROWS for word in re.findall(r"`([^`]+)`", theirs)}
    assert [key for key in CLUSTER_KEYS.split() if key not in known] == []


def test_what_is_called_planned_does_not_exist_yet() -> None:
    assert planned_problems(ROWS) == []


def test_every_name_of_hansas_in_the_page_exists() -> None:
    assert [name for name in OUR_NAMES if not is_real(name)] == []


def test_every_test_in_the_page_exists() -> None:
    source = "\n".join(path.read_text(encoding="utf-8") for path in (ROOT / "tests").rglob("test_*.py"))
    defined = set(re.findall(r"^(?:async )?def (test_\w+)", source, re.MULTILINE))
    named = {name for name in words_of(TEXT) if name.startswith("test_")}
    assert named >= {*TESTS.split()}
    assert sorted(named - defined) == []


def test_every_row_says_something() -> None:
    assert [theirs for theirs, ours in ROWS if not ours.strip()] == []
    assert len(OUR_NAMES) > 80


# ---- the check can fail ------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["hansa.Registrar", "hansa.Registry.begin", "hansa.Registry(pup)"])
def test_a_name_that_does_not_exist_is_found(name: str) -> None:
    assert not is_real(name)


@pytest.mark.parametrize(
    "ours",
    [
        "*planned*",
        "*planned*, soon",
        "*planned*, `hansa.coordination`",
        "*planned*, `hansa.Lock.acquire`",
        "`hansa.Lock`, *planned*",
        "*planned*, `hansa.assignment`, `hansa.Lock`",
    ],
)
def test_a_plan_that_says_nothing_or_is_carried_out_is_found(ours: str) -> None:
    assert len(planned_problems([("`AssignmentService`", ours)])) == 1


def test_a_longer_name_does_not_stand_for_a_shorter_one() -> None:
    assert "zmq_gateway_request" not in words_of("`zmq_gateway_request_send`")
