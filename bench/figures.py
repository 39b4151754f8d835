"""What the kinds measure by name: in words, and how each number is shown."""

from collections.abc import Callable
from dataclasses import dataclass

from bench.units import bytes_text, count_text, rate_text, share_text, three, time_text


def _seconds_text(seconds: float) -> str:
    return time_text(seconds * 1e6)


@dataclass(frozen=True, slots=True, kw_only=True)
class Figure:
    """One named number."""

    title: str
    show: Callable[[float], str]
    is_headline: bool = False
    """Whether it is shown while the benchmark runs."""


SCALE_FIGURES = {
    "connections": Figure(title="connections", show=count_text),
    "broadcast_bytes": Figure(title="bytes a list", show=bytes_text),
    "broadcast_cpu_us": Figure(title="registry CPU, a list told again", show=time_text),
    "weight_cpu_us": Figure(
        title="registry CPU, a new weight and its list", show=time_text, is_headline=True
    ),
    "register_cpu_us": Figure(title="registry CPU, a new provider and its list", show=time_text),
    "burst_cpu_us": Figure(title="registry CPU, a new weight of a burst of 1,000", show=time_text),
    "burst_broadcasts": Figure(title="lists told for the burst", show=count_text),
    "burst_s": Figure(title="until a discovery has the whole burst", show=_seconds_text),
    "heartbeat_cpu_us": Figure(title="registry CPU, a heartbeat", show=time_text),
    "steady_cpu_share": Figure(title="registry, share of a core with all heartbeats", show=share_text),
    "weight_delay_us": Figure(title="until a discovery has a new weight, p50", show=time_text),
    "register_delay_us": Figure(title="until a discovery has a new provider, p50", show=time_text),
    "weight_delay_us_max": Figure(title="until a discovery has a new weight, slowest", show=time_text),
    "register_delay_us_max": Figure(title="until a discovery has a new provider, slowest", show=time_text),
    "list_cpu_us": Figure(title="discovery CPU, a list that is the same", show=time_text),
    "weight_list_cpu_us": Figure(title="discovery CPU, a list with a new weight", show=time_text),
    "register_list_cpu_us": Figure(title="discovery CPU, a list with a new provider", show=time_text),
    "registry_bytes": Figure(title="registry memory a provider", show=bytes_text),
    "join_s": Figure(title="all connect and register", show=_seconds_text),
    "join_cpu_us": Figure(title="registry CPU for it, a provider", show=time_text),
    "join_broadcasts": Figure(title="lists told meanwhile", show=count_text),
    "restart_s": Figure(
        title="restart: until a discovery has all again", show=_seconds_text, is_headline=True
    ),
    "restart_registered_s": Figure(title="restart: until all are registered", show=_seconds_text),
    "restart_cpu_s": Figure(title="restart: registry CPU", show=_seconds_text),
    "restart_cpu_share_max": Figure(title="restart: most of a core in 0.2 s", show=share_text),
    "restart_broadcasts": Figure(title="restart: lists told", show=count_text),
    "restart_failed_dials": Figure(title="restart: dials that failed meanwhile", show=count_text),
}

MEMORY_FIGURES = {
    "gateway_connection_bytes": Figure(
        title="gateway, an idle connection to a provider", show=bytes_text, is_headline=True
    ),
    "provider_connection_bytes": Figure(
        title="provider, an idle connection of a gateway", show=bytes_text, is_headline=True
    ),
    "gateway_bytes": Figure(title="a whole idle gateway with one connection", show=bytes_text),
    "provider_bytes": Figure(title="a whole idle provider, registered", show=bytes_text),
    "pending_request_bytes": Figure(
        title="gateway, a pending `request` and its task", show=bytes_text, is_headline=True
    ),
    "pending_submit_bytes": Figure(title="gateway, a pending `submit`", show=bytes_text),
    "pending_provider_bytes": Figure(title="provider, a pending request (1 in 10 runs)", show=bytes_text),
}

TOPIC_MEMORY_FIGURES = {
    "spot_bytes": Figure(title="an idle spot with one subscription", show=bytes_text, is_headline=True),
    "waiting_spot_bytes": Figure(title="the same with a task that waits", show=bytes_text),
    "owned_topic_bytes": Figure(title="a topic at its owner", show=bytes_text, is_headline=True),
    "known_topic_bytes": Figure(title="a topic at another node", show=bytes_text, is_headline=True),
    "subscribed_topic_bytes": Figure(title="on top, when that node receives it", show=bytes_text),
}

SLOW_FIGURES = {
    "all_rate": Figure(title="deliveries to the others, all running", show=rate_text),
    "others_share": Figure(title="with one stopped, as a multiple", show=three, is_headline=True),
    "owner_cpu_share": Figure(title="the owner's CPU time a message, as a multiple", show=three),
    "others_lost": Figure(title="lost by the others", show=count_text, is_headline=True),
    "stopped_missed": Figure(title="missed by the stopped one", show=count_text),
    "stopped_untold": Figure(title="of these not known to it", show=count_text, is_headline=True),
}

FAILOVER_FIGURES = {
    "failover_s_min": Figure(title="until another leads, shortest", show=_seconds_text),
    "failover_s": Figure(title="until another leads, median", show=_seconds_text, is_headline=True),
    "failover_s_p95": Figure(title="until another leads, 95 of 100", show=_seconds_text),
    "failover_s_max": Figure(title="until another leads, longest", show=_seconds_text, is_headline=True),
}

MOVE_FIGURES = {
    "move_rate": Figure(title="messages a second, as they came", show=rate_text),
    "moves": Figure(title="moves", show=count_text),
    "pause_s": Figure(
        title="longest gap between deliveries around a move, p50", show=_seconds_text, is_headline=True
    ),
    "pause_p99_s": Figure(title="longest gap around a move, p99", show=_seconds_text, is_headline=True),
    "lane_pause_s": Figure(title="longest gap between one publisher's, p50", show=_seconds_text),
    "lane_pause_p99_s": Figure(title="the same, p99", show=_seconds_text),
    "still_s": Figure(title="longest gap in as long a time without a move, p50", show=_seconds_text),
    "still_p99_s": Figure(title="the same, p99", show=_seconds_text),
    "sealed_s": Figure(title="from sealed to taken, by the record, p50", show=_seconds_text),
    "sealed_p99_s": Figure(title="the same, p99", show=_seconds_text),
    "whole_s": Figure(title="the whole of `hand_over`, p50", show=_seconds_text),
    "whole_p99_s": Figure(title="the same, p99", show=_seconds_text),
    "missed": Figure(title="messages missed", show=count_text, is_headline=True),
    "unknown": Figure(title="of these neither told to their subscriber nor refused", show=count_text),
    "twice": Figure(title="messages twice", show=count_text, is_headline=True),
    "disordered": Figure(title="messages out of order", show=count_text),
    "refused": Figure(title="publishes refused or in doubt", show=count_text),
    "moves_apart": Figure(title="moves told apart, as the machine was late", show=count_text),
    "pause_apart_s": Figure(title="longest gap of these", show=_seconds_text),
    "still_apart_s": Figure(title="longest gap without a move, told apart too", show=_seconds_text),
}

LEAD_FIGURES = {
    "moves": Figure(title="moves", show=count_text),
    "term_gap_s": Figure(title="nobody leads, p50", show=_seconds_text, is_headline=True),
    "term_gap_p99_s": Figure(title="nobody leads, p99", show=_seconds_text, is_headline=True),
    "term_whole_s": Figure(title="from asking until the next one leads, p50", show=_seconds_text),
    "term_whole_p99_s": Figure(title="the same, p99", show=_seconds_text),
    "moves_apart": Figure(title="moves told apart, as the machine was late", show=count_text),
    "term_gap_apart_s": Figure(title="nobody leads, longest of these", show=_seconds_text),
}

TAKEOVER_FIGURES = {
    "takeover_killed_s": Figure(
        title="killed: until others work on all it had, p50", show=_seconds_text, is_headline=True
    ),
    "takeover_killed_p99_s": Figure(title="the same, p99", show=_seconds_text),
    "takeover_left_s": Figure(
        title="told to leave: until others work on all it had, p50", show=_seconds_text, is_headline=True
    ),
    "takeover_left_p99_s": Figure(title="the same, p99", show=_seconds_text),
    "handed_moves": Figure(title="moves in order", show=count_text),
    "handed_pause_s": Figure(title="a partition's pause by one, p50", show=_seconds_text),
    "handed_pause_p99_s": Figure(title="the same, p99", show=_seconds_text, is_headline=True),
    "handed_apart": Figure(title="moves told apart, as the machine was late", show=count_text),
    "handed_pause_apart_s": Figure(title="longest pause of these", show=_seconds_text),
}

BEAT_FIGURES = {
    "member_cpu_us": Figure(title="a member, CPU a second", show=time_text, is_headline=True),
    "store_member_cpu_us": Figure(title="the store, CPU a second a member", show=time_text),
    "store_cpu_share": Figure(title="the store, share of a core", show=share_text, is_headline=True),
    "views": Figure(title="members with a view of all", show=count_text),
    "join_all_s": Figure(title="until all have joined and every view has all", show=_seconds_text),
    "false_suspicions": Figure(title="members suspected", show=count_text),
    "unseen_members": Figure(title="members that a view lacks at the end", show=count_text),
}

START_FIGURES = {
    "start_cpu_s": Figure(title="CPU time of the process", show=_seconds_text, is_headline=True),
    "start_bare_s": Figure(title="of a bare interpreter beside it", show=_seconds_text),
    "start_above_s": Figure(title="above the bare interpreter", show=_seconds_text),
}

PLAN_FIGURES = {
    f"{label}_{figure}": Figure(title=f"{what}: {title}", show=show, is_headline=figure == "first_s")
    for label, what in (("alike", "all alike"), ("ruled", "weights, roles, zones"))
    for figure, title, show in (
        ("first_s", "the first plan", _seconds_text),
        ("same_s", "a plan when nothing has changed", _seconds_text),
        ("leave_s", "a plan when a worker has left", _seconds_text),
        ("join_s", "a plan when it is back", _seconds_text),
        ("leave_moves", "moves when a worker has left", count_text),
        ("join_moves", "moves when it is back", count_text),
    )
}

FIGURES = (
    SCALE_FIGURES
    | MEMORY_FIGURES
    | TOPIC_MEMORY_FIGURES
    | SLOW_FIGURES
    | FAILOVER_FIGURES
    | MOVE_FIGURES
    | LEAD_FIGURES
    | TAKEOVER_FIGURES
    | BEAT_FIGURES
    | START_FIGURES
    | PLAN_FIGURES
)
