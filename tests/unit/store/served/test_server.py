"""A served store answers etcd's calls about keys, leases and itself in etcd's words."""

import asyncio
import errno
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import grpc
import pytest

from hansa.chance import Chance
from hansa.errors import AddressInUse, BadArgument, BadEndpoint, StoreUnavailable
from hansa.limits import STORE_LEASE_TTL_S_MAX, STORE_TXN_COUNT_MAX, STORE_VALUE_BYTES_MAX
from hansa.store.etcd import api_pb2 as api
from hansa.store.etcd import messages
from hansa.store.mvcc import OVERHEAD_BYTES
from hansa.store.served import folder as store_folder
from hansa.store.served.recorded import RecordedStore
from hansa.store.served.server import StoreServer
from hansa.store.values import Put
from hansa.transport import Environment
from hansa.transport.environment import Tls
from tests.support.certificates import Authority
from tests.support.etcd_caller import EtcdCaller, etcd_caller

pytestmark = pytest.mark.usefixtures("undated")

Range = api.RangeRequest
FROM = b"\0"


@pytest.fixture
async def server() -> AsyncIterator[StoreServer]:
    async with StoreServer("127.0.0.1:0") as server:
        yield server


@pytest.fixture
async def caller(server: StoreServer) -> AsyncIterator[EtcdCaller]:
    async with etcd_caller(server.address) as caller:
        yield caller


def keys(answer: Any) -> list[str]:
    return [item.key.decode() for item in answer.kvs]


def put(key: str, value: bytes = b"v", **more: Any) -> api.RequestOp:
    return api.RequestOp(request_put=api.PutRequest(key=key.encode(), value=value, **more))


def delete(key: str, range_end: bytes = b"", **more: Any) -> api.RequestOp:
    request = api.DeleteRangeRequest(key=key.encode(), range_end=range_end, **more)
    return api.RequestOp(request_delete_range=request)


def get(key: str, range_end: bytes = b"", **more: Any) -> api.RequestOp:
    return api.RequestOp(request_range=Range(key=key.encode(), range_end=range_end, **more))


def txn(**parts: Any) -> api.RequestOp:
    return api.RequestOp(request_txn=api.TxnRequest(**parts))


def version(key: str, number: int, range_end: bytes = b"") -> api.Compare:
    return api.Compare(key=key.encode(), range_end=range_end, target=api.Compare.VERSION, version=number)


# ---- keys


async def test_a_range_is_read_in_every_order_and_within_bounds(caller: EtcdCaller) -> None:
    for key, value in (("b", b"1"), ("a", b"3"), ("c", b"2"), ("b", b"1")):
        await caller.put(key, value)

    async def read(**fields: Any) -> list[str]:
        return keys(await caller.get("a", FROM, **fields))

    assert await read() == ["a", "b", "c"]
    assert await read(sort_order=Range.DESCEND) == ["c", "b", "a"]
    assert await read(sort_target=Range.VALUE) == ["b", "c", "a"]
    assert await read(sort_target=Range.VERSION, sort_order=Range.DESCEND, limit=1) == ["b"]
    assert await read(sort_target=Range.CREATE, sort_order=Range.ASCEND) == ["b", "a", "c"]
    assert await read(sort_target=Range.MOD, sort_order=Range.ASCEND) == ["a", "c", "b"]
    assert await read(min_mod_revision=4) == ["b", "c"]
    assert await read(max_mod_revision=4) == ["a", "c"]
    assert await read(min_create_revision=3) == ["a", "c"]
    assert await read(max_create_revision=3) == ["a", "b"]
    assert await read(revision=3) == ["a", "b"]
    limited = await caller.get("a", FROM, limit=2)
    assert (keys(limited), limited.more, limited.count) == (["a", "b"], True, 3)
    sorted_and_limited = await caller.get("a", FROM, limit=2, sort_order=Range.DESCEND)
    assert (keys(sorted_and_limited), sorted_and_limited.more) == (["c", "b"], True)
    counted = await caller.get("a", FROM, count_only=True)
    assert (keys(counted), counted.count) == ([], 3)
    bare = await caller.get("a", b"b", keys_only=True)
    assert [(item.key, item.value, item.mod_revision) for item in bare.kvs] == [(b"a", b"", 3)]
    assert await caller.get("a", b"b", serializable=True) == await caller.get("a")


async def test_a_put_gives_back_and_keeps_what_it_is_told_to(caller: EtcdCaller) -> None:
    lease = (await caller.ask(messages.LEASE_GRANT, TTL=60)).ID
    await caller.put("k", b"1", lease=lease)
    answer = await caller.ask(messages.PUT, key=b"k", value=b"2", prev_kv=True, ignore_lease=True)
    assert (answer.prev_kv.value, answer.prev_kv.version) == (b"1", 1)
    answer = await caller.ask(messages.PUT, key=b"k", ignore_value=True, prev_kv=True)
    assert (answer.prev_kv.value, answer.prev_kv.lease) == (b"2", lease)
    (item,) = (await caller.get("k")).kvs
    assert (item.value, item.lease, item.version) == (b"2", 0, 3)
    assert not (await caller.ask(messages.PUT, key=b"new", prev_kv=True)).HasField("prev_kv")


async def test_a_delete_gives_back_what_there_was(caller: EtcdCaller) -> None:
    await caller.put("a/1", b"1")
    await caller.put("a/2", b"2")
    answer = await caller.ask(messages.DELETE_RANGE, key=b"a/", range_end=b"a0", prev_kv=True)
    assert answer.deleted == 2
    assert [item.value for item in answer.prev_kvs] == [b"1", b"2"]
    assert answer.header.revision == 4
    again = await caller.ask(messages.DELETE_RANGE, key=b"a/", range_end=b"a0", prev_kv=True)
    assert (again.deleted, again.header.revision) == (0, 4)


async def test_a_transaction_sees_its_own_writes_and_answers_each_part(caller: EtcdCaller) -> None:
    await caller.put("old", b"0")
    answer = await caller.ask(
        messages.TXN,
        compare=[version("old", 1)],
        success=[
            put("a", b"1", prev_kv=True),
            delete("old", prev_kv=True),
            get("a", FROM),
            get("old", revision=2),
            put("b", b"2"),
        ],
        failure=[put("never")],
    )
    assert answer.succeeded
    put_a, delete_old, found, past, put_b = answer.responses
    assert not put_a.response_put.HasField("prev_kv")
    assert [item.value for item in delete_old.response_delete_range.prev_kvs] == [b"0"]
    assert keys(found.response_range) == ["a"]
    assert keys(past.response_range) == ["old"]
    assert put_b.response_put.header.revision == answer.header.revision == 3
    assert keys(await caller.get("\0", FROM)) == ["a", "b"]


async def test_transactions_inside_transactions_decide_by_what_was_before(caller: EtcdCaller) -> None:
    inner = txn(
        compare=[version("a", 0)],
        success=[put("inner", b"then"), txn(success=[get("a"), put("deep")])],
        failure=[put("inner", b"otherwise")],
    )
    for expected in (b"then", b"otherwise"):
        answer = await caller.ask(messages.TXN, success=[put("a"), inner])
        nested = answer.responses[1].response_txn
        assert nested.succeeded == (expected == b"then")
        assert (await caller.get("inner")).kvs[0].value == expected
    # The deepest saw the outermost put.
    first = await caller.get("deep")
    assert first.kvs[0].create_revision == 2


async def test_a_compare_of_a_range_holds_if_it_holds_for_all(caller: EtcdCaller) -> None:
    async def holds(compare: api.Compare) -> bool:
        answer = await caller.ask(messages.TXN, compare=[compare])
        return bool(answer.succeeded)

    value = api.Compare(key=b"a", range_end=b"z", target=api.Compare.VALUE, value=b"v")
    assert await holds(version("a", 0, b"z"))
    assert not await holds(value)
    await caller.put("a", b"v")
    await caller.put("b", b"v")
    assert await holds(version("a", 1, b"z"))
    assert await holds(value)
    await caller.put("b", b"w")
    assert not await holds(version("a", 1, b"z"))
    assert not await holds(value)


async def test_what_cannot_be_is_refused_in_etcds_words(caller: EtcdCaller) -> None:
    await caller.put("k")
    await caller.put("k")
    await caller.ask(messages.COMPACT, revision=3)
    many = [get("k")] * (STORE_TXN_COUNT_MAX + 1)
    invalid = "INVALID_ARGUMENT"
    duplicate = (invalid, "etcdserver: duplicate key given in txn request")
    compacted = ("OUT_OF_RANGE", "etcdserver: mvcc: required revision has been compacted")
    future = ("OUT_OF_RANGE", "etcdserver: mvcc: required revision is a future revision")
    no_lease = ("NOT_FOUND", "etcdserver: requested lease not found")
    cases: list[tuple[Any, dict[str, Any], tuple[str, str]]] = [
        (messages.RANGE, {"key": b"k", "revision": 2}, compacted),
        (messages.RANGE, {"key": b"k", "revision": 99}, future),
        (messages.RANGE, {"key": b""}, (invalid, "etcdserver: key is not provided")),
        (messages.RANGE, {"key": b"k", "sort_target": 77}, (invalid, "etcdserver: invalid sort option")),
        (messages.RANGE, {"key": b"k", "sort_order": 77}, (invalid, "etcdserver: invalid sort option")),
        (messages.PUT, {"key": b""}, (invalid, "etcdserver: key is not provided")),
        (messages.PUT, {"key": b"k", "lease": 5}, no_lease),
        (messages.PUT, {"key": b"x", "ignore_value": True}, (invalid, "etcdserver: key not found")),
        (
            messages.PUT,
            {"key": b"k", "ignore_value": True, "value": b"v"},
            (invalid, "etcdserver: value is provided"),
        ),
        (
            messages.PUT,
            {"key": b"k", "ignore_lease": True, "lease": 1},
            (invalid, "etcdserver: lease is provided"),
        ),
        (messages.DELETE_RANGE, {"key": b""}, (invalid, "etcdserver: key is not provided")),
        (messages.COMPACT, {"revision": 3}, compacted),
        (messages.COMPACT, {"revision": 99}, future),
        (messages.TXN, {"success": many}, (invalid, "etcdserver: too many operations in txn request")),
        (messages.TXN, {"success": [put("a"), put("a")]}, duplicate),
        (messages.TXN, {"success": [put("a1"), delete("a", b"b")]}, duplicate),
        (messages.TXN, {"failure": [put("a"), txn(success=[put("a")])]}, duplicate),
        (messages.TXN, {"failure": [delete("a", b"b"), txn(failure=[put("a")])]}, duplicate),
        (messages.TXN, {"success": [get("k", revision=99)]}, future),
        (messages.TXN, {"success": [put("a", lease=5)]}, no_lease),
        (messages.LEASE_REVOKE, {"ID": 5}, no_lease),
        (
            messages.LEASE_GRANT,
            {"TTL": int(STORE_LEASE_TTL_S_MAX) + 1},
            ("OUT_OF_RANGE", "etcdserver: too large lease TTL"),
        ),
        (
            messages.AUTHENTICATE,
            {"name": "root"},
            ("FAILED_PRECONDITION", "etcdserver: authentication is not enabled"),
        ),
    ]
    for call, fields, expected in cases:
        assert await caller.refusal(call, **fields) == expected, (call.name, fields)
    # And what etcd would take and hansa does not says so in words of its own.
    status, text = await caller.refusal(messages.PUT, key=b"k" * 5_000)
    assert status == invalid
    assert "a key of 5000 bytes: it has at most 4096" in text
    status, text = await caller.refusal(messages.PUT, key=b"k", value=bytes(STORE_VALUE_BYTES_MAX + 1))
    assert (status, text.partition(": a value")[0]) == (invalid, "etcdserver: request is too large")
    status, _ = await caller.refusal(messages.PUT, key=b"k", value=bytes(4 * STORE_VALUE_BYTES_MAX))
    assert status == "RESOURCE_EXHAUSTED"
    # Neither of the two branches may write a key twice; both may write the same one.
    await caller.ask(messages.TXN, success=[txn(success=[put("a")], failure=[put("a")])])
    assert (await caller.get("k")).kvs[0].version == 2


async def test_a_full_store_takes_no_more_until_something_is_deleted(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with StoreServer("127.0.0.1:0") as server, etcd_caller(server.address) as caller:
        monkeypatch.setattr(server.store.state, "_live_bytes_max", 1_000 + 2 * OVERHEAD_BYTES)
        await caller.put("a", bytes(900))
        full = ("RESOURCE_EXHAUSTED", "etcdserver: mvcc: database space exceeded")
        assert await caller.refusal(messages.PUT, key=b"b", value=bytes(100)) == full
        await caller.ask(messages.DELETE_RANGE, key=b"a")
        await caller.put("b", bytes(100))


async def test_a_store_is_full_of_small_keys_too() -> None:
    store = RecordedStore(Chance.seeded(1), live_bytes_max=10 * OVERHEAD_BYTES)
    for number in range(9):
        store.perform((Put(f"{number}", b""),))
    with pytest.raises(StoreUnavailable, match="delete some"):
        store.perform((Put("9", b""),))


async def test_what_is_not_served_is_unimplemented(caller: EtcdCaller) -> None:
    for call in (messages.MEMBER_ADD, messages.MOVE_LEADER):
        assert (await caller.refusal(call))[0] == "UNIMPLEMENTED"


# ---- leases


async def test_a_lease_has_the_number_that_is_asked_for_or_one_of_its_own(caller: EtcdCaller) -> None:
    given = await caller.ask(messages.LEASE_GRANT, TTL=60, ID=1234)
    assert (given.ID, given.TTL) == (1234, 60)
    taken = await caller.refusal(messages.LEASE_GRANT, TTL=60, ID=1234)
    assert taken == ("FAILED_PRECONDITION", "etcdserver: lease already exists")
    drawn = await caller.ask(messages.LEASE_GRANT, TTL=0)
    assert drawn.ID > 0
    assert drawn.TTL == 1
    leases = await caller.ask(messages.LEASE_LEASES)
    assert [lease.ID for lease in leases.leases] == [1234, drawn.ID]


async def test_a_lease_tells_its_time_and_keys_and_takes_them_with_it(caller: EtcdCaller) -> None:
    await caller.ask(messages.LEASE_GRANT, TTL=60, ID=5)
    await caller.put("a", lease=5)
    await caller.put("b", lease=5)
    info = await caller.ask(messages.LEASE_TIME_TO_LIVE, ID=5, keys=True)
    assert (info.TTL, info.grantedTTL, list(info.keys)) == (59, 60, [b"a", b"b"])
    assert not (await caller.ask(messages.LEASE_TIME_TO_LIVE, ID=5)).keys
    assert (await caller.ask(messages.LEASE_REVOKE, ID=5)).header.revision == 4
    assert (await caller.ask(messages.LEASE_TIME_TO_LIVE, ID=5)).TTL == -1
    assert not (await caller.get("\0", FROM)).count


async def test_a_stream_keeps_several_leases_alive_and_says_which_are_gone(caller: EtcdCaller) -> None:
    await caller.ask(messages.LEASE_GRANT, TTL=60, ID=5)
    stream = caller.stream(messages.LEASE_KEEP_ALIVE)
    for lease, ttl in ((5, 60), (6, 0), (5, 60)):
        await stream.write(api.LeaseKeepAliveRequest(ID=lease))
        answer = await stream.read()
        assert (answer.ID, answer.TTL, answer.header.revision) == (lease, ttl, 1)
    await stream.done_writing()
    assert await stream.read() is grpc.aio.EOF


# ---- the server itself


async def test_a_server_knows_who_it_is_also_after_a_start(tmp_path: Path) -> None:
    seen = []
    for _ in range(2):
        async with (
            StoreServer("127.0.0.1:0", folder=tmp_path, fsync=False, name="docks") as server,
            etcd_caller(server.address) as caller,
        ):
            await caller.put("k")
            status = await caller.ask(messages.STATUS)
            (member,) = (await caller.ask(messages.MEMBER_LIST)).members
            assert list(member.clientURLs) == [server.url]
            assert member.name == "docks"
            assert member.ID == status.leader == status.header.member_id
            assert status.raftIndex == status.raftAppliedIndex == status.header.revision - 1
            await caller.ask(messages.DEFRAGMENT)
            seen.append((status.header.cluster_id, member.ID, status.header.revision))
    assert seen[0][:2] == seen[1][:2]
    assert (seen[0][2], seen[1][2]) == (2, 4)


async def test_a_store_that_refuses_changes_has_an_alarm_until_it_is_started_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(file: int) -> None:
        raise OSError(errno.ENOSPC, "no space")

    async with StoreServer("127.0.0.1:0", folder=tmp_path) as server, etcd_caller(server.address) as caller:
        # Clients ask for alarms to know whether a server is well.
        assert not (await caller.ask(messages.ALARM)).alarms
        monkeypatch.setattr(store_folder, "flush", fail)
        assert (await caller.refusal(messages.PUT, key=b"k"))[0] == "UNAVAILABLE"
        (alarm,) = (await caller.ask(messages.ALARM)).alarms
        assert (alarm.memberID, alarm.alarm) == (server.store.identity.member_id, api.NOSPACE)
        status, words = await caller.refusal(messages.ALARM, action=api.AlarmRequest.DEACTIVATE)
        assert (status, "started again" in words) == ("UNIMPLEMENTED", True)


async def test_an_address_that_is_taken_or_none_is_refused(server: StoreServer, tmp_path: Path) -> None:
    with pytest.raises(AddressInUse, match=server.address):
        async with StoreServer(server.address, folder=tmp_path):
            pass
    # And the folder is free again.
    async with StoreServer("127.0.0.1:0", folder=tmp_path):
        pass
    with pytest.raises(BadEndpoint, match=r"192.0.2.1:0 cannot be listened at"):
        async with StoreServer("192.0.2.1:0"):
            pass
    for listen in ("2379", "localhost", "localhost:http", "localhost:99999"):
        with pytest.raises(BadEndpoint, match="write host:port"):
            StoreServer(listen)


async def test_tls_is_mutual(tmp_path: Path) -> None:
    authority, stranger = Authority.create(tmp_path / "a"), Authority.create(tmp_path / "b")
    tls = authority.issue("store")
    async with StoreServer("127.0.0.1:0", environment=Environment(tls=tls)) as server:
        assert server.url.startswith("https://")
        async with etcd_caller(server.address, credentials(authority.issue("anna"))) as caller:
            assert await caller.put("k") == 2
        unknown = stranger.issue("eve")
        wrong = Tls(cert=unknown.cert, key=unknown.key, ca=tls.ca)
        async with etcd_caller(server.address, credentials(wrong)) as caller:
            assert (await caller.refusal(messages.PUT, key=b"k"))[0] == "UNAVAILABLE"
    with pytest.raises(BadArgument, match="the TLS files cannot be used"):
        async with StoreServer("127.0.0.1:0", environment=Environment(tls=Tls(cert="no", key="no", ca="no"))):
            pass


def credentials(tls: Tls) -> grpc.ChannelCredentials:
    ca, key, cert = (Path(file).read_bytes() for file in (tls.ca, tls.key, tls.cert))
    return grpc.ssl_channel_credentials(ca, key, cert)


async def test_a_server_that_stops_ends_its_streams(caller: EtcdCaller, server: StoreServer) -> None:
    async with caller.watching() as watch:
        await watch.create("k")
        async with asyncio.timeout(10):
            await server.__aexit__(None, None, None)
            with pytest.raises(grpc.aio.AioRpcError):
                await watch.read()


async def test_nothing_of_a_server_runs_on_when_it_is_left(caller: EtcdCaller, server: StoreServer) -> None:
    async with caller.watching() as watch:
        await watch.create("k")
        keeping = caller.stream(messages.LEASE_KEEP_ALIVE)
        await keeping.write(api.LeaseKeepAliveRequest(ID=5))
        await keeping.read()
        async with asyncio.timeout(10):
            await server.__aexit__(None, None, None)
        assert len(server.store._watchers) == 0
        assert not [task for task in asyncio.all_tasks() if task.get_name().startswith("watch stream")]


async def test_who_closes_a_server_second_returns_when_the_first_has_finished(tmp_path: Path) -> None:
    server = await StoreServer("127.0.0.1:0", folder=tmp_path).__aenter__()
    first, second = (asyncio.ensure_future(server.__aexit__(None, None, None)) for _ in range(2))
    await second
    assert first.done()
    # The folder is let go of, too.
    async with StoreServer("127.0.0.1:0", folder=tmp_path):
        pass
