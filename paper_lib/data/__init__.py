"""Data: published image sets, toy sets, and the streams of tasks that are dealt from them."""
