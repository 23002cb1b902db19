// SPICE 1.0's own merging and matching on tuples that are given: one JSON object a line in, one out.
//
// In: {"candidate": [tuple, ...], "references": [[tuple, ...], ...]}. Out: 21 counts, and precision, recall, F of each
// category as text ("NaN" is no JSON number).

var spice = Packages.edu.anu.spice;
var parser = new spice.SpiceParser(null, 1, java.lang.Boolean.TRUE);
var field = parser.getClass().getDeclaredField("synonyms");
field.setAccessible(true);
var synonyms = field.get(parser);
var kinds = ["noFilter", "objectFilter", "relationFilter", "attributeFilter"];
kinds = kinds.concat(["colorFilter", "cardinalityFilter", "sizeFilter"]);

function graph(captions) {
  var made = new spice.SceneGraph(synonyms, true);
  captions.forEach(function (tuples) {
    tuples.forEach(function (parts) {
      var tuple = new java.util.ArrayList();
      parts.forEach(function (part) { tuple.add(new java.lang.String(part)); });
      made.addTuple(tuple);
    });
  });
  return made;
}

var input = new java.io.BufferedReader(new java.io.InputStreamReader(java.lang.System["in"], "UTF-8"));
for (var line = input.readLine(); line !== null; line = input.readLine()) {
  var item = JSON.parse(String(line));
  var own = graph([item.candidate]);
  var theirs = graph(item.references);
  var counts = [];
  var scores = [];
  for (var k = 0; k < kinds.length; k++) {
    var filter = spice.TupleFilter[kinds[k]];
    var found = new spice.Evaluation(new spice.TupleSet(own, filter), new spice.TupleSet(theirs, filter), k > 0, true);
    counts.push(found.tp, found.fp, found.fn);
    scores.push(String(found.pr), String(found.re), String(found.f));
  }
  print(JSON.stringify({ counts: counts, scores: scores }));
}
