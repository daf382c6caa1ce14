"""Requests over HTTP whose secrets go to the origin that the user named, and to no other."""

from __future__ import annotations

import ssl
import urllib.error
import urllib.request


def opener(context: ssl.SSLContext | None = None) -> urllib.request.OpenerDirector:
    """An opener that follows no redirects; a proxy may only tunnel TLS.

    :param context: for TLS; by default Python's, with the system's authorities.
    """
    tunnels = {scheme: proxy for scheme, proxy in urllib.request.getproxies().items() if scheme == "https"}
    found = urllib.request.OpenerDirector()
    for handler in (
        urllib.request.ProxyHandler(tunnels),
        urllib.request.HTTPHandler(),
        urllib.request.HTTPSHandler(context=context),
        urllib.request.HTTPDefaultErrorHandler(),
        urllib.request.HTTPErrorProcessor(),
    ):
        found.add_handler(handler)
    return found


def reason_of(error: OSError) -> str:
    """Why a request failed, without the host or file that some error texts contain."""
    reason = getattr(error, "reason", error)
    if isinstance(reason, ssl.SSLCertVerificationError):
        wrong_name = reason.verify_message.startswith(("Hostname mismatch", "IP address mismatch"))
        return "its certificate names another host" if wrong_name else reason.verify_message
    return getattr(reason, "strerror", None) or type(reason).__name__
