"""File systems that can lose their power: what was written and not flushed is gone then."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

_SIZE = 256 << 20


class Disk:
    """An ext4 file system, mounted at a folder; an ordinary folder where mounts are not allowed."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._image = folder.with_suffix(".ext4")
        folder.mkdir(parents=True)
        self.mounted = False
        if os.geteuid() == 0 and shutil.which("mkfs.ext4") is not None:
            with self._image.open("wb") as image:
                image.truncate(_SIZE)
            subprocess.run(["mkfs.ext4", "-q", "-F", self._image], check=True)
            self._mount(check=False)

    def flush(self) -> None:
        """Let the device have all that was written until now."""
        subprocess.run(["sync", "--file-system", self.folder], check=True)

    def snapshot(self) -> Path:
        """What the device has now, without what the system still holds back; the disk goes on."""
        found = self._image.with_suffix(".lost")
        subprocess.run(["cp", "--sparse=always", self._image, found], check=True)
        return found

    def lose_power(self, snapshot: Path) -> None:
        """Go back to a :meth:`snapshot`. Nothing may use the disk any more."""
        self.unmount()
        snapshot.replace(self._image)
        self._mount(check=True)

    def unmount(self) -> None:
        if self.mounted:
            subprocess.run(["umount", "--lazy", self.folder], check=True)
            self.mounted = False

    def _mount(self, *, check: bool) -> None:
        done = subprocess.run(
            ["mount", "-o", "loop", self._image, self.folder], check=check, capture_output=True
        )
        self.mounted = done.returncode == 0
