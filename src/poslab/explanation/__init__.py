"""Explanation of one model: pictures of its scheme, measures of its attention and use of context, and their page."""
