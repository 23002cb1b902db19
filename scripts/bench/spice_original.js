// SPICE 1.0's own classes on items, in the way in which its program uses them: one line of JSON in, one out.
//
// In: {"candidates": [text, ...], "references": [[text, ...], ...]}. Out: for each item 21 counts (true positives,
// false positives, false negatives of All, Object, Relation, Attribute, Color, Cardinality, Size).

var spice = Packages.edu.anu.spice;
var input = new java.io.BufferedReader(new java.io.InputStreamReader(java.lang.System["in"], "UTF-8"));
var request = JSON.parse(String(input.readLine()));
var candidates = new java.util.ArrayList();
var references = new java.util.ArrayList();
var sizes = new java.util.ArrayList();
for (var i = 0; i < request.candidates.length; i++) {
  candidates.add(new java.lang.String(request.candidates[i]));
  var captions = request.references[i];
  sizes.add(java.lang.Integer.valueOf(captions.length));
  for (var j = 0; j < captions.length; j++) references.add(new java.lang.String(captions[j]));
}

var parser = new spice.SpiceParser(null, java.lang.Runtime.getRuntime().availableProcessors(), java.lang.Boolean.TRUE);
var theirs = parser.parseCaptions(references, sizes);
var own = parser.parseCaptions(candidates);

var kinds = ["noFilter", "objectFilter", "relationFilter", "attributeFilter"];
kinds = kinds.concat(["colorFilter", "cardinalityFilter", "sizeFilter"]);
var rows = [];
for (var n = 0; n < own.size(); n++) {
  var row = [];
  for (var k = 0; k < kinds.length; k++) {
    var filter = spice.TupleFilter[kinds[k]];
    var one = new spice.TupleSet(own.get(n), filter);
    var other = new spice.TupleSet(theirs.get(n), filter);
    var counts = new spice.Evaluation(one, other, k > 0, true);
    row.push(counts.tp, counts.fp, counts.fn);
  }
  rows.push(row);
}
print(JSON.stringify(rows));
