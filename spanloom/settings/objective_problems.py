"""What is wrong with the settings of an objective, as far as it is known without files."""

from collections.abc import Iterator

from spanloom.settings.objectives import UL2, FullLM, Objective, PrefixLM, Supervised, TokenStream


def objective_problems(objective: Objective) -> Iterator[str]:
    """Each problem in words; none where there is none."""
    yield from _lengths(objective)
    if isinstance(objective, TokenStream):
        yield from _joining(objective)
    if isinstance(objective, UL2):
        yield from _ul2(objective)
        return
    if (density := getattr(objective, "noise_density", None)) is not None:
        yield from _share("noise_density", density, most=0.5 if isinstance(objective, PrefixLM) else None)
    if (mean := getattr(objective, "mean_span_length", None)) is not None:
        yield from _mean("mean_span_length", mean)


def _lengths(objective: Objective) -> Iterator[str]:
    for name in ("inputs_length", "targets_length"):
        length = getattr(objective, name, None)
        least = 2 if isinstance(objective, Supervised) else 1
        if length is not None and length < least:
            yield f"task.objective.{name} is {length}: must be {least} or more"


def _joining(objective: TokenStream) -> Iterator[str]:
    if objective.concat_documents < 0:
        yield f"task.objective.concat_documents is {objective.concat_documents}: must be 0 or more"
    if objective.merge:
        return
    if objective.concat_documents:
        yield (
            f"task.objective.merge is False and concat_documents {objective.concat_documents}: documents are by "
            "themselves or joined; set one of them"
        )
    if objective.separator == "eos" and not isinstance(objective, FullLM):
        yield (
            "task.objective.merge is False, so that an end of sequence ends every document already: leave "
            "task.objective.separator unset"
        )


def _ul2(objective: UL2) -> Iterator[str]:
    rates = (objective.r_rate, objective.s_rate, objective.x_rate)
    if min(rates) < 0 or not sum(rates) > 0:
        yield f"task.objective.r_rate, s_rate and x_rate are {rates}: must be 0 or more, one of them above 0"
    for kind in "rx":
        densities, means = (getattr(objective, f"{kind}_{name}") for name in ("noise_densities", "mean_span_lengths"))
        if len(densities) != len(means) or not means:
            yield (
                f"task.objective.{kind}_noise_densities are {densities} and {kind}_mean_span_lengths {means}: each "
                f"{kind.upper()}-denoiser has one of both (to use none, set {kind}_rate to 0)"
            )
        for density in densities:
            yield from _share(f"{kind}_noise_densities", density)
        for mean in means:
            yield from _mean(f"{kind}_mean_span_lengths", mean)
    yield from _share("s_noise_density", objective.s_noise_density, most=0.5)
    modes = objective.modes
    if modes and (len({*modes}) != 3 or len(modes) != 3 or not all(mode.strip() for mode in modes)):
        yield f"task.objective.modes are {modes}: give three texts that differ, those of R, S and X, or none"


def _share(name: str, share: float, most: float | None = None) -> Iterator[str]:
    if most is None and not 0 < share < 1:
        yield f"task.objective.{name} is {share}: must be above 0 and below 1"
    if most is not None and not 0 < share <= most:
        yield f"task.objective.{name} is {share}: must be above 0 and at most {most}"


def _mean(name: str, mean: float) -> Iterator[str]:
    if not 1 <= mean < float("inf"):
        yield f"task.objective.{name} is {mean}: must be 1 or more"
