package agent

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/sluice-net/sluice/api"
	"github.com/sluice-net/sluice/internal/agent/cluster"
	"github.com/sluice-net/sluice/internal/analysis/explain"
	"github.com/sluice-net/sluice/internal/analysis/matrix"
	"github.com/sluice-net/sluice/internal/analysis/oracle"
	"github.com/sluice-net/sluice/internal/lib/term"
	"github.com/sluice-net/sluice/internal/manifests"
)

const devPods = `
{apiVersion: v1, kind: Namespace, metadata: {name: a}}
---
{apiVersion: v1, kind: Pod, metadata: {name: web, namespace: a, labels: {app: web}}, spec: {nodeName: node-1, containers: [{name: c, image: i, ports: [{name: http, containerPort: 80}]}]}, status: {phase: Running, podIPs: [{ip: 10.0.0.1}]}}
---
{apiVersion: v1, kind: Pod, metadata: {name: db, namespace: a, labels: {app: db}}, spec: {nodeName: node-1, containers: [{name: c, image: i, ports: [{name: sql, containerPort: 5432}]}]}, status: {phase: Running, podIPs: [{ip: 10.0.0.2}]}}
`

const (
	devDeny  = "---\n{apiVersion: networking.k8s.io/v1, kind: NetworkPolicy, metadata: {name: deny, namespace: a}, spec: {podSelector: {}}}\n"
	devDeny2 = "---\n{apiVersion: networking.k8s.io/v1, kind: NetworkPolicy, metadata: {name: also, namespace: a}, spec: {podSelector: {}}}\n"
	devAllow = "---\n{apiVersion: networking.k8s.io/v1, kind: NetworkPolicy, metadata: {name: db, namespace: a}, spec: {podSelector: {matchLabels: {app: db}}, ingress: [{from: [{podSelector: {matchLabels: {app: web}}}]}]}}\n"
	devGuard = "---\n{apiVersion: policy.networking.k8s.io/v1alpha1, kind: AdminNetworkPolicy, metadata: {name: guard}, spec: {priority: 1, subject: {namespaces: {}}, ingress: [{action: Deny, from: [{namespaces: {}}]}]}}\n"
)

// momentOf reads manifests, and asks the specification for the matrix.
func momentOf(t *testing.T, text string) (moment, matrix.Matrix) {
	t.Helper()
	load, err := manifests.LoadFiles([]string{manifests.Stdin}, strings.NewReader(text))
	if err != nil {
		t.Fatal(err)
	}
	m, problems := explain.FromManifests(load, discard)
	if len(problems) > 0 {
		t.Fatal(problems)
	}
	spec := explain.Specification{Oracle: oracle.New(m.State())}
	return newMoment(cluster.State{Cluster: m.Cluster}, spec), matrix.Compute(m.Endpoints(), matrix.Selection{}, func(f api.Flow) bool { return spec.Allowed(f) })
}

// TestDevSumsUpChangesByPolicy: who opened and closed flows, whoever else was changed.
func TestDevSumsUpChangesByPolicy(t *testing.T) {
	for name, tc := range map[string]struct{ before, after, want string }{
		"nothing":      {devPods + devDeny, devPods + devDeny, ""},
		"one is added": {devPods, devPods + devDeny, "a/deny added: 4 flows closed\n  closed  a/db -> a/web http:80/tcp\n  closed  a/web -> a/db sql:5432/tcp\n  closed  internet -> a/db sql:5432/tcp\n  closed  internet -> a/web http:80/tcp\n"},
		"one permits":  {devPods + devDeny, devPods + devDeny + devAllow, "a/db added: 1 flow opened\n  opened  a/web -> a/db sql:5432/tcp\n"},
		"two that denied go": {
			devPods + devDeny + devDeny2 + devAllow, devPods + devAllow,
			"a/also deleted, a/deny deleted: 2 flows opened\n  opened  a/db -> a/web http:80/tcp\n  opened  internet -> a/web http:80/tcp\n",
		},
		"one of two that deny": {devPods + devDeny + devDeny2, devPods + devDeny, "a/also deleted: no flow changes\n"},
		"administrators":       {devPods + devDeny + devAllow, devPods + devDeny + devAllow + devGuard, "AdminNetworkPolicy guard added: 1 flow closed\n  closed  a/web -> a/db sql:5432/tcp\n"},
		"a pod":                {devPods + devDeny + devAllow, strings.Replace(devPods, "{app: web}", "{app: ui}", 1) + devDeny + devAllow, "pods, namespaces or nodes changed: 1 flow opened, 2 closed\n  opened  a/ui -> internet https:443/tcp\n  closed  a/web -> a/db sql:5432/tcp\n  closed  a/web -> internet https:443/tcp\n"},
	} {
		t.Run(name, func(t *testing.T) {
			before, was := momentOf(t, tc.before)
			after, is := momentOf(t, tc.after)
			var b strings.Builder
			w := term.NewWriter(&b)
			for _, c := range changesBetween(before, after, is.Diff(was)) {
				writeChange(w, c)
			}
			got := strings.ReplaceAll("\n"+b.String(), "\n  ", "\n")
			if d := cmp.Diff(tc.want, strings.TrimPrefix(got, "\n")); d != "" {
				t.Errorf("(-want +got):\n%s", d)
			}
		})
	}
}
