package view

import (
	"encoding/json"
	"net/netip"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/sluice-net/sluice/api"
	"github.com/sluice-net/sluice/internal/analysis/oracle"
)

// fields are the names that programs know. Names are added here and never removed.
var fields = map[string]string{
	"Pod":              "pod node addresses labels state isolated policies problems interfaceTag",
	"Policy":           "node policy selector tier priority isolates rules audit pods enforced pending problems notes",
	"PodRelations":     "selecting naming",
	"RuleText":         "policy direction rule audit name action peers ports note",
	"Set":              "node id meaning members",
	"Table":            "node renderer table kind pods rules entries objects",
	"Rule":             "node renderer table index rule meaning pods origins packets countedWith",
	"Status":           "version node source revision seen pods local policies unenforced waiting sets renderers problems store",
	"StoreStatus":      "following since heard error saved retained incomplete cluster reflector unwritten",
	"Reflector":        "identity version since",
	"NodeStatus":       "node version level revision seen following time renderers policies more",
	"NodeRenderer":     "name inSync error",
	"UnenforcedPolicy": "policy enforced why",
	"NodeEnforcement":  "node version level revision seen following time renderers policies more wanted enforced why",
	"RendererStatus":   "name inSync applied error since busySince tables rules entries refused open foreign sessions sessionsMax dataplane blocked",
	"Question":         "src dst port protocol",
	"Party":            "name pod address node",
	"Injection":        "src dst flow verdict reason hops expected service",
	"Service":          "name address port portName protocol endpoints note",
	"Hop":              "interface pod direction action by table rule match origins",
	"Applied":          "put deleted unchanged enforced pending problems objects skipped",
	"AcceptedStore":    "prefix cluster generation objects",
	"AppliedObject":    "kind namespace name result",
	"Explanation":      "src dst flow allowed oracle renderers renderersDiffer packets service stale",
	"Answer":           "renderer allowed decides agrees pending decisions meanings node unasked foreign origins unnamed",
	"NamedOrigin":      "policy direction rule audit role",
	"Packet":           "node verdict reason expected unsent",
	"Matrix":           "groups cells probes left namespaces selection differ",
	"Change":           "put delete",
	"ChangedObject":    "kind namespace name value",
}

func TestFieldsOfJSONAreNeverRemoved(t *testing.T) {
	for _, v := range []any{
		Pod{}, Policy{}, Set{}, Table{}, Rule{}, Status{}, RendererStatus{}, Question{}, Party{}, Injection{}, Hop{}, Service{},
		Applied{}, AppliedObject{}, Explanation{}, Answer{}, NamedOrigin{}, Packet{}, Matrix{}, Change{}, ChangedObject{},
		StoreStatus{}, AcceptedStore{}, Reflector{}, NodeStatus{}, NodeRenderer{}, UnenforcedPolicy{}, NodeEnforcement{},
		PodRelations{}, oracle.RuleText{},
	} {
		typ := reflect.TypeOf(v)
		got := names(typ)
		for name := range strings.FieldsSeq(fields[typ.Name()]) {
			if !slices.Contains(got, name) {
				t.Errorf("%s has no field %q any more", typ.Name(), name)
			}
		}
		if len(got) != len(strings.Fields(fields[typ.Name()])) {
			t.Errorf("%s has the fields %v: add them to this test", typ.Name(), got)
		}
	}
}

func names(typ reflect.Type) (out []string) {
	for f := range typ.Fields() {
		if f.Anonymous {
			out = append(out, names(f.Type)...)
			continue
		}
		name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
		out = append(out, name)
	}
	return out
}

func TestPartyWithoutPodOmitsItInJSON(t *testing.T) {
	for want, p := range map[string]Party{
		`{"name":"10.0.0.1","address":"10.0.0.1"}`:       {Name: "10.0.0.1", Address: netip.MustParseAddr("10.0.0.1")},
		`{"name":"a/b","pod":"a/b","address":"fd00::1"}`: {Name: "a/b", Pod: api.PodID{Namespace: "a", Name: "b"}, Address: netip.MustParseAddr("fd00::1")},
	} {
		if b, err := json.Marshal(p); err != nil || string(b) != want {
			t.Errorf("%s, %v, want %s", b, err, want)
		}
	}
}

func TestDefaultSocket(t *testing.T) {
	t.Setenv(SocketEnv, "/some/where.sock")
	if got := DefaultSocket(); got != "/some/where.sock" {
		t.Errorf("with %s it is %s", SocketEnv, got)
	}
	t.Setenv(SocketEnv, "")
	dir := t.TempDir()
	t.Setenv("XDG_RUNTIME_DIR", dir)
	want := filepath.Join(dir, "sluice", "agent.sock")
	if os.Geteuid() == 0 {
		want = "/run/sluice/agent.sock"
	}
	if got := DefaultSocket(); got != want {
		t.Errorf("it is %s, want %s", got, want)
	}
	t.Setenv("XDG_RUNTIME_DIR", "")
	if got := DefaultSocket(); !filepath.IsAbs(got) || filepath.Base(got) != "agent.sock" {
		t.Errorf("without a runtime directory it is %s", got)
	}
}
