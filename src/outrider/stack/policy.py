"""`policy:` in the stack: whether drafts are switched while serving, and the governor's settings that are not the default.

The keys, bounds and meanings are those of `governor.settings`: there is one table.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields
from typing import TYPE_CHECKING, Any

from pydantic import BaseModel, ConfigDict, Field, create_model, model_validator

from outrider.governor.settings import PolicySettings, settings_from

_WORDS: Mapping[object, bool] = {"on": True, True: True, None: True, "off": False, False: False}


class _Enabled(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)

    enabled: bool = Field(
        True,
        description="Move new requests between drafts while serving; `policy: off` is short for false.",
    )
    plain_engine: bool = Field(
        False,
        description="Start a second engine without the draft beside the first, on the same accelerator: where the engine cannot "
        "switch drafts itself, new requests move between the two. Half of the memory is each one's.",
    )

    @model_validator(mode="before")
    @classmethod
    def _one_word(cls, given: object) -> object:
        """``policy: off``, which YAML reads as false, and ``policy: on``."""
        plain = given is None or isinstance(given, (bool, str))
        return {"enabled": _WORDS[given]} if plain and given in _WORDS else given

    @property
    def given(self) -> dict[str, Any]:
        """The governor's settings by name, not judged yet."""
        return self.model_dump(exclude=set(_Enabled.model_fields))

    @property
    def settings(self) -> PolicySettings:
        """The governor's settings. Raises ValueError where two contradict each other, which `load` refuses."""
        return settings_from(self.given)


def or_one_word(schema: dict[str, Any]) -> None:
    """In the JSON Schema of the key: the block, or ``on`` or ``off``."""
    schema["anyOf"] = [{"$ref": schema.pop("$ref")}, {"enum": ["on", "off", True, False]}]


def _keys() -> dict[str, Any]:
    keys: dict[str, Any] = {}
    for one in fields(PolicySettings):
        about, kind = one.metadata, type(one.default)
        bounds = {} if kind is bool else {"ge": about["low"], "le": about["high"]}
        keys[one.name] = (kind, Field(one.default, description=about["about"], **bounds))
    return keys


if TYPE_CHECKING:

    class Policy(_Enabled):
        """Typed by its base: the settings are read through `settings`."""
else:
    Policy = create_model(
        "Policy",
        __base__=_Enabled,
        __module__=__name__,
        __doc__="When new requests move to another draft, without a restart. Every key has a default that is meant to be kept.",
        **_keys(),
    )
