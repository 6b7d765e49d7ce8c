"""Confidence: is the drafter surer of its tokens, step by step, than their acceptance warrants?"""

from driftscope.probes import Variant


class Confidence:
    name = shard = "confidence"
    question = "Is the drafter surer of its tokens than their acceptance warrants?"

    def boundaries(self, pair):
        return ()

    def variants(self, pair):
        return [Variant("confidence", "clean", {})]

    def measure(self, subject):
        from driftscope.runs.rows import step_rows

        chains = subject.clean("drafted")  # shared with the other probes
        return {"steps": step_rows(subject, "confidence", "drafted", chains, ["top_prob"])}

    def cost(self, depth):
        return 1.0


PROBE = Confidence()
