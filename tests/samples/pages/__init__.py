"""Pages and reports: what they show, and the servers behind them."""
