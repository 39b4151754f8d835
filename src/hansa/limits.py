"""Every bound in one place. A name ends in its unit; the comment gives the reason, not the meaning.

A bound is checked before anything is allocated for what it bounds. Where a socket or a component takes an
option, the number here is the option's default.
"""

from typing import Final

KIB: Final = 1024
MIB: Final = 1024 * 1024

# --- What one peer may send -------------------------------------------------------------------------------
# Larger blobs belong in a store; one frame is held in memory whole, on both sides.
FRAME_BYTES_MAX: Final = 64 * 1024 * 1024
# Room for two frames of the largest size: a payload and its envelope.
MESSAGE_BYTES_MAX: Final = 128 * 1024 * 1024
# A service list of 20,000 providers is 60,000 frames; an empty frame still costs an object here.
PARTS_MAX: Final = 65_536
# READY carries a few short properties; a subscription's prefix is a topic.
COMMAND_BYTES_MAX: Final = 8192
# A peer holds at most this many prefixes, so that matching stays bounded.
SUBSCRIPTIONS_MAX: Final = 65_536

# --- Connections ------------------------------------------------------------------------------------------
# A slow but honest peer over a bad link shakes hands within seconds; anything slower is holding a slot.
HANDSHAKE_S_MAX: Final = 10.0
# Below the usual hard limit for open files, with room left for the program's own.
CONNECTIONS_MAX: Final = 16_384
# Unauthenticated peers are the cheap attack; the honest are done in one round trip.
HANDSHAKING_MAX: Final = 1_024
# First retry: soon enough for a restart, late enough not to spin.
RECONNECT_S_MIN: Final = 0.1
# Last retry: a recovered peer is found again within five seconds.
RECONNECT_S_MAX: Final = 5.0
# Plus or minus this share of the delay, so that a crowd does not return in step.
RECONNECT_JITTER: Final = 0.2
# Both as for the registry's heartbeats: three beats missed and the peer is gone.
HEARTBEAT_INTERVAL_S: Final = 5.0
HEARTBEAT_TIMEOUT_S: Final = 15.0
# The kernel's queue of connections that nobody has accepted yet; it caps the number itself.
ACCEPT_BACKLOG_MAX: Final = 1024
# Accepted in one turn of the loop, so that a crowd at the door does not stop those inside.
ACCEPT_TURN_COUNT_MAX: Final = 64
# When accepting fails (no file descriptors left), the next try.
ACCEPT_RETRY_S: Final = 0.1
# A peer that is being refused gets this long to read why and to close its side.
CLOSE_S_MAX: Final = 1.0
# How long close() waits for buffers to drain; a peer that reads at all needs far less.
LINGER_S: Final = 2.0
# Ids that a socket remembers the certificates of: more than connections, so no connected one is forgotten.
ID_BINDINGS_MAX: Final = 65_536

# --- Buffers ----------------------------------------------------------------------------------------------
# Per peer. One largest frame fits; the operator must plan memory for a thousand slow peers.
OUTGOING_BYTES_MAX: Final = 64 * 1024 * 1024
# Per peer. Tiny messages cost objects, not bytes.
OUTGOING_COUNT_MAX: Final = 100_000
# Per socket. A full inbox pauses reading, so the number sets memory and not loss.
INCOMING_COUNT_MAX: Final = 10_000
INCOMING_BYTES_MAX: Final = 64 * 1024 * 1024
# Messages that keep two peers in step (who owns what, who is subscribed, that a provider is busy) are still
# accepted in one peer's full buffer, up to this many: all topics of a node once over. A peer that does not
# read even these is expelled.
CONTROL_COUNT_MAX: Final = 100_000
CONTROL_BYTES_MAX: Final = 64 * 1024 * 1024
# Read at once: it stays in a core's cache while it is parsed.
READ_BYTES: Final = 64 * 1024
# Events that nobody reads: the oldest are dropped first, counted.
EVENTS_COUNT_MAX: Final = 10_000
# Above this, copying a frame into a joined buffer costs more than a second element in the write.
WRITE_JOIN_BYTES: Final = 32 * 1024
# Requests or replies that gateways and providers write at once. The peer begins on these while we go on with
# the next: a hundred in flight would otherwise go back and forth as one batch, with one side always idle. Two
# halves keep both busy; 32 at a time cost 6 % more in writes (`make bench`, case gateway).
BURST_COUNT: Final = 50
# One peer's share of a loop turn, so that one fast peer does not starve the others.
WRITE_TURN_BYTES: Final = 256 * 1024

# --- Names on the wire ------------------------------------------------------------------------------------
# The C interface of the specification gives topics and services a buffer of 256 bytes with its closing zero.
TOPIC_BYTES_MAX: Final = 255
SERVICE_NAME_BYTES_MAX: Final = 255
ENDPOINT_BYTES_MAX: Final = 255
# ZMTP gives an identity one length byte.
ROUTING_ID_BYTES_MAX: Final = 255
# A sentence for a person; never a stack trace.
ERROR_TEXT_BYTES_MAX: Final = 1024
# A stable word such as `peer-away`.
ERROR_CODE_BYTES_MAX: Final = 64
# Today's call header has 30 bytes; the rest is room for later versions.
CALL_HEADER_BYTES_MAX: Final = 1024
# Letters of a mesh's service with its cluster; the specification of topics says so.
SPOT_SERVICE_CHARS_MAX: Final = 64
# The kernel's room for a Unix socket's path (108 bytes with its closing zero).
UNIX_PATH_BYTES_MAX: Final = 107

# --- Counts on the wire -----------------------------------------------------------------------------------
# Per service list. Twice the ten thousand services or providers that one cluster is tested with.
SERVICES_MAX: Final = 20_000
PROVIDERS_MAX: Final = 20_000
# Per answer to QUERY: all that fit in one message beside its two leading frames.
TOPICS_MAX: Final = PARTS_MAX - 2

# Removed entries that a registry still tells, so that nobody brings them back: a rolling restart of half of
# what one list can hold.
TOMBSTONES_MAX: Final = 10_000
# Entries of one connection at a registry, and so names; as many of its removed entries are remembered. Large
# providers have hundreds of services; a provider with this many leaves room for nineteen like it.
PROVIDER_ENTRIES_MAX: Final = 1_000

# --- Services ---------------------------------------------------------------------------------------------
# Meaningless messages that a peer may send before its connection is ended: more than a bug sends in passing.
STRIKES_MAX: Final = 100
# Heartbeats within a registry's timeout: two may be lost or late, and the entry stays.
BEATS_PER_TIMEOUT: Final = 3
# A registry that wants to hear from each entry more often than this is not obeyed.
BEAT_S_MIN: Final = 0.02
# How often a registry repeats its list even without changes; after three missed lists it is not heard.
BROADCAST_INTERVAL_S: Final = 30.0
BROADCASTS_MISSED_MAX: Final = 3
# Providers stamp what they say. Clocks are seconds apart, a forgotten time zone is hours; beyond a day a
# clock is simply wrong, and its stamps would prevail over everything that is said before that day comes.
EPOCH_AHEAD_S_MAX: Final = 86_400
# How often in a row a provider steps over a registry's epoch; once is enough, unless two of one id fight.
BEHIND_MAX: Final = 3
# A registry that changes waits this long before its next list: long enough for a burst to be one list, longer
# the longer the list is, so that publishing takes a small share of the time, and never longer than a second.
BROADCAST_PAUSE_S_MIN: Final = 0.02
BROADCAST_PAUSE_S_PER_ENTRY: Final = 50e-6
BROADCAST_PAUSE_S_MAX: Final = 1.0
# Registries that one registry follows. A cluster has three or five; one that restarts counts twice for a
# while. Also how many disconnected registries a discovery keeps trusting during the grace period.
REGISTRIES_MAX: Final = 64
# How long a discovery trusts a registry whose connection broke: the longest pause of a provider between two
# registries. A provider that only this registry lists has moved to the next one by then.
REGISTRY_GRACE_S: Final = 5.0
# Registries that a discovery no longer hears and whose last number it still knows, oldest forgotten first:
# more restarts under new ids than happen while such a number matters.
REGISTRIES_REMEMBERED_MAX: Final = 1_024
# How long a call waits for its reply unless told otherwise.
REQUEST_TIMEOUT_S: Final = 5.0
# One try of a request has at least this long before another provider is asked, too: long enough for a garbage
# collection or a busy core on either side.
TRY_S_MIN: Final = 0.1
# How often requests that could not be sent twice are checked again.
HEDGE_LOOK_S: Final = 0.05
# Requests of one service that may be sent twice in a burst (those that a provider has when it stops), the
# share of its requests in the long run, and the number per second where there are few requests.
HEDGES_COUNT_MAX: Final = 100
HEDGE_SHARE: Final = 0.1
HEDGES_PER_S: Final = 1.0
# A provider that did not answer a try in time gets no requests for this long, twice as long each time, unless
# it answers something before. Each time a few requests are risked to find out.
SUSPICION_S_MIN: Final = 1.0
SUSPICION_S_MAX: Final = 8.0
# Per gateway: requests without an outcome, and completions not yet taken. Beyond it callers wait.
IN_FLIGHT_MAX: Final = 10_000

# --- Threads ----------------------------------------------------------------------------------------------
# How late Ctrl-C may end a wait that it did not wake: the main thread looks this often while it waits.
SIGNAL_LOOK_S: Final = 0.1

# --- Providers --------------------------------------------------------------------------------------------
# Requests of one provider that run at once: enough for handlers that wait for something else.
CONCURRENCY_MAX: Final = 1_000
# Requests that wait for their turn; beyond it a provider says busy, and the caller tries another.
WAITING_MAX: Final = 10_000
# The same in bytes, as one socket's inbox: waiting requests are held in memory whole.
WAITING_BYTES_MAX: Final = 64 * 1024 * 1024
# Requests that wait past their deadline are looked for only this often: it costs a walk over all that wait.
WAITING_SWEEP_S: Final = 0.05
# Handlers that are plain functions: more threads only fight for the interpreter.
THREADS_MAX: Final = 8
# A caller that does not read holds a handler's slot this long, and no longer: then its connection ends.
REPLY_S_MAX: Final = 5.0
# A registry answers within a round trip; one that is silent for this long is probably gone.
REGISTRY_ANSWER_S_MAX: Final = 2.0
# Between tries to reach a registry, each plus or minus the jitter's share; the specification's numbers.
FAILOVER_S_MIN: Final = 0.2
FAILOVER_S_MAX: Final = 5.0
FAILOVER_JITTER: Final = 0.2
# A registry that lost its entries hears from all its providers at once: they spread over this time.
REREGISTER_S_MAX: Final = 1.0
# How long a registry that was stopped publishes nothing: living, connected providers have come back by then.
WAKING_S: Final = REREGISTER_S_MAX + 0.5
# After a failover callers may be waiting for the entry: spread, but not for long.
RETURN_S_MAX: Final = 0.2
# How long registering waits for a registry's answer, unless told otherwise.
REGISTER_TIMEOUT_S: Final = 5.0
# A provider that closes takes its entries back, if a registry answers within this time.
FAREWELL_S_MAX: Final = 1.0
# Services that a provider no longer offers and whose last answer it still knows; the oldest go first.
GONE_SERVICES_MAX: Final = 256
# A handler that is cancelled when its provider closes may clean up for this long; then it is left behind.
CANCEL_S_MAX: Final = 2.0
# How long a provider that drains waits for its gateways to leave, unless told otherwise.
DRAIN_TIMEOUT_S: Final = 30.0

# --- Randomness -------------------------------------------------------------------------------------------
# Sixteen thousand taken ids collide once in 260,000 draws: 64 in a row means that the randomness is broken.
ID_DRAWS_MAX: Final = 64

# --- Topics -----------------------------------------------------------------------------------------------
# Messages and bytes that wait in one subscription: a burst of a fast publisher, not an archive.
SUBSCRIPTION_COUNT_MAX: Final = 10_000
SUBSCRIPTION_BYTES_MAX: Final = 64 * 1024 * 1024
# Topics that one node owns: all fit in one answer to QUERY, with room for three extension frames.
OWNED_TOPICS_MAX: Final = TOPICS_MAX - 3
# Topics that a node knows of, over all peers: ten times what a mesh is measured with, and a few hundred MiB.
CLAIMS_MAX: Final = 1_000_000
# Local subscriptions of one node: a thousand spots with some patterns each.
NODE_SUBSCRIPTIONS_MAX: Final = 65_536
# How often every peer is asked again which topics it owns, in case something was missed.
QUERY_INTERVAL_S: Final = 30.0
# A listed node that has not told its topics after this time is not waited for.
JOIN_S_MAX: Final = 2.0
# A peer that has connected and said nothing is not waited for longer than this: nodes ask at once.
SILENT_PEER_S: Final = 0.5
# A peer that has said nothing after this time is no node, a pause of its process included,
STRANGER_S: Final = 10.0
# and is tried again after this time, because a node may have its place by then.
STRANGER_REST_S: Final = 60.0
# A connected node that is no longer listed is let go when it has been silent this long: it may be closing,
PARTING_S: Final = 0.5
# for which it has its linger and no longer.
PARTING_S_MAX: Final = LINGER_S
# A peer that dialled us and was never listed: two broadcasts of every registry, which tell the whole list.
UNLISTED_S_MAX: Final = 60.0
# Peers that were let go and that a node remembers: more than a mesh has nodes.
LET_GO_MAX: Final = 4_096
# How long the topics of a node that was killed stay claimed in a store.
CLAIM_TTL_S: Final = 10.0
# How often an owner checks whether a peer that missed messages has room again to be told so.
LAGGING_S: Final = 0.1
# Topics of lost owners that patterns still remember, to say how much was missed if they return.
FORMER_TOPICS_MAX: Final = 10_000
# Owners of one topic before the last one whose position a subscriber remembers: those that compete.
FORMER_OWNERS_MAX: Final = 2
# How long a node holds at most what it publishes of a topic that is on its way to another owner: longer than
# a hand-over takes that fails and is withdrawn.
TOPIC_HOLD_S_MAX: Final = 30.0
# Held messages and bytes of one topic; beyond it `publish` waits. One second of a fast publisher.
TOPIC_HOLD_COUNT_MAX: Final = 20_000
TOPIC_HOLD_BYTES_MAX: Final = 16 * MIB
# Messages of others that reach the old owner meanwhile, and are forwarded: those on their way when nodes are
# told, and those of nodes that cannot be told. Beyond it they are refused.
TOPIC_FORWARD_COUNT_MAX: Final = 50_000
TOPIC_FORWARD_BYTES_MAX: Final = 32 * MIB
# The new owner opens the topic after this long, even if the old one has not said over their connection that
# it has closed it: the old one said so in the store before the hand-over could come so far.
TOPIC_CLOSING_S_MAX: Final = 1.0
# How long the old owner waits for a node that has taken a topic and does not announce it; then it is lost.
TOPIC_TAKEN_S_MAX: Final = 5.0
# How long the owners of a handed-over topic wait for nodes that have not switched and are not heard at all;
# for nodes that are heard and only slow they wait as long as messages are held.
TOPIC_FORWARD_S_MAX: Final = 5.0
# Peers that know no hand-overs may receive the old owner's removal last, and think that nobody owns the
# topic: this long after it the new owner announces the topic to them once more.
TOPIC_AGAIN_S: Final = 3.0
# How many topics a leaving node hands over at a time: each takes a few answers of the store,
DRAIN_AT_ONCE_COUNT: Final = 8
# and how long it takes for all of them, unless told otherwise; then the rest is destroyed.
DRAIN_S: Final = 10.0
# Messages and bytes of the new owner that arrive before the last ones of the old owner: they wait for these.
TOPIC_CROSSING_COUNT_MAX: Final = 20_000
TOPIC_CROSSING_BYTES_MAX: Final = 16 * MIB
# A publisher that never waits lets the loop run after this many messages: no local inbox fills up before.
PUBLISH_TURN_COUNT: Final = 256
# When no subscriber keeps up it lets the loop run this often: also for messages larger than several reads.
CROWDED_TURN_COUNT: Final = 8
# After a chunk with this many messages the readers have their turn before more is read.
RECEIVE_TURN_COUNT: Final = 256
# How long a survey waits for the slowest node, unless told otherwise.
SURVEY_S: Final = 1.0
# Of a PUB/SUB mesh: origins of topics whose last number a node knows, and topics whose count it keeps. Both
# hold all that a large mesh has; beyond it those that were silent longest start again.
ARRIVALS_MAX: Final = 262_144
DEPARTURES_MAX: Final = 65_536
# Of a PUB/SUB mesh: topics whose readers a node remembers; beyond it all are looked up again.
OPEN_FEEDS_MAX: Final = 65_536

# --- Control channels (gRPC) ------------------------------------------------------------------------------
# For one attempt to connect: a busy machine takes a while even on loopback.
CONTROL_CONNECT_S: Final = 2.0
# Between two attempts to connect: a server that was away is found again soon.
CONTROL_REDIAL_S_MAX: Final = 1.0

# --- The store --------------------------------------------------------------------------------------------
# How long a call waits for the store unless told otherwise: an election among its members fits in.
STORE_TIMEOUT_S: Final = 5.0
# A key is a path with a few names in it; it is kept once more in every index.
STORE_KEY_BYTES_MAX: Final = 4 * KIB
# Coordination data is small; larger blobs belong elsewhere, and a pointer to them here.
STORE_VALUE_BYTES_MAX: Final = MIB
# Compares, and operations of either branch, in one transaction: etcd's default.
STORE_TXN_COUNT_MAX: Final = 128
# All keys and values of one transaction: etcd's limit for a request, less its overhead around them.
STORE_TXN_BYTES_MAX: Final = MIB + 500 * KIB
# Revisions and bytes of the past that a memory store keeps; beyond either it forgets the older half.
STORE_HISTORY_COUNT_MAX: Final = 100_000
STORE_HISTORY_BYTES_MAX: Final = 256 * MIB
# The number of starts whose leaps a store remembers; it has forgotten those of earlier starts.
STORE_LEAPS_MAX: Final = 1_000
# Ten thousand members with several leases each.
STORE_LEASES_MAX: Final = 100_000
# A year: longer means for ever, and a key without a lease says that better.
STORE_LEASE_TTL_S_MAX: Final = 366.0 * 86_400
# If a lease ended this long ago and nobody looked, the store itself stood still.
STORE_STALL_S: Final = 1.0
# A thousand processes with a few dozen watchers each.
STORE_WATCHERS_MAX: Final = 65_536
# Events and bytes that wait for one watcher; a watcher with more is ended and told so.
STORE_WATCH_COUNT_MAX: Final = 10_000
STORE_WATCH_BYTES_MAX: Final = 64 * MIB
# Revisions of the past that a watcher looks through before the loop runs on.
STORE_WATCH_TURN_COUNT: Final = 1_000
# One try at one member of an etcd group: answers take milliseconds, and another member may be well.
STORE_TRY_S: Final = 1.0
# A try may be too short for a slow line: it is doubled after each round over all members, up to this often.
STORE_TRY_DOUBLINGS_MAX: Final = 3
# Between rounds over all members: an election takes a second or two, and all clients wait for it.
STORE_RETRY_S_MIN: Final = 0.05
STORE_RETRY_S_MAX: Final = 1.0
STORE_RETRY_JITTER: Final = 0.5
# Members of a group have one address each, and a group has at most a handful.
STORE_ENDPOINTS_MAX: Final = 64
# One answer of an etcd server, held in memory whole; larger scans are read in parts.
STORE_ANSWER_BYTES_MAX: Final = 64 * MIB
# Keys of one part of a scan. When they are too large for one answer, fewer: this many of any size fit.
STORE_SCAN_PART_COUNT: Final = 2_000
STORE_SCAN_PART_COUNT_MIN: Final = 32
# A quiet connection is asked for a sign of life after this time; etcd refuses clients that ask below 5 s.
STORE_PING_S: Final = 6.0
STORE_PING_TIMEOUT_S: Final = 2.0
# A quiet stream of watches is asked sooner, and dropped after as long again: its member may be frozen.
STORE_WATCH_BEAT_S: Final = 1.0
# How often the keeper of leases checks that the event loop still runs: a part of the shortest interval.
STORE_PULSE_S_MIN: Final = 0.05
STORE_PULSE_S_MAX: Final = 1.0
# All keys and values that a served store holds, without their past; beyond it puts are refused, as at etcd's.
STORE_LIVE_BYTES_MAX: Final = 2 * 1024 * MIB
# A served store changes less often than this, on average since it was started: each start begins at the
# machine's date in these units, and so beyond everything that earlier runs issued.
STORE_REVISIONS_PER_S_MAX: Final = 2**20
# A journal of this size, or of the last snapshot's size if that is more, is followed by a snapshot: it is
# replayed in a second or two, and snapshots cost no more than the journal does.
STORE_JOURNAL_BYTES: Final = 16 * MIB
# Bytes of records that wait for the disk; beyond it changes are refused. A disk writes them in a second.
STORE_UNFLUSHED_BYTES_MAX: Final = 64 * MIB
# How long after a flush the store marks beside the journal how far it is flushed: two more flushes a second.
STORE_MARK_S: Final = 0.5
# A request to a served store, with the overhead around its keys and values; larger ones end the call.
STORE_REQUEST_BYTES_MAX: Final = 2 * MIB
# Watchers of one stream; more of them are refused. Streams are as many as the store's watchers.
STORE_STREAM_WATCHERS_MAX: Final = 10_000
# Answers to watch requests that wait on one stream before no more requests are read from it.
STORE_STREAM_ANSWERS_MAX: Final = 1_000
# Events and bytes of one message of a watch: more wait for the next. A revision is split only on request.
STORE_MESSAGE_EVENTS: Final = 1_000
STORE_MESSAGE_BYTES: Final = MIB
# How often a quiet watcher that asked for it is told its progress. A compaction since then ends it, if it has
# to connect again.
STORE_PROGRESS_S: Final = 60.0
# How long a stopping server waits for calls to end by themselves.
STORE_GRACE_S: Final = 1.0
# A piece of a blob, small compared with a request: calls with a short deadline get past it on a slow line.
# Part of the format: another size makes stored blobs unreadable.
BLOB_PIECE_BYTES: Final = 256 * KIB
# All pieces of a blob are compared in one transaction.
BLOB_BYTES_MAX: Final = 16 * MIB
# Pieces in one answer, for the same reason.
BLOB_READ_COUNT: Final = 4
# Sixty-four pieces, one after the other, at the pace of a slow disk; and an election among them.
BLOB_TIMEOUT_S: Final = 30.0
# When a blob goes that nobody deletes: far longer than its references are open.
BLOB_LIFETIME_S: Final = 86_400.0
# Blobs that one sweep deletes, each in a transaction of its own: a second's work; the next sweep continues.
BLOBS_SWEPT_COUNT_MAX: Final = 100

# --- Membership -------------------------------------------------------------------------------------------
# A follower that lost its watch reads again: soon after a compaction, seldom while the store is away.
FOLLOW_RETRY_S_MIN: Final = 0.05
FOLLOW_RETRY_S_MAX: Final = 2.0
# Every other node reads what a node tells of itself; a thousand of them are still few MiB.
NODE_RECORD_BYTES_MAX: Final = 16 * KIB
# A renewal a second is little for a store, and five in a row are not lost by chance.
MEMBER_HEARTBEAT_INTERVAL_S: Final = 1.0
MEMBER_HEARTBEAT_TIMEOUT_S: Final = 5.0
# How many others each member watches: all are watched unless this many neighbours fail at once.
WATCHED_COUNT: Final = 3
# How often a commit is tried that others interfere with, before it fails.
COMMIT_TRIES_MAX: Final = 8
# Members that are down or left stay in the roster for an hour, for people to see; of too many, the oldest go.
GONE_MEMBER_S_MAX: Final = 3_600.0
GONE_MEMBERS_COUNT_MAX: Final = 256
# The farewell of a node that leaves; if the store does not hear it the lease ends by itself.
LEAVE_S_MAX: Final = 2.0
# Leases by which a node knows its own record; older ones ended long ago.
OWN_LEASES_MAX: Final = 16
# Events that a bridge keeps to tell them again, to nodes that subscribe late and when it takes over from
# another bridge: those of the last minutes. The oldest go first; readers drop what they know.
BRIDGE_COUNT_MAX: Final = 100
# How often, at least, a topic that another bridge owns is asked for, and new nodes are looked for.
BRIDGE_RETRY_S: Final = 2.0
BRIDGE_LOOK_S: Final = 0.25

# --- Coordination -----------------------------------------------------------------------------------------
# Names of locks, elections, nodes and the like, as bytes: a path with a handful of them fits one key.
COORDINATION_NAME_BYTES_MAX: Final = 200
# A session stops by itself this long before its lease can end: for a clock that runs slower than the store's.
SESSION_MARGIN_SHARE: Final = 0.1
# And not less than it takes to stop a body of work.
SESSION_MARGIN_S_MIN: Final = 0.2
# The margin of a short lease takes no more than this share of it.
SESSION_MARGIN_SHARE_MAX: Final = 1 / 3
# Lines in which a session remembers which key names are free: about 100 bytes each.
SESSION_FREE_LINES_COUNT_MAX: Final = 1_000
# How often a lease is renewed in its own time: two answers may be lost.
SESSION_RENEWALS_COUNT: Final = 3
# Holders of one semaphore: the next waiter watches them all.
SEMAPHORE_LIMIT_MAX: Final = 10_000
# Parties of one barrier: it opens for all of them in one transaction.
BARRIER_PARTIES_MAX: Final = 100
# How long a leave (of a line, a session) waits for the store to hear of it; the lease's end says it too.
FAREWELL_STORE_S_MAX: Final = 2.0
# The same while a loss is on its way to the caller, which must hear of the loss first.
LOSS_FAREWELL_S_MAX: Final = 0.2
# A key is watched by its owner once it was held for this long; one that is released before costs no watch.
GUARD_DELAY_S: Final = 0.05
# Guarded keys whose watches broke are read together with others that are due within this time.
GUARD_GATHER_S: Final = 0.05
# A hand-over, from the offer to its end: time to finish a piece of work, and to write how far it came.
HANDOVER_S: Final = 30.0
HANDOVER_S_MAX: Final = 3_600.0
# The participants may end it at its deadline; this long after it others end it.
HANDOVER_GRACE_S: Final = 2.0
# How long the record of an ended hand-over stays, for people to read; so many are swept at once.
HANDOVER_KEPT_S: Final = 86_400.0
HANDOVER_SWEEP_COUNT: Final = 100
# How often a process that may leave records behind looks for old ones: a sweep reads all there are.
HANDOVER_SWEEP_INTERVAL_S: Final = 3_600.0
# The size of a state in the record itself: all waiters in the line are told the record.
HANDOVER_INLINE_BYTES_MAX: Final = 8 * KIB
# Why something is handed over, or why not: a sentence or two.
HANDOVER_REASON_CHARS_MAX: Final = 500
# The hand-overs of a thing before the last one that its record summarizes.
HANDOVER_PAST_COUNT: Final = 8

# --- Assignment -------------------------------------------------------------------------------------------
# Partitions that move from working owners at a time: each pauses for some ten milliseconds, the others work.
ASSIGNMENT_MOVES_AT_ONCE: Final = 8
# How long after a join nothing moves for balance: processes are often started together.
ASSIGNMENT_JOIN_DELAY_S: Final = 1.0
# How often the leader checks though nothing has changed: a failed move is planned again then.
ASSIGNMENT_REBALANCE_S: Final = 30.0
# Ids of the resources of one partition: with short names they fit into one record, compressed.
ASSIGNMENT_RESOURCES_COUNT_MAX: Final = 10_000
# A handoff in its record: all who follow a group's handoffs read it. Larger ones are blobs.
HANDOFF_INLINE_BYTES_MAX: Final = 8 * KIB
# Below this compressing saves less than the overhead of a record.
HANDOFF_COMPRESSED_BYTES_MIN: Final = 512
# How long a save is tried again: an election of the store fits in, and it is less than a rebalance waits.
HANDOFF_SAVE_S: Final = 15.0
# How long handoffs stay after their last save: twice Kafka's default for messages.
HANDOFF_LIFETIME_S: Final = 14 * 86_400.0
# Handoffs deleted in one sweep, each in a transaction of its own; the next sweep continues.
HANDOFFS_SWEPT_COUNT_MAX: Final = 100

# Moves of a plan in one value: with long names and reasons it is a third full.
PLAN_PART_MOVES_COUNT: Final = 500
# Partitions that no worker may have, and moves that failed, in the head of a plan.
PLAN_UNPLACED_TOLD_COUNT: Final = 100
# Requests of a leader to the store at a time, for different partitions.
ASSIGNMENT_STEPS_AT_ONCE: Final = 32
# After a step was refused, because something had changed, it is decided again this long after without news.
ASSIGNMENT_LOOK_S: Final = 0.1
# How often a withdrawn move is offered again, with pauses that double; then the next check plans again.
ASSIGNMENT_MOVE_TRIES_COUNT: Final = 3
ASSIGNMENT_MOVE_RETRY_S: Final = 0.5

# How often a work's notes are saved: this much is done again after a crash.
WORK_SAVE_INTERVAL_S: Final = 5.0
# Works of one worker that are saved at a time: a slow one does not delay the others.
WORK_SAVES_AT_ONCE: Final = 8
# A work that ended by itself is given to its user again, with pauses that grow up to the second number.
WORK_AGAIN_S_MIN: Final = 0.1
WORK_AGAIN_S_MAX: Final = 10.0
# How often the leader of a group deletes old handoffs, about.
ASSIGNMENT_SWEEP_S: Final = 3_600.0

# --- Kafka groups -----------------------------------------------------------------------------------------
# Messages of a partition that wait for its work; a full queue pauses the partition, and takes one batch more.
KAFKA_WAITING_COUNT_MAX: Final = 1_000
# Messages that are taken from the client at a time.
KAFKA_BATCH_COUNT_MAX: Final = 500
# How long the client waits for a message: seeks and pauses wait for that. While some are due it is shorter.
KAFKA_RECEIVE_S: Final = 0.02
KAFKA_RECEIVE_S_MIN: Final = 0.002
# How often the client seeks a place before all messages up to it are read and dropped.
KAFKA_SEEKS_COUNT_MAX: Final = 3
# Pauses between tries to take a partition's entry.
KAFKA_TAKE_AGAIN_S_MIN: Final = 0.05
KAFKA_TAKE_AGAIN_S_MAX: Final = 5.0
# How long a rebalance waits for this member's works to end and for their handoffs; brokers wait five minutes.
KAFKA_REVOKE_S: Final = 60.0
# The share of the time that Kafka gives a member between two polls: it may be spent on one rebalance.
KAFKA_REVOKE_SHARE_MAX: Final = 0.8
# One question to the broker: about a group, an offset, a topic.
KAFKA_QUESTION_S: Final = 5.0
# How often the client reports answers of the broker that came too late.
KAFKA_STATISTICS_S: Final = 5.0
# The pause before a member asks, after a late answer, what the broker has assigned to it. It grows while
# there is no good answer.
KAFKA_LOOK_S_MIN: Final = 5.0
KAFKA_LOOK_S_MAX: Final = 300.0
# And all members of a large group together ask no more often than this in a second.
KAFKA_LOOKS_PER_S: Final = 10.0
# How often the offsets of saved work are committed to Kafka, where tools look for them.
KAFKA_COMMIT_INTERVAL_S: Final = 5.0

# --- A Kafka broker for development -----------------------------------------------------------------------
# Fetching 43 MB of jars, and what Maven itself needs; minutes over a slow line.
KAFKA_FETCH_S_MAX: Final = 900.0
# `java -version` takes 0.1 s; formatting a folder takes a second, on a busy machine ten.
KAFKA_TOOL_S_MAX: Final = 60.0
# From the start of the process to its first answer: two seconds, on a busy machine twenty.
KAFKA_START_S_MAX: Final = 90.0
# A broker that is asked to end writes its logs first; then it is killed, and recovers at the next start.
KAFKA_STOP_S_MAX: Final = 15.0
# One question to a broker that may not listen yet.
KAFKA_ASK_S_MAX: Final = 1.0
# Its answer about itself: one broker, no topics.
KAFKA_ANSWER_BYTES_MAX: Final = 4 * KIB
# The end of its log in an error's text.
KAFKA_LOG_TAIL_BYTES: Final = 8 * KIB

# --- Raft groups ------------------------------------------------------------------------------------------
# Voters and learners of one group. More make each write slower and no failure likelier to be survived.
RAFT_PEERS_MAX: Final = 7
# Names of applications and peers: they become parts of keys, file names and arguments.
RAFT_NAME_CHARS_MAX: Final = 64
# Zone, roles and metadata of one peer, as JSON; the record of a full group stays far below a store's value.
RAFT_PEER_NOTES_BYTES_MAX: Final = 16 * KIB
# A question to a peer about joining, or its answer: the record of a full group, twice.
RAFT_MESSAGE_BYTES_MAX: Final = 512 * KIB
# From a member that ended to its next start: soon for a crash, seldom for one that cannot start at all.
RAFT_RESTART_S_MIN: Final = 0.1
RAFT_RESTART_S_MAX: Final = 10.0
RAFT_RESTART_JITTER: Final = 0.2
# A member that ran this long has recovered: its next end counts from one again.
RAFT_STABLE_S: Final = 30.0
# Ends in a row: this many are no accident. A member that was never ready is given up then, others reported.
RAFT_CRASHES_MAX: Final = 5
# A leader that is asked to end hands over first, for an election timeout or two; then it is killed.
RAFT_STOP_S_MAX: Final = 10.0
# The member's log on disk; beyond it the file starts again, and the one before is kept as well.
RAFT_LOG_BYTES_MAX: Final = 8 * MIB
# The end of the log in a report of a crash: the reason is a few long lines before the last one.
RAFT_LOG_TAIL_BYTES: Final = 8 * KIB
# How often a peer looks at its member, and the leader's peer at requests: a change is seen in one look.
RAFT_LOOK_S: Final = 0.5
# How often it reads the member's own measures (snapshots); reading them costs the member milliseconds.
RAFT_MEASURE_S: Final = 5.0
# The measures of a member, as text: today's are 100 KiB.
RAFT_MEASURES_BYTES_MAX: Final = 4 * MIB
# One question to one member: an answer takes milliseconds, or two of its election timeouts.
RAFT_CALL_S_MAX: Final = 3.0
# The longest time that a group's settings may give to one question; etcd's longest election is shorter.
RAFT_CALL_S_LIMIT: Final = 60.0
# A peer that does not answer in this time is away.
RAFT_REACH_S_MAX: Final = 1.0
# How long a group may take to become healthy (a restart, an election) before a request is refused.
RAFT_HEALTH_PATIENCE_S: Final = 10.0
# A request to join, from its record to its last step; then all of it is undone.
RAFT_JOIN_TIMEOUT_S: Final = 120.0
# How long a request that needs a person's approval waits for it; then it expires.
RAFT_APPROVAL_TIMEOUT_S: Final = 3600.0
# Why a person refuses a peer: a sentence or two, which the peer's log shows.
RAFT_REASON_CHARS_MAX: Final = 500
# How long a refusal can be read.
RAFT_REFUSAL_S: Final = 15.0
# Requests to join one group that wait at a time; they are taken one after the other.
RAFT_REQUESTS_MAX: Final = 16
# Questions about a group (status, waiting joins) that one peer answers at a time; more ask again later.
RAFT_ASKS_MAX: Final = 256
# Redirects that a question follows: the leader may change once or twice meanwhile, not for ever.
RAFT_REDIRECTS_MAX: Final = 5
# One answer to a question that waits (is it accepted? is it done?); then it is asked again.
RAFT_POLL_S_MAX: Final = 5.0
# etcd changes a group only when its members have been connected for 5 s; it may refuse this long, and a bit.
RAFT_DENIAL_S: Final = 15.0
# How often a store of a group checks with one read that the members it knows are still there; while they are
# not, how often it asks the group's peers for others.
RAFT_SEEK_S_MIN: Final = 0.5
RAFT_SEEK_S_MAX: Final = 10.0
# How long starting waits for the group to have a leader: the others may still be starting.
RAFT_START_S_MAX: Final = 60.0
