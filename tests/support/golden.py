"""Everything that a change of the code must not change: what methods compute, pictures, specs, links, saved files.

    python tests/support/golden.py write FOLDER                        keep what this checkout computes
    python tests/support/golden.py compare FOLDER                      say what this checkout computes otherwise
    python tests/support/golden.py compare FOLDER --only methods --method cholqr gbcd --tolerance 1e-12

It is a command and no test, since the last bits of a number depend on the machine. The folder holds the numbers beside
their SHA-256, so a comparison can say how large a difference is. A field of a state is named without the tuple that
holds it: it may move into an inner tuple.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import shutil
import sys
import tempfile
import time
import warnings
from collections import defaultdict
from collections.abc import Iterator
from itertools import count
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

import gpexplorer as gpx
from gpexplorer.errors import GPExplorerError
from gpexplorer.runs import Run, link
from gpexplorer.runs.schema import spec_schema
from steps_of import small_spec

STEPS = 12
KERNELS = ("se-ard", "matern32-product")
PRECISIONS = ("float64", "float32")
STORED = 4  # steps of a stored run, which is then continued up to STEPS
Golden = dict[str, np.ndarray]
LEADERS = (
    "cholqr",
    "gbcd",
    "gpcv-admm",
    "grief",
    "grief-mcmc",
    "minimax",
    "scgd",
)  # they have all pictures of a family
ROWS_OF_PICTURES = {
    "one input": {"name": "snelson-like", "n": 60},
    "two inputs": {"name": "sin-product", "n": 60},
    "five inputs": {"name": "hypercube", "n": 60, "d": 5},
}


def text(value: object) -> np.ndarray:
    """Text beside the numbers, as its bytes."""
    return np.frombuffer(str(value).encode("utf-8"), np.uint8)


def rows(d: int) -> Tensor:
    """The 20 rows at which posteriors are compared; the last two lie far away."""
    X = torch.rand(20, d, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    X[-2:] += 5.0
    return X


def fields(value: Any, name: str = "") -> Iterator[tuple[str, np.ndarray]]:
    """Every tensor, number and text of a state or an info, by the name of the innermost field that holds it."""
    if isinstance(value, Tensor):
        yield name, value.detach().cpu().numpy()
    elif isinstance(value, tuple):
        names = getattr(value, "_fields", None) or tuple(f"{name} {k}" for k in range(len(value)))
        for inner, part in zip(names, value, strict=True):
            yield from fields(part, inner)
    elif isinstance(value, str) or value is None:
        yield name, text(value)
    else:
        yield name, np.asarray(value)


def of_record(run: Run, at: int, prefix: str) -> Golden:
    """The state, the info and the posterior of one record."""
    record, golden = run.trace[at], {}
    for part, value in (("state", record.step.state), ("info", record.step.info)):
        for name, array in fields(value):
            unique = next(key for k in count(1) if (key := f"{prefix}/{part} {name}{k if k > 1 else ''}") not in golden)
            golden[unique] = array
    golden[f"{prefix}/kernel entries"] = np.asarray(record.cost.entries)
    mean, var = run.posterior(at)(rows(run.problem.train.X.shape[1]))
    return golden | {f"{prefix}/mean": mean.numpy(), f"{prefix}/variance": var.numpy()}


def of_methods(keys: list[str], folder: Path) -> Golden:
    """The first steps of every method, for two kernels and two precisions."""
    golden: Golden = {}
    for key in keys:
        for kernel in KERNELS:
            for dtype in PRECISIONS:
                prefix = f"methods/{key}/{kernel}/{dtype}"
                try:
                    run = small_spec(key, d=3, kernel=kernel, dtype=dtype).open()
                    outcome = run.finish(steps=STEPS)
                    golden[f"{prefix}/outcome"] = text(f"{outcome.reason}: {outcome.message}")
                    for at in range(len(run.trace)):
                        golden |= of_record(run, at, f"{prefix}/step {at}")
                    golden |= {f"{prefix}/score {name}": np.asarray(value) for name, value in run.scores().items()}
                except GPExplorerError as error:
                    golden[f"{prefix}/error"] = text(error)
    return golden


def of_pictures(keys: list[str], folder: Path) -> Golden:
    """Every picture as SVG, at two records of a run of one method per family; two pictures of the other methods."""
    ticks = count()
    time.perf_counter = time.monotonic = lambda: next(ticks) * 1e-3  # type: ignore[assignment]  # seconds are equal too
    golden: Golden = {}
    for key in keys:
        for name in ROWS_OF_PICTURES if key in LEADERS else ("two inputs",):
            run = pictured_run(small_spec(key, data=ROWS_OF_PICTURES[name]))
            views = [view.key for view in gpx.views.for_run(run)]
            for view in views if key in LEADERS else {"convergence", "terms"} & {*views}:
                for at in (1, run.done):
                    golden[f"pictures/{key}/{name}/{view}/record {at}"] = svg(run, view, at)
    if "cholqr" in keys:
        chains = ["C" * a + end + "C" * b for a in range(1, 7) for b in range(4) for end in ("O", "N", "C(=O)")]
        y = torch.tensor([0.8 * len(chain) - 2.0 * chain.count("O") for chain in chains], dtype=torch.float64)
        run = pictured_run(small_spec("cholqr", data="molecules", kernel="molecules"), data=(chains, y))
        for view in ("structures", "landscape", "terms"):
            golden[f"pictures/cholqr/molecules/{view}/record 8"] = svg(run, view, 8)
        others = [run, pictured_run(small_spec("random", data=ROWS_OF_PICTURES["two inputs"]))]
        for channel in ("objective", "smse"):
            golden[f"pictures/cholqr/compared/{channel}/record 8"] = text(gpx.Compare(others).curves(channel).svg())
    return golden


def pictured_run(spec: gpx.Spec, **rows: Any) -> Run:
    """A run of eight steps with scores."""
    run = spec.open(**rows)
    run.finish(steps=8)
    return run


def svg(run: Run, view: str, at: int) -> np.ndarray:
    """A picture as SVG, or the error that it raises."""
    try:
        return text(gpx.Picture(run, view, at).svg())
    except Exception as error:
        return text(f"{type(error).__name__}: {error}")


def of_specs(keys: list[str], folder: Path) -> Golden:
    """Specs as JSON, their keys, links both ways, programs, and the schema."""
    from gpexplorer.runs.code import program

    golden: Golden = {}
    start = gpx.Spec("cholqr")
    for key in keys:
        for name, spec in {"defaults": gpx.Spec(key), "small": small_spec(key, seed=3, kernel="matern32-ard")}.items():
            prefix = f"specs/{key}/{name}"
            texts = {
                "json": spec.to_json(),
                "key": spec.key(),
                "link": link.write(spec, "convergence", 3),
                "short link": link.write_short(spec, start, "fit"),
                "program": program(spec, 5),
            }
            golden |= {f"{prefix}/{what}": text(value) for what, value in texts.items()}
            for what in ("link", "short link"):
                golden[f"{prefix}/{what} read"] = text(link.read(texts[what], start, ("convergence", "fit")))
        golden[f"specs/{key}/channels"] = text(gpx.methods[key].channels)
    return golden | {"specs/schema": text(json.dumps(spec_schema(), sort_keys=True))}


def of_models(keys: list[str], folder: Path) -> Golden:
    """What the saved models in the folder predict. `write` saves them first."""
    golden: Golden = {}
    for key in keys:
        path, prefix = folder / "models" / f"{key}.safetensors", f"models/{key}"
        if not path.exists():
            golden[f"{prefix}/no file"] = text("")
            continue
        model = gpx.load_posterior(path)
        X = rows(model.columns.d)
        mean, var = model(X)
        golden |= {f"{prefix}/mean": mean.numpy(), f"{prefix}/variance": var.numpy()}
        golden[f"{prefix}/noise"] = np.asarray(model.noise_variance)
        asks = {
            "covariance": lambda model=model, X=X: model.cov(X),
            "paths": lambda model=model, X=X: model.paths(2, seed=1)(X),
            "gradient": lambda model=model, X=X: model.gradient(X).mean,
            "quantile": lambda model=model, X=X: model.quantile(X, 0.9),
            "more rows": lambda model=model, X=X: model.with_rows(X[:2], torch.ones(2))(X).mean,
            "torch module": lambda model=model, X=X: torch.stack(model.to_torch()(X)),
        }
        for name, ask in asks.items():
            try:
                golden[f"{prefix}/{name}"] = ask().detach().numpy()
            except GPExplorerError as error:
                golden[f"{prefix}/{name}"] = text(error)
    return golden


def save_models(keys: list[str], folder: Path) -> None:
    """Save the model of a short run of every method whose model can be saved."""
    (folder / "models").mkdir(parents=True, exist_ok=True)
    for key in keys:
        run = small_spec(key, d=2).open()
        run.finish(steps=8)
        try:
            run.posterior(of="y").save(folder / "models" / f"{key}.safetensors")
        except GPExplorerError:
            continue


def of_stored(keys: list[str], folder: Path) -> Golden:
    """The records of the stored runs in the folder, and of the runs continued from them. `write` stores them first."""
    golden: Golden = {}
    with tempfile.TemporaryDirectory() as copy:
        store = gpx.Store(shutil.copytree(folder / "store", Path(copy, "store")))
        for key in keys:
            run = store.open(small_spec(key))
            assert run.done or run.outcome, f"The store has no run of {key}."
            golden[f"stored/{key}/records"] = np.asarray(len(run.trace))
            run.finish(steps=STEPS)
            for at in range(len(run.trace)):
                golden |= of_record(run, at, f"stored/{key}/record {at}")
            run.close()
    return golden


def store_runs(keys: list[str], folder: Path) -> None:
    """Store the first steps of a run of every method."""
    store = gpx.Store(folder / "store")
    for key in keys:
        run = store.open(small_spec(key))
        run.finish(steps=STORED)
        run.close()


PARTS = {
    "methods": of_methods,
    "specs": of_specs,
    "models": of_models,
    "stored": of_stored,
    "pictures": of_pictures,  # last, since it changes the clock
}


def write(folder: Path, parts: list[str], keys: list[str]) -> int:
    """Keep what this checkout computes, one file of numbers per part, with the hash of each number beside it."""
    folder.mkdir(parents=True, exist_ok=True)
    save_models(keys, folder)
    store_runs(keys, folder)
    for part in parts:
        golden = PARTS[part](keys, folder)
        np.savez_compressed(folder / f"{part}.npz", **{name.replace("/", "|"): array for name, array in golden.items()})
        lines = [f"{digest(array)}  {name}\n" for name, array in sorted(golden.items())]
        (folder / f"{part}.sha256").write_text("".join(lines), "utf-8")
        print(f"{part}: {len(golden)} entries")
    return 0


def digest(array: np.ndarray) -> str:
    """SHA-256 of an array with its type and its shape."""
    return hashlib.sha256(f"{array.dtype}{array.shape}".encode() + np.ascontiguousarray(array).tobytes()).hexdigest()


def compare(folder: Path, parts: list[str], keys: list[str], tolerance: float) -> int:
    """Print what differs, and by how much; the status is 1 if a difference is larger than the tolerance."""
    wrong = 0
    for part in parts:
        with np.load(folder / f"{part}.npz") as file:
            before = {name.replace("|", "/"): file[name] for name in file.files}
        before = {name: array for name, array in before.items() if len(path := name.split("/")) < 3 or path[1] in keys}
        now = PARTS[part](keys, folder)
        differences = defaultdict[str, dict[str, str | float]](dict)
        for name in sorted({*before, *now}):
            if (difference := differs(before.get(name), now.get(name))) is not None:
                differences[group(name)][name] = difference
        for place, entries in differences.items():
            wrong += sum(isinstance(entry, str) or entry > tolerance for entry in entries.values())
            print(f"{place}: {len(entries)} entries differ; {described(entries)}")
        print(f"{part}: {len(before)} entries, {sum(map(len, differences.values()))} differ")
    return int(wrong > 0)


def group(name: str) -> str:
    """What is reported in one line: a method with its kernel and its precision, one picture, one model."""
    return "/".join(name.split("/")[:4]) if name.startswith(("methods", "pictures")) else "/".join(name.split("/")[:2])


def differs(before: np.ndarray | None, now: np.ndarray | None) -> float | str | None:
    """None for equal bits, the largest difference over the largest number, or a sentence if that means nothing."""
    if before is None or now is None:
        return "new" if before is None else "missing"
    if before.shape == now.shape and before.dtype == now.dtype and digest(before) == digest(now):
        return None
    if before.dtype == now.dtype == np.uint8:
        first, second = (array.tobytes().decode("utf-8", "replace") for array in (before, now))
        at = next((k for k, pair in enumerate(zip(first, second, strict=False)) if len({*pair}) > 1), len(first))
        return f"...{first[max(at - 30, 0) : at + 50]!r} became ...{second[max(at - 30, 0) : at + 50]!r}"
    if before.shape != now.shape or before.dtype != now.dtype:
        return f"{before.dtype} {list(before.shape)} became {now.dtype} {list(now.shape)}"
    first, second = before.astype(float), now.astype(float)
    if not np.array_equal(np.isfinite(first), np.isfinite(second)):
        return "not finite in other places"
    finite = np.isfinite(first)
    largest = np.abs(first[finite]).max(initial=0.0)
    return float(np.abs(first - second)[finite].max(initial=0.0) / (largest or 1.0))


def described(entries: dict[str, str | float]) -> str:
    """The largest difference, where the first is, and the first sentences."""
    numbers = {name: value for name, value in entries.items() if isinstance(value, float)}
    sentences = [f"{name.split('/', 2)[-1]}: {value}" for name, value in entries.items() if isinstance(value, str)]
    parts = sentences[:3] + ([f"and {len(sentences) - 3} more"] if len(sentences) > 3 else [])
    if numbers:
        largest = max(numbers, key=lambda name: numbers[name])
        parts.append(f"largest relative difference {numbers[largest]:.1e} at {largest.split('/', 2)[-1]}")
    return "; ".join(parts)


def main(arguments: list[str] | None = None) -> int:
    """Read the command line and do what it says."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=["write", "compare"])
    parser.add_argument("folder", type=Path)
    parser.add_argument("--only", nargs="+", choices=list(PARTS), default=list(PARTS), help="these parts")
    parser.add_argument("--method", nargs="+", choices=sorted(gpx.methods), help="these methods; all by default")
    parser.add_argument("--tolerance", type=float, default=0.0, help="relative differences up to this are no failure")
    given = parser.parse_args(arguments)
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    parts, keys = [part for part in PARTS if part in given.only], given.method or sorted(gpx.methods)
    if given.what == "write":
        return write(given.folder, parts, keys)
    return compare(given.folder, parts, keys, given.tolerance)


if __name__ == "__main__":
    sys.exit(main())
