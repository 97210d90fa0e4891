"""How JAX says that memory ran out. No jax."""

_SIGNS = ("RESOURCE_EXHAUSTED", "Out of memory allocating")
"""Of devices and compilers; of the CPU, which calls it an internal error."""


def memory_ran_out(message: str) -> bool:
    """Whether the message of a JaxRuntimeError says that memory ran out."""
    return any(sign in message for sign in _SIGNS)
