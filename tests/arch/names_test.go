package arch

import (
	"go/ast"
	"go/parser"
	"go/token"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"unicode"
)

// notUnits are words that name no unit: a test name does not begin with them.
var notUnits = strings.Fields(`
	A After All Always An And Another Any At Before Behind Beyond Both But By Each Either Every
	Everybody Everything Few For From Half He How However If In It Its Like Many Most Neither Never No
	Nobody None Not Nothing Of On Once One Only Or Other Others Our Some Somebody Something Such Ten
	That The Their Them They This Too Two Under Until We What Whatever When Where Which While Who
	Whoever Whole Whose Why With Without`)

// units are what names of tests may begin with besides identifiers of the package under test and
// the words of its path: its commands and the concepts that its documentation explains. Folders
// under tests exercise the whole project, so their units are parts of it.
var units = map[string]string{
	"api":                                  "Rule TextForms",
	"deploy/release":                       "Debian PackageVersions RPM Settings Units",
	"internal/agent":                       "API Audit Bundle Check Cleanup Commit DebugAPI Explain Metrics Readiness Socket Status",
	"internal/cli":                         "Apply ArgumentErrors Bundle Certificate Completion Connection Connectivity Describe ExitCodes Explain Filters Guides Inject Kinds Kubectl Matrix Output Roles Suggest Terminal Top UI Watch",
	"internal/explain":                     "ServiceVerdicts",
	"internal/oracle":                      "Audit Semantics",
	"internal/policytest":                  "Services",
	"internal/reflector":                   "Readyz",
	"internal/view":                        "Fields",
	"plugins/policy":                       "Problem",
	"plugins/policy/internal/configurator": "Set",
	"plugins/policy/internal/intent":       "Pivot",
	"plugins/policy/internal/processor":    "Semantics Workload",
	"renderer/acl":                         "Conformance Deferral ExemptTraffic ForeignACLs GlobalTable Grace Idle NATOrder PauseBudget PodInterface RealVPP Segments SessionTable",
	"renderer/ligato":                      "Conformance ExemptTraffic PodInterface",
	"renderer/plugin":                      "Layout Program",
	"renderer/session":                     "Conformance Namespace Tags",
	"renderer/xdp":                         "Conformance Connection ConnectionTable Filters Fragment Generation Interface Lists Origin OverflowTable Packet RecentFlows Services Settings Shares SourceAddress TunnelPorts Uplinks",
	"renderer/xdp/bpf":                     "Layout",
	"tests/alerts":                         "Dashboard",
	"tests/arch":                           "Docs Files Import Links Names Prose Sizes Surface Words",
	"tests/attacks":                        "Address Answers Checksums Fragments Frames HostilePods ICMP JumboFrames LargePackets LinkMessages NeighbourDiscovery Packet Settings Tunnels",
	"tests/bench":                          "Check Workload",
	"tests/bench/npgen":                    "Write",
	"tests/charts":                         "Chart",
	"tests/compat":                         "Protobuf",
	"tests/conformance":                    "Images",
	"tests/differential":                   "Counts Faults Machine Minimise Play",
	"tests/docker":                         "Compose Dockerfile Dockerignore Guide Manifest",
	"tests/e2e":                            "Agent Audit Bundle Check CNI Dev Diff Fault Kernel Leader Manifest Reflector Scale Scripts Services StatePath Store Trace Units Verdicts VPP",
	"tests/embedding":                      "Agent Guide Renderer",
	"tests/fuzz":                           "Addresses Entries Families Manifests Objects Selectors",
	"tests/kube":                           "Cluster",
	"tests/legacy":                         "Comparison Convert",
	"tests/lifecycle":                      "CNI Kernel Life",
	"tests/ligato":                         "Agent Policy Scheduler",
	"tests/mutation":                       "Kernel",
	"tests/neutron":                        "Daemon",
	"tests/reference":                      "Docs Pages Programs",
	"tests/scenarios":                      "Contiv FlowLimit Guide Scenario Update VPP",
	"tests/sequences":                      "Failure Faults",
	"tests/vpp":                            "Shape VPP",
}

// testNames has by folder the names of its tests, and the identifiers that its other files declare.
func testNames(t *testing.T) (tests, declared map[string][]string) {
	t.Helper()
	tests, declared = map[string][]string{}, map[string][]string{}
	for path, text := range tree(t, ".go") {
		if strings.Contains(path, "/testdata/") {
			continue
		}
		f, err := parser.ParseFile(token.NewFileSet(), path, text, parser.SkipObjectResolution)
		if err != nil {
			t.Fatal(err)
		}
		folder, err := filepath.Rel("../..", filepath.Dir(path))
		if err != nil {
			t.Fatal(err)
		}
		folder = filepath.ToSlash(folder)
		for _, d := range f.Decls {
			if !strings.HasSuffix(path, "_test.go") {
				declared[folder] = append(declared[folder], namesOf(d)...)
			} else if fn, ok := d.(*ast.FuncDecl); ok && fn.Recv == nil && strings.HasPrefix(fn.Name.Name, "Test") && fn.Name.Name != "TestMain" {
				tests[folder] = append(tests[folder], fn.Name.Name)
			}
		}
	}
	return tests, declared
}

// namesOf returns the types, constants, functions and methods of a declaration.
func namesOf(d ast.Decl) (names []string) {
	switch d := d.(type) {
	case *ast.FuncDecl:
		return []string{d.Name.Name}
	case *ast.GenDecl:
		for _, s := range d.Specs {
			if s, ok := s.(*ast.TypeSpec); ok {
				names = append(names, s.Name.Name)
			}
			if s, ok := s.(*ast.ValueSpec); ok && d.Tok == token.CONST {
				for _, n := range s.Names {
					names = append(names, n.Name)
				}
			}
		}
	}
	return names
}

// beginsWith reports whether a name begins with a unit or its plural, as whole words.
func beginsWith(name, unit string) bool {
	for _, u := range []string{unit, unit + "s", unit + "es", strings.TrimSuffix(unit, "y") + "ies"} {
		if len(name) >= len(u) && strings.EqualFold(name[:len(u)], u) {
			if rest := name[len(u):]; rest == "" || !unicode.IsLower(rune(rest[0])) {
				return true
			}
		}
	}
	return false
}

// wrongStart returns what is wrong with the beginning of the name of a test, or nothing.
func wrongStart(test string, units []string) string {
	name := strings.TrimPrefix(test, "Test")
	for _, w := range notUnits {
		if beginsWith(name, w) && !slices.ContainsFunc(units, func(u string) bool { return len(u) > len(w) && beginsWith(name, u) }) {
			return "begins with " + w
		}
	}
	if !slices.ContainsFunc(units, func(u string) bool { return len(u) > 1 && beginsWith(name, u) }) {
		return "begins with nothing that the package under test declares: see units in names_test.go"
	}
	return ""
}

func TestNamesOfTestsBeginWithTheirUnit(t *testing.T) {
	tests, declared := testNames(t)
	if len(tests) < 100 {
		t.Fatalf("tests of only %d folders were found", len(tests))
	}
	for folder, names := range tests {
		of := slices.Concat(declared[folder], strings.Split(folder, "/"), strings.Fields(units[folder]))
		for _, name := range names {
			if wrong := wrongStart(name, of); wrong != "" {
				t.Errorf("%s: %s %s", folder, name, wrong)
			}
		}
	}
	for folder, list := range units {
		for u := range strings.FieldsSeq(list) {
			if !slices.ContainsFunc(tests[folder], func(n string) bool { return beginsWith(strings.TrimPrefix(n, "Test"), u) }) {
				t.Errorf("units of %s: no test is about %s", folder, u)
			}
		}
	}
}

func TestNamesOfTestsAreChecked(t *testing.T) {
	for name, want := range map[string]string{
		"TestPolicyIsKept": "", "TestPoliciesAreKept": "", "TestACLsOfPod": "", "TestFromFlagIsRead": "",
		"TestAPolicyIsKept": "begins with A", "TestPolicedPods": "begins with nothing", "TestFromPods": "begins with From",
	} {
		if got := wrongStart(name, []string{"Policy", "acl", "fromFlag", "from"}); want == "" && got != "" || !strings.HasPrefix(got, want) {
			t.Errorf("%s %q, want %q", name, got, want)
		}
	}
}
