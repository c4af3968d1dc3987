package shapes_test

import (
	"errors"
	"net/netip"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"

	"github.com/sluice-net/sluice/api"
	"github.com/sluice-net/sluice/api/model"
	"github.com/sluice-net/sluice/internal/analysis/oracle"
	"github.com/sluice-net/sluice/plugins/ksr/convert"
	"github.com/sluice-net/sluice/plugins/policy"
	"github.com/sluice-net/sluice/renderer"
	"github.com/sluice-net/sluice/renderer/renderertest"
	"github.com/sluice-net/sluice/renderer/xdp"
	"github.com/sluice-net/sluice/tests/lab/cluster"
	"github.com/sluice-net/sluice/tests/lab/harness/backends"
	"github.com/sluice-net/sluice/tests/lab/leaks"
	"github.com/sluice-net/sluice/tests/lab/shapes"
)

func TestMain(m *testing.M) { leaks.Main(m) }

// node is the plugin of a node.
type node struct {
	t       *testing.T
	plugin  *policy.Plugin
	xdp     *xdp.Renderer // its kernel is in the heap; nil for another dataplane
	verdict func(api.Flow) (api.Action, error)
	streams bool // it decides about TCP and UDP only
	state   oracle.State
	local   map[netip.Addr]string // namespaces of the pods of the node
}

func newNode(t *testing.T, memory uint64) *node {
	t.Helper()
	ids := map[api.PodID]uint32{}
	x, err := xdp.New(xdp.Options{Dataplane: xdp.NewHeap(), PolicyMemory: memory, Interfaces: func(pod api.PodID, _ []netip.Addr) []uint32 {
		if ids[pod] == 0 {
			ids[pod] = uint32(len(ids) + 1)
		}
		return []uint32{ids[pod]}
	}})
	if err != nil {
		t.Fatal(err)
	}
	n := newNodeOf(t, x, x.Verdict, x.Close)
	n.xdp = x
	return n
}

// newNodeOf returns a node with a renderer.
func newNodeOf(t *testing.T, r renderer.Renderer, verdict func(api.Flow) (api.Action, error), end func() error) *node {
	t.Helper()
	n := &node{t: t, local: map[netip.Addr]string{}, verdict: verdict, plugin: policy.New(policy.Deps{Node: shapes.Node, Renderers: []renderer.Renderer{r}})}
	if err := errors.Join(n.plugin.Init(), n.plugin.AfterInit()); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := errors.Join(n.plugin.Close(), end()); err != nil {
			t.Error(err)
		}
	})
	return n
}

// apply sends objects; without del they are added to the state.
func (n *node) apply(resync, del bool, objects ...any) {
	n.t.Helper()
	c := model.Changes{Resync: resync}
	for _, o := range objects {
		m, problems := convert.ToModel(o)
		if len(problems) > 0 {
			n.t.Fatal(problems)
		}
		id, err := model.IDOf(m)
		if err != nil {
			n.t.Fatal(err)
		}
		d := model.Delta{ID: id, Value: m}
		if del {
			d.Value = nil
		} else if n.state.Add(o); o != nil {
			if p, ok := o.(*corev1.Pod); ok && p.Spec.NodeName == shapes.Node {
				n.local[netip.MustParseAddr(p.Status.PodIP)] = p.Namespace
			}
		}
		c.Deltas = append(c.Deltas, d)
	}
	if err := n.plugin.Apply(n.t.Context(), c); err != nil {
		n.t.Fatal(err)
	}
}

// check compares flows to pods of the node with what the specification says; those to pods of a
// namespace in closed may be denied.
func (n *node) check(flows int, closed string) (denied int) {
	n.t.Helper()
	o := oracle.New(n.state)
	for _, f := range cluster.FlowSpace(n.state).Random(cluster.NewRand(7), flows) {
		namespace, ok := n.local[f.Dst]
		if !ok || n.streams && f.Protocol != api.TCP && f.Protocol != api.UDP {
			continue
		}
		got, err := n.verdict(f)
		if err != nil {
			n.t.Fatal(err)
		}
		if n.xdp != nil {
			n.explains(f, got)
		}
		switch want := o.Allowed(f); {
		case got == api.Permit && !want || got == api.Deny && want && namespace != closed:
			n.t.Fatalf("%s is %s, the specification permits it: %t", f, got, want)
		case got == api.Deny && want:
			denied++
		}
	}
	return denied
}

// explains checks that a verdict is explained.
func (n *node) explains(f api.Flow, got api.Action) {
	n.t.Helper()
	explained := api.Permit
	for _, d := range n.xdp.Explain(f) {
		if d.Action == api.Deny {
			explained = api.Deny
		}
	}
	if explained != got {
		n.t.Fatalf("%s is %s, and explained as %s", f, got, explained)
	}
}

// small is a size at which the specification can be asked.
const small = 60

// TestShapesAreEnforcedAsWritten compares with the specification, at first and when every
// second policy is gone.
func TestShapesAreEnforcedAsWritten(t *testing.T) {
	for _, s := range shapes.All {
		t.Run(s.Name, func(t *testing.T) {
			n := newNode(t, 0)
			size := small
			if s.Name == shapes.All[0].Name { // 67 policies of this size each
				size = 4
			}
			objects := s.Objects(size)
			n.apply(true, false, append(objects, shapes.Bystander(), shapes.Bystanding())...)
			n.check(renderertest.Extent(300, 3000, 10_000), "")
			policies := n.state.Policies
			n.state.Policies = nil
			var gone []any
			for i, p := range policies {
				if i%2 == 0 {
					gone = append(gone, p)
				} else {
					n.state.Policies = append(n.state.Policies, p)
				}
			}
			n.apply(false, true, gone...)
			n.check(renderertest.Extent(300, 3000, 10_000), "")
		})
	}
}

// TestShapesBeyondShareAffectNoOther: what is refused is closed and named, another tenant
// has what it wrote, before and afterwards, and without the policies everything is open again.
func TestShapesBeyondShareAffectNoOther(t *testing.T) {
	for _, s := range shapes.All {
		t.Run(s.Name, func(t *testing.T) {
			n := newNode(t, 64<<10)
			size := 200
			if s.Name == shapes.All[0].Name {
				size = 20
			}
			objects := s.Objects(size)
			n.apply(true, false, append(objects, shapes.Bystander())...)
			if n.check(200, shapes.Tenant); n.plugin.Status().Unenforced == 0 {
				t.Fatal("nothing is refused")
			}
			n.blames(shapes.Tenant)
			n.apply(false, false, shapes.Bystanding())
			denied := n.check(200, shapes.Tenant)
			t.Logf("%d of 200 flows are denied because of the share", denied)
			n.apply(false, true, shapes.Policies(objects)...)
			n.state.Policies = nil
			n.state.Add(shapes.Bystanding())
			n.check(200, "")
			if left := n.plugin.Status().Unenforced; left > 0 {
				t.Errorf("%d policies are refused after they are gone", left)
			}
		})
	}
}

// blames checks that all problems are limits of a namespace.
func (n *node) blames(tenant string) {
	n.t.Helper()
	state, err := n.plugin.Snapshot(n.t.Context())
	if err != nil {
		n.t.Fatal(err)
	}
	for _, p := range state.Problems {
		if p.Class != api.ClassLimit || !strings.Contains(p.Object, " "+tenant+"/") || !strings.Contains(p.Reason, "of namespace "+tenant+" ") {
			n.t.Errorf("it is reported as %+v", p)
		}
	}
}

// TestShapesWithoutAddressSetsAffectNoOther is the same in dataplanes in which a rule takes an
// entry for each address.
func TestShapesWithoutAddressSetsAffectNoOther(t *testing.T) {
	for _, name := range []string{"acl", "session"} {
		t.Run(name, func(t *testing.T) {
			i := slices.IndexFunc(backends.All, func(k backends.Kind) bool { return k.Name == name })
			b, err := backends.All[i].New(func() {})
			if err != nil {
				t.Fatal(err)
			}
			n := newNodeOf(t, b.Renderer(), func(f api.Flow) (api.Action, error) { return b.Verdict(f), nil }, b.Close)
			n.streams = name == "session"
			objects := shapes.PortListsByClasses(40)
			n.apply(true, false, append(objects, shapes.Bystander())...)
			if n.check(100, shapes.Tenant); n.plugin.Status().Unenforced == 0 {
				t.Fatal("nothing is refused")
			}
			n.blames(shapes.Tenant)
			n.apply(false, false, shapes.Bystanding())
			n.check(200, shapes.Tenant)
			n.apply(false, true, shapes.Policies(objects)...)
			n.state.Policies = nil
			n.state.Add(shapes.Bystanding())
			n.check(200, "")
			if left := n.plugin.Status().Unenforced; left > 0 {
				t.Errorf("%d policies are refused after they are gone", left)
			}
		})
	}
}

// TestShapesBelowQuotaEndAsWritten: lists that together take nearly all of a namespace's quota, and
// again when half of them are others.
func TestShapesBelowQuotaEndAsWritten(t *testing.T) {
	n := newNode(t, 0)
	objects := shapes.SelectorsByPortsForMany(128)
	policies := shapes.Policies(objects)
	n.apply(true, false, append(slices.DeleteFunc(slices.Clone(objects), func(o any) bool { return slices.Contains(policies, o) }), shapes.Bystander())...)
	n.apply(false, false, policies...)
	n.apply(false, false, shapes.Bystanding())
	n.check(renderertest.Extent(300, 3000, 10_000), "")
	own := policies[1 : 1+len(policies)/2]
	n.apply(false, true, own...)
	n.state.Policies = slices.DeleteFunc(n.state.Policies, func(p *networkingv1.NetworkPolicy) bool {
		return slices.ContainsFunc(own, func(o any) bool {
			return o.(*networkingv1.NetworkPolicy).Name == p.Name && p.Namespace == shapes.Tenant
		})
	})
	n.check(renderertest.Extent(300, 3000, 10_000), "")
}

// TestShapesGrowAsWritten checks that twice the rules take about twice the memory in the
// kernel, also where every rule is about nearly all pods.
func TestShapesGrowAsWritten(t *testing.T) {
	product := map[string]bool{"NotIn by pods": true, "wide ranges by pods": true, "selectors by ports": true} // of rules and pods
	lines := func(s shapes.Shape, size int) int {
		n := newNode(t, 0)
		n.apply(true, false, s.Objects(size)...)
		return n.xdp.Lines()
	}
	for _, s := range shapes.All {
		switch s.Name {
		case "port lists by address classes": // its rows differ from each other as much as they can
			continue // the share of the kernel's memory bounds it
		case "selectors by ports for many":
			continue // the quota of the namespace does
		}
		none, small, large := lines(s, 1), lines(s, 300), lines(s, 600)
		most := 13 * (small - none) / 5
		if product[s.Name] {
			most *= 2
		}
		t.Logf("%s: %d lines for 300, %d for 600", s.Name, small-none, large-none)
		if large-none > most {
			t.Errorf("%s: 300 take %d lines, and 600 take %d", s.Name, small-none, large-none)
		}
	}
}
