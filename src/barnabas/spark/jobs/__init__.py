"""Jobs that everyone needs: archive, replay, deadletters, hotkeys, compare. Each is a function with a summary."""
