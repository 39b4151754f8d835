"""The bounds fit each other."""

from hansa import limits


def test_every_limit_is_positive() -> None:
    numbers = {name: value for name, value in vars(limits).items() if name.isupper()}
    assert numbers
    assert all(isinstance(value, int | float) and value > 0 for value in numbers.values())


def test_what_is_sent_fits_into_what_holds_it() -> None:
    assert limits.FRAME_BYTES_MAX <= limits.MESSAGE_BYTES_MAX
    assert limits.FRAME_BYTES_MAX <= limits.OUTGOING_BYTES_MAX
    assert limits.COMMAND_BYTES_MAX <= limits.FRAME_BYTES_MAX
    assert limits.WRITE_JOIN_BYTES <= limits.WRITE_TURN_BYTES
    assert limits.HANDSHAKING_MAX <= limits.CONNECTIONS_MAX


def test_times_are_in_order() -> None:
    assert limits.RECONNECT_S_MIN < limits.RECONNECT_S_MAX
    assert limits.HEARTBEAT_TIMEOUT_S >= 3 * limits.HEARTBEAT_INTERVAL_S
    assert 0 < limits.RECONNECT_JITTER < 1


def test_the_largest_list_of_one_service_fits_a_message() -> None:
    assert 4 + 2 + 3 * limits.PROVIDERS_MAX <= limits.PARTS_MAX
    assert 4 + 2 * limits.SERVICES_MAX <= limits.PARTS_MAX
    assert 2 + limits.TOPICS_MAX <= limits.PARTS_MAX


def test_what_a_node_owns_fits_one_answer_and_its_bounds_fit_what_holds_them() -> None:
    # The answer's number, its count, and two extension frames.
    assert 2 + limits.OWNED_TOPICS_MAX + 2 <= limits.PARTS_MAX
    assert limits.FRAME_BYTES_MAX <= limits.SUBSCRIPTION_BYTES_MAX
    assert limits.PUBLISH_TURN_COUNT < limits.SUBSCRIPTION_COUNT_MAX
    assert limits.LAGGING_S < limits.JOIN_S_MAX < limits.QUERY_INTERVAL_S


def test_a_full_buffer_still_takes_all_topics_of_a_node() -> None:
    assert limits.OWNED_TOPICS_MAX <= limits.CONTROL_COUNT_MAX
    # One answer to QUERY, with a report of 20 bytes a topic.
    assert limits.OWNED_TOPICS_MAX * (limits.TOPIC_BYTES_MAX + 2 + 20) <= limits.CONTROL_BYTES_MAX
    assert limits.OWNED_TOPICS_MAX <= limits.CLAIMS_MAX


def test_a_blob_is_compared_whole_and_its_pieces_fit_into_what_carries_them() -> None:
    assert limits.BLOB_BYTES_MAX // limits.BLOB_PIECE_BYTES <= limits.STORE_TXN_COUNT_MAX
    assert limits.BLOB_PIECE_BYTES <= limits.STORE_VALUE_BYTES_MAX
    assert limits.BLOB_READ_COUNT * limits.BLOB_PIECE_BYTES <= limits.STORE_ANSWER_BYTES_MAX
    assert limits.BLOB_TIMEOUT_S < limits.BLOB_LIFETIME_S <= limits.STORE_LEASE_TTL_S_MAX
