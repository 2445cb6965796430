"""Sphinx: pages from Markdown, everything on this machine, search that works from a folder."""

project = html_title = "penchant"
project_copyright = "the penchant authors"
extensions = ["myst_parser"]
html_theme = "furo"
html_theme_options = {"top_of_page_buttons": []}
html_copy_source = False
html_extra_path = ["_extra"]
html_show_sphinx = False
html_show_search_summary = False  # it would be fetched, which a page opened from a folder may not do
myst_heading_anchors = 3
suppress_warnings = ["myst.header"]
exclude_patterns = ["_extra"]
html_static_path = ["_static"]
html_css_files = ["site.css"]
