package api_test

import (
	"testing"

	"github.com/sluice-net/sluice/api"
)

func TestOriginTextsNameRulesAndIsolatingPolicies(t *testing.T) {
	web, db := api.PolicyID{Namespace: "shop", Name: "web"}, api.PolicyID{Namespace: "shop", Name: "db"}
	admin := api.PolicyID{Kind: api.AdminNetworkPolicy, Name: "tenants"}
	got := api.OriginTexts([]api.Origin{
		{Policy: web, Direction: api.Egress, Rule: api.IsolationRule}, {Policy: db, Direction: api.Egress, Rule: api.IsolationRule},
		{Policy: db, Direction: api.Ingress, Rule: 2}, {Policy: admin, Direction: api.Ingress, Rule: 0},
		{Policy: web, Direction: api.Ingress, Rule: api.NodeRule},
	})
	want := "ingress rule 2 of shop/db; ingress rule 0 of AdminNetworkPolicy tenants; egress isolation by shop/web, shop/db; " +
		"own node, exempt from ingress isolation by shop/web"
	if got != want {
		t.Errorf("got  %q\nwant %q", got, want)
	}
}
