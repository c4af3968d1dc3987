package session_test

import (
	"testing"

	"github.com/sluice-net/sluice/api"
	"github.com/sluice-net/sluice/renderer/renderertest"
	sluicesession "github.com/sluice-net/sluice/renderer/session"
	"github.com/sluice-net/sluice/tests/lab/harness/backends"
	"github.com/sluice-net/sluice/tests/lab/leaks"
)

func TestMain(m *testing.M) { leaks.Main(m) }

// maxPorts is the size of the narrowest range in the suite.
const maxPorts = 8010 - 8000 + 1

var (
	_ renderertest.Inspector = (*backends.Session)(nil)
	_ renderertest.Restarter = (*backends.Session)(nil)
	_ renderertest.Narrow    = (*backends.Session)(nil)
)

// newStack returns a renderer on an embedded vswitch with a namespace for each of the pods.
func newStack(t testing.TB, o backends.SessionOptions, pods ...api.PodID) *backends.Session {
	t.Helper()
	o.Rules.MaxPorts = maxPorts
	s, err := backends.NewSession(o)
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range pods {
		s.Namespaces[p] = s.Switch.AddNamespace(sluicesession.NamespaceID(p))
	}
	return s
}

func TestConformance(t *testing.T) {
	renderertest.Run(t, func(t testing.TB) renderertest.Subject { return newStack(t, backends.SessionOptions{}) })
}

func TestConformanceWithQuirksOfVPP(t *testing.T) {
	if testing.Short() {
		t.Skip("the suite runs once without quirks")
	}
	renderertest.Run(t, func(t testing.TB) renderertest.Subject {
		return newStack(t, backends.SessionOptions{Quirks: true, Refuses: true})
	})
}
