"""Permutations of range(n) that are computed for single positions and never stored.

The permutation is a Feistel network over the smallest number of bits that holds n, at least six. Cycle
walking fits it to n: a value that is not below n goes through the network again until it is (Black and
Rogaway: Ciphers with arbitrary finite domains, CT-RSA 2002). Fewer than half of the values are too large (for
n of at least 33), so a position needs less than two passes on average.

The two halves may differ by one bit. Each round changes one half by a function of the other, in turn. Eight
rounds of a multiply-xorshift function are enough for shuffling; nothing here is meant to keep a secret.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt

from shardmill.infra.splitmix import U64
from shardmill.training.draws import as_u64, key_of

Positions = npt.NDArray[np.int64]
U32 = npt.NDArray[np.uint32]

_ROUNDS = 8
_MIN_BITS = 6
# Positions that go through the network at a time: they stay in a core's cache, which is three times as fast
# as whole arrays. Positions that need another pass are gathered from larger chunks, so that no pass has only
# a few.
_PASS_CHUNK = 1 << 14
_CHUNK = 1 << 17
_KEY_CHUNK = 1 << 12  # each key makes eight numbers of twice the width
_FIRST = np.uint32(0x85EBCA6B)
_SECOND = np.uint32(0xC2B2AE35)
_13 = np.uint32(13)


def permute(index: npt.NDArray[np.integer], size: int | npt.NDArray[np.integer], key: int | U64) -> Positions:
    """Return the position to which the permutation of range(size) with this key sends each index.

    Args:
        index: int [M], each within range(size).
        size: the size of the permuted range; one number, or one for each index.
        key: the key of the permutation; one number, or one for each index.

    Returns:
        int64 [M].
    """
    keys = as_u64(key)
    if keys.size == 1:
        shared = round_keys_of(keys)
        return _in_chunks(index, size, lambda part: shared)
    return _in_chunks(index, size, lambda part: _round_keys_of_runs(keys[part]))


def permute_by_table(
    index: npt.NDArray[np.integer],
    size: int | npt.NDArray[np.integer],
    table: U32,
    which: npt.NDArray[np.integer],
) -> Positions:
    """Return what ``permute`` does for the key in column ``which`` (int [M]) of ``round_keys_of(keys)``.

    Saves a third of the time if indices under a few keys are mixed with each other.
    """
    return _in_chunks(index, size, lambda part: np.take(table, which[part], axis=1))


def round_keys_of(keys: U64) -> U32:
    """Return the keys of all rounds: uint32 [rounds, K] for uint64 [K]."""
    numbers = np.arange(_ROUNDS, dtype=np.uint64)[:, np.newaxis]
    found = np.empty((_ROUNDS, keys.size), np.uint32)
    for start in range(0, keys.size, _KEY_CHUNK):
        part = slice(start, start + _KEY_CHUNK)
        found[:, part] = key_of(keys[part], numbers) >> np.uint64(32)
    return found


def _in_chunks(
    index: npt.NDArray[np.integer],
    size: int | npt.NDArray[np.integer],
    round_keys_at: Callable[[slice], U32],
) -> Positions:
    flat, sizes = np.asarray(index), as_u64(size)
    result = np.empty(flat.shape, np.int64)
    for start in range(0, flat.size, _CHUNK):
        part = slice(start, start + _CHUNK)
        of_part = _one_if_alike(_at(sizes, part))
        result[part] = _walk(flat[part].astype(np.uint64), of_part, _bits_for(of_part), round_keys_at(part))
    return result


def _one_if_alike(each: U64) -> U64:
    """Return a single value if all are the same, as neighbours often are. This saves much of the work."""
    return each[:1] if each.size > 1 and (each == each[0]).all() else each


def _bits_for(sizes: U64) -> U64:
    """Return the bits that hold range(size): the exponent of size - 1, which is exact below 2**53."""
    bits = np.frexp(sizes.astype(np.float64) - 1.0)[1]
    return np.maximum(bits, _MIN_BITS).astype(np.uint64)


def _walk(value: U64, sizes: U64, bits: U64, round_keys: U32) -> U64:
    """Return the outputs for ``value``. ``round_keys``: uint32 [rounds, 1 or M]."""
    value = _pass(value, bits, round_keys)
    outside = np.flatnonzero(value >= sizes)
    while outside.size:
        output = _pass(value[outside], _at(bits, outside), _at(round_keys, outside))
        value[outside] = output
        outside = outside[output >= _at(sizes, outside)]
    return value


def _pass(value: U64, bits: U64, round_keys: U32) -> U64:
    """Send ``value`` through the network once."""
    if value.size <= _PASS_CHUNK:
        return _network(value, bits, round_keys)
    parts = [slice(start, start + _PASS_CHUNK) for start in range(0, value.size, _PASS_CHUNK)]
    return np.concatenate([_network(value[part], _at(bits, part), _at(round_keys, part)) for part in parts])


def _at(each: npt.NDArray[Any], where: Any) -> npt.NDArray[Any]:
    """Return part of an array with a value for each index; a single value for all stays as it is."""
    if each.shape[-1] == 1:
        return each
    return each[..., where] if isinstance(where, slice) else np.take(each, where, axis=-1)


def _network(value: U64, bits: U64, round_keys: U32) -> U64:
    """Apply the Feistel network over ``bits`` bits, a bijection for each (bits, keys)."""
    low_bits = (bits + np.uint64(1)) >> np.uint64(1)
    low_mask = (np.uint64(1) << low_bits) - np.uint64(1)
    # Halves have at most 32 bits, and a CPU's vector units multiply 32-bit numbers.
    low = (value & low_mask).astype(np.uint32)
    high = (value >> low_bits).astype(np.uint32)
    low_shift = (np.uint64(32) - low_bits).astype(np.uint32)
    high_shift = (np.uint64(32) - (bits - low_bits)).astype(np.uint32)
    for number, round_key in enumerate(round_keys):
        if number % 2:
            high ^= _round(low, round_key, high_shift)
        else:
            low ^= _round(high, round_key, low_shift)
    return (high.astype(np.uint64) << low_bits) | low


def _round_keys_of_runs(keys: U64) -> U32:
    """Return ``round_keys_of(keys)``, computed once for each run of equal keys."""
    starts = np.flatnonzero(keys[1:] != keys[:-1]) + 1
    if starts.size * 4 > keys.size:
        return round_keys_of(keys)
    found = round_keys_of(keys[np.concatenate([[0], starts])])
    if not starts.size:
        return found
    run = np.zeros(keys.size, np.intp)
    run[starts] = 1
    return np.take(found, np.cumsum(run), axis=1)


def _round(half: U32, round_key: U32, shift: U32) -> U32:
    """Hash each half to a number of ``32 - shift`` bits (constants of MurmurHash3's finaliser)."""
    mixed = half ^ round_key
    mixed *= _FIRST
    mixed ^= mixed >> _13
    mixed *= _SECOND
    mixed >>= shift
    return mixed
