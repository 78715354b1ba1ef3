"""Would a run download something on nodes that have no internet? Every URL of study and site that ranks may follow."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

from campaign.plan.ground import UNKNOWN, Findings, Ground
from campaign.study import Study
from campaign.validate import FileModel
from campaign.yamlfile import KeyPath

_URL = re.compile(r"\b(?:https?|ftp|s3|gs|gcs|az|abfs|hf|docker|oras|shub|library)://(?P<host>[^/\s\"']*)", re.I)
_LOOPBACK = re.compile(r"(?:localhost|127\.[\d.]+|\[::1\])(?::\d+)?", re.I)
OFFLINE_ENV = 'env: {HF_HUB_OFFLINE: "1", HF_DATASETS_OFFLINE: "1", TRANSFORMERS_OFFLINE: "1"}'
"""With these Hugging Face's libraries take what is cached, or fail at once instead of waiting for a network."""


def check(ground: Ground, study: Study) -> Findings:
    """URLs against `compute_internet` of the site: false: said; null: unknown, not checked."""
    found = Findings()
    site = ground.site
    internet: bool | None = True if site.local else site.compute_internet
    if internet:
        return found
    image = site.container.image
    if image is not None and "://" in image:
        _image(ground, image, internet, found)
    for model, path, url in (*_of(study, _of_study(study)), *_of(site, _of_site(ground))):
        if internet is None:
            message = f"whether compute nodes of {site.name} have internet, which {url} needs, is {UNKNOWN}"
            found.warnings.append(model.problem(path, message))
        else:
            message = f"{url} would be fetched by compute nodes of {site.name}, which have no internet"
            hint = f"download it on a login node and give its path; {OFFLINE_ENV} in the site file for what is cached"
            found.warnings.append(model.problem(path, message, allowed=_line(ground), hint=hint))
    return found


def _line(ground: Ground) -> str:
    file, line = ground.site.source.place(("compute_internet",))
    return f"paths on shared storage ({file}:{line})"


def _image(ground: Ground, image: str, internet: bool | None, found: Findings) -> None:
    """An image in a registry: the runtime asks the registry at every start, even for what it has cached."""
    site, key = ground.site, ("container", "image")
    if internet is None:
        message = f"whether compute nodes of {site.name} can fetch the image {image} is {UNKNOWN}"
        found.warnings.append(site.problem(key, message))
        return
    name = re.split("[:@]", image.rpartition("/")[2])[0] or "image"
    tool = site.container.runtime or "apptainer"
    hint = f"on a login node: {tool} pull {name}.sif {image}   and that file's absolute path here"
    message = f"container image {image} would be fetched by compute nodes of {site.name}, which have no internet"
    found.problems.append(site.problem(key, message, allowed="an image file on shared storage", hint=hint))


def _of(model: FileModel, texts: Iterator[tuple[KeyPath, str]]) -> Iterator[tuple[FileModel, KeyPath, str]]:
    for path, text in texts:
        for match in _URL.finditer(text):
            if not _LOOPBACK.fullmatch(match["host"]):
                yield model, path, _shown(text[match.start() :])


def _shown(text: str, limit: int = 100) -> str:
    """The URL alone, without a password in it."""
    url = re.sub(r"://[^/@\s]*@", "://", re.split(r"[\s\"']", text)[0])
    return url if len(url) <= limit else url[:limit] + "…"


def _of_study(study: Study) -> Iterator[tuple[KeyPath, str]]:
    for index, word in enumerate(study.command or ()):
        yield ("command", index), word
    for name, value in study.params.items():
        yield from _texts(("params", name), value)
    for name, path in study.axis_paths().items():
        values = study.axes.get(name) or next((group[name] for group in study.zip if name in group), [])
        yield from _texts(path, values)
    for index, rule in enumerate(study.when):
        yield from _texts(("when", index, "set"), rule.set)
    if study.data is not None:
        yield from _texts(("data", "options"), study.data.options)


def _of_site(ground: Ground) -> Iterator[tuple[KeyPath, str]]:
    site = ground.site
    for name, text in site.env.items():
        yield ("env", name), text
    for index, line in enumerate(site.setup):
        yield ("setup", index), line


def _texts(path: KeyPath, value: Any) -> Iterator[tuple[KeyPath, str]]:
    """Every string of a value, where it stands."""
    if isinstance(value, str):
        yield path, value
    elif isinstance(value, dict):
        for key, item in value.items():
            yield from _texts((*path, key), item)
    elif isinstance(value, list):
        for index, item in enumerate(value):
            yield from _texts((*path, index), item)
