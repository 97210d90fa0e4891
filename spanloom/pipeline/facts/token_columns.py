"""Which columns of a store hold the tokens that are learnt from: others keep rows that examples are made of."""

from spanloom.pipeline.columns import Column
from spanloom.pipeline.store import Store
from spanloom.pipeline.training_rows import LEARNT


def token_columns(store: Store) -> dict[str, Column]:
    """Columns of tokens by name; none where preprocessors make all examples when they are read."""
    return {name: store.columns[name] for name in LEARNT if name in store.columns}
