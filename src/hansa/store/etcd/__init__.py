"""The store in an etcd group, over its gRPC API.

In the order in which a call goes through them:

- `client`: the store as its users call it.
- `caller`: the life of a store, and calls to a member that answers, repeated where that is safe. `members`
  decides which member is asked and what its refusal means; `lineage`, whether the group still tells the
  history that it told before.
- `messages`: etcd's methods, and its messages as hansa's values (`api_pb2` is generated from `api.proto`).
- `watches`, `watch_book`: all watches over one stream: the driver, and the machine that resumes them.
- `heart`: the thread that keeps leases alive, and the machine that says when.
"""
