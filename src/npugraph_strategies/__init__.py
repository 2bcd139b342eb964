"""Strategy objects for NPU graph operator handlers, held in injected registries."""
