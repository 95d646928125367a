"""The tests: see STYLE.md, section 9, for what lives where."""
