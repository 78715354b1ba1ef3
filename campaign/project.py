"""The project folder: where sites, studies, plans, ledger, store and figures are.

The models of the YAML files (and pydantic with them) are imported when a file is read: `campaign status` reads none.
"""

from __future__ import annotations

import functools
import getpass
import hashlib
import os
import re
import tempfile
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from campaign.errors import BadInput, OutsideProject, Problem

if TYPE_CHECKING:
    from campaign.config import Config
    from campaign.site import Site
    from campaign.study import Study

CONFIG_FILE = "campaign.yaml"
MARKERS = (".campaign", "sites")


@dataclass(frozen=True, slots=True)
class SitePaths:
    """Absolute folders of one site."""

    run_root: Path
    """Shared storage: records and what is submitted."""
    node_local: Path
    """On every node: what ranks write during the run."""
    data: Path
    """Data sets, one folder each."""


class Project:
    """One project folder. Files are read when they are asked for, and read once."""

    def __init__(self, root: Path, store_path: Path | None = None) -> None:
        self.root = root.resolve()
        named = os.environ.get("CAMPAIGN_STORE")
        self.store_path = store_path or (Path(named) if named else self.root / "campaign.duckdb")
        self.ledger_path = self.root / ".campaign" / "ledger.sqlite"
        self.plans_dir = self.root / ".campaign" / "plans"
        self.figures_dir = self.root / "figures"
        self._sites: dict[Path, Site] = {}

    @classmethod
    def find(cls, start: Path | None = None, store: Path | None = None) -> Project:
        """The nearest folder at or above `start` (the working directory) that has .campaign/ or sites/.

        Raises `OutsideProject`.
        """
        folder = (start or Path()).resolve()
        if not folder.is_dir():
            raise OutsideProject(Problem("no such folder", str(start), key="--project", hint=f"campaign init {start}"))
        for candidate in (folder, *folder.parents):
            if any((candidate / marker).is_dir() for marker in MARKERS):
                return cls(candidate, store)
        raise OutsideProject(
            Problem(
                f"{folder} is not in a project: neither it nor a folder above it has .campaign/ or sites/",
                hint="campaign init   makes the working directory one; or give --project DIR",
            )
        )

    @functools.cached_property
    def config(self) -> Config:
        """campaign.yaml; all defaults when there is none. Raises `BadInput`."""
        from campaign.config import load_config

        path = self.root / CONFIG_FILE
        return load_config(path, shown=self.shown(path))

    def shown(self, path: Path) -> str:
        """A path as messages and plans name it: relative to the project when it is inside."""
        absolute = path if path.is_absolute() else Path.cwd() / path
        return str(absolute.relative_to(self.root)) if absolute.is_relative_to(self.root) else str(absolute)

    # -- sites -------------------------------------------------------------------------------------------------------

    def site_files(self) -> list[Path]:
        """The files of sites/, by name."""
        return _yaml_files(self.root / "sites")

    def site_names(self) -> list[str]:
        """Names of all sites of the project. Raises `BadInput` when two files have one name."""
        return sorted(self._site_index)

    @functools.cached_property
    def _site_index(self) -> dict[str, Path]:
        return _index(self.site_files(), "sites", self.shown)

    def site_path(self, name_or_path: str | Path) -> Path:
        """The file of a site, given by name or by path. Raises `BadInput`."""
        return self._path_of(name_or_path, self._site_index, "site")

    def load_site(self, name_or_path: str | Path) -> Site:
        """A site by name or file. Raises `BadInput`."""
        from campaign.site import load_site

        path = self.site_path(name_or_path)
        if path not in self._sites:
            self._sites[path] = load_site(path, shown=self.shown(path))
        return self._sites[path]

    def resolve_account(self, site: Site, flag: str | None = None) -> str | None:
        """--account > $CAMPAIGN_ACCOUNT_<SITE> > $CAMPAIGN_ACCOUNT > campaign.yaml > site file.

        Raises `BadInput` that names all ways when a Slurm site has none.
        """
        from campaign.fieldtypes import is_token

        variable = f"CAMPAIGN_ACCOUNT_{site.name.upper().replace('-', '_')}"
        ways = (flag, os.environ.get(variable), os.environ.get("CAMPAIGN_ACCOUNT"), self.config.accounts.get(site.name))
        account = next((way for way in (*ways, site.account) if way), None)
        if account is not None and not is_token(account):
            raise BadInput(Problem("an account is one word without blanks", key="account", value=account))
        if account is None and not site.local:
            file, line = site.source.place(("account",))
            hint = (
                f"--account NAME, or ${variable}, or $CAMPAIGN_ACCOUNT, or `accounts: {{{site.name}: NAME}}` in "
                f"{CONFIG_FILE}, or `account: NAME` here"
            )
            raise BadInput(Problem(f"no account to charge on {site.name}", file, line, key="account", hint=hint))
        return account

    def site_paths(self, site: Site) -> SitePaths:
        """Absolute folders of a site: campaign.yaml > site file > defaults. Raises `BadInput`."""
        from campaign.site import Paths

        own = self.config.paths.get(site.name, Paths())
        run_root = own.run_root or site.paths.run_root
        node_local = own.node_local or site.paths.node_local
        data = own.data or site.paths.data or os.environ.get("CAMPAIGN_DATA")
        return SitePaths(
            run_root=self._place(site, "run_root", run_root) if run_root else self.root / "runs",
            node_local=self._place(site, "node_local", node_local) if node_local else default_node_local(),
            data=self._place(site, "data", data) if data else self.root / "data",
        )

    def run_root_filesystem(self, site: Site) -> tuple[str, Path] | None:
        """Name and path of the file system that the run root names (`scratch:campaign`); None when it is a path."""
        own = self.config.paths.get(site.name)
        text = (own.run_root if own is not None else None) or site.paths.run_root or ""
        name, colon, _ = text.partition(":")
        if text.startswith("/") or not colon:
            return None
        return name, self._place(site, "run_root", f"{name}:")

    def _place(self, site: Site, key: str, text: str) -> Path:
        name, colon, folder = text.partition(":")
        if text.startswith("/") or not colon:
            path = text
        elif name in site.filesystems:
            path = "/".join(part for part in (site.filesystems[name].path, folder) if part)
        else:
            allowed = ", ".join(site.filesystems) or "an absolute path"
            problem = self.config.problem(
                ("paths", site.name, key), f"site {site.name} has no file system `{name}`", allowed=allowed
            )
            raise BadInput(problem)
        return self.root / Path(self._filled(site, key, path)).expanduser()

    def _filled(self, site: Site, key: str, path: str) -> str:
        project = self.config.projects.get(site.name) or site.project
        if "{project}" in path and not project:
            file, line = site.source.place(("project",))
            hint = f"`projects: {{{site.name}: NAME}}` in {CONFIG_FILE}, or `project: NAME` here"
            message = f"{key} of site {site.name} is {path}, and no project is given"
            raise BadInput(Problem(message, file, line, key="project", hint=hint))
        return path.replace("{project}", project or "").replace("{user}", user_name())

    def run_roots(self) -> dict[str, Path]:
        """Run root of every site whose paths are known; a site that lacks its {project} is left out."""
        roots = {}
        for name in self.site_names():
            try:
                roots[name] = self.site_paths(self.load_site(name)).run_root
            except BadInput:
                continue
        return roots

    # -- studies -----------------------------------------------------------------------------------------------------

    def study_files(self) -> list[Path]:
        """The files of studies/, by name."""
        return _yaml_files(self.root / "studies")

    @functools.cached_property
    def _study_index(self) -> dict[str, Path]:
        return _index(self.study_files(), "studies", self.shown)

    def study_names(self) -> list[str]:
        """Names of all studies of the project. Raises `BadInput` when two files have one name."""
        return sorted(self._study_index)

    def study_path(self, name_or_path: str | Path) -> Path:
        """The file of a study, given by name or by path. Raises `BadInput`."""
        return self._path_of(name_or_path, self._study_index, "study")

    def load_study(self, name_or_path: str | Path) -> Study:
        """A study by name or file. Raises `BadInput`."""
        from campaign.study import load_study

        path = self.study_path(name_or_path)
        return load_study(path, shown=self.shown(path))

    def studies(self) -> list[Study]:
        """All studies of the project. Raises `BadInput` when two files have one name, or one is wrong."""
        return [self.load_study(name) for name in self.study_names()]

    # -- both --------------------------------------------------------------------------------------------------------

    def _path_of(self, wanted: str | Path, index: dict[str, Path], what: str) -> Path:
        text = str(wanted)
        if text in index:
            return index[text]
        from campaign.validate import suggestion

        if isinstance(wanted, Path) or text.endswith((".yaml", ".yml")) or "/" in text:
            return self._file_of(text, index, what)
        folder = "sites" if what == "site" else "studies"
        hint = suggestion(text, index) or (None if index else "campaign init   writes starter files")
        message = f"there is no {what} `{text}` in {folder}/"
        raise BadInput(Problem(message, value=text, allowed=", ".join(sorted(index)) or None, hint=hint))

    def _file_of(self, text: str, index: dict[str, Path], what: str) -> Path:
        """A file of the project, by its path from the working directory or from the project's folder."""
        from campaign.validate import suggestion

        files = {path.resolve(): path for path in index.values()}
        candidates = [Path(text).expanduser(), self.root / text]
        for candidate in candidates:
            if candidate.resolve() in files:
                return files[candidate.resolve()]
        known = [self.shown(path) for path in index.values()]
        folder = "sites" if what == "site" else "studies"
        if candidates[0].is_file():
            message = f"{text} is not a {what} file of the project {self.root}"
            raise BadInput(Problem(message, allowed=", ".join(known) or None, hint=f"cp {text} {self.root}/{folder}/"))
        hint = suggestion(text, [*known, *index])
        raise BadInput(Problem(f"there is no {what} file {text}", allowed=", ".join(known) or None, hint=hint))


def sha256_of(path: Path) -> str:
    """SHA-256 of a file, hex."""
    return hashlib.sha256(path.read_bytes()).hexdigest()


def user_name() -> str:
    """The user's login name; `uid<N>` where the system has no name for it (containers)."""
    try:
        return getpass.getuser()
    except (KeyError, OSError):
        return f"uid{os.getuid()}"


def default_node_local() -> Path:
    """/dev/shm/campaign-<user>, or the same below the temporary folder where /dev/shm can't be written."""
    shm = Path("/dev/shm")
    root = shm if os.access(shm, os.W_OK | os.X_OK) else Path(tempfile.gettempdir())
    return root / f"campaign-{user_name()}"


def _yaml_files(folder: Path) -> list[Path]:
    if not folder.is_dir():
        return []
    return sorted(path for path in folder.iterdir() if path.suffix in (".yaml", ".yml") and path.is_file())


def _index(paths: Iterable[Path], folder: str, shown: Callable[[Path], str]) -> dict[str, Path]:
    """Names (the key `name`) to files. A file that can't be read is known by its stem, so that others still work."""
    index: dict[str, Path] = {}
    places: dict[str, tuple[str, int]] = {}
    for path in paths:
        name, line = _name_in(path)
        if name in index:
            first, first_line = places[name]
            message = f"the name `{name}` is already taken by {first}:{first_line}"
            hint = f"rename one of them: names in {folder}/ are unique"
            raise BadInput(Problem(message, shown(path), line, key="name", value=name, hint=hint))
        index[name], places[name] = path, (shown(path), line)
    return index


# the whole file is read and checked when it is used; here only its name is wanted, of every file of the folder
_NAME = re.compile(r"""^name:[ \t]+(["']?)(?P<name>[\w.-].*?)\1[ \t]*(?:[ \t]#.*)?\r?$""", re.MULTILINE)


def _name_in(path: Path) -> tuple[str, int]:
    try:
        text = path.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return path.stem, 1
    match = _NAME.search(text)
    return (match["name"], text.count("\n", 0, match.start()) + 1) if match else (path.stem, 1)
