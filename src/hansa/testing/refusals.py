"""What a simulated program must not ask of its event loop, and how it is told.

Real sockets, threads, signals, name lookups and subprocesses would bring real time and real chance into a run
that must replay bit for bit. Each method is written out, so that the type checker knows them all.
"""

from __future__ import annotations

import asyncio
from typing import Any, NoReturn

from hansa.errors import UsageError

__all__ = ["NotSimulated", "RealWorldRefused"]


class NotSimulated(UsageError):
    """The program asked for real I/O, threads or signals, which would end the replay."""

    code = "not-simulated"


def _refuse(name: str) -> NoReturn:
    raise NotSimulated(
        f"loop.{name}() needs the real world; in a simulation use the host's network, clock and chance"
    )


class RealWorldRefused(asyncio.AbstractEventLoop):
    """An event loop that has no outside."""

    def add_reader(self, *args: Any, **kwargs: Any) -> NoReturn:  # type: ignore[override]
        _refuse("add_reader")

    def add_signal_handler(self, *args: Any, **kwargs: Any) -> NoReturn:  # type: ignore[override]
        _refuse("add_signal_handler")

    def add_writer(self, *args: Any, **kwargs: Any) -> NoReturn:  # type: ignore[override]
        _refuse("add_writer")

    def connect_accepted_socket(self, *args: Any, **kwargs: Any) -> NoReturn:
        _refuse("connect_accepted_socket")

    def connect_read_pipe(self, *args: Any, **kwargs: Any) -> NoReturn:
        _refuse("connect_read_pipe")

    def connect_write_pipe(self, *args: Any, **kwargs: Any) -> NoReturn:
        _refuse("connect_write_pipe")

    def create_connection(self, *args: Any, **kwargs: Any) -> NoReturn:
        _refuse("create_connection")

    def create_datagram_endpoint(self, *args: Any, **kwargs: Any) -> NoReturn:
        _refuse("create_datagram_endpoint")

    def create_server(self, *args: Any, **kwargs: Any) -> NoReturn:
        _refuse("create_server")

    def create_unix_connection(self, *args: Any, **kwargs: Any) -> NoReturn:
        _refuse("create_unix_connection")

    def create_unix_server(self, *args: Any, **kwargs: Any) -> NoReturn:
        _refuse("create_unix_server")

    def get_task_factory(self, *args: Any, **kwargs: Any) -> NoReturn:
        _refuse("get_task_factory")

    def getaddrinfo(self, *args: Any, **kwargs: Any) -> NoReturn:
        _refuse("getaddrinfo")

    def getnameinfo(self, *args: Any, **kwargs: Any) -> NoReturn:
        _refuse("getnameinfo")

    def remove_reader(self, *args: Any, **kwargs: Any) -> NoReturn:
        _refuse("remove_reader")

    def remove_signal_handler(self, *args: Any, **kwargs: Any) -> NoReturn:
        _refuse("remove_signal_handler")

    def remove_writer(self, *args: Any, **kwargs: Any) -> NoReturn:
        _refuse("remove_writer")

    def run_in_executor(self, *args: Any, **kwargs: Any) -> NoReturn:  # type: ignore[override]
        _refuse("run_in_executor")

    def sendfile(self, *args: Any, **kwargs: Any) -> NoReturn:
        _refuse("sendfile")

    def set_default_executor(self, *args: Any, **kwargs: Any) -> NoReturn:
        _refuse("set_default_executor")

    def set_task_factory(self, *args: Any, **kwargs: Any) -> NoReturn:
        _refuse("set_task_factory")

    def sock_accept(self, *args: Any, **kwargs: Any) -> NoReturn:
        _refuse("sock_accept")

    def sock_connect(self, *args: Any, **kwargs: Any) -> NoReturn:
        _refuse("sock_connect")

    def sock_recv(self, *args: Any, **kwargs: Any) -> NoReturn:
        _refuse("sock_recv")

    def sock_recv_into(self, *args: Any, **kwargs: Any) -> NoReturn:
        _refuse("sock_recv_into")

    def sock_recvfrom(self, *args: Any, **kwargs: Any) -> NoReturn:
        _refuse("sock_recvfrom")

    def sock_recvfrom_into(self, *args: Any, **kwargs: Any) -> NoReturn:
        _refuse("sock_recvfrom_into")

    def sock_sendall(self, *args: Any, **kwargs: Any) -> NoReturn:
        _refuse("sock_sendall")

    def sock_sendfile(self, *args: Any, **kwargs: Any) -> NoReturn:
        _refuse("sock_sendfile")

    def sock_sendto(self, *args: Any, **kwargs: Any) -> NoReturn:
        _refuse("sock_sendto")

    def start_tls(self, *args: Any, **kwargs: Any) -> NoReturn:
        _refuse("start_tls")

    def subprocess_exec(self, *args: Any, **kwargs: Any) -> NoReturn:
        _refuse("subprocess_exec")

    def subprocess_shell(self, *args: Any, **kwargs: Any) -> NoReturn:
        _refuse("subprocess_shell")
