"""Measures of predictions. Pure functions and sums over batches, numpy only.

The figures of single-label classification by name, as they stand in results and in TensorBoard:

    loss               mean cross-entropy (nats)
    accuracy           share of the examples whose class was predicted
    balanced_accuracy  mean recall of the classes that have examples
    macro_f1           mean F1 of the classes that have examples
    top5_accuracy      share of the examples whose class is among the five likeliest (of more than five)
    calibration_error  expected calibration error, 15 bins (Guo et al. 2017)

Of multi-label classification:

    loss               mean over examples and classes of the binary cross-entropy (nats)
    mean_average_precision   mean over the classes that have examples of their average precision
    macro_f1           mean F1 of the classes that have examples; a class is predicted above 0.5
    micro_f1           F1 of all classes together
    exact_match        share of the examples whose classes are all predicted, and no others

Of regression, each averaged over the targets:

    loss               mean squared error of standard scores
    absolute_error     mean absolute error, in the unit of the target
    root_mean_square_error   likewise
    r2                 share of the variance that is explained; 0 is as good as the mean of the split

Of segmentation, over the pixels that have a class:

    loss               mean over the examples of the cross-entropy of their pixels (nats)
    mean_iou           mean over the classes of intersection ÷ union
    pixel_accuracy     share of the pixels whose class was predicted

Of detection, as COCO defines them (Lin et al. 2014), over at most 100 boxes an image:

    loss               mean over the images of focal loss and 1 - generalised overlap
    average_precision  mean over the classes that have objects, and over overlaps of 0.5, 0.55, … 0.95
    average_precision_50   likewise at an overlap of 0.5
    average_recall     share of the objects that are found at all, mean as for average_precision
"""
