"""The page of a flow run in Prefect: its artifacts, which are tables and charts beside the log.

An artifact of Prefect's type *image* shows its data URL as text across the page. Pictures therefore stand in
Markdown. A card of the Artifacts tab shows the first line of a description, also when that is a picture; the
tab asks for news every five seconds while a run goes on.
"""
