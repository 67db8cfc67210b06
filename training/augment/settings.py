"""The table [train.augment]: the fields of every augmentation (``shardmill.training.augment.kinds``)."""

from __future__ import annotations

from typing import Any

from shardmill.infra.errors import ConfigError, UsageError
from shardmill.infra.settings import Settings
from shardmill.training.augment.kind import (
    BatchAugmentation,
    ImageAugmentation,
    WindowAugmentation,
    kinds,
)


# Pydantic lists the fields of the last base first.
class AugmentSettings(*(kind.Fields for kind in reversed(kinds())), Settings):  # type: ignore[misc]
    """How a training example may differ from its stored image."""

    @property
    def window(self) -> WindowAugmentation[Any] | None:
        """The augmentation that chooses windows; None: all that ``data.fit`` shows."""
        return next(iter(self._on(WindowAugmentation)), None)

    @property
    def of_images(self) -> list[ImageAugmentation[Any]]:
        """The augmentations of single images that are on, in turn."""
        return self._on(ImageAugmentation)

    @property
    def of_batches(self) -> list[BatchAugmentation[Any]]:
        """The augmentations of whole batches that are on, in turn."""
        return self._on(BatchAugmentation)

    @property
    def mixes(self) -> bool:
        """Whether examples and their labels are mixed in pairs."""
        return any(one.mixes for one in self.of_batches)

    def _on(self, stage: Any) -> list[Any]:
        made = (kind(self) for kind in kinds() if issubclass(kind, stage))
        return [one for one in made if one.is_on]

    def check_objects_follow(self) -> None:
        """Check that boxes and masks can follow all augmentation.

        Raises:
            ConfigError: one of whole batches is on, or another that they cannot follow.
        """
        made = [kind(self) for kind in kinds()]
        follow = [one for one in made if getattr(one, "objects_follow", isinstance(one, WindowAugmentation))]
        if found := [one.name for one in made if one.is_on and one not in follow]:
            raise ConfigError(
                f"{_listed(found)} would move or mix images without their boxes and masks",
                f"turn it off; boxes and masks follow {', '.join(one.name for one in follow)}",
            )

    def without_batched(self) -> AugmentSettings:
        """Return these settings with the augmentations of whole batches turned off."""
        fields = {name for one in self.of_batches for name in one.Fields.model_fields}
        plain = AugmentSettings()
        return self.model_copy(update={name: getattr(plain, name) for name in fields})

    def check_pairs(self, rows: int) -> None:
        """Check that each row of a device has a partner, where examples are mixed in pairs.

        Args:
            rows: the number of rows of a batch that one device takes.

        Raises:
            ConfigError: it is odd.
        """
        if self.mixes and rows % 2:
            names = _listed([one.name for one in self.of_batches if one.mixes])
            raise ConfigError(
                f"examples are mixed in pairs ({names}), and a device takes {rows} of each batch",
                "choose a data.global_batch_size that gives each device an even number of rows",
            )

    def refuse_batched(self, why: str, remedy: str) -> None:
        """Refuse augmentation of whole batches.

        Args:
            why: the reason, which the names of the settings follow.
            remedy: what the caller can do.

        Raises:
            UsageError: an augmentation of whole batches is on.
        """
        if found := [one.name for one in self.of_batches]:
            raise UsageError(f"{why} ({_listed(found)})", remedy)


def _listed(names: list[str]) -> str:
    return " and ".join(names)
