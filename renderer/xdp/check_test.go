package xdp_test

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/cilium/ebpf/link"

	"github.com/sluice-net/sluice/api"
	"github.com/sluice-net/sluice/renderer"
	"github.com/sluice-net/sluice/renderer/xdp"
	"github.com/sluice-net/sluice/renderer/xdp/compile"
	"github.com/sluice-net/sluice/tests/lab/wires"
)

// TestCheckFindsForeignEdits changes each part of a plane behind the renderer.
func TestCheckFindsForeignEdits(t *testing.T) {
	const id = 7
	for want, change := range map[string]func(p xdp.Dataplane) error{
		"":                               func(xdp.Dataplane) error { return nil },
		"is not attached":                func(p xdp.Dataplane) error { return p.Detach(id) },
		"has record 0 of the policy map": func(p xdp.Dataplane) error { return p.Flip(id, 0) },
		"that is not the one installed (word 1)": func(p xdp.Dataplane) error {
			at := p.Record(id)*compile.LineWords + 1
			return p.Store(at, p.Word(at)+1)
		},
	} {
		plane := xdp.NewHeap()
		r, err := xdp.New(xdp.Options{Dataplane: plane, Interfaces: func(api.PodID, []netip.Addr) []uint32 { return []uint32{id} }})
		if err != nil {
			t.Fatal(err)
		}
		txn := renderer.Changes{Resync: true}
		txn.Render(api.PodID{Namespace: "net", Name: "b"}, renderer.PodConfig{IPs: []netip.Addr{netip.MustParseAddr("10.0.0.1")}, Egress: renderer.NewRuleList([]api.ContivRule{{}}, nil)})
		if err := r.Apply(t.Context(), txn); err != nil {
			t.Fatal(err)
		}
		if err := change(plane); err != nil {
			t.Fatal(err)
		}
		objects, drift, err := r.Check(t.Context())
		if err != nil || objects != 1 || len(drift) != min(len(want), 1) {
			t.Errorf("%q: %d objects, %q, %v", want, objects, drift, err)
		}
		if want != "" && !slices.ContainsFunc(drift, func(d string) bool {
			return strings.HasPrefix(d, "interface 7 of pod net/b ") && strings.Contains(d, want)
		}) {
			t.Errorf("found %q, want %q", drift, want)
		}
		if err := r.Close(); err != nil {
			t.Fatal(err)
		}
	}
}

// TestCheckFindsForeignEditsInKernel changes what is in the kernel past the renderer
// and its maps. A check repairs nothing, so that the second one finds it, too.
func TestCheckFindsForeignEditsInKernel(t *testing.T) {
	t.Parallel()
	for want, change := range map[string]func(t *testing.T) *audited{
		"is not attached": func(t *testing.T) *audited {
			a := newAudited(t, xdp.ModeAuto)
			a.onLink(link.Link.Detach)
			return a
		},
		"does not run the program to_pod any more": func(t *testing.T) *audited {
			a := newAudited(t, xdp.ModeAuto)
			a.onLink(func(l link.Link) error { return l.Update(pass(t, "other")) })
			return a
		},
		"does not run the program to_pod": func(t *testing.T) *audited {
			a := newAudited(t, xdp.ModeClsact)
			a.Must(wires.Inside(a.Node, func() error { return xdp.DropFilters(a.index) }))
			return a
		},
		"has record 0 of the policy map instead of ": func(t *testing.T) *audited {
			a := newAudited(t, xdp.ModeAuto)
			a.emptyEndpoints()
			return a
		},
	} {
		a := change(t)
		for range 2 {
			a.Must(wires.Inside(a.Node, func() error {
				_, drift, err := a.r.Check(t.Context())
				if len(drift) != 1 || !strings.HasPrefix(drift[0], fmt.Sprintf("interface %d of pod net/b %s", a.index, want)) {
					t.Errorf("%q, want %q", drift, want)
				}
				return err
			}))
		}
	}
}

// TestCheckFindsNothingInKernel reads back what an Apply has just left there.
func TestCheckFindsNothingInKernel(t *testing.T) {
	a := newAudited(t, xdp.ModeAuto)
	a.Must(wires.Inside(a.Node, func() error {
		objects, drift, err := a.r.Check(t.Context())
		if objects != 1 || len(drift) > 0 {
			t.Errorf("%d objects, %q", objects, drift)
		}
		return err
	}))
}
