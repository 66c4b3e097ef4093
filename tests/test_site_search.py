"""What users type into the search of the documentation is answered by one of the first three pages.

The search is run as in a browser, by node, over the site in the folder that $SEQDEC_SITE names (`.ci/run` sets it).
"""

import json
import os
import shutil
import subprocess
from pathlib import Path

import pytest

QUERIES = {
    "contextual bandit": "bandits",
    "multi-armed bandit": "bandits",
    "thompson sampling": "concepts",
    "cold start": "services",
    "late rewards": "services",
    "delayed rewards": "services",
    "confidence interval": "off-policy-evaluation",
    "counterfactual evaluation": "off-policy-evaluation",
    "inverse propensity": "off-policy-evaluation",
    "a/b test": "ope-arms",
    "hyperparameter tuning": "how-to",
    "nonlinear constraints": "constraints",
    "missing observations": "missing-observations",
    "missing values": "features",
    "personalizer": "personalizer",
    "router of language models": "router",
    "soap optimizer": "optimizers",
    "kalman filter": "filters",
    "gpu": "how-to",
    "minimize": "api/objects/seqdec.minimize",
}
SCRIPT = """
const fs = require("fs");
globalThis.window = Object.assign(globalThis, { location: {} });
globalThis.document = { readyState: "loading", addEventListener() {}, getElementById: () => ({ children: [] }) };
globalThis.localStorage = { setItem() {} };
Object.assign(globalThis, { DOCUMENTATION_OPTIONS: { URL_ROOT: "./" }, BaseStemmer: 0, EnglishStemmer: 0 });
const files = ["_static/doctools.js", "_static/language_data.js", "_static/sphinx_highlight.js"];
files.push(...(fs.existsSync("_static/scorer.js") ? ["_static/scorer.js"] : []), "_static/searchtools.js");
const text = files.map((file) => fs.readFileSync(file, "utf8")).join("\\n") + fs.readFileSync("searchindex.js", "utf8");
const found = (0, eval)(text + `;(queries) => queries.map((query) => {
  const results = Search._performSearch(...Search._parseQuery(query));
  return [...new Set(results.reverse().map((result) => result[0]))];
})`);
console.log(JSON.stringify(found(JSON.parse(process.argv[1]))));
"""


@pytest.fixture(scope="module")
def results():
    """By query, the pages found, the first one first."""
    site, node = os.environ.get("SEQDEC_SITE"), shutil.which("node")
    if not (site and node):
        pytest.skip("needs the built site in $SEQDEC_SITE, and node")
    command = [node, "-e", SCRIPT, json.dumps(list(QUERIES))]
    done = subprocess.run(command, cwd=Path(site), capture_output=True, text=True, check=True)
    return dict(zip(QUERIES, json.loads(done.stdout), strict=True))


@pytest.mark.parametrize("query", QUERIES)
def test_a_query_leads_to_its_page(query, results):
    assert f"docs/{QUERIES[query]}" in results[query][:3]
