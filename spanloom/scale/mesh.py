"""The mesh of a run, and how its state and batches are divided among the devices (NamedSharding)."""

import contextlib
import dataclasses
import functools
import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import jax
import numpy as np
from jax.experimental import mesh_utils
from jax.sharding import AxisType, NamedSharding, PartitionSpec

from spanloom.model.params import ParamSpec, flatten, path_name
from spanloom.model.placement import ANYWHERE, Placement
from spanloom.pipeline.positions import Share
from spanloom.scale.rules import Rule, partition_spec, rules_of, update_spec, without
from spanloom.settings.mesh import AXES, BATCH_AXES, Mesh


class MeshError(ValueError):
    """The mesh that the settings describe cannot be made of these devices; the message says why and what can."""


@dataclasses.dataclass(frozen=True)
class Layout(Placement):
    """A mesh with its rules: how every array of a run is divided."""

    mesh: jax.sharding.Mesh
    """Devices in a grid with the axes `spanloom.settings.mesh.AXES`."""
    rules: tuple[Rule, ...]
    """Logical axis rules."""

    @property
    def sizes(self) -> Mapping[str, int]:
        """Devices along each axis."""
        return self.mesh.shape

    @property
    def device(self) -> Any:
        """One of the devices, which need not be this machine's."""
        return self.mesh.devices.flat[0]

    @property
    def batch_shards(self) -> int:
        """Parts into which a batch is divided."""
        return math.prod(self.sizes[axis] for axis in BATCH_AXES)

    @property
    def replicated(self) -> NamedSharding:
        """Everything everywhere."""
        return NamedSharding(self.mesh, PartitionSpec())

    @property
    def batch(self) -> NamedSharding:
        """Of a batch's arrays: rows are divided, whatever comes after is not."""
        return self.sharding(("batch",))

    def sharding(self, axes: Sequence[str], shape: Sequence[int] | None = None) -> NamedSharding:
        """Of an array whose axes have these names; what `shape` cannot divide evenly is not divided."""
        return NamedSharding(self.mesh, partition_spec(self.rules, axes, shape, self.sizes))

    def params(self, specs: Any) -> Any:
        """Of every parameter that `specs` declares, in the same tree."""
        return jax.tree.map(lambda spec: self.sharding(spec.axes, spec.shape), specs)

    def updates(self, specs: Any) -> Any:
        """Of every parameter's gradient and update (`spanloom.scale.rules.update_spec`), in the same tree."""
        return jax.tree.map(lambda spec: NamedSharding(self.mesh, self._update_spec(spec)), specs)

    def optimizer_state(self, specs: Any, tree: Any) -> Any:
        """Of a tree that holds arrays beside parameters, such as an optimizer's state.

        An array under a parameter's name and in its shape is divided as its gradient is; everything else is kept whole
        by every device, Adafactor's rows and columns among it, as T5X does.
        """
        flat: dict[str, ParamSpec] = flatten(specs)

        def one(path: Any, leaf: Any) -> NamedSharding:
            spec = flat.get(_owner(path_name(path), flat))
            if spec is None or tuple(leaf.shape) != tuple(spec.shape):
                return self.replicated
            return NamedSharding(self.mesh, self._update_spec(spec))

        return jax.tree_util.tree_map_with_path(one, tree)

    def _update_spec(self, spec: ParamSpec) -> PartitionSpec:
        stored = partition_spec(self.rules, spec.axes, spec.shape, self.sizes)
        return update_spec(stored, spec.axes, spec.shape, self.sizes)

    # ---- Arrays of this process --------------------------------------------------------------------------------------

    @property
    def shares(self) -> tuple[Share, ...]:
        """The rows of every batch that the devices of this process have: those it must make."""
        places = self.batch.addressable_devices_indices_map((self.batch_shards,))
        blocks = sorted({index[0].start or 0 for index in places.values() if index})
        together = len(blocks)
        in_a_row = blocks == [*range(blocks[0], blocks[0] + together)]
        if in_a_row and not blocks[0] % together and not self.batch_shards % together:
            return (Share(blocks[0] // together, self.batch_shards // together),)
        return tuple(Share(block, self.batch_shards) for block in blocks)

    def put_batch(self, rows: Mapping[str, np.ndarray], batch_size: int) -> dict[str, jax.Array]:
        """A batch of so many rows on the devices; `rows` are those of `shares`, in that order, or all of them."""
        if len(self.mesh.local_devices) == self.mesh.size:
            return jax.device_put(dict(rows), self.batch)
        whole = next(iter(rows.values())).shape[0] == batch_size
        spans = [(0, batch_size)] if whole else [share.rows(batch_size) for share in self.shares]
        where = np.concatenate([np.arange(*span) for span in spans])

        def put(array: np.ndarray) -> jax.Array:
            shape = (batch_size, *array.shape[1:])
            parts = []
            for device, index in self.batch.addressable_devices_indices_map(shape).items():
                assert index is not None
                begin, end, _ = index[0].indices(batch_size)
                at = int(np.searchsorted(where, begin))
                parts.append(jax.device_put(array[at : at + end - begin], device))
            return jax.make_array_from_single_device_arrays(shape, self.batch, parts)

        return {name: put(array) for name, array in rows.items()}

    def put(self, tree: Any, shardings: Any) -> Any:
        """Arrays that every process has whole, divided as `shardings`, a tree like theirs, say."""

        def one(x: Any, sharding: NamedSharding) -> jax.Array:
            if isinstance(x, jax.Array) and x.sharding.is_equivalent_to(sharding, x.ndim):
                return x
            if sharding.is_fully_addressable:
                return jax.device_put(x, sharding)
            host = np.asarray(x)
            return jax.make_array_from_callback(host.shape, sharding, lambda index: host[index])

        return jax.tree.map(one, tree, shardings)

    # ---- What the model asks of a `Placement` ------------------------------------------------------------------------

    def part(self, axis: str, size: int) -> int:
        """As the rules divide it."""
        return self.sharding((axis,), (size,)).shard_shape((size,))[0]

    def activations(self, x: jax.Array, *axes: str) -> jax.Array:
        """Divided by the rules."""
        return jax.lax.with_sharding_constraint(x, self.sharding(axes, x.shape))

    def on_each_device(self, function: Callable[..., Any], *operands: tuple[jax.Array, tuple[str, ...]]) -> Any:
        """Parts as the rules divide the operands, and the result as the first of them."""
        parts = tuple(self.sharding(axes, x.shape).spec for x, axes in operands)
        divided = jax.shard_map(function, mesh=self.mesh, in_specs=parts, out_specs=parts[0], check_vma=False)
        return divided(*(x for x, _ in operands))

    def weights(self, params: Any, specs: Any) -> Any:
        """Gathered from along fsdp just before they are used; divided along tensor. Their gradients are divided for the
        update at once: a constraint's own gradient would have them whole, of all layers together.
        """

        def gather(spec: ParamSpec, x: jax.Array) -> jax.Array:
            stored = partition_spec(self.rules, spec.axes, spec.shape, self.sizes)
            updated = update_spec(stored, spec.axes, spec.shape, self.sizes)
            gradient = (self._of_layer(stored, x), self._of_layer(updated, x))
            return _gathered(self._of_layer(without(stored, "fsdp"), x), gradient, x)

        return jax.tree.map(gather, specs, params)

    def _of_layer(self, spec: PartitionSpec, x: jax.Array) -> NamedSharding:
        """The sharding of one layer of a stack whose is `spec`, or of the stack."""
        return NamedSharding(self.mesh, PartitionSpec(*spec[len(spec) - x.ndim :]))

    def for_update(self, tree: Any, specs: Any) -> Any:
        """Along data too."""
        return jax.lax.with_sharding_constraint(tree, self.updates(specs))

    def stored(self, tree: Any, specs: Any) -> Any:
        """Divided by the rules, along fsdp too."""
        return jax.lax.with_sharding_constraint(tree, self.params(specs))


@functools.partial(jax.custom_vjp, nondiff_argnums=(0, 1))
def _gathered(whole: NamedSharding, gradient: tuple[NamedSharding, NamedSharding], x: jax.Array) -> jax.Array:
    """`x` divided as `whole`; its gradient first as the one, then as the other of two shardings.

    Straight from the product that it is, XLA would divide a gradient in as many small products and send them around in
    a circle, which keeps that product's factors in memory for long.
    """
    return jax.lax.with_sharding_constraint(x, whole)


_gathered.defvjp(
    lambda whole, gradient, x: (jax.lax.with_sharding_constraint(x, whole), None),
    lambda whole, gradient, _, g: (functools.reduce(jax.lax.with_sharding_constraint, gradient, g),),
)


def make_layout(settings: Mesh, devices: Sequence[Any] | None = None) -> Layout:
    """The mesh that the settings describe, of all devices of all processes unless `devices` are given.

    Neighbours along the last axes are neighbours in the network (`jax.experimental.mesh_utils`); slices of TPUs lie
    along replica. Raises MeshError where the numbers do not fit the devices.
    """
    devices = list(jax.devices() if devices is None else devices)
    grid = _grid(mesh_sizes(settings, len(devices)), devices)
    mesh = jax.sharding.Mesh(grid, AXES, axis_types=(AxisType.Auto,) * len(AXES))
    try:
        return Layout(mesh, rules_of(settings))
    except ValueError as error:
        raise MeshError(str(error)) from None


def _grid(sizes: Mapping[str, int], devices: list[Any]) -> np.ndarray:
    """The devices in an order that suits their network."""
    shape = tuple(sizes.values())
    slices = len({getattr(device, "slice_index", 0) for device in devices})
    if slices > 1 and sizes["replica"] % slices == 0:
        inner = (sizes["replica"] // slices, *(sizes[axis] for axis in AXES[1:]))
        return mesh_utils.create_hybrid_device_mesh(inner, (slices, 1, 1, 1), devices)
    if devices[0].platform == "tpu":
        if slices > 1:
            raise MeshError(
                f"these devices are {slices} slices of TPUs, which a slow network joins, and mesh.replica is "
                f"{sizes['replica']}: give --mesh.replica {slices}, or a multiple of it"
            )
        with contextlib.suppress(
            AssertionError, NotImplementedError
        ):  # of v4 on, JAX orders chips with one device each
            return mesh_utils.create_device_mesh(shape, devices, allow_split_physical_axes=True)
    return np.asarray(devices).reshape(shape)


def mesh_sizes(settings: Mesh, count: int) -> dict[str, int]:
    """Devices along each axis for so many devices. Raises MeshError, naming a mesh that fits, where none can be."""
    asked = {axis: getattr(settings, axis) for axis in AXES}
    automatic = [axis for axis, size in asked.items() if size == "auto"]
    if "data" in automatic and len(automatic) > 1:
        asked["data"] = 1  # what another axis asks for by name goes before the default
        automatic.remove("data")
    if len(automatic) > 1:
        raise MeshError(f"mesh.{automatic[0]} and mesh.{automatic[1]} are both auto: give one of them a number")
    if wrong := [axis for axis, size in asked.items() if size != "auto" and size < 1]:
        raise MeshError(f"mesh.{wrong[0]} is {asked[wrong[0]]}: must be at least 1, or auto")
    fixed = math.prod(size for size in asked.values() if size != "auto")
    if count % fixed or (not automatic and fixed != count):
        given = " x ".join(f"{axis} {size}" for axis, size in asked.items() if size != 1)
        hint = "leave --mesh.data auto, and " if automatic != ["data"] else ""
        raise MeshError(
            f"the mesh {given or 'of one device'} does not fit {count} device{'s' * (count != 1)}: {hint}choose "
            f"replica x fsdp x tensor as a divisor of {count}"
        )
    return {axis: count // fixed if size == "auto" else size for axis, size in asked.items()}


def check_batch(layout: Layout, batch_size: int, name: str = "batch_size") -> None:
    """Raises MeshError unless so many rows can be divided evenly among the devices."""
    shards = layout.batch_shards
    if batch_size % shards:
        fits = max(batch_size // shards, 1) * shards
        raise MeshError(
            f"{name} is {batch_size}, which {shards} parts of the mesh (replica x data x fsdp) cannot divide evenly: "
            f"take {fits} or {fits + shards}, or put more devices on --mesh.tensor"
        )


def heldout_batch(layout: Layout, rows: Mapping[str, np.ndarray]) -> dict[str, jax.Array]:
    """A batch that every process has whole on the devices, filled up with rows of padding, which count nothing."""
    size = next(iter(rows.values())).shape[0]
    full = math.ceil(size / layout.batch_shards) * layout.batch_shards
    padded = {name: np.pad(x, [(0, full - size), *[(0, 0)] * (x.ndim - 1)]) for name, x in rows.items()}
    return layout.put_batch(padded, full)


def placement_of(layout: Layout) -> Placement:
    """What the model asks where its arrays are to lie; on one device it need not ask, unless that has kernels."""
    return layout if layout.mesh.size > 1 or layout.device.platform == "tpu" else ANYWHERE


def _owner(name: str, parameters: Mapping[str, Any]) -> str:
    """The parameter that a leaf belongs to: the longest tail of its name that is one."""
    parts = name.split("/")
    return next((tail for i in range(len(parts)) if (tail := "/".join(parts[i:])) in parameters), "")
