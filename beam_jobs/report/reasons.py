"""The reasons for leaving an input out: the meaning and the remedy of each."""

from __future__ import annotations

# reason -> (meaning, remedy); docs/reference_tables.py writes them into docs/recover-from-failures.md
REASONS: dict[str, tuple[str, str]] = {
    "empty": ("The file has no content", "Copy it from the original again, or delete it"),
    "unknown_format": (
        "The content is of no known image format",
        "Remove it, or add its pattern to filter.ignore",
    ),
    "unsupported": (
        "This variant of the format is not supported",
        "See the message; save the image as PNG or 8-bit JPEG",
    ),
    "truncated": (
        "The image ends early, as after an incomplete copy",
        "Fetch it again; or keep such images: image.allow_truncated",
    ),
    "corrupt": ("The image cannot be decoded", "Open it in a viewer; fetch it again, or delete it"),
    "too_many_pixels": (
        "Its header declares more than image.max_pixels",
        "If it is genuine, scale it down",
    ),
    "bomb": (
        "Decoding it would take far more work than its size suggests",
        "Save it again if it is genuine, or delete it",
    ),
    "too_long": (
        "The stored image would be longer than its format allows",
        "Leave it out with filter.max_aspect, or crop it",
    ),
    "unreadable": ("The file could not be read", "Check permissions and the disk, then run again"),
    "vanished": (
        "The file was listed, but gone when it was read",
        "Run again when nothing changes the source",
    ),
    "changed": (
        "The file changed while the job read it",
        "Run again when nothing changes the source",
    ),
    "broken_link": ("A symbolic link whose target does not exist", "Restore the target, or delete the link"),
    "unprocessable": (
        "A library failed on it unexpectedly",
        "Save it again, or delete it; please report the message",
    ),
    "decoder_crashed": (
        "An image library crashed while decoding it",
        "Save it again, or delete it; it may be hostile",
    ),
    "decoder_hung": (
        "Decoding it took longer than runner.image_seconds",
        "Raise the setting if it is genuine, or delete it",
    ),
    "decoder_out_of_memory": (
        "Decoding it needs more than runner.image_memory_bytes",
        "Raise the setting if it is genuine, or scale it down",
    ),
    "unlisted_folder": (
        "The folder cannot be listed; all of its files are missing",
        "Make it readable, or add it to filter.ignore",
    ),
    "path_too_long": (
        "Its path is longer than the system allows",
        "Shorten folder names, or move the source nearer to the root",
    ),
    "too_large": (
        "The file is larger than image.max_bytes",
        "Remove it, add its pattern to filter.ignore, or raise image.max_bytes",
    ),
    "no_class": (
        "It is not in a class folder, so it has no label",
        "Move it there, or add its pattern to filter.ignore",
    ),
    "broken_row": (
        "The row of the table or file cannot be read",
        "See the message; count delimiters and quotes",
    ),
    "bad_path": (
        "The row names no file within the source",
        "Correct the path: relative to the source, without .., not empty",
    ),
    "missing_file": (
        "The row names a file that is not there",
        "Add the file or remove the row; for many look at source.table.prefix and columns.image",
    ),
    "several_files": (
        "Several files match the name in its row",
        "Write the whole file name into the row",
    ),
    "no_label": (
        "Its row or sidecar has no label, or the number of no named class",
        "Fill in the label, or remove the row or the image",
    ),
    "unknown_split": (
        "Its row names a split that is neither train, validation nor test",
        "Correct the split, or leave it empty",
    ),
    "contradicting_rows": (
        "Rows give the same file different labels, splits, groups, objects or features",
        "Keep the row that is right, and remove the others",
    ),
    "other_size": (
        "Its annotation is of an image of another size",
        "Give the image that was annotated, or the annotation of this image",
    ),
    "no_mask": (
        "It has no mask, or its row names none",
        "Add the mask; or leave such images out: source.masks.unmasked = 'leave_out'",
    ),
    "missing_mask": (
        "Its row names a mask that is not there",
        "Add the mask or remove the row; for many look at source.table.prefix and columns.mask",
    ),
    "several_masks": (
        "Several files may be its mask, or several images may have it",
        "Keep one of them, or name the others in filter.ignore",
    ),
    "mask_without_image": (
        "A mask whose image is not there",
        "Add the image, or name such masks in filter.ignore",
    ),
    "broken_mask": (
        "The image is fine, but its mask cannot be decoded",
        "See the message; fetch the mask again, or save it as PNG",
    ),
    "other_mask_size": (
        "Its mask has another size than the image",
        "Give the mask of this image; masks are never scaled to fit",
    ),
    "lossy_mask": (
        "The format of its mask changes pixels",
        "Save the mask as PNG from its original",
    ),
    "unknown_mask_value": (
        "Its mask has values that stand for no class",
        "Name them in source.masks.classes or ignore, or set source.masks.unknown",
    ),
    "not_found": (
        "The server has no file at this address",
        "Correct the address, or remove the row",
    ),
    "access_denied": (
        "The server does not give the file to everybody",
        "Fetch it with your access, and prepare it from a folder",
    ),
    "server_error": (
        "The server answered with an error each time",
        "Run again later; see the status in the message",
    ),
    "too_many_requests": (
        "The server refused each time: too many requests",
        "Run again later; lower source.urls.connections_per_host or raise delay_seconds and max_wait_seconds",
    ),
    "unreachable": (
        "There is no such host, or it does not answer",
        "Correct the address, or run again later",
    ),
    "timed_out": (
        "The server took longer than source.urls.total_seconds or read_seconds",
        "Run again later, or raise these settings",
    ),
    "broken_off": (
        "The connection ended early each time",
        "Run again later",
    ),
    "bad_redirect": (
        "The address redirects too often, or not to an http or https address",
        "Write the image's own address into the row",
    ),
    "private_host": (
        "The host is in a private network",
        "If it is yours, set source.urls.allow_private_hosts",
    ),
    "not_an_image": (
        "The server sent a page, text or a compressed body",
        "Open the address in a browser; correct or remove the row",
    ),
    "opted_out": (
        "A header of the server reserves the image (source.urls.opt_out)",
        "Ask its owner for permission",
    ),
    "broken_container": (
        "The file of the image is damaged or cannot be read",
        "Fetch it again; what stands before the damage was kept",
    ),
    "no_image": (
        "The row holds no image",
        "Fill it in or remove the row; for many look at source.columns.image",
    ),
    "bad_name": (
        "The name of an object or member is absolute, or has an empty part, . or .. in it",
        "Copy the object to another key, or pack the archive with relative names",
    ),
    "archived_link": (
        "A link in an archive, which is not followed",
        "Pack the files themselves: tar --dereference --hard-dereference",
    ),
    "encrypted": (
        "The member of the archive is encrypted",
        "Pack the archive again without a password",
    ),
    "unsupported_member": (
        "The archive stores the member in a way that is not supported",
        "See the message; pack a tar, or a zip with deflate",
    ),
    "damaged_member": (
        "The member is cut, of another length than declared, or its checksum is wrong",
        "Copy or download the archive again",
    ),
    "empty_archive": ("The archive has no file in it", "Nothing to do"),
    "mask": ("It is the mask of an image", "Nothing to do"),
    "unmasked": (
        "It has no mask, and source.masks.unmasked leaves such images out",
        "Add its mask to include it",
    ),
    "sidecar": ("It describes the image of the same name", "Nothing to do"),
    "replaced_member": (
        "A later member of the archive has the same name",
        "Nothing to do",
    ),
    "ignored": ("A pattern of filter.ignore matches it", "Change filter.ignore to include it"),
    "special_file": (
        "A pipe, a socket or a device, not a file",
        "Nothing to do",
    ),
    "table": (
        "It is the table that names the images",
        "Nothing to do",
    ),
    "row_file": (
        "Its rows are images, or describe them",
        "Nothing to do",
    ),
    "other_file": (
        "It is not of the kind of files that source.kind reads",
        "Nothing to do; name it in source.files if it holds images",
    ),
    "not_in_table": (
        "No row of the table names it",
        "Add a row for it to include it",
    ),
    "dropped_label": (
        "drop_labels of the source names its label",
        "Remove the label from drop_labels to include it",
    ),
    "label_edit": (
        "A row of source.label_edits drops it",
        "Remove the row, or write a label into it, to include it",
    ),
    "repeated_row": (
        "The row of the table says the same as an earlier row",
        "Nothing to do",
    ),
    "too_small": (
        "It is smaller than filter.min_width or filter.min_height",
        "Lower these settings to include it",
    ),
    "aspect": ("Its aspect ratio is larger than filter.max_aspect", "Raise this setting to include it"),
    "ai_made": (
        "Its metadata declare a generative model",
        "Set filter.ai_made to keep to include it",
    ),
    "class": ("filter.classes does not name its class", "Add the class to filter.classes to include it"),
    "leak": (
        "Its group is in another split too, so train leaves it out",
        "Move it to the split of its group, or set groups.leakage to keep",
    ),
    "purged": (
        "Its content was purged from this dataset",
        "Remove the file from the source too",
    ),
}


def explain(reason: str) -> tuple[str, str]:
    """Return (meaning, remedy) of a reason; for an unknown reason, the reason itself as words."""
    return REASONS.get(reason, (reason.replace("_", " ").capitalize(), "See the messages below"))
