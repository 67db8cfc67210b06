"""Start a framework in this process, and train or try batch sizes. A framework loads only when called."""
