# SPDX-License-Identifier: Apache-2.0
"""The headers that every call of a client has: its token."""
import re
import warnings

# As the server takes it (RFC 6750's b64token).
_OTHER = re.compile(r"[^A-Za-z0-9\-._~+/=]")
_BYTES_MAX = 256
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
