"""Reports as blocks, rendered to html, markdown and the terminal."""
