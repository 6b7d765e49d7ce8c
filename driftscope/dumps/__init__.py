"""Hidden states that serving engines and trainers leave on disk, read as captures."""
