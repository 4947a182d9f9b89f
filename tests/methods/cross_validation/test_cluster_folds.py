"""Folds on a Dask worker in another process: they give the same numbers as in this process."""

from __future__ import annotations

import os
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import Any

import pytest
import torch

from gpexplorer import Spec, Store
from gpexplorer.__main__ import main
from gpexplorer.methods.base import registry
from gpexplorer.runs import working
from gpexplorer.runs.studies.cluster import connected, mapped
from gpexplorer.runs.trace import tensors
from oracles_admm import problem

SETTINGS = {"cg_tolerance": 1e-12, "cg_iterations": 300, "rank": 10, "restarts": 1, "max_iterations": 6}
SCHEMES = {"gpcv-admm": {"folds": 3, "copies": True}, "gpcv-admm-naive": {"folds": 2}, "gpcv-admm-holdout": {}}


@pytest.fixture(scope="module")
def client() -> Iterator[Any]:
    from distributed import LocalCluster

    with (
        LocalCluster(n_workers=1, threads_per_worker=1, processes=True, dashboard_address=":0") as cluster,
        connected(cluster.scheduler_address) as dask_client,
    ):
        yield dask_client


@pytest.mark.parametrize("key", list(SCHEMES))
def test_folds_on_a_worker_give_the_same_numbers_as_in_this_process(key: str, client: Any):
    task = problem(1000.0)
    local = registry[key](**SETTINGS, **SCHEMES[key])
    distributed = local.with_mapper(mapped(client))

    pairs = list(zip(islice(local.steps(task), 5), islice(distributed.steps(task), 5), strict=True))

    assert client.submit(os.getpid, pure=False).result() != os.getpid()
    assert len(pairs) == 5
    for first, second in pairs:
        for a, b in zip(tensors(first.state), tensors(second.state), strict=True):
            torch.testing.assert_close(b, a, rtol=1e-7, atol=1e-8)


@pytest.mark.parametrize(
    ("method", "settings"),
    [
        ("gpcv-admm", {**SETTINGS, "folds": 3, "copies": True}),
        ("pcg", {"cache": 0.0, "learn": False}),
        ("grief", {"learn": False}),
    ],
)
def test_kernel_entries_of_workers_are_counted(method: str, settings: dict[str, Any], client: Any):
    spec = Spec(method, settings, data={"name": "snelson-like", "n": 400}, budget={"steps": 3})
    local, distributed = spec.open(), spec.open()
    messages: list[str] = []
    local.finish()

    with working(distributed, client.scheduler.address, messages.append):
        distributed.finish()

    assert not any("no pieces" in sentence for sentence in messages)
    assert [record.cost.entries for record in distributed.trace] == [record.cost.entries for record in local.trace]
    assert distributed.trace[-1].cost.entries > 0


@pytest.mark.parametrize(
    ("method", "settings", "sentence"),
    [
        ("random", {}, "had no pieces of work to send, so the run stayed in this process"),
        ("gpcv-admm", {}, "Set copies to true"),
        ("gpcv-admm-holdout", {}, "was one piece, which one worker did"),
        ("gpcv-admm", {"copies": True}, None),
    ],
)
def test_a_run_that_cannot_be_divided_says_so(
    method: str, settings: dict[str, Any], sentence: str | None, client: Any, recwarn: pytest.WarningsRecorder
):
    run = Spec(method, settings, data={"name": "snelson-like", "n": 40}).open()

    with working(run, client.scheduler.address):
        for _ in range(2):
            run.advance()

    messages = [str(warning.message) for warning in recwarn]
    assert len(messages) == (sentence is not None)
    assert sentence is None or sentence in messages[0]


def test_command_line_run_sends_its_folds_to_a_scheduler(
    client: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    spec = Spec("gpcv-admm", {"folds": 2, "copies": True, "max_iterations": 2}, data={"name": "snelson-like", "n": 40})
    (tmp_path / "spec.json").write_text(spec.to_json())
    address = client.scheduler.address

    with pytest.raises(SystemExit) as ended:
        main(["run", str(tmp_path / "spec.json"), "--out", str(tmp_path / "store"), "--scheduler", address])

    local = spec.open()
    outcome = local.finish()
    assert not ended.value.code
    assert outcome.message in capsys.readouterr().out
    distributed = Store(tmp_path / "store").open(spec)
    torch.testing.assert_close(distributed.trace[-1].step.state.theta, local.trace[-1].step.state.theta)
