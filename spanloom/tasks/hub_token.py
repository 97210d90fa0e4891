"""The user's token of the Hugging Face Hub, where no request can carry it."""

from collections.abc import Iterator

ODD = "the token holds characters that no token has"
"""What is wrong with it."""
FIX = "Copy it anew into HF_TOKEN, or unset that and run `hf auth login`"
"""What to do."""


def is_odd(error: BaseException) -> bool:
    """Whether a request failed because of its token: a header holds ASCII alone."""
    from huggingface_hub import get_token

    return not (get_token() or "").isascii() and any(isinstance(one, UnicodeEncodeError) for one in chain(error))


def chain(error: BaseException) -> Iterator[BaseException]:
    """The error and what it comes from."""
    seen: set[int] = set()
    one: BaseException | None = error
    while one is not None and id(one) not in seen:
        seen.add(id(one))
        yield one
        one = one.__cause__ or one.__context__
