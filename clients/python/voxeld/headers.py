# SPDX-License-Identifier: Apache-2.0
"""The headers of calls: the token of a client, and those that a caller adds."""
import re
import warnings
from collections.abc import Mapping

# As the server takes it (RFC 6750's b64token).
_OTHER = re.compile(r"[^A-Za-z0-9\-._~+/=]")
_BYTES_MAX = 256
# As gRPC takes them; it fails a call with others by Internal, as if the server had failed.
_KEY = re.compile("[a-z0-9_.-]+")
_VALUE = re.compile("[ -~]*")
_HERE = ("unix:", "unix-abstract:", "127.", "localhost:", "[::1]:", "ipv4:127.", "ipv6:[::1]:",
         "dns:localhost:", "dns:///localhost:")


def of_token(token, address, credentials):
    """The metadata for a token, () for None; an error has one character of it at most."""
    if token is None:
        return ()
    if not isinstance(token, str):
        raise TypeError(f"token: expected a str, got {type(token).__name__}")
    other = _OTHER.search(token)
    if other:
        hint = ": token.strip() takes it away" if token[other.start():].isspace() else ""
        raise ValueError("token: expected letters, digits and - . _ ~ + / =, got "
                         f"{other[0]!r} at {other.start()}{hint}")
    if not 1 <= len(token) <= _BYTES_MAX:
        raise ValueError(f"token: expected 1 to {_BYTES_MAX} characters, got {len(token)}")
    if credentials is None and not address.startswith(_HERE):
        warnings.warn(f"the token goes to {address} in plain text; anyone who sees it on the way "
                      "can use it", stacklevel=3)
    return (("authorization", f"Bearer {token}"),)


def of_call(given):
    """The metadata of one call as a tuple of pairs: from such pairs, a dict, or None."""
    pairs = given.items() if isinstance(given, Mapping) else given or ()
    form = "metadata: expected a dict, or pairs of a key and its value"
    if isinstance(pairs, (str, bytes)):
        raise TypeError(f"{form}, got {given!r}")
    try:
        pairs = tuple(pairs)
    except TypeError:
        raise TypeError(f"{form}, got {given!r}") from None
    for pair in pairs:
        if not isinstance(pair, (tuple, list)) or len(pair) != 2 or not isinstance(pair[0], str):
            raise TypeError(f"{form}, got {pair!r}")
        _check_header(*pair)
    return tuple(map(tuple, pairs))


def _check_header(key, value):
    if not _KEY.fullmatch(key):
        raise ValueError("metadata: expected a key of a to z in lower case, digits and - _ ., "
                         f"got {key!r}")
    binary = key.endswith("-bin")
    if not isinstance(value, bytes if binary else (str, bytes)):
        raise TypeError(f"metadata: expected {'bytes' if binary else 'a str'} for '{key}', got "
                        f"{type(value).__name__}")
    text = value if isinstance(value, str) else value.decode("latin-1")
    if not binary and not _VALUE.fullmatch(text):
        raise ValueError(f"metadata: expected printable ASCII for '{key}' (a key that ends with "
                         "-bin takes any bytes)")
