"""Makes the embedded sample: synthetic scenes, captions, and simulated judgements.

``scenes`` lays objects out, ``drawing`` paints them, ``language`` and ``captions`` say what a person would say,
``machine`` says it as a captioner would (and gets it wrong), ``people`` rates, ``native`` writes the published
formats, ``build`` puts it all together.
"""
