"""Reading with Grain: data sources and a sampler for its loaders."""
