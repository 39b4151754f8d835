"""Certificates for the tests, made anew in each run by a throw-away authority."""

from dataclasses import dataclass
from pathlib import Path

import trustme

from hansa.transport import Tls


@dataclass(frozen=True, slots=True, kw_only=True)
class Authority:
    """Issues certificates into a folder; a second authority is a stranger to the first."""

    folder: Path
    ca: trustme.CA

    @classmethod
    def create(cls, folder: Path) -> "Authority":
        """A new authority that writes below `folder`."""
        folder.mkdir(parents=True, exist_ok=True)
        authority = cls(folder=folder, ca=trustme.CA())
        authority.ca.cert_pem.write_to_path(str(folder / "ca.pem"))
        return authority

    def issue(self, name: str, *, alternative: bool = True) -> Tls:
        """A certificate for the node `name`, good for the loopback addresses.

        The name is its common name, and without `alternative` nothing else tells it from another node's.
        """
        cert_path, key_path = self.folder / f"{name}.pem", self.folder / f"{name}.key"
        names = ["127.0.0.1", "::1", "localhost", *([f"{name}.example"] if alternative else [])]
        # Without a unit of our own each certificate would get a random one, and no two the same subject.
        cert = self.ca.issue_cert(*names, common_name=name, organization_unit_name="nodes")
        cert.private_key_pem.write_to_path(str(key_path))
        cert_path.write_bytes(b"".join(blob.bytes() for blob in cert.cert_chain_pems))
        return Tls(cert=str(cert_path), key=str(key_path), ca=str(self.folder / "ca.pem"))
