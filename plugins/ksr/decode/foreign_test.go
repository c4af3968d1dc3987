package decode

import (
	"fmt"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/sluice-net/sluice/tests/lab/samples"
)

// TestReadSkipsNodesOfOtherGroups: a node of another API group is not one of Kubernetes, but one of
// an unknown version is.
func TestReadSkipsNodesOfOtherGroups(t *testing.T) {
	const foreign = "apiVersion: longhorn.io/v1beta2\nkind: %s\nmetadata: {name: n1, namespace: longhorn-system}\n"
	for title, c := range map[string]struct {
		in       string
		skipped  int
		names    []string
		problems []string
	}{
		"a node":             {fmt.Sprintf(foreign, "Node") + "spec: {disks: {d: {path: /x}}}\n", 1, nil, nil},
		"a list":             {fmt.Sprintf(foreign, "NodeList") + "items: [{spec: {disks: {}}}]\n", 1, nil, nil},
		"one within a list":  {"apiVersion: v1\nkind: List\nitems: [{apiVersion: longhorn.io/v1beta2, kind: Node}, {apiVersion: v1, kind: Node, metadata: {name: n1}}]\n", 1, []string{"Node n1"}, nil},
		"one beside its own": {fmt.Sprintf(foreign, "Node") + "---\napiVersion: v1\nkind: Node\nmetadata: {name: n1}\n", 1, []string{"Node n1"}, nil},
		"a version too new":  {"apiVersion: v2\nkind: Node\nmetadata: {name: n1}\n", 0, nil, []string{`f: Node n1: apiVersion: "v2" is not the version in which a Node is read: write v1`}},
	} {
		p := Reading{}.Bytes([]byte(c.in), "f")
		var problems []string
		for _, r := range p.Refusals {
			problems = append(problems, r.Problem.Error())
		}
		if diff := cmp.Diff(c.names, samples.IDs(p.Objects)) + cmp.Diff(c.problems, problems); diff != "" || len(p.Skipped) != c.skipped {
			t.Errorf("%s: %d skipped, want %d; (-want +got):\n%s", title, len(p.Skipped), c.skipped, diff)
		}
	}
}
