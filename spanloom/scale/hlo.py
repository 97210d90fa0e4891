"""What a compiled program does, read from its HLO text: XLA's cost analysis counts the body of a loop once, whatever
its trips, so bodies are costed by themselves and counted as often as they run.

The costs themselves are XLA's: a loop's body is given back to its cost analysis as the entry of a module of its own.
"""

import functools
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

_HEAD = re.compile(r"^(ENTRY )?%?([\w.\-]+) \(.*\{$")
_CALLED = re.compile(r"\b(?:calls|to_apply|true_computation|false_computation)=%?([\w.\-]+)")
_BRANCHES = re.compile(r"branch_computations=\{([^}]*)\}")
_LOOP_PARTS = re.compile(r"\b(?:condition|body)=%?([\w.\-]+)")
_LOOP = re.compile(r" while\(.*?condition=%?([\w.\-]+), body=%?([\w.\-]+)")
_TRIPS = re.compile(r'"known_trip_count":\{"n":"(\d+)"\}')
_CONSTANT = re.compile(r"%?([\w.\-]+) = [su]32\[\]\S* constant\((\d+)\)")
_ELEMENT = re.compile(r"%?([\w.\-]+) = [su]32\[\]\S* get-tuple-element\([^)]*\), index=(\d+)")
_COMMENT = re.compile(r"/\*.*?\*/")
_SHORTER = re.compile(r"ROOT .* compare\((.*?)\), direction=LT")
_ARRAY = re.compile(r"\b(pred|[suf]\d+|bf16|f8\w+)\[([\d,]*)\]")
_KERNEL_FLOPS = re.compile(r'custom_call_target="tpu_custom_call".*"cost_estimate":\{"flops":"(\d+)"')
_COLLECTIVE = re.compile(
    r"= (.*?) (all-reduce|all-gather|reduce-scatter|all-to-all|ragged-all-to-all|collective-permute|"
    r"collective-broadcast)(-start)?\("
)


@dataclass(frozen=True)
class Cost:
    """What one run of a program costs a device."""

    flops: float = 0.0
    """Floating-point operations."""
    bytes: float = 0.0
    """Bytes read from memory and written to it, of arrays that pass from one fused operation to the next."""

    def __add__(self, other: "Cost") -> "Cost":
        return Cost(self.flops + other.flops, self.bytes + other.bytes)

    def __mul__(self, times: float) -> "Cost":
        return Cost(self.flops * times, self.bytes * times)


@dataclass(frozen=True)
class Loop:
    """A while loop: the computation it repeats, and how often; None where the text does not say."""

    body: str
    trips: int | None


@dataclass(frozen=True)
class Collective:
    """One exchange between devices: its kind, and the bytes that each device sends for it, as often as it runs."""

    kind: str
    sent: float


class Program:
    """The computations of an HLO module by name."""

    def __init__(self, text: str):
        self._lines: dict[str, list[str]] = {}
        self._entry, self._preamble, current = "", list[str](), list[str]()
        for line in text.splitlines():
            if head := _HEAD.match(line):
                current = self._lines.setdefault(head[2], [])
                current.append(line)
                self._entry = head[2] if head[1] else self._entry
            elif current:
                current.append(line)
                current = [] if line == "}" else current
            elif not line.startswith("HloModule"):
                self._preamble.append(line)
        if not self._entry:
            raise ValueError("this is no HLO text: it has no ENTRY computation")

    def cost(self) -> Cost:
        """The whole program's cost, loops as often as they run; those of unknown trips once."""
        return self._repeated(self._entry)

    def loops(self) -> list[Loop]:
        """Every loop of the program, nested ones too."""
        return [loop for name in self._lines for loop in self._own_loops(name)]

    def collectives(self) -> Iterator[Collective]:
        """Every exchange between devices, its bytes multiplied by the times that it runs.

        TPU's compiler repeats an exchange in each computation that is fused to run beside it, under one channel; sums
        that it fuses into reduce-scatters are one each, though it gives several of them the same channel.
        """
        seen = set[str]()
        for name, times in self._times().items():
            scattered = "all-reduce-scatter" in name  # the TPU's fused form: every device keeps its share only
            for line in self._lines[name]:
                if (found := _COLLECTIVE.search(line)) and (scattered or not _seen_before(line, seen)):
                    kind = "reduce-scatter" if scattered and found[2] == "all-reduce" else found[2]
                    size = _result_bytes(found[1], is_start=bool(found[3]))
                    parts = _group_size(line)
                    yield Collective(kind, times * size * _sent_share(kind, parts, of_whole=scattered))

    def _repeated(self, name: str) -> Cost:
        """The cost of a computation with its loops repeated."""
        total = self._once(name)
        for loop in self._inner_loops(name):
            total = total + self._repeated(loop.body) * (loop.trips or 1) + self._once(loop.body) * -1
        return total

    @functools.cache  # noqa: B019 (a program is short-lived)
    def _once(self, name: str) -> Cost:
        """The cost of a computation as XLA counts it, as if it were the entry of the module."""
        counted = xla_cost("\n".join(["HloModule part", *self._preamble, *self._with_entry(name)]))
        return counted + Cost(self._kernel_flops(name))

    def _kernel_flops(self, name: str) -> float:
        """What kernels that XLA did not write say of themselves, bodies of loops once."""
        lines = (line for one in [name, *self._called(name)] for line in self._lines.get(one, ()))
        said = sum(float(found[1]) for line in lines if (found := _KERNEL_FLOPS.search(line)))
        return said + sum(self._kernel_flops(loop.body) for loop in self._inner_loops(name))

    def _with_entry(self, entry: str) -> Iterator[str]:
        wanted = self._reached(entry)
        for name, lines in self._lines.items():
            if name in wanted:
                head = lines[0].removeprefix("ENTRY ")
                yield from [f"ENTRY {head}" if name == entry else head, *lines[1:]]

    def _reached(self, name: str) -> set[str]:
        """A computation, and all that it needs: what is called, loops, their conditions."""
        found, todo = set[str](), [name]
        while todo:
            one = todo.pop()
            if one in self._lines and one not in found:
                found.add(one)
                text = "\n".join(self._lines[one][1:])
                todo += _CALLED.findall(text) + _LOOP_PARTS.findall(text) + _branches(text)
        return found

    def _inner_loops(self, name: str) -> list[Loop]:
        """The loops of a computation and of what it calls, but not those within loops."""
        called = [name, *self._called(name)]
        return [loop for one in called for loop in self._own_loops(one)]

    @functools.cache  # noqa: B019
    def _called(self, name: str) -> list[str]:
        """What a computation calls, as often as it does, and what that calls; bodies of loops are not called."""
        text = "\n".join(self._lines.get(name, [""])[1:])
        found: list[str] = []
        for one in _CALLED.findall(text) + _branches(text):
            found += [one, *self._called(one)]
        return found

    def _own_loops(self, name: str) -> list[Loop]:
        lines = (line for line in self._lines.get(name, ()) if " while(" in line)
        return [
            Loop(found[2], self._trips(found[1], found[2], line)) for line in lines if (found := _LOOP.search(line))
        ]

    def _trips(self, condition: str, body: str, line: str) -> int | None:
        """The loop's trips: as XLA wrote them down, or by the bound of its counter, which begins at 0."""
        if known := _TRIPS.search(line):
            return int(known[1])
        text = "\n".join(self._lines.get(condition, ()))
        compared = _SHORTER.search(text)
        bounds = [int(bound) for name, bound in _CONSTANT.findall(text) if compared and name in compared[1]]
        place = [place for name, place in _ELEMENT.findall(text) if compared and name in compared[1]]
        if len(bounds) != 1 or len(place) != 1:
            return None
        return -(-bounds[0] // self._step(body, int(place[0])))

    def _step(self, body: str, place: int) -> int:
        """What a loop's body adds to its counter, the element of its state at that place; 1 unless it is seen."""
        text = "\n".join(self._lines.get(body, ()))
        state = re.search(r"ROOT .* tuple\((.*?)\)", text)
        name = _COMMENT.sub("", state[1]).split(", ")[place].strip("% ") if state else ""
        added = re.search(rf"%?{re.escape(name)} = \S+ add\((.*?)\)", text) if name else None
        steps = [
            int(step) for constant, step in _CONSTANT.findall(text) if added and f"%{constant}" in added[1].split(", ")
        ]
        return steps[0] if len(steps) == 1 and steps[0] > 0 else 1

    def _times(self) -> Mapping[str, float]:
        """How often each computation runs."""
        times: dict[str, float] = {}

        def add(name: str, number: float) -> None:
            for one in [name, *self._called(name)]:
                times[one] = times.get(one, 0.0) + number
            for loop in self._inner_loops(name):
                add(loop.body, number * (loop.trips or 1))

        add(self._entry, 1.0)
        return {name: number for name, number in times.items() if name in self._lines}


def _branches(text: str) -> list[str]:
    return [name.strip(" %") for listed in _BRANCHES.findall(text) for name in listed.split(",")]


def xla_cost(text: str) -> Cost:
    """XLA's own count for the entry of an HLO module given as text, bodies of loops once."""
    import jax
    from jaxlib import _hlo, _jax  # type: ignore[attr-defined]  # compiled, without stubs

    module = _hlo.hlo_module_from_text(text)
    found = _jax.hlo_module_cost_analysis(jax.local_devices(backend="cpu")[0].client, module)
    return Cost(found.get("flops", 0.0), found.get("bytes accessed", 0.0))


def _seen_before(line: str, seen: set[str]) -> bool:
    """Whether an exchange's channel was seen, which it is from now on; one without a channel never was."""
    channel = re.search(r"channel_id=(\d+)", line)
    if channel is None or channel[1] in seen:
        return channel is not None
    seen.add(channel[1])
    return False


def _result_bytes(shape: str, is_start: bool) -> float:
    """Bytes of a result. The start of an asynchronous exchange has its operands before its results, and flags after."""
    arrays = [(kind, dims) for kind, dims in _ARRAY.findall(shape) if not is_start or (kind, dims) != ("u32", "")]
    sizes = [_array_bytes(kind, dims) for kind, dims in arrays]
    if is_start and shape.startswith("("):
        sizes = sizes[len(sizes) // 2 :] or sizes
    return sum(sizes)


def _array_bytes(kind: str, dims: str) -> float:
    bits = 8 if kind == "pred" or kind.startswith("f8") else int(re.sub(r"\D", "", kind))
    size = bits / 8
    for dim in filter(None, dims.split(",")):
        size *= int(dim)
    return size


def _group_size(line: str) -> int:
    """Devices that take part in an exchange together, of the ways in which XLA writes groups."""
    if iota := re.search(r"replica_groups=\[([\d,]+)\]<=", line):
        return int(iota[1].split(",")[-1])
    if listed := re.search(r"replica_groups=\{\{([\d,]*)\}", line):
        return len(listed[1].split(","))
    if mesh := re.search(r"replica_groups=mesh\[([^\]]*)\] ?\{([^}]*)\}", line):
        sizes = {name: int(size) for name, size in re.findall(r"'([^']*)'=(\d+)", mesh[1])}
        product = 1
        for axis in re.findall(r"'([^']*)'", mesh[2]):
            product *= sizes.get(axis, 1)
        return product
    return 2


def _sent_share(kind: str, parts: int, of_whole: bool) -> float:
    """Bytes that a device sends for each byte of the result, around a ring (Patarasuk and Yuan 2009)."""
    share = (parts - 1) / max(parts, 1)
    match kind:
        case "all-reduce":
            return 2 * share
        case "reduce-scatter":
            return share if of_whole else parts - 1
        case "all-gather" | "all-to-all" | "ragged-all-to-all":
            return share
    return 1.0 if parts > 1 else 0.0
