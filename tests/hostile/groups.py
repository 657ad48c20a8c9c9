# SPDX-License-Identifier: Apache-2.0
"""Which attacks are made together in CI, and for how long: two minutes for all of them.

The gravest are alone; floods of one kind go together, which is worse than each of them alone.  Each
attack by itself: judge.py.
"""

ADMIN = {
    "admin_bare": (("admin_bare_33",), 0.7),
    "admin_bare_48": (("admin_bare_48",), 0.7),
    "admin_bare_200": (("admin_bare_200",), 0.7),
    "admin_waves": (("admin_waves",), 1.5),
    "admin_slow_heads": (("admin_half_head", "admin_trickle"), 2),
    "admin_many_requests": (("admin_pipelined", "admin_requests", "admin_garbage"), 2),
    "admin_churn": (("admin_churn",), 1),
}

CALLS = {
    "rapid_reset": (("rapid_reset",), 4),
    "rapid_reset_deaf": (("rapid_reset_deaf",), 2),
    "resets": (("rapid_reset_streams", "reset_within", "reset_made"), 2),
    "resets_spread": (("resets_spread", "resets_moving"), 2),
    "headers_only": (("headers_only",), 3),
    "headers_only_still": (("headers_only_still", "headers_only_small"), 2),
    "headers_only_many": (("headers_only_many",), 2),
    "headers_only_300": (("headers_only_300",), 2),
    "trickle_300": (("trickle_300",), 3),
    "trickle_1000": (("trickle_1000",), 2),
    "stream_halves": (("stream_halves",), 3),
    "halves": (("stream_halves_32", "infer_halves", "small_halves"), 3),
    "slow_readers": (("slow_readers",), 3),
    "arena_full": (("arena_full",), 3),
    "windows_closed": (("slow_windows", "zero_window"), 2),
    "answers_unread": (("answers_unread",), 2),
    "questions": (("questions", "unknown_methods", "bare_calls", "watches"), 2),
}

FRAMES = {
    "continuation": (("continuation",), 3),
    "continuations": (("continuation_empty", "continuation_one"), 1.5),
    "headers": (("huge_headers", "large_headers", "table_bomb", "table_sizes", "trailers"), 2),
    "pings": (("ping", "ping_acks"), 2),
    "ping_deaf": (("ping_deaf", "pings_spread"), 2),
    "settings": (("settings", "settings_long", "settings_windows"), 2),
    "settings_deaf": (("settings_deaf",), 1.5),
    "data_empty": (("data_empty", "data_empty_many"), 2),
    "data": (("data_padding", "data_bytes", "data_idle"), 1.5),
    "windows": (("window_connection", "window_call", "window_idle"), 1.5),
    "windows_wrong": (("window_zero", "window_large", "wrong_sizes", "garbage"), 1.5),
    "strange": (("priority", "priority_one", "unknown_frames", "reset_idle"), 1.5),
    "farewells": (("goaway", "goaway_calls", "push_promise"), 1.5),
}

CONNECTIONS = {
    "half_open": (("half_open",), 3),
    "half_preface": (("half_preface",), 2),
    "preface_only": (("preface_only",), 3),
    "churn": (("churn", "churn_preface", "churn_calls", "other_protocols"), 2),
    "mix_frames": (("mix_frames",), 3),
    "mix_calls": (("mix_calls",), 3),
    "mix_all": (("mix_all",), 4),
}

UNIX = {
    "rapid_reset": (("rapid_reset", "rapid_reset_deaf"), 2),
    "headers_only": (("headers_only", "headers_only_300"), 2),
    "trickle": (("trickle_300", "trickle_1000"), 2),
    "halves": (("stream_halves",), 2),
    "slow_readers": (("slow_readers", "zero_window"), 2),
    "continuation": (("continuation",), 2),
    "frames": (("ping_deaf", "settings", "data_empty", "priority", "window_connection"), 2),
    "connections": (("half_open",), 2),
    "churn": (("churn", "churn_preface"), 1),
    "mix_all": (("mix_all",), 2),
}
