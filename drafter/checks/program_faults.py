"""What a program that has a switch in a wrong position does, and what to mend in it: one table for every check that
names such a switch. Knows no measurement.
"""

from __future__ import annotations

WRONG = {  # (switch, value that is wrong): what such a program does, what to mend in it
    ("row_ids", "same"): (
        "each recorded row is fed its own token instead of the next one",
        "shift the ids by one before they are embedded: the state after x[t] stands beside x[t+1]",
    ),
    ("feedback", "first"): (
        "later steps are fed the states of the target again instead of the drafter's own",
        "feed the drafter's last hidden state back, before its final norm unless norm_output says otherwise",
    ),
    ("feedback", "through_fc"): (
        "the state that is fed back passes fc again",
        "fc belongs before the first step alone: what comes back is already as wide as the drafter",
    ),
    ("fed_ids", "draft"): (
        "a draft is fed back by its number in the draft vocabulary",
        "apply d2t (target id = draft id + d2t[draft id]) before the draft is embedded",
    ),
    ("draft_keys", "forgotten"): (
        "a later step does not see the keys of the chain's earlier drafts",
        "keep each draft step's keys and values in the cache until the round is verified",
    ),
    ("draft_keys", "alone"): (
        "a later step does not see the text before it",
        "give every draft step the drafter's cache of the whole text: look at slot mapping and block tables",
    ),
    ("positions", "constant"): (
        "the position of a later step is that of the first",
        "add one to the rotary position with each draft step",
    ),
    ("positions", "late"): (
        "the position of a later step is one too high",
        "let draft step k of the row at t stand at t + k; SGLang does since 0.5.12",
    ),
    ("residual", "lost_between"): (
        "the layers above the first are given the MLP's output without its residual",
        "pass the residual on to every layer, whatever its index",
    ),
    ("residual", "lost_at_end"): (
        "the last layer's output lacks its residual",
        "add the residual before the final norm and before the state is fed back",
    ),
}
