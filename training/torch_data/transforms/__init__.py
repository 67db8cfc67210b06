"""Change the pixels of a batch beyond reading: RandAugment, MixUp and CutMix on the device."""
