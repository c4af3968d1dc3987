package manifests

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/sluice-net/sluice/api/model"
	"github.com/sluice-net/sluice/tests/lab/samples"
)

// manyBlocks is the manifest of a policy whose value is larger than the limit.
func manyBlocks() string {
	var b strings.Builder
	for i := range 80_000 {
		fmt.Fprintf(&b, `{"ipBlock":{"cidr":"fd00:1234:5678:9abc::%x/128"}},`, i+1)
	}
	return `{"apiVersion":"networking.k8s.io/v1","kind":"NetworkPolicy","metadata":{"namespace":"shop","name":"web"},"spec":{"podSelector":{},"ingress":[{"from":[` +
		strings.TrimSuffix(b.String(), ",") + `]}]}}`
}

// TestDirectoryKeepsObjectThatGrowsTooLarge: an edit that exceeds a limit deletes nothing, and
// the problem tells the size and the limit.
func TestDirectoryKeepsObjectThatGrowsTooLarge(t *testing.T) {
	const heldAll = "; the last good versions of the objects of the file stay in force"
	for name, c := range map[string]struct{ content, problem string }{
		"the value": {manyBlocks() + "\n---\n" + samples.Namespace("shop"), fmt.Sprintf("bytes in the store, the limit is %d: split it; the last good version of the object stays in force", model.MaxValue)},
		"the object": {`{"apiVersion":"v1","kind":"Pod","metadata":{"name":"a"},"spec":{"nodeName":"` + strings.Repeat("x", 16<<20) + `"}}`,
			"bytes as JSON, the limit is 16777216: split it" + heldAll},
		"the number of mistakes": {strings.Repeat("x\n---\n", 2_000), "has 1000 more documents or objects that cannot be used" + heldAll},
	} {
		t.Run(name, func(t *testing.T) {
			dt := newDirectoryTest(t)
			dt.write("web.yaml", samples.Policy(samples.GoodPolicy)+"---\n"+samples.Namespace("shop"))
			dt.sync(nil, "put "+shopKey, "put "+policyKey)
			dt.write("web.yaml", c.content)
			if _, err := dt.d.Sync(t.Context()); err != nil {
				t.Fatal(err)
			}
			checkOps(t, dt.store)
			last := dt.load.Problems[len(dt.load.Problems)-1].Error()
			if !strings.HasSuffix(last, c.problem) || len(dt.load.Objects) != 2 {
				t.Errorf("%d objects in force, the problem is %.300q, want %q", len(dt.load.Objects), last, c.problem)
			}
		})
	}
}

func TestLoadRefusesTooLargeFile(t *testing.T) {
	dt := newDirectoryTest(t)
	dt.write("web.yaml", samples.Policy(samples.GoodPolicy))
	dt.sync(nil, "put "+shopKey, "put "+policyKey)
	if err := os.Truncate(filepath.Join(dt.dir, "web.yaml"), 1<<30+1); err != nil {
		t.Fatal(err)
	}
	dt.sync([]string{"web.yaml: cannot be read: it is larger than the limit of 1073741824 bytes: split it; the last good version of the object stays in force"})
}
