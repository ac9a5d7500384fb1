"""Which modules of the package have doctests that can run here."""

from importlib.util import find_spec

# Doctests import their modules, and these raise an error without their extra.
homes = {"deepchem": "smilex/integrations/deepchem", "ray": "smilex/integrations/ray.py"}
collect_ignore = [home for library, home in homes.items() if find_spec(library) is None]
