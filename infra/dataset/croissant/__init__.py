"""The description of each version as MLCommons Croissant, beside its manifest."""

from shardmill.infra.dataset.croissant.description import croissant_json, describes, write_croissant
from shardmill.infra.dataset.croissant.terms import Terms, terms_of

__all__ = ["Terms", "croissant_json", "describes", "terms_of", "write_croissant"]
