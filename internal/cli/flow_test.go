package cli

import (
	"net/http"
	"regexp"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/sluice-net/sluice/api"
	"github.com/sluice-net/sluice/internal/view"
)

// TestInjectNamesPoliciesAndDirections, and entries of ACLs only with -o wide.
func TestInjectNamesPoliciesAndDirections(t *testing.T) {
	web, db := api.PodID{Namespace: "shop", Name: "web"}, api.PodID{Namespace: "data", Name: "db"}
	origins := []api.Origin{
		{Policy: api.PolicyID{Namespace: "data", Name: "db"}, Direction: api.Ingress, Rule: api.IsolationRule},
		{Policy: api.PolicyID{Namespace: "data", Name: "default-deny"}, Direction: api.Ingress, Rule: api.IsolationRule},
	}
	trace := view.Injection{Src: view.Party{Name: "shop/web"}, Dst: view.Party{Name: "data/db"}, Verdict: api.Deny, Reason: "denied by a rule", Hops: []view.Hop{
		{Pod: web, Direction: api.Egress, Interface: "pod/shop/web", Action: api.Permit, By: "acl 29 rule 0 (reflect)"},
		{Direction: api.Egress, Interface: "uplink0", Action: api.Permit, By: "none applied"},
		{Direction: api.Ingress, Interface: "uplink0", Action: api.Deny, By: "implicit deny"},
		{Pod: db, Direction: api.Ingress, Interface: "pod/data/db", Action: api.Deny, By: "acl 21 rule 4 (local:1)", Table: "local:1", Rule: 3, Origins: origins},
	}}
	socket := agent(t, map[string]http.HandlerFunc{"POST /v1/inject": says([]view.Injection{trace})})
	_, got, _ := sluicectl(socket, "", "inject", "shop/web", "data/db:80")
	want := `DENY  shop/web -> data/db  invalid IP -> invalid IP/any
  egress of shop/web  permit  no policy decides here
  out of the node     permit  no policy decides here
  into the node       deny    implicit deny
  ingress of data/db  deny    ingress isolation by data/db, data/default-deny  table local:1 rule 3: deny any any -> any
  denied by a rule
`
	if d := cmp.Diff(want, got); d != "" {
		t.Errorf("(-want +got):\n%s", d)
	}
	_, got, _ = sluicectl(socket, "", "inject", "shop/web", "data/db:80", "-o", "wide")
	for _, h := range trace.Hops {
		if !regexp.MustCompile(regexp.QuoteMeta(h.By) + " +" + h.Interface + "\n").MatchString(got) {
			t.Errorf("no %q at %s in the wide format:\n%s", h.By, h.Interface, got)
		}
	}
}
