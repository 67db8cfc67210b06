"""Change pixels beyond reading: a function of the user's own; RandAugment, MixUp and CutMix on the device."""
