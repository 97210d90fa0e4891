"""What goes wrong between us and the Hugging Face Hub, in our words and without a token.

The library's own errors hold requests with their headers, so nothing of them but cleaned text is passed on.
"""

import json
import re
from collections.abc import Callable
from typing import TypeVar

from spanloom.tasks import hub_token

T = TypeVar("T")

_TOKENS = re.compile(r"\b(Bearer|Basic) \S+|\bhf_(oauth_)?[A-Za-z0-9]{6,}")
_LONGEST = 300
_WRITE = "a token of the kind 'write', or a fine-grained one with the right to write there"
_FIXES = {
    401: f"the token is not accepted. Make a new one ({_WRITE}), then set HF_TOKEN or run `hf auth login`",
    402: "its owner's plan does not allow this. Choose another owner, or leave out --private",
    403: f"your token may not write there. Take one that may ({_WRITE}) or a name of your own",
    404: "there is no such repository, or your token may not see it. Check the name and the token",
    409: "the name is taken by what your token may not see, or is being changed. Choose another name",
}


class HubError(RuntimeError):
    """What was to be published is not; the message names the cause and the fix."""


class PassingError(HubError):
    """The network or the Hub fails, or the repository was changed by somebody else meanwhile: worth another try."""


def ask(name: str, act: Callable[[], T]) -> T:
    """What the library gives when it is asked about the repository `name`.

    Raises HubError (PassingError where another try may help) for its complaints, and what it is for files here.
    """
    try:
        return act()
    except Exception as error:  # errors of its own, of two generations of HTTP libraries, and of its Rust extension
        if _is_local(error):
            raise
        found = _translated(error, name)
    raise found  # outside, so that the library's error is not kept as its context


def without_token(text: str) -> str:
    """The text on one line, without what may be a token; at most 300 characters."""
    from huggingface_hub import get_token

    token = get_token()
    line = " ".join((text.replace(token, "<token>") if token else text).split())
    line = _TOKENS.sub("<token>", line)
    return line if len(line) <= _LONGEST else line[:_LONGEST] + "..."


def _translated(error: Exception, name: str) -> HubError:
    found = list(hub_token.chain(error))
    if hub_token.is_odd(error):
        return HubError(f"{name}: {hub_token.ODD}. {hub_token.FIX}")
    if any(type(one).__name__ == "OfflineModeIsEnabled" for one in found):
        return HubError(f"{name}: HF_HUB_OFFLINE is set, so nothing is sent. Unset it")
    answered = next((one for one in found if getattr(one, "response", None) is not None), None)
    if answered is None:
        said = without_token(str(found[-1])) or type(found[-1]).__name__
        if any(map(_is_of_network, found)):
            return PassingError(f"{name}: the Hub cannot be reached, or broke off ({said})")
        return HubError(f"{name}: {without_token(str(error)) or type(error).__name__}")
    status = int(answered.response.status_code)  # type: ignore[attr-defined]
    said = without_token(str(getattr(answered, "server_message", None) or "")) or f"HTTP {status}"
    if status == 412:
        return PassingError(f"{name}: somebody else changed it at the same time ({said})")
    if status >= 500 or status in (408, 429):
        return PassingError(f"{name}: the Hub fails for now ({status}: {said})")
    return HubError(f"{name}: {_FIXES.get(status, 'the Hub refuses it')} ({status}: {said})")


def _is_of_network(error: BaseException) -> bool:
    if isinstance(error, ConnectionError | TimeoutError | json.JSONDecodeError):  # the last: a proxy's page as answer
        return True
    packages = {kind.__module__.split(".")[0] for kind in type(error).__mro__}
    return bool(packages & {"httpx", "httpx2", "httpcore", "requests", "urllib3"})


def _is_local(error: Exception) -> bool:
    """Whether it is of the file system: the disk is full, a file is gone."""
    return type(error).__module__ == "builtins" and isinstance(error, OSError) and not _is_of_network(error)
