"""What goes wrong with a foreign checkpoint."""

from pathlib import Path


class ConversionError(ValueError):
    """A folder or file that is not the checkpoint it should be; names the file, the cause and the fix."""

    def __init__(self, path: str | Path, problem: str) -> None:
        super().__init__(f"{path}: {problem}")
        self.path = Path(path)
        self.problem = problem
