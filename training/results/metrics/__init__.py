"""Measures of predictions. Pure functions and sums over batches, numpy only.

The figures of single-label classification by name, as they stand in results and in TensorBoard:

    loss               mean cross-entropy (nats)
    accuracy           share of the examples whose class was predicted
    balanced_accuracy  mean recall of the classes that have examples
    macro_f1           mean F1 of the classes that have examples
    top5_accuracy      share of the examples whose class is among the five likeliest (of more than five)
    calibration_error  expected calibration error, 15 bins (Guo et al. 2017)

Of multi-label classification: ``loss``, ``exact_match``, ``macro_f1``, ``micro_f1``. Of regression: ``loss``,
``absolute_error``, ``root_mean_square_error``, ``r2``.
"""
