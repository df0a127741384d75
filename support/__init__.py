"""What every layer may use and none owns."""
