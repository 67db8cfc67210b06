"""Print the issues that CleanVision finds in a folder, as JSON: path below the folder -> names of issues."""

import json
import sys
from pathlib import Path

from cleanvision import Imagelab

_KINDS = ("dark", "light", "blurry", "low_information", "odd_size", "odd_aspect_ratio")

if __name__ == "__main__":
    folder = Path(sys.argv[1])
    lab = Imagelab(data_path=str(folder))
    lab.find_issues({kind: {} for kind in _KINDS}, n_jobs=1, verbose=False)
    found = {
        str(Path(path).relative_to(folder)): [kind for kind in _KINDS if row[f"is_{kind}_issue"]]
        for path, row in lab.issues.iterrows()
    }
    print(json.dumps(found))
