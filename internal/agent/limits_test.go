package agent

import (
	"fmt"
	"strings"
	"testing"

	"github.com/sluice-net/sluice/internal/view"
)

// TestLimitsNameWhatIsClosed: a policy beyond the quota of its namespace, and one that the dataplane
// has no room for. Another namespace is not concerned.
func TestLimitsNameWhatIsClosed(t *testing.T) {
	const pod = `---
{apiVersion: v1, kind: Namespace, metadata: {name: %[1]s}}
---
{apiVersion: v1, kind: Pod, metadata: {name: web, namespace: %[1]s}, spec: {nodeName: node-1}, status: {phase: Running, podIPs: [{ip: 10.3.0.%[2]d}]}}
---
{apiVersion: networking.k8s.io/v1, kind: NetworkPolicy, metadata: {name: p, namespace: %[1]s}, spec: {podSelector: {}, ingress: [%[3]s]}}
`
	several := func(n int, format string) string {
		out := make([]string, n)
		for i := range out {
			out[i] = fmt.Sprintf(format, i/256, i%256, 2*i+1)
		}
		return strings.Join(out, ", ")
	}
	rule := func(from, ports string) string { return "{from: [" + from + "], ports: [" + ports + "]}" }
	var many []string // entries: rules whose ports differ have nothing in common
	for i := range 120 {
		many = append(many, rule(fmt.Sprintf("{ipBlock: {cidr: 10.%d.0.0/17}}", i), several(600+i, "{port: %[3]d}")))
	}
	a := running(t, nil)
	a.apply(t, fmt.Sprintf(pod, "small", 1, rule(`{ipBlock: {cidr: 10.9.0.0/16}}`, `{port: 80}`))+
		fmt.Sprintf(pod, "quota", 2, rule(several(1100, "{podSelector: {matchLabels: {l: x%[3]d}}}"), several(1000, "{port: %[3]d}")))+
		fmt.Sprintf(pod, "entries", 3, strings.Join(many, ", ")))
	by := map[string]view.Limit{}
	for _, v := range get[[]view.Limit](t, a, "GET", "/v1/limits", "") {
		by[v.Limit] = v
	}
	if v := by["quota/small"]; v.State != view.LimitOK || v.Used == nil || *v.Used < 1 || v.Most != 1<<20 || len(v.Closed) > 0 {
		t.Errorf("the quota of a small namespace is %+v", v)
	}
	if v := by["quota/quota"]; v.State != view.LimitExceeded || len(v.Closed) != 1 || v.Closed[0].Policy.Name != "p" || !strings.Contains(v.Closed[0].Reason, "name fewer ports") {
		t.Errorf("a quota that is exceeded is %+v", v)
	}
	if v := by["acl/closed"]; len(v.Closed) != 1 || v.Closed[0].Policy.Namespace != "entries" || !strings.Contains(v.Closed[0].Reason, "65536") {
		t.Errorf("what the dataplane closes is %+v", v)
	}
	for name, most := range map[string]int{"acl/entries/list": 1 << 16, "acl/entries/namespace": 1 << 18, "acl/entries/total": 1 << 20} {
		if v := by[name]; v.Most != most || v.Used == nil || *v.Used < 1 || v.State != view.LimitOK {
			t.Errorf("%s is %+v", name, v)
		}
	}
	if v := by["object/rules"]; v.Most == 0 || v.Used != nil {
		t.Errorf("the limit of rules is %+v", v)
	}
	for _, v := range get[[]view.Limit](t, a, "GET", "/v1/limits?namespace=entries", "") {
		if v.Limit != "quota/entries" && v.Limit != "acl/closed" && v.Namespace != "entries" {
			t.Errorf("of namespace entries is %+v", v)
		}
	}
}
