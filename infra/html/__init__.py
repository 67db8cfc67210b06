"""What the HTML pages of datasets and of training runs share: style sheet, templates' environment, text."""
