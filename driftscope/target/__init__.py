"""The target: loaded, its ends, its sinks, its prompts."""
