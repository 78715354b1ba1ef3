"""`campaign data`: prepare the data sets that studies read."""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from campaign.cli.common import Context, flags, require
from campaign.errors import BadInput, OutsideProject, Problem

if TYPE_CHECKING:
    from training.data.prepare import Source

DATASETS = ("hydrology",)

EXAMPLES = """\b
Examples:
  campaign data prepare hydrology                        climate-model output from PyPI's iris-sample-data
  campaign data prepare hydrology --site juwels          where the site file says that data sets are
  campaign data prepare hydrology --synthetic --cells 100000 --years 30
  campaign data prepare hydrology --verify               read all values and compare with the digest
"""


@click.group()
def data() -> None:
    """Prepare the data sets that studies read."""


@data.command(epilog=EXAMPLES)
@flags
@click.argument("name", type=click.Choice(DATASETS))
@click.option("--dest", type=click.Path(path_type=Path), help="Folder of the data set. Default: see above.")
@click.option("--site", "site_name", help="Prepare it where this site's file (or campaign.yaml) says.")
@click.option("--synthetic", is_flag=True, help="A bucket model of any size instead; its name is NAME_synthetic.")
@click.option("--cells", type=int, default=1000, show_default=True, help="Its grid cells.")
@click.option(
    "--years", type=int, default=20, show_default=True, help="Years of the synthetic data set, 12 months each."
)
@click.option("--seed", type=int, default=1, show_default=True, help="Its seed.")
@click.option("--force", is_flag=True, help="Replace what is there.")
@click.option("--verify", is_flag=True, help="Only check that all values are as they were when it was made.")
def prepare(
    context: Context,
    name: str,
    dest: Path | None,
    site_name: str | None,
    synthetic: bool,
    cells: int,
    years: int,
    seed: int,
    force: bool,
    verify: bool,
) -> None:
    """Make the Zarr store of a data set, where it is missing. Interrupted, the same command goes on.

    It goes to --dest, else to the site's paths.data, else to $CAMPAIGN_DATA/NAME, else to data/NAME in the project.
    """
    require(not (dest and site_name), Problem("give --dest or --site, not both", key="--site", value=site_name))
    try:
        import zarr  # noqa: F401
    except ImportError:
        raise BadInput(Problem("zarr is not installed", hint="pip install 'campaign[train]'")) from None
    from training.data.prepare import verify as verify_dataset

    folder = (
        dest.absolute() if dest else _root(context, site_name).absolute() / (f"{name}_synthetic" if synthetic else name)
    )
    if verify:
        context.note(f"reading {folder}")
        info = verify_dataset(folder)
        state = "verified"
    else:
        state, info = _prepare(context, _source(synthetic, cells, years, seed), folder, force)
    keys = ("name", "options", "digest", "samples", "files", "bytes", "years", "shape")
    context.data = {"state": state, "path": str(folder)} | {key: info.raw[key] for key in keys}
    shape = info.raw["shape"]
    context.say(
        f"{state}: {folder}\n"
        f"  {shape['scenario']} x {shape['time']} steps x {shape['lat']} x {shape['lon']} cells, "
        f"years {info.raw['years'][0]} to {info.raw['years'][1]}, {info.raw['files']} files, "
        f"{info.raw['bytes'] / 1e6:.1f} MB\n  digest {info.digest}"
    )


def _root(context: Context, site_name: str | None) -> Path:
    """Folder under which data sets are."""
    if site_name is not None:
        return context.project.site_paths(context.project.load_site(site_name)).data
    if named := os.environ.get("CAMPAIGN_DATA"):
        return Path(named)
    try:
        return context.project.root / "data"
    except OutsideProject as error:
        error.problems[0] = Problem(
            "there is no project here to put the data into", hint="--dest DIR, or campaign init"
        )
        raise


def _source(synthetic: bool, cells: int, years: int, seed: int) -> Source:
    if synthetic:
        from training.data.bucket import BucketSource

        return BucketSource(cells=cells, years=years, seed=seed)
    from training.data.climate import ClimateSource

    return ClimateSource()


def _prepare(context: Context, source: Source, folder: Path, force: bool) -> tuple[str, Any]:
    from training.data.prepare import prepare as make

    started = shown = time.monotonic()

    def progress(done: int, total: int) -> None:
        nonlocal shown
        now = time.monotonic()
        if now - shown < 1.0 and done < total:
            return
        shown = now
        context.note(f"  {done}/{total} rows of cells, {now - started:.0f} s")

    context.note(f"preparing {source.name} in {folder}")
    return make(source, folder, force=force, progress=progress)
