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
# Per peer. One largest frame fits; a thousand slow peers are still the operator's to size.
OUTGOING_BYTES_MAX: Final = 64 * 1024 * 1024
# Per peer. Tiny messages cost objects, not bytes.
OUTGOING_COUNT_MAX: Final = 100_000
# Per socket. A full inbox pauses reading, so the number sets memory and not loss.
INCOMING_COUNT_MAX: Final = 10_000
INCOMING_BYTES_MAX: Final = 64 * 1024 * 1024
# What one peer's full buffer still takes of messages that keep the two in step (who owns what, who is
# subscribed, that a provider is busy): all topics of a node once over; a peer that lets even these wait is
# expelled.
CONTROL_COUNT_MAX: Final = 100_000
CONTROL_BYTES_MAX: Final = 64 * 1024 * 1024
# Read at once: what stays in a core's cache while it is parsed.
READ_BYTES: Final = 64 * 1024
# Events nobody reads: the oldest go first, counted.
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

# Removed entries that a registry still speaks of, so that nobody brings them back: a rolling restart of half
# of what one list can hold.
TOMBSTONES_MAX: Final = 10_000
# Entries of one connection at a registry, and so names; of what it removed as many are remembered. Large
# providers have hundreds of services; one that asks for more leaves room for nineteen like it.
PROVIDER_ENTRIES_MAX: Final = 1_000

# --- Services ---------------------------------------------------------------------------------------------
# Messages a peer may send that mean nothing before its connection is ended: more than a bug sends in passing.
STRIKES_MAX: Final = 100
# Heartbeats within a registry's timeout: two may be lost or late, and the entry stays.
BEATS_PER_TIMEOUT: Final = 3
# A registry that wants to hear from each entry more often than this is not obeyed.
BEAT_S_MIN: Final = 0.02
# A registry tells its list every so often even if nothing changed; three missed and it is not heard any more.
BROADCAST_INTERVAL_S: Final = 30.0
BROADCASTS_MISSED_MAX: Final = 3
# Providers date what they say. Clocks are seconds apart, a forgotten time zone is hours; beyond a day a clock
# is simply wrong, and what it dates would stand against everything that is said before that day comes.
EPOCH_AHEAD_S_MAX: Final = 86_400
# How often in a row a provider steps over what a registry knows; once is enough, unless two of one id fight.
BEHIND_MAX: Final = 3
# A registry that changes waits before it tells the next list: long enough for a burst to be one list, longer
# the longer the list is, so that telling it takes a small share of the time, and never longer than a second.
BROADCAST_PAUSE_S_MIN: Final = 0.02
BROADCAST_PAUSE_S_PER_ENTRY: Final = 50e-6
BROADCAST_PAUSE_S_MAX: Final = 1.0
# Registries that one registry follows. A cluster has three or five; one that restarts counts twice a while.
# As many that broke off a discovery believes for a while longer.
REGISTRIES_MAX: Final = 64
# A discovery believes a registry whose connection broke so long, the longest pause of a provider between two
# registries: who registered there last, and whom nobody else knows yet, has then moved to the next one.
REGISTRY_GRACE_S: Final = 5.0
# Registries that a discovery no longer hears and whose last number it still knows, oldest forgotten first:
# more restarts under new ids than anybody makes while such a number matters.
REGISTRIES_REMEMBERED_MAX: Final = 1_024
# How long a call waits for its reply unless told otherwise.
REQUEST_TIMEOUT_S: Final = 5.0
# One try of a request is given this long at least before another provider is asked, too: long enough for a
# collection of garbage or a busy core on either side.
TRY_S_MIN: Final = 0.1
# How often requests that could not be sent twice are looked at again.
HEDGE_LOOK_S: Final = 0.05
# Requests of one service that may be sent twice in a burst (what is with a provider when it stops), the share
# of its requests in the long run, and so many a second where there are few requests.
HEDGES_COUNT_MAX: Final = 100
HEDGE_SHARE: Final = 0.1
HEDGES_PER_S: Final = 1.0
# A provider that let a try's time pass gets no requests for this long, twice as long each time, unless it
# answers something before. Each time a few requests pay for finding out.
SUSPICION_S_MIN: Final = 1.0
SUSPICION_S_MAX: Final = 8.0
# Per gateway: requests without an outcome, and completions nobody has taken. Callers wait beyond it.
IN_FLIGHT_MAX: Final = 10_000

# --- Threads ----------------------------------------------------------------------------------------------
# How late Ctrl-C may end a wait that it did not wake; while the main thread waits it looks so often.
SIGNAL_LOOK_S: Final = 0.1

# --- Providers --------------------------------------------------------------------------------------------
# Requests of one provider that run at once: enough for handlers that wait for something else.
CONCURRENCY_MAX: Final = 1_000
# Requests that wait for their turn; beyond it a provider says busy, and the caller tries another.
WAITING_MAX: Final = 10_000
# The same in bytes, as one socket's inbox: what waits is held in memory whole.
WAITING_BYTES_MAX: Final = 64 * 1024 * 1024
# What waits past its deadline is looked for only so often: looking costs a walk over all that waits.
WAITING_SWEEP_S: Final = 0.05
# Handlers that are plain functions: more threads only fight for the interpreter.
THREADS_MAX: Final = 8
# A caller that does not read holds a handler's slot this long, and no longer: then its connection ends.
REPLY_S_MAX: Final = 5.0
# A registry answers within a round trip; one that is silent for this long is as good as gone.
REGISTRY_ANSWER_S_MAX: Final = 2.0
# Between tries to reach a registry, each plus or minus the jitter's share; the specification's numbers.
FAILOVER_S_MIN: Final = 0.2
FAILOVER_S_MAX: Final = 5.0
FAILOVER_JITTER: Final = 0.2
# A registry that lost its entries hears from all its providers at once: they spread over this time.
REREGISTER_S_MAX: Final = 1.0
# So long a registry that was stopped says nothing: who lives and is still connected has come back by then.
WAKING_S: Final = REREGISTER_S_MAX + 0.5
# After a failover callers may be waiting for the entry: spread, but not for long.
RETURN_S_MAX: Final = 0.2
# How long registering waits for a registry's word, unless told otherwise.
REGISTER_TIMEOUT_S: Final = 5.0
# A provider that closes takes its entries back, if a registry answers within this time.
FAREWELL_S_MAX: Final = 1.0
# Services that a provider offers no more and whose last answer it can still tell; the oldest go first.
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
# Every peer is asked again so often what it owns, in case something was missed.
QUERY_INTERVAL_S: Final = 30.0
# A listed node that has not told its topics after this time is not waited for.
JOIN_S_MAX: Final = 2.0
# A peer that has connected and said nothing is not waited for longer than this: nodes ask at once.
SILENT_PEER_S: Final = 0.5
# It is no node if it still has said nothing after this time, a pause of its process included,
STRANGER_S: Final = 10.0
# and is tried again after this one, because somebody else may have its place by then.
STRANGER_REST_S: Final = 60.0
# A connected node that is listed no more is let go when it has said nothing for so long: it may be closing,
PARTING_S: Final = 0.5
# for which it has its linger and no longer.
PARTING_S_MAX: Final = LINGER_S
# One that dialled us and was never listed: two broadcasts of every registry, which tell the whole list.
UNLISTED_S_MAX: Final = 60.0
# Peers that were let go and that a node remembers: more than a mesh has nodes.
LET_GO_MAX: Final = 4_096
# So long the topics of a node that was killed stay claimed in a store.
CLAIM_TTL_S: Final = 10.0
# How often an owner looks whether a peer that missed messages has room again to be told so.
LAGGING_S: Final = 0.1
# Topics of lost owners that patterns still remember, to say how much was missed if they return.
FORMER_TOPICS_MAX: Final = 10_000
# Owners of one topic, before the last one, of which a subscriber knows how far they were: those that compete.
FORMER_OWNERS_MAX: Final = 2
# What a node publishes of a topic that is on its way to another owner is held for so long at most: longer
# than a hand-over takes that goes wrong, and is withdrawn.
TOPIC_HOLD_S_MAX: Final = 30.0
# Held messages and bytes of one topic; beyond it `publish` waits. A second of a fast publisher's.
TOPIC_HOLD_COUNT_MAX: Final = 20_000
TOPIC_HOLD_BYTES_MAX: Final = 16 * MIB
# Messages of others that reach the old owner meanwhile, and are forwarded: what is on its way when they are
# told, and of nodes that cannot be told. Beyond it they are refused.
TOPIC_FORWARD_COUNT_MAX: Final = 50_000
TOPIC_FORWARD_BYTES_MAX: Final = 32 * MIB
# The new owner opens the topic after so long, though the old one has not said over their connection that it
# has closed it: it said so before the hand-over could come so far.
TOPIC_CLOSING_S_MAX: Final = 1.0
# One that has taken a topic and does not announce it is waited for so long by the old owner; then it is lost.
TOPIC_TAKEN_S_MAX: Final = 5.0
# When a topic was handed over, the owners wait so long for nodes that have not switched and are not heard at
# all; for who is heard and only slow, as long as messages are held.
TOPIC_FORWARD_S_MAX: Final = 5.0
# Peers that know nothing of hand-overs may hear the old owner's removal last, and take it for everybody's: so
# long after it the new owner announces the topic to them once more.
TOPIC_AGAIN_S: Final = 3.0
# A node that leaves hands so many topics over at a time: each takes a few answers of the store,
DRAIN_AT_ONCE_COUNT: Final = 8
# and all of them so long, unless told otherwise; what is left then is destroyed.
DRAIN_S: Final = 10.0
# Messages and bytes that come from the new owner before the last ones of the old owner: they wait for these.
TOPIC_CROSSING_COUNT_MAX: Final = 20_000
TOPIC_CROSSING_BYTES_MAX: Final = 16 * MIB
# A publisher that never waits lets the loop run after so many messages: no local inbox fills up before.
PUBLISH_TURN_COUNT: Final = 256
# When nobody keeps up it lets the loop run so often: for messages of several reads' size, too.
CROWDED_TURN_COUNT: Final = 8
# After a chunk of so many messages the readers have their turn before more is read.
RECEIVE_TURN_COUNT: Final = 256
# How long a survey waits for the slowest node, unless told otherwise.
SURVEY_S: Final = 1.0
# Of a PUB/SUB mesh: origins of topics whose last number a node knows, and topics whose count it keeps. Both
# hold all that a large mesh has; beyond it those that were silent longest begin anew.
ARRIVALS_MAX: Final = 262_144
DEPARTURES_MAX: Final = 65_536
# Of a PUB/SUB mesh: topics of which a node remembers whom they go to; beyond it all are looked up anew.
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
# What is coordinated is small; larger blobs belong elsewhere, and a pointer to them here.
STORE_VALUE_BYTES_MAX: Final = MIB
# Compares, and operations of either branch, in one transaction: as etcd takes unless it is told otherwise.
STORE_TXN_COUNT_MAX: Final = 128
# All keys and values of one transaction: as etcd takes in a request, less its own few words around them.
STORE_TXN_BYTES_MAX: Final = MIB + 500 * KIB
# Revisions and bytes of the past that a memory store keeps; beyond either it forgets the older half.
STORE_HISTORY_COUNT_MAX: Final = 100_000
STORE_HISTORY_BYTES_MAX: Final = 256 * MIB
# Of so many starts a store knows which revisions they leapt over; of those before them it has forgotten it.
STORE_LEAPS_MAX: Final = 1_000
# Ten thousand members with several leases each.
STORE_LEASES_MAX: Final = 100_000
# A year: longer is for ever, and a key without a lease says that better.
STORE_LEASE_TTL_S_MAX: Final = 366.0 * 86_400
# A lease that ended so long ago and was not looked at: the store itself stood still.
STORE_STALL_S: Final = 1.0
# A thousand processes with a few dozen watchers each.
STORE_WATCHERS_MAX: Final = 65_536
# Events and bytes that wait for one watcher; one that lets more wait is ended and told so.
STORE_WATCH_COUNT_MAX: Final = 10_000
STORE_WATCH_BYTES_MAX: Final = 64 * MIB
# Revisions of the past that a watcher looks through before the loop runs on.
STORE_WATCH_TURN_COUNT: Final = 1_000
# One try at one member of an etcd group: answers take milliseconds, and another member may be well.
STORE_TRY_S: Final = 1.0
# A try may be too short for a slow line: it is doubled after each round over all members, so often.
STORE_TRY_DOUBLINGS_MAX: Final = 3
# Between rounds over all members: an election takes a second or two, and all clients wait for it.
STORE_RETRY_S_MIN: Final = 0.05
STORE_RETRY_S_MAX: Final = 1.0
STORE_RETRY_JITTER: Final = 0.5
# Members of a group have one address each, and a group has at most a handful.
STORE_ENDPOINTS_MAX: Final = 64
# One answer of an etcd server, held in memory whole; larger scans are read in parts.
STORE_ANSWER_BYTES_MAX: Final = 64 * MIB
# Keys of one part of a scan. When they are too large for one answer, fewer: so few of any size fit.
STORE_SCAN_PART_COUNT: Final = 2_000
STORE_SCAN_PART_COUNT_MIN: Final = 32
# A quiet connection is asked for a sign of life after so long; etcd refuses clients that ask below 5 s.
STORE_PING_S: Final = 6.0
STORE_PING_TIMEOUT_S: Final = 2.0
# A quiet stream of watches is asked sooner, and given up after as long again: its member may be frozen.
STORE_WATCH_BEAT_S: Final = 1.0
# How often who keeps leases looks whether the event loop still runs: a part of the shortest interval, within.
STORE_PULSE_S_MIN: Final = 0.05
STORE_PULSE_S_MAX: Final = 1.0
# All keys and values that a served store holds, without their past; beyond it puts are refused, as at etcd's.
STORE_LIVE_BYTES_MAX: Final = 2 * 1024 * MIB
# A served store changes less often than this, on an average since it was started: each start begins at the
# machine's date in these units, and so beyond all that any run before it issued.
STORE_REVISIONS_PER_S_MAX: Final = 2**20
# A journal of so many bytes, or of the last snapshot's size if that is more, is followed by a snapshot: it is
# replayed in a second or two, and snapshots cost no more than the journal does.
STORE_JOURNAL_BYTES: Final = 16 * MIB
# Bytes of records that wait for the disk; beyond it changes are refused. A disk writes them in a second.
STORE_UNFLUSHED_BYTES_MAX: Final = 64 * MIB
# So long after a flush the store marks beside the journal how far it is flushed: two more flushes a second.
STORE_MARK_S: Final = 0.5
# A request to a served store, with the words around its keys and values; larger ones end the call.
STORE_REQUEST_BYTES_MAX: Final = 2 * MIB
# Watchers of one stream; more of them are refused. Streams are as many as the store's watchers.
STORE_STREAM_WATCHERS_MAX: Final = 10_000
# Answers to watch requests that wait on one stream before no more requests are read from it.
STORE_STREAM_ANSWERS_MAX: Final = 1_000
# Events and bytes of one message of a watch: more wait for the next. A revision is split only where asked.
STORE_MESSAGE_EVENTS: Final = 1_000
STORE_MESSAGE_BYTES: Final = MIB
# How often a quiet watcher that asked for it is told how far it is. A compaction since then ends it, if it
# has to connect anew.
STORE_PROGRESS_S: Final = 60.0
# How long a stopping server waits for calls to end by themselves.
STORE_GRACE_S: Final = 1.0
# A piece of a blob, small beside a request: what has a short deadline gets past it on a slow line.
# Part of the form: another size makes stored blobs unreadable.
BLOB_PIECE_BYTES: Final = 256 * KIB
# All pieces of a blob are compared in one transaction.
BLOB_BYTES_MAX: Final = 16 * MIB
# Pieces in one answer, for the same reason.
BLOB_READ_COUNT: Final = 4
# Sixty-four pieces, one after the other, at the pace of a slow disk; and an election among them.
BLOB_TIMEOUT_S: Final = 30.0
# A blob that nobody deletes goes after so long: far longer than what refers to it is open.
BLOB_LIFETIME_S: Final = 86_400.0
# Blobs that one sweep deletes, each in a transaction of its own: a second's work; the next sweep goes on.
BLOBS_SWEPT_COUNT_MAX: Final = 100

# --- Membership -------------------------------------------------------------------------------------------
# A follower that lost its watch reads anew: soon after a compaction, seldom while the store is away.
FOLLOW_RETRY_S_MIN: Final = 0.05
FOLLOW_RETRY_S_MAX: Final = 2.0
# What a node tells of itself is read by every other one; a thousand of them are still few MiB.
NODE_RECORD_BYTES_MAX: Final = 16 * KIB
# A renewal a second is little for a store, and five in a row are not lost by chance.
MEMBER_HEARTBEAT_INTERVAL_S: Final = 1.0
MEMBER_HEARTBEAT_TIMEOUT_S: Final = 5.0
# Each member looks after so many others: all are looked after unless as many neighbours fall at once.
WATCHED_COUNT: Final = 3
# A commit that others get in the way of is tried so often before they are said to be too many.
COMMIT_TRIES_MAX: Final = 8
# Members that are down or left stay in the roster, for people to see: an hour; of more, the oldest go.
GONE_MEMBER_S_MAX: Final = 3_600.0
GONE_MEMBERS_COUNT_MAX: Final = 256
# The last words of a node that leaves; if the store does not hear them the lease ends by itself.
LEAVE_S_MAX: Final = 2.0
# Leases by which a node knows its own record; older ones ended long ago.
OWN_LEASES_MAX: Final = 16
# Events that a bridge holds to tell them again, to nodes that subscribe late and when it takes over from
# another bridge: those of the last minutes. The oldest go first; readers drop what they know.
BRIDGE_COUNT_MAX: Final = 100
# A topic that another bridge owns is asked for so often, at least; and so often it is looked who is new.
BRIDGE_RETRY_S: Final = 2.0
BRIDGE_LOOK_S: Final = 0.25

# --- Coordination -----------------------------------------------------------------------------------------
# Names of locks, elections, nodes and the like, as bytes: a path with a handful of them fits one key.
COORDINATION_NAME_BYTES_MAX: Final = 200
# A session stops by itself so long before its lease can end: for a clock that runs slower than the store's.
SESSION_MARGIN_SHARE: Final = 0.1
# And not less than it takes to stop a body of work.
SESSION_MARGIN_S_MIN: Final = 0.2
# Of short leases the margin leaves this much at least to live in.
SESSION_MARGIN_SHARE_MAX: Final = 1 / 3
# A lease is renewed so many times in its own time: two answers may be lost.
SESSION_RENEWALS_COUNT: Final = 3
# Holders of one semaphore: whoever is next watches them all.
SEMAPHORE_LIMIT_MAX: Final = 10_000
# Parties of one barrier: it opens for all of them in one transaction.
BARRIER_PARTIES_MAX: Final = 100
# How long who leaves (a line, a session) waits for the store to hear of it; the lease's end says it too.
FAREWELL_STORE_S_MAX: Final = 2.0
# The same while a loss is on its way to the caller, which must hear of it first of all.
LOSS_FAREWELL_S_MAX: Final = 0.2
# A key is watched by its owner once it was held for so long; what is released before costs no watch.
GUARD_DELAY_S: Final = 0.05
# Guarded keys whose watches broke are read together with those that are due so soon after them.
GUARD_GATHER_S: Final = 0.05
# A hand-over, from the offer to its end: time to finish a piece of work, and to write down how far it came.
HANDOVER_S: Final = 30.0
HANDOVER_S_MAX: Final = 3_600.0
# Those who take part have the first word at its deadline; so long after it others end it.
HANDOVER_GRACE_S: Final = 2.0
# The record of one that ended is there to be read for a day; so many are swept at once.
HANDOVER_KEPT_S: Final = 86_400.0
HANDOVER_SWEEP_COUNT: Final = 100
# Who may leave records behind looks so often for old ones: a sweep reads all there are.
HANDOVER_SWEEP_INTERVAL_S: Final = 3_600.0
# What is handed on, in the record itself: all who wait in the line are told of it.
HANDOVER_INLINE_BYTES_MAX: Final = 8 * KIB
# Why something is handed over, or why not: a sentence or two.
HANDOVER_REASON_CHARS_MAX: Final = 500
# The hand-overs of a thing before the last one that its record tells of.
HANDOVER_PAST_COUNT: Final = 8

# --- Assignment -------------------------------------------------------------------------------------------
# Partitions that move from working owners at a time: each pauses for some ten milliseconds, the others work.
ASSIGNMENT_MOVES_AT_ONCE: Final = 8
# After a join nothing moves for so long for the sake of balance: processes are often started together.
ASSIGNMENT_JOIN_DELAY_S: Final = 1.0
# How often the leader looks again, though nothing has changed: a move that failed is planned anew then.
ASSIGNMENT_REBALANCE_S: Final = 30.0
# Ids of what belongs to one partition: with short names they fit into one record, compressed.
ASSIGNMENT_RESOURCES_COUNT_MAX: Final = 10_000
# A handoff in its record: all who follow a group's handoffs read it. Larger ones are blobs.
HANDOFF_INLINE_BYTES_MAX: Final = 8 * KIB
# Below this compressing saves less than the words around a record take.
HANDOFF_COMPRESSED_BYTES_MIN: Final = 512
# A save is tried again for so long: an election of the store fits in, and less than a rebalance waits.
HANDOFF_SAVE_S: Final = 15.0
# Handoffs stay so long after their last save: twice what Kafka keeps messages unless told otherwise.
HANDOFF_LIFETIME_S: Final = 14 * 86_400.0
# Deleted in one sweep, each in a transaction of its own; the next sweep goes on.
HANDOFFS_SWEPT_COUNT_MAX: Final = 100

# Moves of a plan that stand in one value: with long names and reasons it is a third full.
PLAN_PART_MOVES_COUNT: Final = 500
# Partitions that nobody may have, and moves that failed, of which the head of a plan tells.
PLAN_UNPLACED_TOLD_COUNT: Final = 100
# What a leader asks of the store at a time, for different partitions.
ASSIGNMENT_STEPS_AT_ONCE: Final = 32
# A step that was refused, because something had changed, is decided on anew after so long without any news.
ASSIGNMENT_LOOK_S: Final = 0.1
# How often a withdrawn move is offered again, with pauses that double; then the next check plans anew.
ASSIGNMENT_MOVE_TRIES_COUNT: Final = 3
ASSIGNMENT_MOVE_RETRY_S: Final = 0.5

# How often what was noted of a work is saved: so much is done again after a crash.
WORK_SAVE_INTERVAL_S: Final = 5.0
# Works of one worker that are saved at a time: one that is slow does not hold the others up.
WORK_SAVES_AT_ONCE: Final = 8
# A work that ended by itself is given to its user again, with pauses that grow up to the second.
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
# How often the client is sent to a place before all that lies before it is read and dropped.
KAFKA_SEEKS_COUNT_MAX: Final = 3
# Pauses between tries to take a partition's entry.
KAFKA_TAKE_AGAIN_S_MIN: Final = 0.05
KAFKA_TAKE_AGAIN_S_MAX: Final = 5.0
# A rebalance waits so long for this member's works to end and for their handoffs; brokers wait five minutes.
KAFKA_REVOKE_S: Final = 60.0
# Of the time that Kafka gives a member between two polls: what may be spent on one rebalance.
KAFKA_REVOKE_SHARE_MAX: Final = 0.8
# One question to the broker: about a group, an offset, a topic.
KAFKA_QUESTION_S: Final = 5.0
# How often the client tells of answers that came too late, and how soon and how often after one a member asks
# what the broker has assigned to it; all members of a large group together not more often than so.
KAFKA_STATISTICS_S: Final = 5.0
KAFKA_LOOK_S_MIN: Final = 5.0
KAFKA_LOOK_S_MAX: Final = 300.0
KAFKA_LOOKS_PER_S: Final = 10.0
# How often the offsets of what was saved are committed to Kafka, where tools look for them.
KAFKA_COMMIT_INTERVAL_S: Final = 5.0

# --- A Kafka broker for development -----------------------------------------------------------------------
# Fetching 43 MB of jars, and what Maven itself needs; minutes over a slow line.
KAFKA_FETCH_S_MAX: Final = 900.0
# `java -version` takes 0.1 s; formatting a folder takes a second, on a busy machine ten.
KAFKA_TOOL_S_MAX: Final = 60.0
# From the start of the process to its first answer: two seconds, on a busy machine twenty.
KAFKA_START_S_MAX: Final = 90.0
# A broker that is asked to end writes its logs out first; then it is killed, and recovers at the next start.
KAFKA_STOP_S_MAX: Final = 15.0
# One question to a broker that may not listen yet.
KAFKA_ASK_S_MAX: Final = 1.0
# What it answers about itself: one broker, no topics.
KAFKA_ANSWER_BYTES_MAX: Final = 4 * KIB
# The end of its log that an error tells.
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
# One that ran so long has recovered: its next end counts from one again.
RAFT_STABLE_S: Final = 30.0
# Ends in a row: so many are no accident. Before it was ever ready it is given up then, later only reported.
RAFT_CRASHES_MAX: Final = 5
# A leader that is asked to end hands over first, for an election timeout or two; then it is killed.
RAFT_STOP_S_MAX: Final = 10.0
# The member's log on disk; beyond it the file starts anew, and the one before is kept as well.
RAFT_LOG_BYTES_MAX: Final = 8 * MIB
# What a report of a crash is made of: the reason stands a few long lines before the last one.
RAFT_LOG_TAIL_BYTES: Final = 8 * KIB
# How often a peer looks at its member, and the leader's at the requests: a change is seen within one look.
RAFT_LOOK_S: Final = 0.5
# How often it reads the member's own measures (snapshots); reading them costs the member milliseconds.
RAFT_MEASURE_S: Final = 5.0
# The measures of a member, as text: today's are 100 KiB.
RAFT_MEASURES_BYTES_MAX: Final = 4 * MIB
# One question to one member: an answer takes milliseconds, or two of its election timeouts.
RAFT_CALL_S_MAX: Final = 3.0
# The longest that a group's settings may give to one question; etcd's longest election is shorter.
RAFT_CALL_S_LIMIT: Final = 60.0
# A peer that does not answer in this time is away.
RAFT_REACH_S_MAX: Final = 1.0
# A group that is not healthy gets so long to become so (a restart, an election) before a request is refused.
RAFT_HEALTH_PATIENCE_S: Final = 10.0
# A request to join, from its record to its last step; then all of it is undone.
RAFT_JOIN_TIMEOUT_S: Final = 120.0
# A request that needs a person's approval waits so long for it; then it expires.
RAFT_APPROVAL_TIMEOUT_S: Final = 3600.0
# Why a person refuses a peer: a sentence or two, which the peer's log shows.
RAFT_REASON_CHARS_MAX: Final = 500
# A refusal is there to be read for so long.
RAFT_REFUSAL_S: Final = 15.0
# Requests to join one group that wait at a time; they are taken one after the other.
RAFT_REQUESTS_MAX: Final = 16
# Questions about a group (status, joins that wait) that one peer answers at a time; more come again later.
RAFT_ASKS_MAX: Final = 256
# Redirects that a question follows: the leader may change once or twice meanwhile, not for ever.
RAFT_REDIRECTS_MAX: Final = 5
# One answer to a question that waits (is it accepted? is it done?); then it is asked again.
RAFT_POLL_S_MAX: Final = 5.0
# etcd changes a group only when its members have been connected for 5 s; so long it may say no, and a bit.
RAFT_DENIAL_S: Final = 15.0
# How often a store of a group makes sure that the members it knows are still there, with one read; while they
# are not, how often it asks the group's peers for others.
RAFT_SEEK_S_MIN: Final = 0.5
RAFT_SEEK_S_MAX: Final = 10.0
# How long starting waits for the group to have a leader: the others may still be starting.
RAFT_START_S_MAX: Final = 60.0
