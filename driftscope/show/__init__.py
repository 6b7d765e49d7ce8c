"""What a person sees of runs: frames, charts, pictures, report, terminal."""
