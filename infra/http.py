"""HTTP requests to servers, of which those on this machine are reached without a proxy."""

from __future__ import annotations

import http.client
import ipaddress
import urllib.request
from urllib.parse import urlsplit


def is_loopback(host: str) -> bool:
    """Tell whether a name or address is this machine itself."""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return False


def open_url(request: urllib.request.Request, timeout_seconds: float) -> http.client.HTTPResponse:
    """Make a request. Proxies of the environment are for other machines only: none knows loopback.

    Raises:
        OSError: the server cannot be reached, or answers with an error (``HTTPError``).
    """
    host = urlsplit(request.full_url).hostname or ""
    proxies = urllib.request.ProxyHandler({} if is_loopback(host) else None)
    response: http.client.HTTPResponse = urllib.request.build_opener(proxies).open(
        request, timeout=timeout_seconds
    )
    return response
