"""Make the artifacts of a flow run: tables and charts that its page in Prefect shows besides the log.

    page        create and update artifacts of a run, and of the run that it is a part of; their keys
    prepared    a published version          trained     a finished training
    examples    small pictures of examples   failed      a run that failed
    verdicts    an evaluation, or a decision about an alias

An artifact of Prefect's type *image* shows its data URL as text across the page. Pictures therefore stand in
Markdown. A card of the Artifacts tab shows the first line of a description, also when that is a picture; the
tab asks for news every five seconds while a run goes on.
"""
