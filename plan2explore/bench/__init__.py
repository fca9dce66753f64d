"""Speed, measured on the machine at hand: what `plan2explore bench` prints."""
