// Converts captions to SPICE's scene-graph tuples: reads one caption per line and writes one line of JSON for each.
//
// Rhino runs this inside the JVM with Stanford CoreNLP 3.6.0 and SPICE 1.0, neither of which is changed or compiled. An
// answer is a list of tuples in the parser's order, each a list of strings, or {"error": "..."}. Answers are in the order
// of the captions; parsing uses several threads.
//
// System properties: capbench.threads; capbench.words, the number of words from which a caption is parsed on its own,
// because the parser's memory grows with the square of it.

var nlp = Packages.edu.stanford.nlp;
var threads = Number(java.lang.System.getProperty("capbench.threads", "1"));
var longFrom = Number(java.lang.System.getProperty("capbench.words", "40"));

// SPICE also requests "ner", but its tuples depend only on words, tags, lemmas and dependencies.
var properties = new java.util.Properties();
properties.setProperty("annotators", "tokenize,ssplit,parse,lemma");
properties.setProperty("threads", "1");
var pipeline = new nlp.pipeline.StanfordCoreNLP(properties);

// The constructor would load a synonym dictionary that the tuples do not require.
var SpiceParser = java.lang.Class.forName("edu.anu.spice.SpiceParser");
var spice = new Packages.org.objenesis.ObjenesisStd().newInstance(SpiceParser);
var extract = SpiceParser.getDeclaredMethod("parseAnnotation", nlp.pipeline.Annotation);
extract.setAccessible(true);
var sentencesKey = java.lang.Class.forName("edu.stanford.nlp.ling.CoreAnnotations$SentencesAnnotation");
var treeKey = java.lang.Class.forName("edu.stanford.nlp.trees.TreeCoreAnnotations$TreeAnnotation");

var memory = new java.util.concurrent.locks.ReentrantReadWriteLock();
var NO_MEMORY = JSON.stringify({ error: "out of memory" });

function parse(caption) {
  var isLong = caption.split(" ").length >= longFrom;
  var lock = isLong ? memory.writeLock() : memory.readLock();
  lock.lock();
  try {
    var annotation = new nlp.pipeline.Annotation(caption);
    pipeline.annotate(annotation);
    if (isLong && hasFlatTree(annotation)) return NO_MEMORY;
    return toJson(extract.invoke(spice, annotation).tuples);
  } catch (error) {
    var text = String(error);
    return text.indexOf("OutOfMemory") >= 0 ? NO_MEMORY : JSON.stringify({ error: text });
  } finally {
    lock.unlock();
  }
}

// If memory runs out within a sentence, CoreNLP returns a flat tree with the label X and reports no error.
function hasFlatTree(annotation) {
  var sentences = annotation.get(sentencesKey);
  for (var i = 0; i < sentences.size(); i++) {
    if (String(sentences.get(i).get(treeKey).value()) === "X") return true;
  }
  return false;
}

function toJson(tuples) {
  var rows = [];
  for (var i = 0; i < tuples.size(); i++) {
    var tuple = tuples.get(i);
    var row = [];
    for (var j = 0; j < tuple.size(); j++) row.push(String(tuple.get(j)));
    rows.push(row);
  }
  return JSON.stringify(rows);
}

var input = new java.io.BufferedReader(new java.io.InputStreamReader(java.lang.System["in"], "UTF-8"));
var stdout = new java.io.FileOutputStream(java.io.FileDescriptor.out);
var output = new java.io.PrintStream(new java.io.BufferedOutputStream(stdout), false, "UTF-8");
var pool = java.util.concurrent.Executors.newFixedThreadPool(threads);
var pending = new java.util.concurrent.LinkedBlockingQueue(16 * threads);

var writer = new java.lang.Thread(function () {
  for (;;) {
    var answer = pending.take().get();
    if (answer === null) return;
    output.print(answer);
    output.print("\n");
    if (output.checkError()) java.lang.Runtime.getRuntime().halt(1); // nobody reads any more
  }
});

function submit(caption) {
  return pool.submit(new java.util.concurrent.Callable({ call: function () { return parse(caption); } }));
}

writer.start();
for (var line = input.readLine(); line !== null; line = input.readLine()) pending.put(submit(String(line)));
pending.put(pool.submit(new java.util.concurrent.Callable({ call: function () { return null; } })));
writer.join();
java.lang.Runtime.getRuntime().halt(0);
