package mirror

import (
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestFeaturesAreReadAsPrintedByVPP(t *testing.T) {
	const all = `Available feature paths
[ 9] ip4-unicast:
  [ 0]: cnat-input-ip4
  [ 1]: acl-plugin-in-ip4-fa
  [10]: nat44-ed-in2out

[11] ip4-output:
  [ 0]: nat-pre-in2out-output
  [ 2]: acl-plugin-out-ip4-fa
`
	want := Features{"ip4-unicast": {"cnat-input-ip4", "acl-plugin-in-ip4-fa", "nat44-ed-in2out"}, "ip4-output": {"nat-pre-in2out-output", "acl-plugin-out-ip4-fa"}}
	if d := cmp.Diff(want, parseFeatures(all)); d != "" {
		t.Error(d)
	}
	const one = `Feature paths configured on pg0...

ip4-unicast:
  nat-pre-in2out

ip4-output:
  none configured

l2-input:
`
	want = Features{"ip4-unicast": {"nat-pre-in2out"}, "ip4-output": nil, "l2-input": nil}
	if d := cmp.Diff(want, parseFeatures(one)); d != "" {
		t.Error(d)
	}
	if got := parseFeatures("no features\nwhatever\n[ 0]: lost\n"); len(got) != 0 {
		t.Errorf("from what is no list of features: %v", got)
	}
}

func TestFeaturesKnowTranslatingNodes(t *testing.T) {
	sources := []string{"nat-pre-in2out", "nat44-ed-in2out", "nat44-ed-classify", "nat44-handoff-classify", "nat44-in2out-worker-handoff", "nat44-ei-in2out",
		"nat44-ei-in2out-output", "nat44-ed-in2out-output", "nat-pre-in2out-output", "det44-in2out", "cnat-snat-ip4", "cnat-snat-ip6", "nat66-in2out", "nat64-in2out", "pnat-input"}
	others := []string{"nat44-ed-out2in", "nat-pre-out2in", "nat44-ei-out2in", "det44-out2in", "cnat-input-ip4", "cnat-output-ip4", "acl-plugin-in-ip4-fa",
		"ip4-flow-classify", "ip4-inacl", "ip4-lookup", "nat66-out2in"}
	for _, node := range slices.Concat(sources, others) {
		if got, want := TranslatesSource(node), slices.Contains(sources, node); got != want {
			t.Errorf("%s: %t, want %t", node, got, want)
		}
	}
}

// FuzzFeatures parses arbitrary output.
func FuzzFeatures(f *testing.F) {
	f.Add("[ 9] ip4-unicast:\n  [ 0]: nat44-ed-in2out\n")
	f.Add("[:]:\n]::\n[ip4-output:\n")
	f.Fuzz(func(t *testing.T, text string) {
		x := parseFeatures(text)
		for _, a := range OutputArcs {
			if x.AheadOf(a, x) != "" && x.Anywhere(a) == "" {
				t.Errorf("a node is ahead that is not there: %q", text)
			}
		}
	})
}
