"""Nodes in processes of their own, to be stopped and killed."""

import json
import signal
from typing import Any

from tests.support.discovery_processes import Told

ANY = "tcp://127.0.0.1:0"


class NodeProcess(Told):
    """node_program.py: a node of hansa's that does as it is told. Every order is answered under its name."""

    def __init__(self, number: int, pub: str, *routers: str, **settings: object) -> None:
        arguments = [f"--number={number}", f"--pub={pub}", *(f"--router={router}" for router in routers)]
        arguments += [f"--{key.replace('_', '-')}={value}" for key, value in settings.items()]
        super().__init__("topics/node_program.py", *arguments)
        self.number = number
        self.endpoint = ""

    async def ready(self) -> None:
        """Wait until a registry has it."""
        self.endpoint = (await self.event("ready"))["endpoint"]

    async def do(self, order: str, **arguments: Any) -> dict[str, Any]:
        """Give an order; what it tells when that is done. An error of hansa's is told by its code."""
        await self.begin(order, **arguments)
        return await self.event(order)

    async def begin(self, order: str, **arguments: Any) -> None:
        """Give an order, and do not wait until it is done."""
        await self.say(json.dumps({"do": order, **arguments}))

    async def books(self, text: str) -> dict[str, Any]:
        """What one subscription has got so far."""
        return await self.do("books", text=text)

    def thaw(self) -> None:
        """SIGCONT: undo `freeze`."""
        self.process.send_signal(signal.SIGCONT)
