"""Files: same data, same bytes; nothing half-written; glyphs inside."""

from __future__ import annotations

import hashlib
import os
import re
import struct
import subprocess
import sys
from pathlib import Path
from xml.etree import ElementTree

import matplotlib as mpl
import pytest

from analysis import style
from analysis.choice import Choice
from analysis.figures import draw, plot
from campaign.errors import BadInput
from tests.analysis.answers_store import memory_store, store_file
from tests.analysis.shapes import two_sites
from tests.needs import needs

FORMATS = ("png", "svg", "pdf")
DRAW = """
import sys
from pathlib import Path
import duckdb
from analysis import style
from analysis.figures import draw, plot
from analysis.choice import Choice
with duckdb.connect(sys.argv[1], read_only=True) as connection:
    for name, formats in (("cross-site", ["png", "svg", "pdf"]), ("steps", ["svg"])):
        plot(name, connection, Choice(), folder=Path(sys.argv[2]), formats=formats)
print("matplotlib.pyplot" in sys.modules)
"""


def digests(folder: Path) -> dict[str, str]:
    return {path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in sorted(folder.iterdir())}


def test_same_data_same_bytes_in_another_process_with_other_settings(tmp_path: Path) -> None:
    store = store_file(tmp_path / "store.duckdb", two_sites())
    (tmp_path / "matplotlibrc").write_text("font.size: 20\nlines.linewidth: 9\nsvg.fonttype: none\nsavefig.dpi: 40\n")
    for folder, env in (
        ("one", {"PYTHONHASHSEED": "1"}),
        (
            "two",
            {"PYTHONHASHSEED": "2", "MATPLOTLIBRC": str(tmp_path), "SOURCE_DATE_EPOCH": "86400", "TZ": "Asia/Tokyo"},
        ),
    ):
        answer = subprocess.run(
            [sys.executable, "-W", "error", "-c", DRAW, str(store), str(tmp_path / folder)],
            env=os.environ | env, capture_output=True, text=True, check=False,
        )  # fmt: skip
        assert (answer.returncode, answer.stdout.strip()) == (0, "False"), answer.stderr
    assert digests(tmp_path / "one") == digests(tmp_path / "two")
    assert len(digests(tmp_path / "one")) == 4


def test_panels_stand_where_the_solver_noise_cannot_be_seen() -> None:
    # kiwisolver orders by address: without rounding the last digits, and the ids in the SVG, change now and then
    with memory_store(two_sites()) as connection, style.look():
        panels = draw("scaling", connection, Choice()).figure.axes
    for panel in panels:
        assert [round(float(value), 6) for value in panel.get_position().extents] == list(panel.get_position().extents)


def test_other_data_other_bytes(tmp_path: Path) -> None:
    for folder, runs in (("one", two_sites()), ("two", two_sites()[:-1])):
        with memory_store(runs) as connection:
            plot("scaling", connection, Choice(), folder=tmp_path / folder, formats=["svg"])
    assert digests(tmp_path / "one") != digests(tmp_path / "two")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("figures") / "new" / "folder"
    with memory_store(two_sites()) as connection:
        plotted = plot("scaling", connection, Choice(), folder=folder, formats=FORMATS)
    assert [path.name for path in plotted.files] == ["scaling.png", "scaling.svg", "scaling.pdf"]
    return folder


def test_png_is_large_enough_for_print_and_carries_no_date(folder: Path) -> None:
    data = (folder / "scaling.png").read_bytes()
    width, height = struct.unpack(">II", data[16:24])
    assert width >= 1400
    assert height >= 800
    chunks = re.findall(rb"tEXt|iTXt|tIME", data)
    assert chunks == []


def test_svg_has_its_glyphs_inside_and_neither_date_nor_text_elements(folder: Path) -> None:
    text = (folder / "scaling.svg").read_text(encoding="utf-8")
    assert "<dc:date" not in text
    assert mpl.__version__ not in text
    tags = {element.tag.rpartition("}")[2] for element in ElementTree.fromstring(text).iter()}
    assert "text" not in tags
    assert "path" in tags


def test_pdf_embeds_its_fonts(folder: Path) -> None:
    data = (folder / "scaling.pdf").read_bytes()
    assert b"/FontFile2" in data
    assert b"/CreationDate" not in data


def test_only_whole_files_are_left_and_the_group_may_read_them(folder: Path) -> None:
    assert sorted(path.name for path in folder.iterdir()) == ["scaling.pdf", "scaling.png", "scaling.svg"]
    mask = os.umask(0)
    os.umask(mask)
    assert {path.stat().st_mode & 0o777 for path in folder.iterdir()} == {0o666 & ~mask}


def test_a_folder_that_cannot_be_made_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with memory_store(two_sites()) as connection, pytest.raises(BadInput, match=r"file/scaling\.png: cannot write"):
        plot("scaling", connection, Choice(), folder=tmp_path / "file")


@needs("tmpfs")
def test_a_full_disk_leaves_the_old_file_and_no_temporary_one(tmp_path: Path) -> None:
    store = store_file(tmp_path / "store.duckdb", two_sites())
    small = tmp_path / "small"
    small.mkdir()
    script = """
        mount -t tmpfs -o size=16k none "$1"
        echo old > "$1/cross-site.png"
        "$2" -c "$3" "$4" "$1"
        grep -r . "$1"
    """
    answer = subprocess.run(
        ["unshare", "-m", "--propagation", "private", "sh", "-c", script, "sh", small, sys.executable, DRAW, store],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert "cross-site.png: cannot write the figure: No space left on device" in answer.stderr
    assert answer.stdout == f"{small}/cross-site.png:old\n"


def test_who_reads_the_old_figure_keeps_the_whole_of_it(tmp_path: Path) -> None:
    old = tmp_path / "scaling.svg"
    old.write_text("old and whole")
    with old.open() as reader:
        with memory_store(two_sites()) as connection:
            plot("scaling", connection, Choice(), folder=tmp_path, formats=["svg"])
        assert reader.read() == "old and whole"
    assert old.read_text().startswith("<?xml")


def test_the_users_settings_are_untouched() -> None:
    before = dict(mpl.rcParams)
    with memory_store(two_sites()) as connection, pytest.raises(BadInput):
        plot("none", connection, Choice(), folder=Path("nowhere"))
    assert dict(mpl.rcParams) == before
