"""Remove what a hostile program left in its temporary folder, where that folder is on disk."""

from __future__ import annotations

import contextlib
import os
import secrets


def remove_folder(top: str) -> None:
    """Remove a folder however deep it is: what lies in its folders is moved up before they go.

    Nothing recurses, no path grows, no link is followed. Everything that could write there must be dead.
    What cannot be removed stays.
    """
    with contextlib.suppress(OSError):
        os.chmod(top, 0o700)
        while names := os.listdir(top):
            for name in names:
                _remove_one(os.path.join(top, name), top)
        os.rmdir(top)


def _remove_one(path: str, top: str) -> None:
    if os.path.islink(path) or not os.path.isdir(path):
        os.unlink(path)
        return
    os.chmod(path, 0o700)
    with os.scandir(path) as entries:
        for entry in entries:
            if entry.is_dir(follow_symlinks=False):
                os.rename(entry.path, os.path.join(top, secrets.token_hex(12)))
            else:
                os.unlink(entry.path)
    os.rmdir(path)
