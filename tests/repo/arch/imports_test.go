package arch

import (
	"os/exec"
	"slices"
	"strings"
	"testing"
)

const module = "github.com/sluice-net/sluice/"

// mayImport maps a package pattern to the packages of this module that it may
// import. As in the go tool, "x" is one package and "x/..." is a tree. The first
// pattern that matches a package counts. A change needs an ADR.
var mayImport = []struct {
	pkg  string
	deps []string
}{
	{"api", nil},
	{"api/model", nil},
	{"plugins/ksr/strict", []string{"api/..."}}, // each knows only those above it here
	{"plugins/ksr/kinds", []string{"api/...", "plugins/ksr/strict"}},
	{"plugins/ksr/legacy", []string{"api/...", "plugins/ksr/strict", "plugins/ksr/kinds"}},
	{"plugins/ksr/decode", []string{"api/...", "plugins/ksr/strict", "plugins/ksr/kinds", "plugins/ksr/legacy"}},
	{"plugins/ksr/convert", []string{"api/...", "plugins/ksr/strict", "plugins/ksr/kinds", "plugins/ksr/legacy"}},
	{"plugins/ksr/reflect", []string{"api/..."}},
	{"plugins/ksr/kube", []string{"api/...", "plugins/ksr/decode", "plugins/ksr/convert", "plugins/ksr/kinds"}},
	{"plugins/kvstore", []string{"api/..."}}, // etcd, for programs that embed a source
	{"plugins/statefile", []string{"api/..."}},
	{"plugins/follow", []string{"api/..."}}, // the loop of all that follow the store
	{"plugins/datasync", []string{"api/...", "plugins/follow", "plugins/statefile"}},
	{"plugins/bindings", []string{"api/...", "plugins/follow", "plugins/statefile"}},
	{"plugins/policy", []string{"api/...", "renderer", "plugins/policy/..."}}, // wires, so knows its layers
	{"plugins/policy/internal/intent", []string{"api/..."}},                   // what users wrote: cache and processor share it
	{"plugins/policy/internal/configurator", []string{"api/...", "renderer"}},
	{"plugins/policy/internal/processor", []string{"api/...", "plugins/policy/internal/intent", "plugins/policy/internal/membership"}},
	{"plugins/policy/...", []string{"api/...", "plugins/policy/internal/intent"}}, // layers do not know each other
	{"plugins/endpoints", []string{"api/..."}},
	{"plugins/endpoints/wire", nil}, // what a CNI plugin links
	{"plugins/endpoints/gate", nil}, // the same
	{"plugins/endpoints/...", []string{"api/...", "plugins/endpoints/...", "plugins/statefile"}},
	{"renderer", []string{"api/..."}},
	{"renderer/internal/...", []string{"api/..."}}, // arithmetic that renderers have in common
	{"renderer/cache/internal/traffic", []string{"api/...", "renderer/internal/..."}},
	{"renderer/cache/internal/traffictest", []string{"api/..."}},
	{"renderer/cache", []string{"api/...", "renderer", "renderer/internal/...", "renderer/cache/internal/..."}},
	{"renderer/vpp", []string{"api"}}, // the connection of all that talk to VPP
	{"renderer/xdp/compile", []string{"api/...", "renderer", "renderer/internal/capacity"}},
	{"renderer/xdp/bpf", nil},
	{"renderer/xdp/internal/pins", []string{"renderer/xdp/bpf"}},
	{"renderer/xdp/internal/events", []string{"renderer/xdp/bpf"}},
	{"renderer/xdp/internal/connections", []string{"renderer/xdp/bpf"}},
	{"renderer/xdp/internal/loader", []string{"api/...", "renderer", "renderer/xdp/bpf"}},
	{"renderer/xdp/internal/attach", []string{"renderer/xdp/bpf", "renderer/xdp/internal/loader", "renderer/xdp/internal/pins"}},
	{"renderer/xdp/internal/policymap", []string{"renderer/xdp/bpf", "renderer/xdp/compile", "renderer/xdp/internal/..."}},
	{"renderer/xdp/...", []string{"api/...", "renderer", "renderer/cache", "renderer/internal/...", "renderer/xdp/..."}},                                        // one renderer in several packages
	{"renderer/plugin/...", []string{"api/...", "renderer", "renderer/vpp", "renderer/plugin/...", "renderer/xdp", "renderer/xdp/bpf", "renderer/xdp/compile"}}, // the same classifier in VPP
	{"renderer/secgroup/internal/permits", []string{"api/...", "renderer", "renderer/internal/..."}},
	{"renderer/secgroup/neutron", []string{"api/...", "renderer/secgroup"}},
	{"renderer/secgroup", []string{"api/...", "renderer", "renderer/internal/...", "renderer/secgroup/internal/permits"}}, // one renderer in several packages
	{"renderer/acl/internal/entries/...", []string{"api/...", "renderer", "renderer/cache", "renderer/internal/...", "renderer/acl/internal/entries"}},
	{"renderer/acl/internal/expand", []string{"api/...", "renderer/cache", "renderer/internal/...", "renderer/acl/internal/entries"}},
	{"renderer/acl/internal/layout", []string{"renderer/acl/internal/entries"}},
	{"renderer/acl/internal/counters", []string{"api", "renderer", "renderer/cache", "renderer/acl/internal/expand"}},
	{"renderer/acl/internal/mirror", []string{"renderer", "renderer/vpp", "api", "renderer/acl/internal/entries"}},
	{"renderer/acl/internal/memory", []string{"renderer", "renderer/acl/internal/counters", "renderer/acl/internal/entries", "renderer/acl/internal/mirror"}},
	{"renderer/acl/...", []string{"api/...", "renderer", "renderer/cache", "renderer/internal/...", "renderer/vpp", "renderer/acl/internal/..."}}, // one renderer in several packages
	{"renderer/...", []string{"api/...", "renderer", "renderer/cache", "renderer/internal/...", "renderer/vpp"}},                                  // renderers do not know each other
	{"internal/analysis/oracle", []string{"api/..."}},
	{"internal/analysis/expr", []string{"api/...", "internal/analysis/services", "internal/view"}},
	{"internal/analysis/explain/suggest", []string{"api/...", "internal/analysis/oracle"}}, // the specification's view alone
	{"internal/analysis/explain/reason", []string{"api/...", "internal/analysis/oracle", "internal/analysis/explain/suggest"}},
	{"internal/kvstore/embedded", []string{"plugins/kvstore", "internal/lib/scratch"}},
	{"internal/lib/scratch", nil},
	{"internal/lib/interned", nil},
	{"internal/vswitch/internal/classify/...", []string{"api/...", "internal/vswitch/internal/classify"}},
	{"internal/vswitch/internal/events", nil},
	{"internal/vswitch/internal/frame", nil},
	{"internal/vswitch/internal/pool", nil},
	{"internal/vswitch/internal/wire", nil},
	{"internal/vswitch/internal/hoststack", []string{"api/...", "internal/vswitch/internal/pool", "internal/vswitch/internal/wire"}},
	{"internal/vswitch", []string{"api/...", "internal/vswitch/internal/...", "internal/lib/interned"}},
	{"internal/lib/term", []string{"api/model"}},
	{"internal/lib/version", nil},
	{"internal/...", []string{"api/...", "plugins/...", "renderer/...", "internal/..."}},
	{"cmd/...", []string{"internal/...", "plugins/endpoints/wire", "plugins/endpoints/gate"}},
	{"docs/examples/...", []string{"api/...", "plugins/...", "renderer/..."}}, // what any module may import
	{"tests/...", []string{"..."}},
}

// onlyIn maps a third-party module to the places that may import it.
var onlyIn = []struct {
	module string
	places []string
}{
	{"k8s.io/client-go", []string{"plugins/ksr/kube", "internal/cli/reach", "tests/system/kube/..."}},
	{"go.etcd.io/", []string{"plugins/kvstore", "internal/kvstore/embedded", "tests/lab/etcd"}},
	{"go.fd.io/govpp", []string{"internal/cni/vppport", "renderer/vpp", "renderer/acl", "renderer/acl/internal/counters", "renderer/acl/internal/mirror", "renderer/session", "renderer/plugin/...", "internal/vswitch/...", "tests/system/kube", "tests/lab/harness/backends", "tests/dataplane/vpp/..."}},
	{"github.com/gophercloud", []string{"renderer/secgroup/neutron", "tests/dataplane/neutron"}},
	{"github.com/cilium/ebpf", []string{"renderer/xdp/...", "plugins/endpoints/gate", "tests/bench/..."}},
	{"github.com/vishvananda/netlink", []string{"renderer/xdp/...", "plugins/endpoints/...", "internal/cni", "internal/vswitch", "tests/..."}},
	{"github.com/containernetworking", []string{"internal/cni", "tests/dataplane/lifecycle"}},
	{module + "internal/kvstore/embedded", []string{"internal/agent/devstore", "internal/reflector", "tests/..."}}, // no agent of a node links an etcd; docs/design/build.md
	{"text/template", nil}, // with them linkers keep every method; docs/design/tools.md
	{"html/template", nil},
	{"go.opentelemetry.io/", []string{"internal/lib/tracing", "tests/lab/otlp"}},
	{"github.com/ligato", nil},
	{"go.ligato.io", nil},
}

// pure maps a tree to the packages of the standard library that it must not import: packages that
// compute policy use no clocks, sockets, files or environment.
var pure = map[string][]string{
	"api":                                {"net/http", "os", "sync", "time"},
	"plugins/endpoints":                  {"net/http", "os", "net", "sync"},
	"plugins/policy/...":                 {"net/http", "os", "net"},
	"renderer/internal/...":              {"net/http", "os", "net", "sync", "time"},
	"renderer/cache/...":                 {"net/http", "os", "net", "sync", "time"},
	"renderer/acl/internal/entries":      {"net/http", "os", "net", "sync", "time"},
	"renderer/acl/internal/layout":       {"net/http", "os", "net", "sync", "time"},
	"renderer/acl/internal/expand":       {"net/http", "os", "net", "sync", "time"},
	"renderer/secgroup/internal/permits": {"net/http", "os", "net", "sync", "time"},
	"renderer/xdp/compile":               {"net/http", "os", "net", "sync", "time"},
	"internal/analysis/oracle":           {"net/http", "os", "net", "sync", "time"},
}

func matches(pattern, pkg string) bool {
	tree, ok := strings.CutSuffix(pattern, "...")
	return ok && strings.HasPrefix(pkg+"/", tree) || pattern == pkg
}

func matchesAny(patterns []string, pkg string) bool {
	return slices.ContainsFunc(patterns, func(p string) bool { return matches(p, pkg) })
}

// imports returns what every package of the module imports, without tests.
func imports(t *testing.T) map[string][]string {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "go", "list", "-f", `{{.ImportPath}} {{join .Imports " "}}`, "./...")
	cmd.Dir = "../../.."
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("go list: %v", err)
	}
	all := map[string][]string{}
	for line := range strings.Lines(string(out)) {
		fields := strings.Fields(line)
		all[strings.TrimPrefix(fields[0], module)] = fields[1:]
	}
	if len(all) < 10 {
		t.Fatalf("go list found only %d packages", len(all))
	}
	return all
}

func TestImportDirections(t *testing.T) {
	for pkg, deps := range imports(t) {
		for _, problem := range check(pkg, deps) {
			t.Error(problem)
		}
	}
}

// check returns what is wrong with the imports of one package.
func check(pkg string, deps []string) (problems []string) {
	rule := slices.IndexFunc(mayImport, func(r struct {
		pkg  string
		deps []string
	}) bool {
		return matches(r.pkg, pkg)
	})
	if rule < 0 {
		return []string{pkg + ": no rule; add one to mayImport and draw it in docs/ARCHITECTURE.md"}
	}
	for _, dep := range deps {
		own, isOwn := strings.CutPrefix(dep, module)
		if isOwn && !matchesAny(mayImport[rule].deps, own) {
			problems = append(problems, pkg+" must not import "+own)
		}
		for _, o := range onlyIn {
			if strings.HasPrefix(dep, o.module) && !matchesAny(o.places, pkg) && !exempt[pkg+" "+dep] {
				problems = append(problems, pkg+" must not import "+dep+": only "+strings.Join(o.places, ", "))
			}
		}
		for tree, banned := range pure {
			if matches(tree, pkg) && slices.Contains(banned, dep) && !exempt[pkg+" "+dep] {
				problems = append(problems, pkg+" decides and must not import "+dep)
			}
		}
		if pkg == "api" && strings.Contains(strings.Split(dep, "/")[0], ".") {
			problems = append(problems, "api must not import "+dep+": standard library only")
		}
	}
	return problems
}

// exempt lists the exceptions of pure and onlyIn, each with its reason.
var exempt = map[string]bool{
	"renderer/cache sync": true, // readers of what is acknowledged; docs/design/renderer.md

	"internal/cli/output k8s.io/client-go/util/jsonpath": true, // needs nothing but the standard library
}

// TestImportRulesCatchViolations feeds violations to the check, which must report them.
func TestImportRulesCatchViolations(t *testing.T) {
	for _, tc := range []struct {
		pkg, dep string
	}{
		{"api", module + "renderer"},
		{"api", "google.golang.org/protobuf/proto"},
		{"api/model", module + "plugins/ksr/convert"},
		{"plugins/policy/internal/cache", module + "plugins/policy/internal/processor"},
		{"plugins/policy/internal/processor", module + "renderer"},
		{"plugins/policy/internal/processor", "net/http"},
		{"plugins/datasync", "go.etcd.io/etcd/client/v3"},
		{"plugins/datasync", module + "plugins/kvstore"},
		{"renderer/acl", module + "internal/vswitch"},
		{"renderer/acl", module + "renderer/session"},
		{"renderer/cache", "go.fd.io/govpp/api"},
		{"renderer/cache", "time"},
		{"renderer/xdp/compile", "time"},
		{"renderer/xdp/compile", module + "renderer/xdp"},
		{"renderer/acl", module + "renderer/xdp"},
		{"internal/analysis/oracle", module + "plugins/policy/internal/cache"},
		{"internal/analysis/oracle", module + "internal/analysis/explain/suggest"},
		{"internal/analysis/explain/suggest", module + "internal/node"},
		{"docs/examples/embedding", module + "internal/vswitch"},
		{"internal/agent", "k8s.io/client-go/informers"},
		{"internal/agent", module + "internal/kvstore/embedded"},
		{"plugins/ksr/convert", "k8s.io/client-go/rest"}, // the agent has no need of it
		{"internal/agent", "github.com/ligato/cn-infra/infra"},
		{"somewhere/else", "fmt"},
	} {
		if len(check(tc.pkg, []string{tc.dep})) == 0 {
			t.Errorf("%s may import %s", tc.pkg, tc.dep)
		}
	}
	if p := check("renderer/acl", []string{module + "renderer/cache", "go.fd.io/govpp/api", "context"}); p != nil {
		t.Errorf("what is allowed is refused: %v", p)
	}
}
