"""How the current checkpoint is wired: views, switches, and which orderings of the slots there are."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from drafter.errors import DrafterError, WiringError
from drafter.log import Logged
from drafter.options import Options as Options
from drafter.serving.families import Family, family_of
from drafter.serving.view_case import Case
from drafter.serving.views import (
    TRAINED,
    ServedView,
    ordering_of,
    parse_view,
    served_view,
)
from drafter.wiring import (
    SWITCHES,
    Ordering,
    Wiring,
    all_orderings,
    check_ordering,
    configured_ordering,
    parse_ordering,
    promising_orderings,
)

if TYPE_CHECKING:
    from drafter.checkpoint.vocab_map import VocabMap
from drafter.session.core import Core


class Wired(Core):
    @property
    def vocab_warning(self) -> str:
        return self._now.drafter.vocab(self.wiring).warning if self._now.drafter else ""

    def vocab_map(self) -> VocabMap:
        """d2t in the reading that the data supports."""
        from drafter.model.sources import load_vocab_map

        return self._now.drafter.vocab(self.wiring) if self._now.drafter else load_vocab_map(self.checkpoint)

    def _trained_depths(self) -> tuple[int, ...] | None:
        """The depths that training itself wrote down: a speculators config, beside or as the config."""
        checkpoint = self._now.checkpoint
        if checkpoint is None:
            return None
        if checkpoint.trained_config is not None:
            return checkpoint.trained_config.aux_depths
        return checkpoint.config.aux_depths if checkpoint.config.dialect == "speculators" else None

    def served(self, view: str | None = None) -> ServedView | None:
        """What a server makes of the current checkpoint, by the options' view if None; None for `trained`."""
        text = self.options.view if view is None else view
        server = parse_view(text)
        if server is None:
            return None
        if text not in self._now.served:
            self._now.served[text] = served_view(self._case(text))
        return self._now.served[text]

    def _case(self, view: str) -> Case:
        from drafter.fix.configs import configured_table
        from drafter.model.sources import load_vocab_map

        server, checkpoint = parse_view(view), self.checkpoint
        assert server is not None
        try:
            reading = load_vocab_map(checkpoint).reading
        except DrafterError:
            reading = ""  # loading refuses it, with the reason
        table, target = configured_table(checkpoint), self._now.target
        return Case(checkpoint, table, server, self.family(), self.target_layers, target, reading)

    def family(self, given: str | None = None) -> Family:
        """The target's family: as given, from its own config, or by what the checkpoint's configs say of it."""
        from drafter.checkpoint.config import Fields
        from drafter.fix.configs import configured_table, verifier_architectures

        asked = given if given is not None else self.options.family
        if asked is not None:
            return family_of(asked)
        target = self._now.target
        if target is not None and target.model_type:
            return family_of(target.model_type, verifier_architectures(self.checkpoint))
        said = Fields(configured_table(self.checkpoint), "config.json").raw("target_model_type")
        return family_of(str(said) if isinstance(said, str) else "", verifier_architectures(self.checkpoint))

    @property
    def target_layers(self) -> int | None:
        """How many layers the target has: as the options say, else by its config; None where nobody says."""
        if self.options.layers is not None:
            return self.options.layers
        return self._now.target.num_layers if self._now.target else None

    @property
    def view_name(self) -> str:
        """The view with its version, whether it was named or not."""
        server = parse_view(self.options.view)
        return TRAINED if server is None else str(server)

    def view_said(self) -> list[str]:
        """What has to be said of the view in force: assumptions, and why it would not run; nothing for `trained`."""
        served = self.served()
        if served is None:
            return []
        return [f"{served.name}: {said}" for said in (served.refused, *served.notes) if said]

    @property
    def trained_wiring(self) -> Wiring:
        """The wiring of the view, before any switch is set."""
        served = self.served()
        if served is None:
            return Wiring.trained(self.checkpoint.run_config)
        if served.refused:
            raise WiringError(
                f"the view {served.name} of a checkpoint that it would not load: {served.refused}",
                where=self.checkpoint.path,
                hint="--view trained runs it as training did; `views` shows every version",
            )
        return served.wiring

    @property
    def wiring(self) -> Wiring:
        """The wiring in force: the view's, with the switches that are set."""
        wiring = self.trained_wiring
        for name, value in self._switches.items():
            wiring = wiring.switched(name, value)
        return wiring

    def set_switch(self, name: str, value: str | None) -> Wiring:
        """Set one switch of the wiring, or give it back to the view with None. Raises WiringError."""
        with Logged(self.log, "set_switch", {"switch": name, "value": value}) as logged:
            if value is not None:
                self.trained_wiring.switched(name, value)
                self._switches[name] = value
            else:
                self._switches.pop(name, None)
            self._now.drafted = {}
            logged.result = self.switched()
        return self.wiring

    def switched(self) -> dict[str, str]:
        """The switches that differ from the view's own wiring, with their values."""
        trained, wiring = self.trained_wiring, self.wiring
        return {name: wiring.value(name) for name in SWITCHES if wiring.value(name) != trained.value(name)}

    def configured(self) -> tuple[Ordering | None, str]:
        """What the config's layer ids select among the current sample's slots, or None, with the reason.

        Under a served view by that server's own rule, else by the convention of whoever wrote the config.
        """
        served = self.served()
        if served is not None:
            return ordering_of(served, self.sample.slots, self.checkpoint.fc_inputs, self.target_layers)
        return self._configured_by_dialect()

    def _configured_by_dialect(self) -> tuple[Ordering | None, str]:
        return configured_ordering(self.checkpoint.config.aux_depths, self.sample.slots, self.checkpoint.fc_inputs)

    def trained(self) -> Ordering | None:
        """What the training's own config selects, where there is one."""
        depths = self._trained_depths()
        if depths is None:
            return None
        return configured_ordering(depths, self.sample.slots, self.checkpoint.fc_inputs)[0]

    def orderings(self, asked: Iterable[str] | None = None) -> list[Ordering]:
        """The orderings that the options (or `asked`) name, or every one for `all`.

        Where nothing is named: every one, of a recording of many layers the promising ones (`orderings_note`).
        """
        slots, inputs = len(self.sample.slots), self.checkpoint.fc_inputs
        names = list(self.options.orderings if asked is None else asked)
        if not names:
            return self._promising()[0]
        if "all" in names:
            return all_orderings(slots, inputs)
        return list(dict.fromkeys(check_ordering(parse_ordering(name), slots, inputs) for name in names))

    @property
    def orderings_note(self) -> str:
        """Which orderings are scored unasked, where they are not all."""
        return self._promising()[1]

    def _promising(self) -> tuple[list[Ordering], str]:
        slots, inputs = len(self.sample.slots), self.checkpoint.fc_inputs
        asked = [parse_ordering(name) for name in self.options.orderings if name != "all"]
        near = [*asked, *(o for o in (self.trained(), self.configured()[0]) if o is not None)]
        return promising_orderings(slots, inputs, near)

    @property
    def asked_ordering(self) -> bool:
        """Whether the options name one ordering to begin with."""
        return any(name != "all" for name in self.options.orderings)

    def first_ordering(self) -> tuple[Ordering, str]:
        """The ordering to begin with, and why: the one asked for, what a served view captures, the trained, the
        configured, else the first slots."""
        asked = [name for name in self.options.orderings if name != "all"]
        if asked:
            return self.orderings(asked)[0], "as asked"
        if self.served() is not None and self.configured()[0] is not None:
            ordering, why = self.configured()
            assert ordering is not None
            return ordering, why
        trained = self.trained()
        if trained is not None:
            return trained, "trained, by the training's config"
        configured, _ = self.configured()
        if configured is not None:
            return configured, "configured"
        slots = tuple(range(self.checkpoint.fc_inputs))
        return slots, "the first slots; no config says which"
