package cli

import (
	"encoding/json"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/sluice-net/sluice/api"
	"github.com/sluice-net/sluice/internal/analysis/oracle"
	"github.com/sluice-net/sluice/internal/view"
)

// shop answers like an agent that has few things, and whose filters look for a part of a name.
func shop(t *testing.T) (socket string) {
	t.Helper()
	pods := []view.Pod{podOf("data", "web-0"), podOf("shop", "web-0"), podOf("shop", "web-01")}
	policies := []view.Policy{{Policy: api.PolicyID{Namespace: "shop", Name: "web"}, Rules: 1}, {Policy: api.PolicyID{Kind: api.AdminNetworkPolicy, Name: "web"}, Rules: 7}}
	return agent(t, map[string]http.HandlerFunc{
		"GET /v1/pods": func(w http.ResponseWriter, r *http.Request) {
			q, out := r.URL.Query(), []view.Pod{}
			for _, p := range pods {
				if in := q.Get("namespace"); (in == "" || in == p.Pod.Namespace) && strings.Contains(p.Pod.Name, q.Get("name")) {
					out = append(out, p)
				}
			}
			says(out)(w, r)
		},
		"GET /v1/policies":       says(policies),
		"GET /v1/sets":           says([]view.Set{{ID: api.NodeSet, Meaning: "node"}, {ID: api.NewSetID("x"), Meaning: "set:node or so"}}),
		"GET /v1/policies/rules": says([]oracle.RuleText{}),
		"GET /v1/tables":         says([]view.Table{{Renderer: "acl", Table: "local:1"}, {Renderer: "acl", Table: "local:12"}}),
		"GET /v1/rules":          says([]view.Rule{{Table: "local:1"}, {Table: "local:1", Index: 1}, {Table: "local:12"}}),
		"GET /v1/nodes":          says([]view.NodeEnforcement{{NodeStatus: view.NodeStatus{Node: "node-1"}, Enforced: view.EnforcedFully}, {NodeStatus: view.NodeStatus{Node: "node-12"}}}),
	})
}

func podOf(namespace, name string) view.Pod {
	return view.Pod{Pod: api.PodID{Namespace: namespace, Name: name}}
}

// TestGetFindsOnlyNamedObjects: a name is exact, as kubectl has it, and not a part of one.
func TestGetFindsOnlyNamedObjects(t *testing.T) {
	socket := shop(t)
	for _, tc := range []struct {
		args  string
		found []string // first columns; no others
		text  string   // on the standard error
		code  int
	}{
		{"pod shop/web-0", []string{"shop/web-0"}, "", ExitOK},
		{"pods web-0", []string{"data/web-0", "shop/web-0"}, "", ExitOK},
		{"po -n shop web-0", []string{"shop/web-0"}, "", ExitOK},
		{"pods -n shop shop/web-0 web-01", []string{"shop/web-0", "shop/web-01"}, "", ExitOK},
		{"pods web", nil, "Error: pods \"web\" not found\n", ExitDenied},
		{"pods shop/web-0 shop/nosuch other/web-0", []string{"shop/web-0"}, "Error: pods \"shop/nosuch\" not found\nError: pods \"other/web-0\" not found\n", ExitDenied},
		{"pods -n shop nosuch", nil, "Error: pods \"shop/nosuch\" not found\n", ExitDenied},
		{"pods --contains web", []string{"data/web-0", "shop/web-0", "shop/web-01"}, "", ExitOK},
		{"pods --contains web web-0", nil, "sluicectl: --contains is for lists without names: leave the names or the flag out\n", ExitError},
		{"pods -n shop data/web-0", nil, "sluicectl: \"data/web-0\" is not in namespace shop: leave --namespace out, or name what is there\n", ExitError},
		{"pods shop/", nil, "sluicectl: \"shop/\" is not a name: want NAME or NAMESPACE/NAME\n", ExitError},
		{"pods a/b/c", nil, "sluicectl: \"a/b/c\" is not a name: want NAME or NAMESPACE/NAME\n", ExitError},
		{"netpol shop/web", []string{"shop/web"}, "", ExitOK},
		{"np nosuch", nil, "Error: policies \"nosuch\" not found\n", ExitDenied},
		{"policy/shop/web", []string{"shop/web"}, "", ExitOK},
		{"policy shop/nosuch", nil, "Error: policies \"shop/nosuch\" not found\n", ExitDenied},
		{"set set:node -o wide", []string{"node"}, "", ExitOK},
		{"sets node -o wide", []string{"node"}, "", ExitOK},
		{"table local:1", []string{"acl"}, "", ExitOK},
		{"rules local:1", []string{"local:1", "local:1"}, "", ExitOK},
		{"rules local", nil, "Error: rules \"local\" not found\n", ExitDenied},
		{"node node-1", []string{"node-1"}, "", ExitOK},
		{"nodes node-12", []string{"node-12"}, "", ExitDenied},
		{"nodes node", nil, "Error: nodes \"node\" not found\n", ExitDenied},
		{"nodes shop/web", nil, "sluicectl: \"shop/web\" is not the name of a node: for a policy want --policy shop/web\n", ExitError},
	} {
		code, out, errOut := sluicectl(socket, "", append([]string{"get"}, strings.Fields(tc.args)...)...)
		if code != tc.code || errOut != tc.text {
			t.Errorf("get %s: exit code %d, want %d; %q, want %q", tc.args, code, tc.code, errOut, tc.text)
		}
		var found []string
		for _, line := range strings.Split(out, "\n")[min(1, strings.Count(out, "\n")):] {
			if fields := strings.Fields(line); len(fields) > 1 && fields[0] != "-" {
				found = append(found, fields[0])
			}
		}
		if strings.Join(found, " ") != strings.Join(tc.found, " ") {
			t.Errorf("get %s found %v, want %v:\n%s", tc.args, found, tc.found, out)
		}
	}
}

func TestGetPrintsListInJSONForAnyNumber(t *testing.T) {
	socket := shop(t)
	for args, want := range map[string]int{"pods shop/web-0": 1, "pods nosuch": 0, "nodes nosuch": 0} {
		var list []any
		_, out, _ := sluicectl(socket, "", append([]string{"get", "-o", "json"}, strings.Fields(args)...)...)
		if err := json.Unmarshal([]byte(out), &list); err != nil || list == nil || len(list) != want {
			t.Errorf("get %s: %v, %q", args, err, out)
		}
	}
}

func TestKindsHaveNamesOfKubectl(t *testing.T) {
	socket := shop(t)
	for kind, want := range map[string]string{"pod": "shop/web-0", "po": "shop/web-0", "np": "shop/web", "netpol": "shop/web",
		"networkpolicy": "shop/web", "networkpolicies": "shop/web", "policy": "shop/web", "set": "set:node or so", "table": "acl", "rule": "local:1", "POD": "shop/web-0"} {
		if code, out, errOut := sluicectl(socket, "", "get", kind); code != ExitOK || !strings.Contains(out, want) {
			t.Errorf("get %s: exit code %d, %q, %q", kind, code, out, errOut)
		}
	}
}

// TestDescribeNamesAdminPolicy, which has no namespace, by its name.
func TestDescribeNamesAdminPolicy(t *testing.T) {
	socket := shop(t)
	for args, want := range map[string][]string{"policy web": {"shop", "-"}, "policy -n shop web": {"shop"}, "policy/shop/web": {"shop"}} {
		code, out, errOut := sluicectl(socket, "", append([]string{"describe"}, strings.Fields(args)...)...)
		var got []string
		for line := range strings.Lines(out) {
			if in, ok := strings.CutPrefix(line, "Namespace:"); ok {
				got = append(got, strings.TrimSpace(in))
			}
		}
		if code != ExitOK || !slices.Equal(got, want) {
			t.Errorf("describe %s: exit code %d, %q, %q", args, code, out, errOut)
		}
	}
}

// TestGetPrintsSinglePolicyInJSON where it is asked for as before get had one form for all kinds.
func TestGetPrintsSinglePolicyInJSON(t *testing.T) {
	socket := shop(t)
	var one view.Policy
	if _, out, _ := sluicectl(socket, "", "get", "policy", "shop/web", "-o", "json"); json.Unmarshal([]byte(out), &one) != nil || one.Rules != 1 {
		t.Errorf("in JSON it is %q", out)
	}
}

// TestGetPoliciesIsUnknownWithoutReports: an answer without nodes is none.
func TestGetPoliciesIsUnknownWithoutReports(t *testing.T) {
	var asked string
	nodes := []view.NodeEnforcement{}
	socket := agent(t, map[string]http.HandlerFunc{"GET /v1/nodes": func(w http.ResponseWriter, r *http.Request) {
		asked = r.URL.RawQuery
		says(nodes)(w, r)
	}})
	if code, out, _ := sluicectl(socket, "", "get", "nodes"); code != ExitDenied || !strings.Contains(out, "no node reports") {
		t.Errorf("exit code %d, %q", code, out)
	}
	nodes = []view.NodeEnforcement{{Enforced: view.EnforcedFully}, {Enforced: view.EnforcedUnknown, Why: "no agent tells of it"}}
	for _, args := range [][]string{{"-n", "shop", "--policy", "web"}, {"--policy", "shop/web"}} {
		code, out, _ := sluicectl(socket, "", append([]string{"get", "nodes"}, args...)...)
		if code != ExitDenied || !strings.Contains(out, "unknown: no agent tells of it") || asked != "name=web&namespace=shop" {
			t.Errorf("%v: exit code %d, asked %q, %q", args, code, asked, out)
		}
	}
	nodes = nodes[:1]
	if code, _, _ := sluicectl(socket, "", "get", "nodes"); code != ExitOK {
		t.Errorf("exit code %d", code)
	}
}

// TestGetSelectorOfOtherKindsIsThatOfPods selects what is about pods with a label, in a cluster
// of a thousand of them.
func TestGetSelectorOfOtherKindsIsThatOfPods(t *testing.T) {
	socket := realCluster(t)
	list := func(args ...string) []string {
		code, out, errOut := sluicectl(socket, "", append(append([]string{"get"}, args...), "-o", "name")...)
		if code != ExitOK {
			t.Fatalf("%v: exit code %d: %s", args, code, errOut)
		}
		return strings.Fields(out)
	}
	var all []view.Pod
	_, text, _ := sluicectl(socket, "", "get", "pods", "-o", "json")
	if err := json.Unmarshal([]byte(text), &all); err != nil {
		t.Fatal(err)
	}
	wanted := map[string]bool{}
	selector := ""
	for _, p := range all {
		for k, v := range p.Labels {
			if selector == "" && len(p.Policies) > 0 {
				selector = k + "=" + v
			}
		}
	}
	k, v, _ := strings.Cut(selector, "=")
	for _, p := range all {
		for _, id := range p.Policies {
			if p.Labels[k] == v {
				wanted["policy/"+strings.TrimPrefix(id.Namespace+"/"+id.Name, "/")] = true
			}
		}
	}
	got := list("policies", "-l", selector)
	if len(got) != len(wanted) || len(got) == 0 || len(got) == len(list("policies")) {
		t.Errorf("%s: %d policies are selected, and pods with it have %d", selector, len(got), len(wanted))
	}
	for _, kind := range []string{"rules", "tables"} {
		if some, every := list(kind, "-l", selector), list(kind); len(some) == 0 || len(some) >= len(every) {
			t.Errorf("%s: %d of %d are selected", kind, len(some), len(every))
		}
	}
	if got := list("namespaces", "-l", "kubernetes.io/metadata.name=nowhere"); len(got) != 0 {
		t.Errorf("namespaces: %v", got)
	}
}
