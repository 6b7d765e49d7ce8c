"""The drafter in plain PyTorch; every quantity of interest is a submodule, a site."""

from driftscope.drafter.build import build_drafter
from driftscope.drafter.model import Drafter
from driftscope.drafter.site import Site, site

__all__ = ["Drafter", "Site", "build_drafter", "site"]
