"""Public sets: every layout from small files in its format, and the cache that fetches, checks and never trusts."""

from __future__ import annotations

import hashlib
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import numpy as np
import pytest
import torch

import gpexplorer as gpx
from gpexplorer.data.files.choice import Choice
from gpexplorer.data.files.layouts import read_set
from gpexplorer.data.quoting import size
from gpexplorer.data.sets.cards import Card, CardFile, card, fetch_card, is_cached, names, parse_card
from gpexplorer.errors import DataError
from stand_in_files import believed, write_like


def test_the_folds_of_every_set_on_this_machine_divide_its_rows(data_dir: Path) -> None:
    cached_names = [name for name in names() if is_cached(card(name))]
    assert {"kin40k", "concrete"} <= set(cached_names)
    for entry in map(card, cached_names):
        folds = range(10) if entry.split["kind"] == "folds" and entry.n < 9000 else range(1)
        parts = [gpx.data.load(entry.name, split=fold) for fold in folds]
        assert all(len(part.train) + len(part.test) == entry.n for part in parts), entry.name
        assert len(parts) == 1 or sum(len(part.test) for part in parts) == entry.n, entry.name
        assert entry.d is None or parts[0].train.d == entry.d
        assert parts[0].train.y.dtype == torch.float64


def test_the_warning_of_a_set_is_a_note_of_its_split(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GPEXPLORER_DATA_DIR", str(tmp_path))
    with believed(write_like(card("bike"), tmp_path), write_like(card("wine"), tmp_path)):
        bike, honest = gpx.data.load("bike"), gpx.data.load("bike", drop=["x15", "x16"])
        quality = gpx.data.load("wine", target="x10")
    assert "the inputs leak the target exactly" in bike.notes[0]
    assert (bike.train.d, honest.train.d) == (17, 15)
    assert bike.key != honest.key
    assert (quality.train.target, quality.train.names[-1], quality.train.d) == ("x10", "y", 11)


@pytest.mark.parametrize("shift", [0.0, 280.0])
def test_both_tables_of_co2_drop_the_missing_months(tmp_path: Path, shift: float) -> None:
    wide, monthly = tmp_path / "CO2.csv", tmp_path / "monthly.csv"
    ppm = [[1.0 + shift + 12 * year + month for month in range(12)] for year in range(2)]
    ppm[0][1] = -99.99
    rows = [f"{1958 + year},{','.join(map(str, ppm[year]))},-99.99" for year in range(2)]
    wide.write_text("﻿,Jan,Feb,Mar,Apr,May,Jun,Jul,Aug,Sep,Oct,Nov,Dec,Annual Average\n" + "\n".join(rows) + "\n")
    dates = [f"{1958 + i // 12},{i % 12 + 1},21200,{1958 + i / 12:.4f},{ppm[i // 12][i % 12]}" for i in range(24)]
    monthly.write_text("  Yr, Mn\n ,\n ,Excel\n" + "\n".join(f"{date},1,1,1,1,1, MLO" for date in dates) + "\n")

    for name, path in [("co2_gpcv_admm", wide), ("co2_mlo_monthly", monthly)]:
        numbers, given_split = read_set(replace(card(name), n=23), (path,), Choice())
        assert given_split.kind == "time"
        assert numbers.X[:3, 0] == pytest.approx([1958.0, 1958 + 2 / 12, 1958.25], abs=1e-4)
        assert numbers.y[:2] == pytest.approx([1.0 + shift, 3.0 + shift])


def test_the_test_rows_of_a_time_series_are_the_latest(data_dir: Path) -> None:
    for entry in (card(name) for name in names()):
        if entry.split["kind"] == "time" and is_cached(entry):
            split = gpx.data.load(entry.name)
            assert float(split.train.X.max()) < float(split.test.X.min())
            with pytest.raises(DataError, match="one split, split=0"):
                gpx.data.load(entry.name, split=1)
    frame = {"name": "snelson-like", "noise": 0.0}
    cut = gpx.data.load(frame, split={"before": 2.0, "until": 5.0})
    assert float(cut.train.X.max()) < 2.0 <= float(cut.test.X.min()) <= float(cut.test.X.max()) < 5.0


def test_molecules_are_texts_with_the_split_of_their_file(tmp_path: Path) -> None:
    path = tmp_path / "Ki.csv"
    path.write_text(
        "smiles,exp_mean [nM],y,cliff_mol,split,y [pEC50/pKi]\n"
        'C[C@@H](O)N,1,-1,0,train,5.5\n"CC(=N)N,C",2,-2,1,test,6.0\nCO,3,-3,0,train,7.25\nCN,4,-4,0,train,4.0\n'
    )
    numbers, given_split = read_set(replace(card("mol_factorxa_ki"), n=4), (path,), Choice())
    assert numbers.X == ["C[C@@H](O)N", "CC(=N)N,C", "CO", "CN"]
    assert numbers.y.tolist() == [5.5, 6.0, 7.25, 4.0]
    assert given_split.masks is not None
    assert given_split.masks[:, 0].tolist() == [False, True, False, False]
    split = gpx.data.load((numbers.X, numbers.y)).scaled()
    assert set(split.train.X) < set(numbers.X)
    assert float(split.train.y.mean()) == pytest.approx(0.0, abs=1e-12)
    path.write_text(path.read_text().replace(",test,", ",validation,"))
    with pytest.raises(DataError, match="other values than train and test"):
        read_set(replace(card("mol_factorxa_ki"), n=4), (path,), Choice())


def test_plain_tables_and_the_snelson_set_are_read(tmp_path: Path) -> None:
    path = tmp_path / "cal.data"
    names_in = "longitude,latitude,housingMedianAge,totalRooms,totalBedrooms,population,households,medianIncome"
    path.write_text(
        f"{names_in},medianHouseValue\n" + "".join(f"{-122 - i},37,4,880.0,1,3,{i},8,{i}e5\n" for i in (1, 2, 4))
    )
    numbers, _ = read_set(replace(card("calhousing"), n=3), (path,), Choice())
    assert (numbers.target, numbers.X.shape, numbers.y.tolist()) == ("medianHouseValue", (3, 8), [1e5, 2e5, 4e5])
    with pytest.raises(DataError, match=r"its file has 3 rows, but its card says 20,640"):
        read_set(card("calhousing"), (path,), Choice())

    files = tuple(tmp_path / f"{part}.dat" for part in ("in", "out", "test"))
    for file, values in zip(files, ([5.7, 1.4, 3.6], [-0.5, -1.7, 0.1], [-3.0]), strict=True):
        np.savetxt(file, values, fmt="%16.7e")
    numbers, given_split = read_set(replace(card("snelson1d"), n=3), files, Choice())
    assert (numbers.X[:, 0].tolist(), numbers.y.tolist(), given_split.kind) == (
        [5.7, 1.4, 3.6],
        [-0.5, -1.7, 0.1],
        "none",
    )


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (("sha256: 9bee", "sha256: XXXX"), "64 hexadecimal digits"),
        (("https://raw", "http://raw"), "url must start with https"),
        (("uci/kin40k/data", "../kin40k/data"), "the path must be relative to the cache folder"),
        (("layout: uci", "layout: csv"), 'layout "csv" must be one of'),
        (("n: 40000", "n: many"), "n is .many.; it must be of type int"),
        (("title:", "titel:"), 'correct "titel", "title"'),
    ],
)
def test_a_mistake_in_a_card_gives_a_sentence(root: Path, change: tuple[str, str], says: str) -> None:
    text = (root / "gpexplorer" / "data" / "cards" / "kin40k.yaml").read_text("utf-8")
    assert change[0] in text
    with pytest.raises(DataError, match=f"Card kin40k.*{says}"):
        parse_card("kin40k", text.replace(*change))


@contextmanager
def served(folder: Path) -> Iterator[str]:
    """The files of a folder over HTTP on this machine; its address."""

    class Quiet(SimpleHTTPRequestHandler):
        def log_message(self, *_: object) -> None:
            """A test prints nothing."""

    with ThreadingHTTPServer(("127.0.0.1", 0), partial(Quiet, directory=str(folder))) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_port}"
        finally:
            server.shutdown()
            thread.join()


@pytest.fixture
def held(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., Card]]:
    """Serves one file; the card that names it, with whatever is changed about it."""
    source, cache = tmp_path / "source", tmp_path / "cache"
    source.mkdir()
    body = b"x,y\n" + b"1,2\n" * 5000
    (source / "f.csv").write_bytes(body)
    monkeypatch.setenv("GPEXPLORER_DATA_DIR", str(cache))
    with served(source) as address:

        def make(**change: object) -> Card:
            file = CardFile("toy/f.csv", f"{address}/f.csv", hashlib.sha256(body).hexdigest(), len(body))
            return replace(card("calhousing"), name="toy", files=(replace(file, **change),))

        yield make


def test_a_file_is_fetched_once_and_then_needs_no_network(held: Callable[..., Card], tmp_path: Path) -> None:
    seen: list[tuple[int, int]] = []
    [path] = fetch_card(held(), lambda done, total: seen.append((done, total)))
    assert path == tmp_path / "cache" / "toy" / "f.csv"
    assert seen[-1] == (20_004, 20_004)
    assert [done for done, _ in seen] == sorted(done for done, _ in seen)
    path.chmod(0o444)
    path.parent.chmod(0o555)
    assert fetch_card(held(url="https://127.0.0.1:9/nowhere.csv")) == (path,)
    path.parent.chmod(0o755)


def test_a_download_with_a_wrong_checksum_is_never_kept(held: Callable[..., Card], tmp_path: Path) -> None:
    with pytest.raises(
        DataError, match=r"toy/f.csv \(20 kB\) from http.* arrived with another SHA-256 .*, so it was not"
    ):
        fetch_card(held(sha256="0" * 64))
    with pytest.raises(DataError, match="so it was not kept"):
        fetch_card(held(nbytes=5_000))  # a server that sends more than the card says is cut off
    with pytest.raises(DataError, match=r"no answer for toy/f.csv .* \(HTTPError\).*GPEXPLORER_DATA_DIR"):
        fetch_card(held(url=held().files[0].url + ".gone"))
    assert not [path for path in (tmp_path / "cache").rglob("*") if path.is_file()]
    assert not (tmp_path / "cache" / "toy").exists()
    (tmp_path / "cache" / "toy").mkdir(parents=True)
    with pytest.raises(DataError, match="so it was not kept"):
        fetch_card(held(sha256="1" * 64))
    assert (tmp_path / "cache" / "toy").exists()  # what was there before stays


def test_sizes_are_written_in_a_readable_unit() -> None:
    assert [size(n) for n in (999, 1_144_601, 10**10)] == ["999 bytes", "1.14 MB", "10 GB"]
