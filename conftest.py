"""Which modules of the package have doctests that can run here."""

from importlib.util import find_spec

# Doctests import their modules, and these raise an error without their extra.
collect_ignore = [] if find_spec("deepchem") else ["smilex/integrations/deepchem"]
