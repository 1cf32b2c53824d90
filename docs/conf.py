"""How Sphinx builds the site: `make docs`. Nothing here needs the network."""

import os
import re
import sys
from pathlib import Path

DOCS = Path(__file__).parent
OURS = ("pyro_moments", "numpyro_moments", "moment_calculus", "moment_inference", "moment_guides")
sys.path[:0] = [str(DOCS / "_ext"), str(DOCS.parent)]

project = "pyro-moments"
author = "The pyro-moments developers"
extensions = [
    "both",
    "mathml",
    "myst_parser",
    "sphinx.ext.autodoc",
    "sphinx.ext.napoleon",
    "sphinx_copybutton",
    "sphinx_design",
]
exclude_patterns = ["_build", "fragments"]
suppress_warnings = ["config.cache"]

myst_enable_extensions = ["colon_fence", "deflist", "dollarmath"]
myst_heading_anchors = 3

autodoc_default_options = {"members": True, "member-order": "bysource", "inherited-members": True}
autodoc_typehints = "none"  # the docstrings say shapes and units, which annotations do not
napoleon_numpy_docstring = False
napoleon_use_ivar = True
napoleon_use_rtype = False
default_role = "code"
# References to names of other projects need their inventories, which are on the network.
nitpick_ignore = [
    ("py:class", "numpyro_moments.sites.drawn_traces.Drawing"),
    ("py:mod", "moment_calculus.values"),
    ("py:mod", "moment_calculus.rulebooks"),
]
nitpick_ignore_regex = [("py:.*", rf"(?!({'|'.join(OURS)})\b).*")]

html_theme = "pydata_sphinx_theme"
html_title = "pyro-moments"
html_show_sourcelink = False
html_static_path = ["_static"]
html_css_files = ["site.css"]
html_theme_options = {
    "show_prev_next": True,
    "navbar_end": ["theme-switcher"],
    "secondary_sidebar_items": ["page-toc"],
    "footer_start": ["copyright"],
    "footer_end": [],
    "header_links_before_dropdown": 7,
}
if not os.environ.get("FULL"):
    html_theme_options["announcement"] = (
        "A draft: cells ran with a tenth of the steps, draws and simulations that they show, and "
        "NumPy evaluated small programs of JAX. <code>make docs FULL=1</code> runs all in full."
    )


def skip_inherited(app, what, name, member, skip, options):
    """Skip what a class inherits from the hosts: their own pages document it."""
    function = getattr(member, "fget", None) or getattr(member, "func", None) or member
    function = getattr(function, "__objclass__", function)
    module = getattr(function, "__module__", None) or OURS[0]
    return None if module.split(".")[0] in OURS else True


def escape(app, what, name, member, options, lines):
    """Keep |x| and x* of formulas outside of quotes from being read as markup."""
    for number, line in enumerate(lines):
        if not re.match(r" *\*{1,2}\w+:", line):  # not the entries of arguments
            parts = re.split(r"(`+[^`]*`+)", line)
            parts[::2] = [re.sub(r"([|*])", r"\\\1", part) for part in parts[::2]]
            lines[number] = "".join(parts)


def setup(app):
    """Connect what autodoc asks."""
    app.connect("autodoc-skip-member", skip_inherited)
    app.connect("autodoc-process-docstring", escape, priority=100)  # before napoleon
