package cli

import (
	"net/http"
	"regexp"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/sluice-net/sluice/api"
	"github.com/sluice-net/sluice/internal/view"
)

// TestGetBehavesLikeKubectl on an agent that enforces the shop.
func TestGetBehavesLikeKubectl(t *testing.T) {
	socket := realShop(t)
	for args, want := range map[string]string{
		"pods -n shop -l app=web -o name":                                               "pod/shop/web-0\npod/shop/web-1\n",
		"pods -A -l app=web,role!=frontend":                                             "no pods\n",
		"pods -l app=web -o jsonpath={[*].node}":                                        "node-1 node-1",
		"pods -n data -o jsonpath={range[*]}{.pod}={.labels.store};{end}":               "data/postgres-0=sql;data/redis-0=cache;data/search-0=index;",
		"policies -n data -o go-template={{range.}}{{.policy.name}}:{{.rules}},{{end}}": "allow-monitoring:1,default-deny:0,postgres:1,redis:1,search:1,",
		"policies -n data --sort-by .rules -o name":                                     "policy/data/default-deny\npolicy/data/allow-monitoring\npolicy/data/postgres\npolicy/data/redis\npolicy/data/search\n",
		"pod shop/web-0 -o jsonpath=[0].addresses[1]":                                   "fd00:10:1::10",
		"pods -n shop -l app=web --no-headers":                                          "shop/web-0  node-1  10.10.1.10,fd00:10:1::10  enforced  ingress,egress  allow-dns,allow-monitoring,default-deny,web  app=web,role=frontend\nshop/web-1  node-1  10.10.1.11,fd00:10:1::11  enforced  ingress,egress  allow-dns,allow-monitoring,default-deny,web  app=web,role=frontend\n",
		"rules shop/batch-0 -o jsonpath={range[*]}{.meaning};{end}":                     "permit any from addresses of the node to any;permit tcp from pods app=prometheus in namespaces team=platform to any port 9090;deny any from any to any;",
		"tables -n platform -o jsonpath={[*].pods[0]}":                                  "platform/prometheus-0 platform/gateway-0 platform/dns-0",
		"sets --contains app=web -o jsonpath={[*].meaning}":                             "pods app=web in shop",
		"nodes": "",
	} {
		code, out, errOut := sluicectl(socket, "", append([]string{"get"}, strings.Fields(args)...)...)
		if want == "" {
			if code != ExitDenied || !strings.HasPrefix(out, "no node reports") {
				t.Errorf("get %s: exit code %d, %q, %q", args, code, out, errOut)
			}
			continue
		}
		if d := cmp.Diff(want, out); code != ExitOK || d != "" {
			t.Errorf("get %s: exit code %d, %s\n%s", args, code, errOut, d)
		}
	}
}

// TestGetTakesPrintedNamesBack: what -o name prints is understood by get and describe.
func TestGetTakesPrintedNamesBack(t *testing.T) {
	socket := realShop(t)
	for _, kind := range []string{"pods", "policies", "sets", "tables", "rules"} {
		code, names, errOut := sluicectl(socket, "", "get", kind, "-o", "name")
		if code != ExitOK || names == "" {
			t.Fatalf("get %s -o name: exit code %d, %s", kind, code, errOut)
		}
		for name := range strings.FieldsSeq(names) {
			for _, command := range []string{"get", "describe"} {
				if command == "describe" && kind != "pods" && kind != "policies" {
					continue
				}
				if code, out, errOut := sluicectl(socket, "", command, name, "-o", "name"); code != ExitOK || out != name+"\n" {
					t.Errorf("%s %s: exit code %d, %q, %q", command, name, code, out, errOut)
				}
			}
		}
	}
}

// TestGetRefusesTemplatesThatDoNotFit with one line that names the flag.
func TestGetRefusesTemplatesThatDoNotFit(t *testing.T) {
	socket := realShop(t)
	for args, want := range map[string]string{
		"pods -o jsonpath={[*]":           "unclosed action",
		"pods -o jsonpath=":               "wants a path",
		"pods -o go-template={{.x":        "unclosed action",
		"pods -o go-template={{.x}}":      "can't evaluate field x",
		"pods -o go-template={{.String}}": "can't evaluate field String",
		"pods --sort-by .nosuch":          "nothing has such a field",
		"pods --sort-by {":                "unclosed action",
		"status -o name":                  "-o name is for lists",
	} {
		code, _, errOut := sluicectl(socket, "", append([]string{"get"}, strings.Fields(args)...)...)
		if code != ExitError || !strings.Contains(errOut, want) || strings.Count(errOut, "\n") != 1 {
			t.Errorf("get %s: exit code %d, %q, want %q", args, code, errOut, want)
		}
	}
}

// TestDescribePodNamesPoliciesOfBothKinds: those that select it, and those that name it as a peer.
func TestDescribePodNamesPoliciesOfBothKinds(t *testing.T) {
	code, out, errOut := sluicectl(realShop(t), "", "describe", "pod", "data/redis-0", "shop/nosuch")
	want := `Name:       redis-0
Namespace:  data
Node:       node-1
Addresses:  10.10.2.20
Labels:     app=redis,store=cache
State:      enforced
Isolated:   ingress
Selected by:
  POLICY                 ISOLATES  RULES  ENFORCED
  data/allow-monitoring  ingress   1      yes
  data/default-deny      ingress   0      yes
  data/redis             ingress   1      yes
Named as a peer by:
  RULE                                  PEERS                                                    PORTS
  ingress rule 0 of platform/dns        from every pod of every namespace                        port dns/udp; port dns-tcp/tcp
  egress rule 0 of platform/prometheus  to every pod in namespaces team in (data,platform,shop)  port metrics/tcp
  egress rule 0 of shop/cart            to store=cache in namespaces team=data                   port redis/tcp
`
	if d := cmp.Diff(want, out); code != ExitDenied || d != "" || errOut != "Error: pods \"shop/nosuch\" not found\n" {
		t.Errorf("exit code %d, %s (-want +got):\n%s", code, errOut, d)
	}
}

func TestDescribePolicyPutsRulesInWords(t *testing.T) {
	code, out, errOut := sluicectl(realShop(t), "", "describe", "netpol/shop/checkout")
	want := `Name:        checkout
Namespace:   shop
Kind:        NetworkPolicy
Selects:     app=checkout
Isolates:    ingress,egress
Local pods:  shop/checkout-0
Enforced:    yes
Rules:
  RULE            PEERS                                      PORTS
  ingress rule 0  from app=web                               port http/tcp
  egress rule 0   to app=cart                                port http/tcp
  egress rule 1   to store=sql in namespaces team=data       port 5432/tcp
  egress rule 2   to 203.0.113.0/24 except 203.0.113.128/25  port 443/tcp
`
	if d := cmp.Diff(want, out); code != ExitOK || d != "" {
		t.Errorf("exit code %d, %s (-want +got):\n%s", code, errOut, d)
	}
}

// TestGetShowsSetsByMeaning: no hash is in what people read, and all of them are where it is wide.
func TestGetShowsSetsByMeaning(t *testing.T) {
	for name, socket := range map[string]string{"shop": realShop(t), "generated": realCluster(t)} {
		for _, kind := range []string{"rules", "sets", "tables"} {
			_, out, _ := sluicectl(socket, "", "get", kind)
			if found := hash.FindString(out); found != "" || len(out) < 200 {
				t.Errorf("%s: get %s shows %q", name, kind, found)
			}
			if _, out, _ := sluicectl(socket, "", "get", kind, "-o", "wide"); !hash.MatchString(out) {
				t.Errorf("%s: get %s -o wide has no names", name, kind)
			}
		}
	}
	_, out, _ := sluicectl(realShop(t), "", "explain", "-v", "shop/*", "data/*:5432")
	if found := hash.FindString(out); found != "" || !strings.Contains(out, "permit tcp from pods app notin (cart),role=backend in namespaces team=shop to any port 5432") {
		t.Errorf("explain -v shows %q:\n%.2000s", found, out)
	}
}

var hash = regexp.MustCompile(`\b[0-9a-f]{16}\b`)

// TestGetLimits shows quotas, capacities and limits of objects.
func TestGetLimits(t *testing.T) {
	socket := realShop(t)
	code, out, errOut := sluicectl(socket, "", "get", "limits")
	for _, want := range []string{"LIMIT", "quota/shop", "acl/entries/total", "object/rules", "1048576"} {
		if code != ExitOK || !strings.Contains(out, want) {
			t.Errorf("exit code %d, %q, no %s in\n%s", code, errOut, want, out)
		}
	}
	if code, out, errOut := sluicectl(socket, "", "get", "limit/quota/shop", "-o", "jsonpath={[0].namespace} {[0].most} {[0].state}"); code != ExitOK || out != "shop 1048576 ok" {
		t.Errorf("exit code %d, %q, %q", code, out, errOut)
	}
}

// TestGetLimitsShowsWhatIsClosed by name, and why where it is wide.
func TestGetLimitsShowsWhatIsClosed(t *testing.T) {
	used := 3
	shop := api.PolicyID{Namespace: "shop", Name: "p"}
	socket := agent(t, map[string]http.HandlerFunc{"GET /v1/limits": says([]view.Limit{{
		Limit: "quota/shop", What: "units of the namespace", Used: &used, Most: 4, State: view.LimitExceeded, Closed: []view.ClosedPolicy{{Policy: shop, Reason: "name fewer"}},
	}})})
	want := "LIMIT       WHAT                    USED  MOST  STATE     CLOSED\nquota/shop  units of the namespace  3     4     exceeded  shop/p\n"
	if _, out, _ := sluicectl(socket, "", "get", "limits"); out != want {
		t.Errorf("got\n%swant\n%s", out, want)
	}
	want += "quota/shop closes shop/p: name fewer\n"
	if _, out, _ := sluicectl(socket, "", "get", "limits", "-o", "wide"); out != want {
		t.Errorf("wide:\n%swant\n%s", out, want)
	}
}

// TestGetLimitsOfAnOlderAgent says that it is one.
func TestGetLimitsOfAnOlderAgent(t *testing.T) {
	code, _, errOut := sluicectl(agent(t, map[string]http.HandlerFunc{"GET /v1/pods": says([]view.Pod{})}), "", "get", "limits")
	if code != ExitError || !strings.Contains(errOut, "does not serve /v1/limits (404): it is of an earlier version than this sluicectl") {
		t.Errorf("exit code %d, %q", code, errOut)
	}
}

// TestGetStatusOfGeneratedCluster: ordinary policies exceed no capacity (ADR 0097).
func TestGetStatusOfGeneratedCluster(t *testing.T) {
	code, out, errOut := sluicectl(realCluster(t), "", "get", "status")
	if code != ExitOK || strings.Contains(out, "dataplane without address sets") {
		t.Errorf("exit code %d, %s%s", code, errOut, out)
	}
	for line := range strings.Lines(out) {
		if strings.Contains(line, " entries, ") {
			t.Log(line)
			return
		}
	}
	t.Errorf("no renderer says how many entries it has:\n%s", out)
}
