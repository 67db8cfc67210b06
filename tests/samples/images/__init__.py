"""Single images and their masks: sound, drawn, damaged, and what their conversion is compared with."""
