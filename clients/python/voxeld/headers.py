# SPDX-License-Identifier: Apache-2.0
"""The headers that every call of a client has: its token."""
import re
import warnings

# As the server takes it (RFC 6750's b64token).
_TOKEN = re.compile(r"[A-Za-z0-9\-._~+/=]{1,256}")
_HERE = ("unix:", "unix-abstract:", "127.", "localhost:", "[::1]:", "ipv4:127.", "ipv6:[::1]:",
         "dns:localhost:", "dns:///localhost:")


def of_token(token, address, credentials):
    """The metadata for a token, () for None; no error has the token in it."""
    if token is None:
        return ()
    if not isinstance(token, str):
        raise TypeError(f"token: expected a str, got {type(token).__name__}")
    if not _TOKEN.fullmatch(token):
        raise ValueError("token: expected 1 to 256 letters, digits and - . _ ~ + / =, got "
                         f"{len(token)} characters, or others")
    if credentials is None and not address.startswith(_HERE):
        warnings.warn(f"the token goes to {address} in plain text; anyone who sees it on the way "
                      "can use it", stacklevel=3)
    return (("authorization", f"Bearer {token}"),)
