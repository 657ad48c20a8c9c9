# SPDX-License-Identifier: Apache-2.0
"""Which attacks are made together, and for how many seconds.

The worst attacks run alone; floods of one kind run together, which is worse than each alone.
judge.py runs each attack by itself.  CI has time only for those in QUICK; VX_HOSTILE=rest runs
the rest.  Where a daemon without the defence showed when harm begins, seconds are twice that; an
attack whose connections are over an allowance, or that has honest clients beside it, goes on until
these are cut and served.
"""
import os

TCP = {
    "bare_33": (("admin_bare_33",), 0.5),
    "bare_48": (("admin_bare_48",), 0.5),
    "bare_200": (("admin_bare_200",), 0.5),
    "waves": (("admin_waves",), 1),
    "admin_heads": (("admin_half_head", "admin_trickle"), 2),
    "admin_crowd": (("admin_crowd",), 3),
    "admin_requests": (("admin_pipelined", "admin_requests", "admin_garbage", "admin_churn"), 1.5),

    "rapid_reset": (("rapid_reset",), 4),
    "rapid_reset_deaf": (("rapid_reset_deaf",), 1.5),
    "resets": (("rapid_reset_streams", "reset_within", "reset_made"), 1.5),
    "resets_spread": (("resets_spread", "resets_moving"), 2),
    "headers_only": (("headers_only",), 2),
    "headers_only_still": (("headers_only_still", "headers_only_small"), 1.5),
    "headers_only_many": (("headers_only_many",), 1.5),
    "clients_300": (("headers_only_300", "trickle_300", "trickle_1000"), 3),
    "stream_halves": (("stream_halves",), 2),
    "halves": (("stream_halves_32", "infer_halves", "small_halves"), 2),
    "slow_readers": (("slow_readers",), 2),
    "crawling": (("crawling",), 6),  # what it adds must not grow with time
    "stream_places": (("stream_places",), 2),
    "stream_crowd": (("stream_crowd",), 3),
    "streams_kept": (("streams_kept",), 5),
    "answers_two": (("answers_two",), 5),
    "arena_full": (("arena_full",), 1.5),
    "arena_one_address": (("arena_one_address",), 1.5),
    "arena_pieces": (("arena_pieces",), 2),
    "windows_closed": (("slow_windows", "zero_window"), 1.5),
    "zero_window_crowd": (("zero_window_crowd",), 3),
    "answers_unread": (("answers_unread",), 1.5),
    "answers_heavy": (("answers_heavy",), 2),
    "refusals_unread": (("refusals_unread",), 4),
    "questions": (("questions", "unknown_methods", "bare_calls", "bad_requests"), 1.5),

    "streams_whole": (("stream_pipelined",), 2.5),
    "streams_unread": (("stream_unread",), 2),
    "questions_large": (("questions_large",), 2),
    "questions_endless": (("questions_endless",), 3),
    "messages_begun": (("messages_begun",), 3),
    "messages_parked": (("messages_parked",), 4),
    "messages_reset": (("messages_reset",), 3),
    "questions_unread": (("questions_unread", "reflection_large"), 2),

    "queue_filled": (("queue_filled",), 3),
    "queue_large": (("queue_large",), 3),
    "almost_whole": (("almost_whole",), 3),
    "calls_ended": (("calls_ended",), 2),

    "lasting": (("watches", "reflections", "reflection_pipelined"), 1.5),

    "continuation": (("continuation",), 3),
    "continuations": (("continuation_empty", "continuation_one"), 1),
    "headers": (("huge_headers", "large_headers", "table_bomb", "table_sizes", "trailers"), 1.5),
    "fields": (("fields", "fields_in_parts"), 2),
    "names_repeated": (("names_repeated", "names_unfinished"), 2),
    "names_hidden": (("names_padded", "names_halved", "names_dropped"), 2),
    "names_allowed": (("names_allowed",), 2),
    "block_unfinished": (("block_unfinished",), 2),
    "calls_unreported": (("calls_unreported",), 2.5),
    "calls_waiting": (("calls_waiting",), 2),
    "calls_hidden": (("calls_hidden",), 4),
    "calls_hidden_fast": (("calls_hidden_fast",), 5),
    "headers_kept": (("headers_kept",), 5),
    "headers_stacked": (("headers_stacked",), 2),
    "beyond_twice": (("beyond_twice",), 5),
    "room_kept": (("room_kept",), 4),
    "room_pieces": (("room_pieces",), 4),
    "pieces_pinned": (("pieces_pinned",), 2.5),
    "buffers_kept": (("buffers_kept",), 8),
    "messages_pinned": (("messages_pinned",), 3),
    "messages_second": (("messages_second",), 3),
    "places_flooded": (("places_flooded",), 4),
    "places_halved": (("places_halved",), 2),
    "fields_unknown": (("fields_unknown",), 3),
    "pings": (("ping", "ping_acks", "pings_spread"), 1.5),
    "ping_deaf": (("ping_deaf",), 1.5),
    "settings": (("settings", "settings_deaf", "settings_long", "settings_windows"), 1.5),
    "data": (("data_empty", "data_empty_many", "data_padding", "data_bytes", "data_idle"), 1.5),
    "windows": (("window_connection", "window_call", "window_idle"), 1),
    "windows_wrong": (("window_zero", "window_large", "wrong_sizes", "garbage"), 1),
    "strange": (("priority", "priority_one", "unknown_frames", "reset_idle"), 1),
    "farewells": (("goaway", "goaway_calls", "push_promise"), 1),

    "half_open": (("half_open",), 2),
    "half_preface": (("half_preface",), 1.5),
    "preface_only": (("preface_only",), 2),
    "churn": (("churn", "churn_preface", "churn_calls", "other_protocols"), 1.5),
    "mix_frames": (("mix_frames",), 2),
    "mix_calls": (("mix_calls",), 3),
    "mix_all": (("mix_all",), 4),
}

# More connections than the daemon accepts.
CROWDS = {
    "crowd_idle": (("crowd_idle",), 2),
    "crowd_calls": (("crowd_calls",), 2),
    "crowd_asks": (("crowd_asks",), 3.5),
    "crowd_comes": (("crowd_comes",), 4),
    "crowd_asks_apart": (("crowd_asks_apart",), 5),
    "crowd_shares": (("crowd_shares",), 3),
    "crowd_one_byte": (("crowd_one_byte",), 3),
    "room_one_byte": (("room_one_byte",), 5),
    "room_unread": (("room_unread",), 5),
    "room_ended": (("room_ended",), 5),
    "queue_crowd": (("queue_crowd",), 3),
    "health_padded": (("health_padded",), 3),
    "parts_crowd": (("parts_crowd", "parts_within"), 3),
    "watch_crowd": (("watch_crowd",), 5),
    "addresses_one_byte": (("addresses_one_byte",), 5),
    "past_windows": (("past_windows",), 3),
    "crowd_bursts": (("crowd_bursts",), 2.5),
    "crowd_halves": (("crowd_halves", "crowd_stream_halves"), 2),
}

UNIX = {
    "calls": (("rapid_reset", "rapid_reset_deaf", "headers_only", "trickle_300"), 2),
    "messages": (("stream_halves", "slow_readers", "zero_window"), 2),
    "frames": (("continuation", "ping_deaf", "settings", "data_empty", "priority",
                "window_connection"), 2),
    "connections": (("half_open", "churn"), 2),
    "mix_all": (("mix_all",), 2),
}

# Over TLS: some of the same, and what only TLS has.
TLS = {
    "tls_calls": (("rapid_reset", "rapid_reset_deaf", "headers_only"), 1.5),
    "tls_messages": (("stream_halves", "slow_readers", "zero_window"), 2),
    "tls_frames": (("continuation", "ping_deaf", "settings", "data_empty"), 1.5),
    "tls_answers": (("answers_unread", "questions_unread"), 1.5),
    "tls_clients_300": (("headers_only_300", "trickle_300"), 2),
    "tls_connections": (("half_preface", "churn_preface"), 2),
    "hellos": (("hello_half", "hello_slow", "not_tls"), 2),
    "hello_only": (("hello_only",), 2),
    "hello_churn": (("hello_churn", "hello_garbage"), 2.5),
    "hello_apart": (("hello_apart",), 3),
    "handshakes": (("handshakes",), 2.5),
    "handshakes_silent": (("handshakes_silent",), 3),
    "records": (("records_small", "records_message"), 1.5),
    "tls_all": (("rapid_reset", "stream_halves", "ping_deaf", "hello_only", "hello_churn",
                 "handshakes"), 3),
}

QUICK = {
    "tls_calls", "tls_messages", "tls_answers", "hellos", "hello_only", "hello_churn",
    "hello_apart", "handshakes", "records", "tls_all",
    "bare_48", "bare_200", "admin_heads", "admin_crowd", "admin_requests",
    "rapid_reset", "resets", "headers_only", "clients_300", "stream_halves", "slow_readers",
    "windows_closed", "zero_window_crowd", "arena_one_address", "arena_pieces",
    "answers_unread", "answers_heavy", "refusals_unread",
    "streams_whole", "streams_unread", "questions_large", "questions_endless",
    "messages_begun", "messages_parked", "messages_reset",
    "questions_unread", "lasting",
    "continuation", "headers", "pings", "settings", "data", "windows_wrong", "strange", "farewells",
    "half_open", "churn", "mix_all",
    "fields", "names_repeated", "names_hidden", "headers_stacked", "calls_unreported",
    "calls_waiting", "calls_hidden",
    "room_kept", "pieces_pinned", "buffers_kept",
    "messages_pinned", "messages_second", "places_halved", "fields_unknown", "crowd_calls",
    "crowd_asks", "crowd_comes", "crowd_shares", "crowd_one_byte", "watch_crowd", "past_windows",
    "health_padded", "parts_crowd",
    "room_unread",
    "answers_two", "streams_kept", "addresses_one_byte",
    "calls", "messages",
}


def chosen(groups):
    """The names of the groups of this run."""
    rest = os.environ.get("VX_HOSTILE") == "rest"
    return [name for name in groups if (name not in QUICK) == rest]
