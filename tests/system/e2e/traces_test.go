package e2e

import (
	"bytes"
	"errors"
	"fmt"
	"path/filepath"
	"testing"

	"github.com/sluice-net/sluice/tests/lab/otlp"
	"github.com/sluice-net/sluice/tests/lab/programs"
)

// TestTraceFollowsChangeToDataplane: one span by the reflector, and one by the
// agent below it, which begins later.
func TestTraceFollowsChangeToDataplane(t *testing.T) {
	c := startCluster(t)
	c.grant()
	c.apply(demo)
	traces := otlp.Start(t)
	t.Setenv("OTEL_BSP_SCHEDULE_DELAY", "100") // milliseconds
	address := programs.FreeAddress(t)
	k := startKSR(t, c.kubeconfig(c.address), "ksr-0", nil, "--embedded-etcd", "--etcd-dir", t.TempDir(), "--etcd-listen", "http://"+address, "--traces-endpoint", traces.Endpoint)
	k.says(200, "ok: leads")
	v := startVPP(t, filepath.Join(socketDir(t), "vpp.sock"))
	v.attachDemo()
	a := startAgent(t, "run", "--node", "node-1", "--etcd-endpoints", address, "--vpp-socket", v.socket, "--traces-endpoint", traces.Endpoint)
	a.ready()
	eventually(t, v.demoEnforced)
	before := len(traces.Spans())
	c.remove("NetworkPolicy", "demo", "server")
	eventually(t, func() error {
		if !v.permits(stranger, server, 80) {
			return errors.New("the change is not enforced")
		}
		return nil
	})
	eventually(t, func() error {
		spans := traces.Spans()[before:]
		for _, root := range spans {
			for _, s := range spans {
				if root.Program == "sluice-ksr" && s.Program == "sluice-agent" && bytes.Equal(s.TraceId, root.TraceId) && bytes.Equal(s.ParentSpanId, root.SpanId) &&
					s.StartTimeUnixNano >= root.StartTimeUnixNano {
					return nil
				}
			}
		}
		return fmt.Errorf("no trace has both sides: %v", spans)
	})
}
