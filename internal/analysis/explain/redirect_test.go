package explain

import (
	"log/slog"
	"strings"
	"testing"

	"github.com/sluice-net/sluice/api"
	"github.com/sluice-net/sluice/internal/manifests"
	"github.com/sluice-net/sluice/internal/view"
)

// TestExplanationProposesRuleBeforeLabelThatRedirects: a label may make the pod an endpoint of a
// service, or take it from its controller, which then starts another one.
func TestExplanationProposesRuleBeforeLabelThatRedirects(t *testing.T) {
	const (
		label = "label pod shop/web client=db"
		rule  = `add "from app=web in namespace shop" to ingress rule 0 of shop/db`
	)
	policy := func(from string) string {
		return "{apiVersion: networking.k8s.io/v1, kind: NetworkPolicy, metadata: {name: db, namespace: shop}, spec: {podSelector: {matchLabels: {app: db}}, ingress: [{from: [{podSelector: {matchLabels: " + from + "}}]}]}}"
	}
	service := func(namespace, selector string) string {
		return "{apiVersion: v1, kind: Service, metadata: {name: s, namespace: " + namespace + "}, spec: {clusterIP: 10.96.0.1, ports: [{port: 80}], selector: " + selector + "}}"
	}
	controller := func(kind, selector string) string {
		return "{apiVersion: apps/v1, kind: " + kind + ", metadata: {name: c, namespace: shop}, spec: {selector: {matchLabels: " + selector + "}}}"
	}
	for name, c := range map[string]struct {
		objects     []string
		first, last string
	}{
		"a label that nothing selects":   {[]string{policy("{client: db}")}, label, ""},
		"a service":                      {[]string{policy("{client: db}"), service("shop", "{client: db}")}, rule, label},
		"a service by more labels":       {[]string{policy("{client: db}"), service("shop", "{client: db, app: web}")}, rule, label},
		"a service by another value":     {[]string{policy("{client: db}"), service("shop", "{client: cache}")}, label, ""},
		"a service of another namespace": {[]string{policy("{client: db}"), service("data", "{client: db}")}, label, ""},
		"a Deployment":                   {[]string{policy("{client: db}"), controller("Deployment", "{client: db}")}, rule, label},
		"a StatefulSet":                  {[]string{policy("{client: db}"), controller("StatefulSet", "{client: db, a: b}")}, rule, label},
		"a label that the pod has":       {[]string{policy("{app: api}")}, rule, "label pod shop/web app=api"},
	} {
		objects := append(c.objects, "{apiVersion: v1, kind: Pod, metadata: {name: web, namespace: shop, labels: {app: web}}, spec: {nodeName: node-1}, status: {podIP: 10.1.0.1}}",
			"{apiVersion: v1, kind: Pod, metadata: {name: db, namespace: shop, labels: {app: db}}, spec: {nodeName: node-1}, status: {podIP: 10.1.0.2}}")
		load, err := manifests.LoadFiles([]string{manifests.Stdin}, strings.NewReader(strings.Join(objects, "\n---\n")))
		if err != nil {
			t.Fatal(err)
		}
		m, problems := FromManifests(load, slog.New(slog.DiscardHandler))
		if len(problems) > 0 {
			t.Fatal(problems)
		}
		answers, err := m.Explain(t.Context(), view.Question{Src: "shop/web", Dst: "shop/db", Port: "80", Protocol: api.TCP})
		if err != nil {
			t.Fatal(err)
		}
		changes := answers[0].Oracle.Changes
		if got := changes[0].Text; got != c.first {
			t.Errorf("%s: the first change is %q, want %q", name, got, c.first)
		}
		if got := changes[len(changes)-1].Text; c.last != "" && got != c.last {
			t.Errorf("%s: the last change is %q, want %q", name, got, c.last)
		}
	}
}
