"""Who asks: users, passwords and certificates, on real servers."""

import asyncio
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from hansa.errors import BadArgument, HandshakeRefused, StoreUnavailable, TimedOut
from hansa.store.etcd.client import EtcdStore
from hansa.store.opening import open_store
from hansa.transport import Environment, Tls
from tests.support.certificates import Authority
from tests.support.etcd_servers import EtcdGroup

pytestmark = [pytest.mark.spec("CRD-01"), pytest.mark.timeout(60)]

SECRET = "s3cret"


def etcdctl(group: EtcdGroup, *words: str) -> None:
    subprocess.run(
        [str(group.program.etcdctl), f"--endpoints={group.endpoints[0]}", *words],
        check=True,
        capture_output=True,
        timeout=20,
        env={"ETCDCTL_API": "3", "PATH": ""},
    )


@pytest.fixture(scope="module")
def guarded() -> Iterator[EtcdGroup]:
    """A member that asks who is there. `ada` may see and change what is below /ada/."""
    with EtcdGroup() as group:
        etcdctl(group, "user", "add", f"root:{SECRET}")
        etcdctl(group, "user", "grant-role", "root", "root")
        etcdctl(group, "role", "add", "below-ada")
        etcdctl(group, "role", "grant-permission", "below-ada", "readwrite", "/ada/", "--prefix")
        etcdctl(group, "user", "add", f"ada:{SECRET}")
        etcdctl(group, "user", "grant-role", "ada", "below-ada")
        etcdctl(group, "auth", "enable")
        yield group


def address(group: EtcdGroup, user: str, password: str = SECRET) -> str:
    return group.address.replace("://", f"://{user}:{password}@")


async def test_who_is_known_may_do_everything(guarded: EtcdGroup) -> None:
    async with open_store(address(guarded, "root")) as store:
        revision = await store.put("k", b"v")
        watch = store.watch("k", start_revision=revision)
        assert (await anext(watch)).revision == revision
        lease = await store.grant(30.0)
        renewed = asyncio.Event()
        keeping = store.keep(
            lease,
            ttl=30.0,
            granted_s=store.clock.monotonic() - 20.0,
            interval=0.1,
            loop_silence_s_max=5.0,
            on_change=renewed.set,
        )
        await renewed.wait()
        assert keeping.failures_count == 0
        keeping.stop()
        watch.close()


async def test_a_member_that_forgot_who_we_are_is_told_again(guarded: EtcdGroup) -> None:
    async with open_store(address(guarded, "root")) as store:
        await store.put("k", b"")
        watch = store.watch("k")
        await watch.ready()
        # Its tokens are in its memory alone.
        guarded.kill(0)
        guarded.restart(0)
        await guarded.serving()
        revision = await put_after_restart(store)
        assert (await anext(watch)).revision == revision
        # And one that somebody made up is no token.
        assert isinstance(store, EtcdStore)
        store._caller.access.token = "made-up.1"
        assert await store.get("k") is not None
        watch.close()


async def put_after_restart(store: object) -> int:
    assert isinstance(store, EtcdStore)
    # The put itself is the first to find the connection gone, unless the watch was; it may end in doubt.
    while True:
        try:
            return await store.put("k", b"again")
        except TimedOut:
            continue


@pytest.mark.parametrize("password", ["wrong-word", ""])
async def test_a_wrong_password_is_refused_and_not_told(guarded: EtcdGroup, password: str) -> None:
    async with open_store(address(guarded, "root", password)) as store:
        for call in (store.get("k"), store.put("k", b""), store.grant(5.0)):
            with pytest.raises(HandshakeRefused) as caught:
                await call
            assert caught.value.reason == "auth-failed"
            assert not password or password not in str(caught.value)
        watch = store.watch("k")
        with pytest.raises(HandshakeRefused):
            await watch.ready()
        with pytest.raises(HandshakeRefused):
            await anext(watch)


async def test_who_does_not_say_who_it_is_is_refused(guarded: EtcdGroup) -> None:
    async with open_store(guarded.address) as store:
        with pytest.raises(HandshakeRefused, match=r"write etcd://.*user:password@host"):
            await store.get("k")
        with pytest.raises(HandshakeRefused):
            await store.watch("k").ready()


async def test_who_may_do_a_part_may_do_no_more(guarded: EtcdGroup) -> None:
    async with open_store(address(guarded, "ada")) as store:
        allowed, denied = store.watch("/ada/"), store.watch("/bob/")
        revision = await allowed.ready()
        assert await store.put("/ada/k", b"") == revision
        assert (await anext(allowed)).revision == revision
        for call in (store.get("/bob/k"), store.put("/bob/k", b"")):
            with pytest.raises(HandshakeRefused) as caught:
                await call
            assert caught.value.reason == "permission-denied"
        with pytest.raises(HandshakeRefused):
            await denied.ready()
        from_the_past = store.watch("/bob/", start_revision=revision)
        with pytest.raises(HandshakeRefused):
            await anext(from_the_past)
        # The others of the same stream are not disturbed.
        assert await store.put("/ada/k", b"") == revision + 1
        assert (await anext(allowed)).revision == revision + 1
        allowed.close()


async def test_a_user_is_no_harm_where_nobody_asks() -> None:
    with EtcdGroup() as group:
        async with open_store(address(group, "ada")) as store:
            await store.put("k", b"")
            assert await store.get("k") is not None


async def test_certificates_are_checked_on_both_sides(tmp_path: Path) -> None:
    authority = Authority.create(tmp_path / "ours")
    server, client = authority.issue("server"), authority.issue("client")
    stranger = Authority.create(tmp_path / "theirs").issue("stranger")
    arguments = [
        f"--cert-file={server.cert}",
        f"--key-file={server.key}",
        f"--trusted-ca-file={server.ca}",
        "--client-cert-auth",
    ]
    with EtcdGroup(scheme="https", arguments=arguments) as group:
        async with open_store(group.address, environment=Environment(tls=client)) as store:
            revision = await store.put("k", b"v")
            watch = store.watch("k", start_revision=revision)
            assert (await anext(watch)).revision == revision
            renewed = asyncio.Event()
            keeping = store.keep(
                await store.grant(30.0),
                ttl=30.0,
                granted_s=store.clock.monotonic() - 20.0,
                interval=0.1,
                loop_silence_s_max=5.0,
                on_change=renewed.set,
            )
            await renewed.wait()
            assert keeping.failures_count == 0
            watch.close()
        # Theirs is not trusted by the server, and its authority does not vouch for the server.
        for tls in (stranger, Tls(cert=stranger.cert, key=stranger.key, ca=client.ca), None):
            async with open_store(group.address, environment=Environment(tls=tls)) as store:
                with pytest.raises((StoreUnavailable, TimedOut)):
                    await store.put("k", b"", timeout=0.5)


async def test_credentials_that_cannot_be_read_are_told_at_once() -> None:
    missing = Tls(cert="no.pem", key="no.key", ca="no-ca.pem")
    with pytest.raises(BadArgument, match=r"no-ca\.pem"):
        async with open_store("etcd://127.0.0.1:1", environment=Environment(tls=missing)):
            raise AssertionError("it was opened")
