"""Raw images in; accounted-for, balanced, sharded TFRecords and a trained model out."""
