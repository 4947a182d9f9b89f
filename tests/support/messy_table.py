"""Tables as people have them: decimal commas, texts, dates, gaps, ids, constant columns, molecules, units, totals.

Those that have a twin of new rows take `new=True`, which leaves out the target.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Callable

import numpy as np

SMILES = ("CCO", "CC(=O)O", "c1ccccc1", "CC(C)O", "C1CCCCC1", "CCN(CC)CC", "c1ccc(C(=O)O)cc1", "CC#N", "CCCl", "C=CC=C")


def messy_csv(rows: int = 240, seed: int = 0) -> bytes:
    """The bytes of the file, in Windows-1252. The target depends on `größe`, `colour` and `when`."""
    rng = np.random.default_rng(seed)
    size, day = rng.uniform(100.0, 106.0, rows), rng.integers(0, 900, rows)
    colour = rng.choice(["red", "green", "blue"], rows)
    y = 50.0 + np.sin(size) + 0.8 * (colour == "red") + 0.002 * day + 0.05 * rng.normal(size=rows)
    when = np.datetime64("2019-01-01") + day
    molecules = ["C" * (i // 10) + SMILES[i % 10] for i in range(rows)]
    lines = ["id;größe;colour;when;unit;smiles;empty;price"]
    for i in range(rows):
        gap = "" if i % 40 == 7 else f"{size[i]:.4f}".replace(".", ",")
        lines.append(f"{i + 1};{gap};{colour[i]};{when[i]};5;{molecules[i]};;" + f"{y[i]:.5f}".replace(".", ","))
    return "\n".join(lines).encode("cp1252") + b"\n"


def european_csv(rows: int = 200, seed: int = 1, new: bool = False) -> bytes:
    """Houses with semicolons, 1.234,5, dd.mm.yyyy, ja and nein, gaps, a number of each row, and a row of totals."""
    rng = np.random.default_rng(seed)
    area, day = rng.uniform(35.0, 180.0, rows), rng.integers(0, 1500, rows)
    city, balcony = rng.choice(["Köln", "Bonn", "Aachen", "Düren"], rows), rng.choice(["ja", "nein"], rows)
    price = 2500.0 * area * (1.0 + 0.3 * (city == "Köln")) + 2e4 * (balcony == "ja") + 40.0 * day
    price += rng.normal(0.0, 9000.0, rows)
    lines = ["Objekt-Nr;Wohnfläche (m²);Verkauft am;Stadt;Balkon" + ";Preis_EUR" * (not new)]
    for i in range(rows):
        when = (np.datetime64("2019-01-01") + day[i]).item().strftime("%d.%m.%Y")
        size = "" if i % 23 == 5 else _european(area[i])
        lines.append(f"{1000 + i};{size};{when};{city[i]};{balcony[i]}" + f";{_european(price[i])}" * (not new))
    lines += [] if new else [f"Summe;;;;;{_european(price.sum())}"]
    return "\n".join(lines).encode()


def sensor_csv(rows: int = 240, seed: int = 2, new: bool = False) -> bytes:
    """A log every half hour with a time zone, gaps, -999 for a missing value, and residuals that depend on time."""
    rng, start = np.random.default_rng(seed), np.datetime64("2024-03-01T00:00")
    lines, left = ["time,temperature,humidity,valve" + ",power_kw" * (not new)], 0.0
    for i in range(rows, 2 * rows) if new else range(rows):
        of_day = 2.0 * np.pi * (i % 48) / 48.0
        temperature = 12.0 + 6.0 * np.sin(of_day) + rng.normal(0.0, 0.6)
        humidity = 60.0 - 10.0 * np.sin(of_day + 0.5) + rng.normal(0.0, 2.0)
        left = 0.9 * left + rng.normal(0.0, 0.15)
        power = 4.0 + 0.12 * temperature * np.sin(of_day) + 0.02 * humidity + left
        cells = [
            f"{start + np.timedelta64(30 * i, 'm')}:00+01:00", "-999" if i % 37 == 3 else f"{temperature:.2f}",
            "" if i % 29 == 4 else f"{humidity:.1f}", "open" if rng.random() < 0.4 else "closed", f"{power:.4f}",
        ]  # fmt: skip
        lines.append(",".join(cells[: 4 if new else 5]))
    return "\n".join(lines).encode()


def wide_csv(rows: int = 150, seed: int = 3, new: bool = False) -> bytes:
    """61 columns: an id, 51 numbers, few and many words, yes and no, currency, percent, a date, and a constant."""
    rng = np.random.default_rng(seed)
    X, income = rng.normal(size=(rows, 51)).round(3), rng.uniform(2e4, 9e4, rows)
    region, smoker = rng.choice(["north", "south", "east"], rows), rng.choice(["yes", "no"], rows)
    premium = 300.0 + 0.004 * income + 40.0 * (smoker == "yes") + 15.0 * X[:, 0] + 25.0 * (region == "north")
    columns = {
        "customer": [f"K-{7 * k % 1000:03d}/{k}" for k in range(rows)],
        **{f"measure {j + 1}": X[:, j] for j in range(51)},
        "region": region, "town": rng.choice([f"town {k}" for k in range(40)], rows), "smoker": smoker,
        "income": [f"${value:,.2f}" for value in income],
        "discount": [f"{value:.1f} %" for value in rng.uniform(0.0, 30.0, rows)],
        "signed": [str(np.datetime64("2021-01-01") + day) for day in rng.integers(0, 700, rows)],
        "currency": ["USD"] * rows, "satisfied": rng.choice(["good", "bad", "so-so"], rows),
        "premium": [f"${value:,.2f}" for value in premium + rng.normal(0.0, 8.0, rows)],
    }  # fmt: skip
    names = [name for name in columns if not (new and name == "premium")]
    text = io.StringIO()
    writer = csv.writer(text)
    writer.writerows([names, *zip(*(columns[name] for name in names), strict=True)])
    return text.getvalue().encode()


# Three files that become decisions: how each is written, what is said of its size, and what it is asked for.
PATHS: dict[str, tuple[Callable[..., bytes], str, str]] = {
    "houses.csv": (european_csv, "201 rows, 6 columns", "Preis_EUR"),
    "sensor.csv": (sensor_csv, "240 rows, 5 columns", "power_kw"),
    "insurance.csv": (wide_csv, "150 rows, 61 columns", "premium"),
}


def _european(value: float) -> str:
    return f"{value:,.2f}".translate(str.maketrans(",.", ".,"))
