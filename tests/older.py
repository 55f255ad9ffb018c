"""Data directories that older versions wrote, unpacked for a test."""

import json
import tarfile
from pathlib import Path

DIRECTORY = Path(__file__).parent / "golden" / "data_directory"


class Older:
    """What an older version left: `data`, the database `shop.db`, the pipeline's `copy.db`, and facts about them."""

    def __init__(self, directory, version="97f0300"):
        self.directory = directory
        with tarfile.open(DIRECTORY / f"{version}.tar.xz") as archive:
            archive.extractall(directory, filter="data")
        self.facts = json.loads((directory / "facts.json").read_text())

    @property
    def data(self):
        return self.directory / "data"

    @property
    def shop(self):
        return self.directory / "shop.db"
