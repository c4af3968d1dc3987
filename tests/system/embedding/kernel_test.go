package embedding

import (
	"context"
	"errors"
	"log/slog"
	"net/netip"
	"path/filepath"
	"testing"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/features"
	"github.com/vishvananda/netlink"

	"github.com/sluice-net/sluice/api/model"
	"github.com/sluice-net/sluice/docs/examples/embedding"
	"github.com/sluice-net/sluice/plugins/endpoints"
	"github.com/sluice-net/sluice/tests/lab/wires"
)

// TestAgentOfKernelClaimsItsInterfaces: blocked with the claim, enforced with the state,
// which has no addresses of pods, and blocked again with the end of the claim.
func TestAgentOfKernelClaimsItsInterfaces(t *testing.T) {
	c := wires.New(t, "server", "friend", "stranger")
	if err := features.HaveProgramType(ebpf.SchedCLS); err != nil {
		t.Skipf("the kernel takes no programs: %v", err)
	}
	pins := filepath.Join(wires.BPFFS(t), "sluice")
	for _, port := range []uint16{80, 81} {
		c.Serve("server", port)
	}
	var a *embedding.KernelAgent
	at := func(f func() error) { t.Helper(); c.Must(wires.Inside(c.Node, f)) }
	at(func() (err error) {
		a, err = embedding.NewKernelAgent(node, pins, slog.New(slog.DiscardHandler))
		return err
	})
	defer func() { at(a.Close) }()
	for name, h := range c.Pods {
		at(func() error { return claim(a, name, h) })
	}
	c.Can(false, "before the state is known", "friend", "server", "tcp", 4, 80)
	at(func() error { return a.Tell(context.Background(), true, withoutAddresses(t, "friend")) })
	states(t, a, endpoints.StateEnforced)
	c.Can(true, "the friend", "friend", "server", "tcp", 4, 80)
	c.Can(false, "the friend at another port", "friend", "server", "tcp", 4, 81)
	c.Can(false, "the stranger", "stranger", "server", "tcp", 4, 80)
	c.Can(true, "who is not isolated", "stranger", "friend", "icmp", 4, 0)

	at(func() error { return a.RemovePod("friend") })
	c.Can(false, "behind its end", "friend", "server", "tcp", 4, 80)
	at(func() error { return claim(a, "friend", c.Pods["friend"]) })
	select {
	case <-a.Changed:
	default:
		t.Error("a claim does not ask to be looked at")
	}
	at(func() error { return a.Look(context.Background()) })
	states(t, a, endpoints.StateEnforced)
	c.Can(true, "the friend again", "friend", "server", "tcp", 4, 80)
}

// claim says that the interface of a pod is its own.
func claim(a *embedding.KernelAgent, name string, h *wires.Host) error {
	l, err := netlink.LinkByIndex(h.Index)
	if err != nil {
		return err
	}
	link := endpoints.Link{Index: uint32(h.Index), Name: l.Attrs().Name, MAC: l.Attrs().HardwareAddr.String()}
	return a.AddPod(endpoints.Claim{Owner: name, Pod: podID(name), Link: link, IPs: []netip.Addr{h.V4}})
}

// withoutAddresses has the objects of the test as an API server has them before pods have
// addresses.
func withoutAddresses(t *testing.T, client string) []model.Delta {
	t.Helper()
	list := objects(t, client)
	for _, d := range list {
		if p, ok := d.Value.(*model.Pod); ok {
			p.Ips = nil
		}
	}
	return list
}

func states(t *testing.T, a *embedding.KernelAgent, want endpoints.State) {
	t.Helper()
	var errs []error
	for _, e := range a.Endpoints() {
		if e.State != want {
			errs = append(errs, errors.New(e.Link.Name+" is "+string(e.State)+": "+e.Reason))
		}
	}
	if err := errors.Join(errs...); err != nil || len(a.Endpoints()) != 3 {
		t.Errorf("%d interfaces: %v", len(a.Endpoints()), err)
	}
}
