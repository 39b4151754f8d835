"""The store in an etcd group, over its gRPC API.

In the order in which a call goes through them:

- `client`: the store as its users call it. `address`: where the group is. `life`: from opened to closed.
- `caller`: a call to a member that answers, repeated where that is safe; `rotation` decides which member is
  asked, `failures` what its refusal means, `lineage` whether it still tells the history that it told before.
- `access`: the members, and who asks them. `calls`, `messages`: etcd's methods, and its messages as hansa's
  values (`api_pb2` is generated from `api.proto`).
- `watches`, `watch_book`: all watches over one stream: the driver, and the machine that resumes them.
- `heart`, `lease_keeping`: the thread that keeps leases alive, and the machine that says when.
"""
