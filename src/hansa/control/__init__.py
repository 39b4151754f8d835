"""gRPC as hansa uses it: what the client of etcd, `hansa store` and the peers of raft groups share.

- `method`: one method of a service: its name, and its messages as bytes and back, in protobuf or in JSON.
- `client`: how a channel is opened, and one question asked with a deadline; the meaning of failures.
- `server`: how a server is bound, started and stopped, and how its methods are answered.
"""
