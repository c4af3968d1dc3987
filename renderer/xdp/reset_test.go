package xdp_test

import (
	"net/netip"
	"testing"

	"github.com/sluice-net/sluice/api"
	"github.com/sluice-net/sluice/renderer/xdp"
	"github.com/sluice-net/sluice/renderer/xdp/compile"
)

func keepsSpare(o *labOptions) { o.kernel.PolicyMaps.KeepSpare = true }

// replaced puts another, empty policy map in force.
func (l *lab) replaced() {
	l.t.Helper()
	if err := l.kernel.Prepare(1, 1); err != nil {
		l.t.Fatal(err)
	}
	if _, err := l.kernel.Switch(); err != nil {
		l.t.Fatal(err)
	}
}

func TestKernelResetForgetsEverything(t *testing.T) {
	l := newLab(t, keepsSpare)
	f := tcpFlow(own4, friend4, 4000, 80)
	l.render(closed, []api.ContivRule{permitTCP(api.Net{}, 80, compile.FromPod)})
	l.want(true, "a flow begins", compile.FromPod, xdp.Frame(f, false))
	l.want(true, "it is answered", compile.ToPod, xdp.Frame(f, true))
	if err := l.kernel.Reset(); err != nil {
		t.Fatal(err)
	}
	ids, err := l.kernel.Attached()
	if err != nil || len(ids) > 0 || l.kernel.StateDigest() != (xdp.StateDigest{}) || l.kernel.Record(labID) != 0 || l.entries() != 0 {
		t.Errorf("attached is %v (%v), the mark %v, the record %d, %d flows", ids, err, l.kernel.StateDigest(), l.kernel.Record(labID), l.entries())
	}
	l.want(false, "an endpoint that is not known", compile.FromPod, xdp.Frame(f, false))
	r, err := xdp.New(l.rig.options)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := r.Close(); err != nil {
			t.Error(err)
		}
	})
	l.r = r
	l.render(closed, []api.ContivRule{permitTCP(api.Net{}, 80, compile.FromPod)})
	l.want(false, "an answer to what was before", compile.ToPod, xdp.Frame(f, true))
	l.want(true, "a flow begins", compile.FromPod, xdp.Frame(f, false))
	l.want(true, "it is answered", compile.ToPod, xdp.Frame(f, true))
}

func TestPolicyMapForgetsAddressesWhenReused(t *testing.T) {
	l := newLab(t, keepsSpare)
	l.render(closed, closed)
	l.replaced() // the previous policy map is kept
	if err := l.kernel.Detach(labID); err != nil {
		t.Fatal(err)
	}
	l.replaced() // by that of before
	names, err := l.kernel.Names()
	if err != nil || len(names) > 0 {
		t.Errorf("addresses lead to %v (%v)", names, err)
	}
}

func TestPolicyMapCopiesAddressesToNext(t *testing.T) {
	l := newLab(t)
	l.render(closed, closed)
	for range 2 {
		names, err := l.kernel.Names()
		if err != nil || len(names) != 2 || names[own4] != labID || names[own6] != labID {
			t.Errorf("addresses lead to %v (%v)", names, err)
		}
		l.replaced()
	}
	if err := l.kernel.Name(compile.Endpoint{ID: labID, IPs: []netip.Addr{own4}}); err != nil {
		t.Fatal(err)
	}
	if names, err := l.kernel.Names(); err != nil || len(names) != 1 || names[own4] != labID {
		t.Errorf("addresses lead to %v (%v)", names, err)
	}
}

// TestPolicyMapInUseIsNeverPrepared prepares the first policy map twice, as after a failure.
func TestPolicyMapInUseIsNeverPrepared(t *testing.T) {
	l := newLab(t, keepsSpare)
	for range 2 {
		if err := l.kernel.Prepare(1, 1); err != nil {
			t.Fatal(err)
		}
	}
	l.render([]api.ContivRule{permitTCP(api.Net{}, 80, compile.ToPod)}, nil)
	if err := l.kernel.Prepare(1, 1); err != nil {
		t.Fatal(err)
	}
	l.want(true, "the policy of before", compile.ToPod, xdp.Frame(tcpFlow(friend4, own4, 4000, 80), false))
	l.want(false, "what it denies", compile.ToPod, xdp.Frame(tcpFlow(friend4, own4, 4000, 81), false))
}
