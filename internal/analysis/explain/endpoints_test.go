package explain

import (
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestMatrixGroupsPodsAndPolicyBlocks(t *testing.T) {
	c := clusterOf(t, demo+`---
apiVersion: networking.k8s.io/v1
kind: NetworkPolicy
metadata: {name: blocks, namespace: demo}
spec:
  podSelector: {}
  egress: [{to: [{ipBlock: {cidr: 203.0.113.0/24, except: [203.0.113.8/32]}}, {ipBlock: {cidr: 10.0.0.0/8}}, {ipBlock: {cidr: 0.0.0.0/0}}]}]
`)
	got := map[string]string{}
	for _, e := range c.Endpoints() {
		got[e.Group] = e.Addrs[0].String()
	}
	want := map[string]string{
		"demo/server": "10.2.0.1", "demo/friend": "10.2.0.2", "demo/stranger": "10.2.0.3", "internet": "198.51.100.7",
		"203.0.113.0/24": "203.0.113.1", "203.0.113.8/32": "203.0.113.8", // 10.0.0.0/8 holds pods
	}
	if d := cmp.Diff(want, got); d != "" {
		t.Errorf("(-want +got):\n%s", d)
	}
}
