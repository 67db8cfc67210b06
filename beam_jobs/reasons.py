"""Every reason why an input is in no shard: its name, its meaning, and its remedy.

To add one, add a line here, and give the reason where the fault is found.
``python docs/reference_tables.py`` writes the reasons into docs/recover-from-failures.md.
"""

from __future__ import annotations

from typing import Final

from shardmill.infra.format.known_features import QUALITY_FLAGS

REASONS: Final[dict[str, tuple[str, str]]] = {}  # reason -> (meaning, remedy)
FILTER_REASONS: Final[set[str]] = set()
QUARANTINE_REASONS: Final[set[str]] = set()


def _filtered(reason: str, meaning: str, remedy: str = "Nothing to do") -> str:
    """Register a reason of FILTERED files."""
    REASONS[reason] = meaning, remedy
    FILTER_REASONS.add(reason)
    return reason


def _quarantined(reason: str, meaning: str, remedy: str) -> str:
    """Register a reason of QUARANTINED files."""
    REASONS[reason] = meaning, remedy
    QUARANTINE_REASONS.add(reason)
    return reason


# Filtered: found by listing, the last by reading too.
IGNORED: Final = _filtered(
    "ignored", "A pattern of filter.ignore matches it", "Change filter.ignore to include it"
)
OTHER_CLASS: Final = _filtered(
    "class", "filter.classes does not name its class", "Add the class to filter.classes to include it"
)
SPECIAL_FILE: Final = _filtered("special_file", "A pipe, a socket or a device, not a file")
SOURCE_TABLE: Final = _filtered("table", "It is the table that names the images")
NOT_IN_TABLE: Final = _filtered(
    "not_in_table", "No row of the table names it", "Add a row for it to include it"
)
DROPPED_LABEL: Final = _filtered(
    "dropped_label",
    "drop_labels of the source names its label",
    "Remove the label from drop_labels to include it",
)
LABEL_EDIT: Final = _filtered(
    "label_edit",
    "A row of source.label_edits drops it",
    "Remove the row, or write a label into it, to include it",
)
EMPTY_ARCHIVE: Final = _filtered("empty_archive", "The archive has no file in it")
SIDECAR: Final = _filtered("sidecar", "It describes the image of the same name")
REPLACED_MEMBER: Final = _filtered("replaced_member", "A later member of the archive has the same name")
REPEATED_ROW: Final = _filtered("repeated_row", "The row of the table says the same as an earlier row")
_filtered("no_picture", "A DICOM object without a picture, such as a report or an index")
OPTED_OUT: Final = _filtered(
    "opted_out",
    "A header of the server reserves the image (source.urls.opt_out)",
    "Ask its owner for permission",
)
ROW_FILE: Final = _filtered("row_file", "Its rows are images, or describe them")
OTHER_FILE: Final = _filtered(
    "other_file",
    "It is not of the kind of files that source.kind reads",
    "Nothing to do; name it in source.files if it holds images",
)
MASK_FILE: Final = _filtered("mask", "It is the mask of an image")
UNMASKED: Final = _filtered(
    "unmasked",
    "It has no mask, and source.masks.unmasked leaves such images out",
    "Add its mask to include it",
)
NO_OBJECTS: Final = _filtered(
    "no_objects",
    "It has no objects, and source.objects.unannotated leaves such images out",
    "Annotate it, or set source.objects.unannotated to keep",
)
SAME_SCENE: Final = _filtered(
    "same_scene",
    "The frame of a video differs too little from the one before (source.options.scenes)",
    "Lower source.options.scenes to include it",
)

# Filtered after reading, by the settings filter, a purge, and by planning.
TOO_SMALL: Final = _filtered(
    "too_small",
    "It is smaller than filter.min_width or filter.min_height",
    "Lower these settings to include it",
)
ASPECT: Final = _filtered(
    "aspect", "Its aspect ratio is larger than filter.max_aspect", "Raise this setting to include it"
)
AI_MADE: Final = _filtered(
    "ai_made", "Its metadata declare a generative model", "Set filter.ai_made to keep to include it"
)
for _name, _words in QUALITY_FLAGS.items():
    _filtered(_name, f"It is {_words}", f"Take {_name} out of filter.quality to include it")
PURGED: Final = _filtered(
    "purged", "Its content was purged from this dataset", "Remove the file from the source too"
)
REVIEW: Final = _filtered(
    "review",
    "A person excluded its content in a review",
    "Undo the decision: shardmill review decide NAME RECORD undo",
)
LEAK: Final = _filtered(
    "leak",
    "Its group is in another split too, so train leaves it out",
    "Move it to the split of its group, or set groups.leakage to keep",
)

# Quarantined: found by listing.
NO_CLASS: Final = _quarantined(
    "no_class",
    "It is not in a class folder, so it has no label",
    "Move it there, or add its pattern to filter.ignore",
)
PATH_TOO_LONG: Final = _quarantined(
    "path_too_long",
    "Its path is longer than the system allows",
    "Shorten folder names, or move the source nearer to the root",
)
UNLISTED_FOLDER: Final = _quarantined(
    "unlisted_folder",
    "The folder cannot be listed; all of its files are missing",
    "Make it readable, or add it to filter.ignore",
)
BROKEN_LINK: Final = _quarantined(
    "broken_link", "A symbolic link whose target does not exist", "Restore the target, or delete the link"
)

# Found by listing or by reading.
UNREADABLE: Final = _quarantined(
    "unreadable", "The file could not be read", "Check permissions and the disk, then run again"
)
BROKEN_CONTAINER: Final = _quarantined(
    "broken_container",
    "The file of the image is damaged or cannot be read",
    "Fetch it again; what stands before the damage was kept",
)
NO_IMAGE: Final = _quarantined(
    "no_image",
    "The row holds no image",
    "Fill it in or remove the row; for many look at source.columns.image",
)

# Found by decoding to other samples than 8 bits of grey or RGB.
CHANNELS: Final = _quarantined(
    "channels", "It has other channels than image.channels", "Set image.channels to its number, or to keep"
)
NOT_FINITE: Final = _quarantined(
    "not_finite", "Samples are NaN, or infinite in float32", "Replace them in the file"
)

# Found by reading.
VANISHED: Final = _quarantined(
    "vanished", "The file was listed, but gone when it was read", "Run again when nothing changes the source"
)
CHANGED: Final = _quarantined(
    "changed", "The file changed while the job read it", "Run again when nothing changes the source"
)
TOO_LARGE: Final = _quarantined(
    "too_large",
    "The file is larger than image.max_bytes",
    "Remove it, add its pattern to filter.ignore, or raise image.max_bytes",
)

# Of rows of a table, and of the files that they name.
BROKEN_ROW: Final = _quarantined(
    "broken_row",
    "The row of the table or file cannot be read",
    "See the message; count delimiters and quotes",
)
BAD_PATH: Final = _quarantined(
    "bad_path",
    "The row names no file within the source",
    "Correct the path: relative to the source, without .., not empty",
)
MISSING_FILE: Final = _quarantined(
    "missing_file",
    "The row names a file that is not there",
    "Add the file or remove the row; for many look at source.table.prefix and columns.image",
)
SEVERAL_FILES: Final = _quarantined(
    "several_files", "Several files match the name in its row", "Write the whole file name into the row"
)
NO_LABEL: Final = _quarantined(
    "no_label",
    "Its row or sidecar has no label, or the number of no named class",
    "Fill in the label, or remove the row or the image",
)
UNKNOWN_SPLIT: Final = _quarantined(
    "unknown_split",
    "Its row names a split that is neither train, validation nor test",
    "Correct the split, or leave it empty",
)
CONTRADICTION: Final = _quarantined(
    "contradicting_rows",
    "Rows give the same file different labels, splits, groups, objects or features",
    "Keep the row that is right, and remove the others",
)

# Of rows of kind urls: the address gave no image.
NOT_FOUND: Final = _quarantined(
    "not_found", "The server has no file at this address", "Correct the address, or remove the row"
)
ACCESS_DENIED: Final = _quarantined(
    "access_denied",
    "The server does not give the file to everybody",
    "Fetch it with your access, and prepare it from a folder",
)
SERVER_ERROR: Final = _quarantined(
    "server_error",
    "The server answered with an error each time",
    "Run again later; see the status in the message",
)
TOO_MANY_REQUESTS: Final = _quarantined(
    "too_many_requests",
    "The server refused each time: too many requests",
    "Run again later; lower source.urls.connections_per_host or raise delay_seconds and max_wait_seconds",
)
UNREACHABLE: Final = _quarantined(
    "unreachable", "There is no such host, or it does not answer", "Correct the address, or run again later"
)
TIMED_OUT: Final = _quarantined(
    "timed_out",
    "The server took longer than source.urls.total_seconds or read_seconds",
    "Run again later, or raise these settings",
)
BROKEN_OFF: Final = _quarantined("broken_off", "The connection ended early each time", "Run again later")
BAD_REDIRECT: Final = _quarantined(
    "bad_redirect",
    "The address redirects too often, or not to an http or https address",
    "Write the image's own address into the row",
)
PRIVATE_HOST: Final = _quarantined(
    "private_host", "The host is in a private network", "If it is yours, set source.urls.allow_private_hosts"
)
NOT_AN_IMAGE: Final = _quarantined(
    "not_an_image",
    "The server sent a page, text or a compressed body",
    "Open the address in a browser; correct or remove the row",
)

# Of archives and their members; the last is found by reading too.
BAD_NAME: Final = _quarantined(
    "bad_name",
    "The name of an object or member is absolute, or has an empty part, . or .. in it",
    "Copy the object to another key, or pack the archive with relative names",
)
ARCHIVED_LINK: Final = _quarantined(
    "archived_link",
    "A link in an archive, which is not followed",
    "Pack the files themselves: tar --dereference --hard-dereference",
)
ENCRYPTED: Final = _quarantined(
    "encrypted", "The member of the archive is encrypted", "Pack the archive again without a password"
)
UNSUPPORTED_MEMBER: Final = _quarantined(
    "unsupported_member",
    "The archive stores the member in a way that is not supported",
    "See the message; pack a tar, or a zip with deflate",
)
DAMAGED_MEMBER: Final = _quarantined(
    "damaged_member",
    "The member is cut, of another length than declared, or its checksum is wrong",
    "Copy or download the archive again",
)

# Of images without a usable mask (the first is found by reading too), and of masks without an image.
NO_MASK: Final = _quarantined(
    "no_mask",
    "It has no mask, or its row names none",
    "Add the mask; or leave such images out: source.masks.unmasked = 'leave_out'",
)
MISSING_MASK: Final = _quarantined(
    "missing_mask",
    "Its row names a mask that is not there",
    "Add the mask or remove the row; for many look at source.table.prefix and columns.mask",
)
SEVERAL_MASKS: Final = _quarantined(
    "several_masks",
    "Several files may be its mask, or several images may have it",
    "Keep one of them, or name the others in filter.ignore",
)
MASK_WITHOUT_IMAGE: Final = _quarantined(
    "mask_without_image",
    "A mask whose image is not there",
    "Add the image, or name such masks in filter.ignore",
)

# Of the bytes of an image: raised by shardmill.infra.codecs, but for the last.
_quarantined("empty", "The file has no content", "Copy it from the original again, or delete it")
_quarantined(
    "unknown_format",
    "The content is of no known image format",
    "Remove it, or add its pattern to filter.ignore",
)
_quarantined(
    "unsupported",
    "This variant of the format is not supported",
    "See the message; name black and white in image.window, or save the image as PNG or 8-bit JPEG",
)
_quarantined(
    "truncated",
    "The image ends early, as after an incomplete copy",
    "Fetch it again; or keep such images: image.allow_truncated",
)
_quarantined("corrupt", "The image cannot be decoded", "Open it in a viewer; fetch it again, or delete it")
_quarantined(
    "too_many_pixels", "Its header declares more than image.max_pixels", "If it is genuine, scale it down"
)
_quarantined(
    "bomb",
    "Decoding it would take far more work than its size suggests",
    "Save it again if it is genuine, or delete it",
)
_quarantined(
    "too_long",
    "The stored image would be longer than its format allows",
    "Leave it out with filter.max_aspect, or crop it",
)
UNPROCESSABLE: Final = _quarantined(
    "unprocessable",
    "A library failed on it unexpectedly",
    "Save it again, or delete it; please report the message",
)

# Of the masks of images that are fine; the last two are raised by shardmill.infra.codecs.
BROKEN_MASK: Final = _quarantined(
    "broken_mask",
    "The image is fine, but its mask cannot be decoded",
    "See the message; fetch the mask again, or save it as PNG",
)
OTHER_MASK_SIZE: Final = _quarantined(
    "other_mask_size",
    "Its mask has another size than the image",
    "Give the mask of this image; masks are never scaled to fit",
)
LOSSY_MASK: Final = _quarantined(
    "lossy_mask", "The format of its mask changes pixels", "Save the mask as PNG from its original"
)
UNKNOWN_MASK_VALUE: Final = _quarantined(
    "unknown_mask_value",
    "Its mask has values that stand for no class",
    "Name them in source.masks.classes or ignore, or set source.masks.unknown",
)

# Verdicts on files that a process of their own did not survive.
CRASHED: Final = _quarantined(
    "decoder_crashed",
    "An image library crashed while decoding it",
    "Save it again, or delete it; it may be hostile",
)
HUNG: Final = _quarantined(
    "decoder_hung",
    "Decoding it took longer than runner.image_seconds",
    "Raise the setting if it is genuine, or delete it",
)
OUT_OF_MEMORY: Final = _quarantined(
    "decoder_out_of_memory",
    "Decoding it needs more than runner.image_memory_bytes",
    "Raise the setting if it is genuine, or scale it down",
)

# Found by planning.
OTHER_SIZE: Final = _quarantined(
    "other_size",
    "Its annotation is of an image of another size",
    "Give the image that was annotated, or the annotation of this image",
)
MASK_REASONS: Final = (BROKEN_MASK, OTHER_MASK_SIZE, LOSSY_MASK, UNKNOWN_MASK_VALUE)
VERDICT_REASONS: Final = (CRASHED, HUNG, OUT_OF_MEMORY)
# These may be gone at the next run although the listing has not changed.
PASSING_REASONS: Final = (UNREADABLE, VANISHED, CHANGED)

# Reasons of DUPLICATES; the second where the source gives the file another split than the record it repeats.
SAME_BYTES: Final = "same_bytes"
SAME_BYTES_ACROSS_SPLITS: Final = "same_bytes_across_splits"


def explain(reason: str) -> tuple[str, str]:
    """Return (meaning, remedy) of a reason; for an unknown reason, the reason itself as words."""
    return REASONS.get(reason, (reason.replace("_", " ").capitalize(), "See the messages below"))
