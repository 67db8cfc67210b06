"""Frames of videos among image files, by their names: ``clip7_frame_0012.jpg``, ``vid1/frame0001.png``.

A number behind the word *frame* makes an image a frame. Consecutive ones behind *clip*, *video* or a similar
word, or in a folder of that name, may also count clips or cameras: the user is told, and nothing is done. Any
other number is that of a photograph.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from shardmill.infra.readable import counted

_CERTAIN = r"(?i)^(.*?)[ _.-]*frames?[ _.-]*\d+\.[^./]+$"
_MAYBE = r"^(.*?)[ _.-]*\d+\.[^./]+$"
_NUMBERED = re.compile(r"(.*?)[ _.-]*(\d{2,})\.[^./]+", re.DOTALL)
_WORD = re.compile(
    r"(?<![a-z])(videos?|vids?|clips?|movies?|films?|shots?|scenes?|seq|sequences?|cam|camera)(?![a-z])",
    re.IGNORECASE,
)
_LEAST_FRAMES = 5  # consecutive numbers that a video has at least


@dataclass(frozen=True)
class FrameNames:
    """Images that are named as frames of videos are.

    Attributes:
        pattern: for ``groups.pattern``: the video of each frame.
        videos: name of each video -> its frames.
        is_certain: they are frames; else they may also be numbered otherwise.
    """

    pattern: str
    videos: dict[str, list[str]]
    is_certain: bool

    @property
    def setting(self) -> str:
        """The option of the command line that keeps videos together."""
        return f"--set 'groups.pattern={self.pattern}'"

    def in_words(self) -> str:
        """Say what was seen, as a clause."""
        example = next(iter(self.videos.values()))[0]
        return f"{counted(len(self.videos), 'video')} by the names of images, such as {example}"


def find_frames(uris: Sequence[str]) -> FrameNames | None:
    """Find frames of videos among images; None if most of them are named otherwise.

    Args:
        uris: URIs of images, sorted.
    """
    for pattern, is_certain in ((_CERTAIN, True), (_MAYBE, False)):
        videos: dict[str, list[str]] = {}
        for uri in uris:
            found = re.match(pattern, uri)
            if found is not None:
                videos.setdefault(found[1], []).append(uri)
        if not is_certain:
            videos = {name: frames for name, frames in videos.items() if _may_be_video(name, frames)}
        if videos and 2 * sum(map(len, videos.values())) > len(uris):
            return FrameNames(pattern, videos, is_certain)
    return None


def _may_be_video(name: str, frames: list[str]) -> bool:
    """Tell whether images that differ in a number alone have a word for a video and consecutive numbers."""
    folder, _, prefix = name.rpartition("/")
    if not (_WORD.search(prefix) or (not prefix and _WORD.search(folder.rpartition("/")[2]))):
        return False
    numbers = sorted(int(found[2]) for uri in frames if (found := _NUMBERED.fullmatch(uri)))
    return len(numbers) >= _LEAST_FRAMES and numbers[-1] - numbers[0] == len(numbers) - 1
