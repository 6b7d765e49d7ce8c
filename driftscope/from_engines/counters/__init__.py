"""What serving engines and load generators count of speculative decoding, as one `Counters`. Without torch."""
