"""What a simulated program must not ask of its event loop, and how it is told.

Real sockets, threads, signals, name lookups and subprocesses would bring real time and real chance into a run
that must replay bit for bit. Each method is written out, so that the type checker knows them all.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import NoReturn

from hansa.errors import UsageError

__all__ = ["NotSimulated", "RealWorldRefused"]


class NotSimulated(UsageError):
    """The program asked for real I/O, threads or signals, which would end the replay."""

    code = "not-simulated"


def _refusal(name: str) -> Callable[..., NoReturn]:
    def refuse(*args: object, **kwargs: object) -> NoReturn:
        raise NotSimulated(
            f"loop.{name}() needs the real world; in a simulation use the host's network, clock and chance"
        )

    return refuse


class RealWorldRefused(asyncio.AbstractEventLoop):
    """An event loop that has no outside."""

    add_reader = _refusal("add_reader")  # type: ignore[assignment]
    add_signal_handler = _refusal("add_signal_handler")  # type: ignore[assignment]
    add_writer = _refusal("add_writer")  # type: ignore[assignment]
    connect_accepted_socket = _refusal("connect_accepted_socket")
    connect_read_pipe = _refusal("connect_read_pipe")
    connect_write_pipe = _refusal("connect_write_pipe")
    create_connection = _refusal("create_connection")
    create_datagram_endpoint = _refusal("create_datagram_endpoint")
    create_server = _refusal("create_server")
    create_unix_connection = _refusal("create_unix_connection")
    create_unix_server = _refusal("create_unix_server")
    get_task_factory = _refusal("get_task_factory")
    getaddrinfo = _refusal("getaddrinfo")
    getnameinfo = _refusal("getnameinfo")
    remove_reader = _refusal("remove_reader")
    remove_signal_handler = _refusal("remove_signal_handler")
    remove_writer = _refusal("remove_writer")
    run_in_executor = _refusal("run_in_executor")  # type: ignore[assignment]
    sendfile = _refusal("sendfile")
    set_default_executor = _refusal("set_default_executor")
    set_task_factory = _refusal("set_task_factory")
    sock_accept = _refusal("sock_accept")
    sock_connect = _refusal("sock_connect")
    sock_recv = _refusal("sock_recv")
    sock_recv_into = _refusal("sock_recv_into")
    sock_recvfrom = _refusal("sock_recvfrom")
    sock_recvfrom_into = _refusal("sock_recvfrom_into")
    sock_sendall = _refusal("sock_sendall")
    sock_sendfile = _refusal("sock_sendfile")
    sock_sendto = _refusal("sock_sendto")
    start_tls = _refusal("start_tls")
    subprocess_exec = _refusal("subprocess_exec")
    subprocess_shell = _refusal("subprocess_shell")
