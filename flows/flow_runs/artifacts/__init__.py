"""The artifacts of a flow run: what its page in Prefect shows besides the log.

    keys        names of artifacts
    page        create and update artifacts of a run, and of the run that it is a part of
    prepared    a published version          trained     a finished training
    examples    small pictures of examples   pipeline    the summary of a whole pipeline
    failed      a run that failed

An artifact of Prefect's type *image* shows its data URL as text across the page. Pictures therefore stand in
Markdown. A card of the Artifacts tab shows the first line of a description, also when that is a picture; the
tab asks for news every five seconds while a run goes on.
"""
