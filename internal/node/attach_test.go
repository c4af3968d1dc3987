package node

import (
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/sluice-net/sluice/api"
	"github.com/sluice-net/sluice/internal/vswitch"
	"github.com/sluice-net/sluice/renderer"
	"github.com/sluice-net/sluice/renderer/acl"
	"github.com/sluice-net/sluice/renderer/renderertest"
)

// rig is an Attacher around a recorder, over a vswitch without other interfaces.
type rig struct {
	t        renderertest.Reporter
	sw       *vswitch.Switch
	recorder *renderertest.Recorder
	a        *Attacher
}

func newRig(t renderertest.Reporter) *rig {
	r := &rig{t: t, sw: vswitch.New(vswitch.Options{}), recorder: renderertest.NewRecorder("recorder", t)}
	r.a = NewAttacher(r.recorder, r.sw)
	return r
}

func pod(name string) api.PodID { return api.PodID{Namespace: "demo", Name: name} }

func ips(texts ...string) (out []netip.Addr) {
	for _, s := range texts {
		out = append(out, netip.MustParseAddr(s))
	}
	return out
}

// commit runs one transaction and returns the error of its Apply.
func (r *rig) commit(t testing.TB, resync bool, tell func(*renderer.Changes)) error {
	changes := renderer.Changes{Resync: resync}
	tell(&changes)
	return r.a.Apply(t.Context(), changes)
}

func render(t *renderer.Changes, name string, addrs ...string) {
	t.Render(pod(name), renderer.PodConfig{IPs: ips(addrs...)})
}

// routes returns which pod each address is routed to.
func (r *rig) routes() map[string]string {
	names := map[uint32]string{}
	for _, i := range r.sw.Interfaces() {
		names[i.Index] = i.Name
	}
	out := map[string]string{}
	for _, route := range r.sw.Routes() {
		prefix := netip.MustParsePrefix(route.Prefix)
		out[prefix.Addr().String()] = names[route.SwIfIndex]
		if index, ok := r.a.At(prefix.Addr()); !ok || index != route.SwIfIndex {
			r.t.Errorf("%s is routed to interface %d, and at() says %d, %t", prefix, route.SwIfIndex, index, ok)
		}
	}
	return out
}

// pods returns the tags of the interfaces of pods.
func (r *rig) pods() (tags []string) {
	for _, i := range r.sw.Interfaces() {
		if i.Tag != "" {
			tags = append(tags, i.Tag)
		}
	}
	slices.Sort(tags)
	return tags
}

func want(t testing.TB, what string, got, want any) {
	t.Helper()
	if d := cmp.Diff(want, got); d != "" {
		t.Errorf("%s (-want +got):\n%s", what, d)
	}
}

func TestAttacherAddsTaggedInterfaceAndRoutes(t *testing.T) {
	r := newRig(t)
	if err := r.commit(t, true, func(x *renderer.Changes) { render(x, "a", "10.0.0.1", "fd00::1"); render(x, "b", "10.0.0.2") }); err != nil {
		t.Fatal(err)
	}
	want(t, "interfaces", r.pods(), []string{acl.InterfaceTag(pod("a")), acl.InterfaceTag(pod("b"))})
	want(t, "routes", r.routes(), map[string]string{"10.0.0.1": "pod/demo/a", "fd00::1": "pod/demo/a", "10.0.0.2": "pod/demo/b"})
}

func TestAttacherMovesAddressBetweenPods(t *testing.T) {
	for name, step := range map[string]func(*renderer.Changes){
		"the old pod goes":                 func(x *renderer.Changes) { x.Remove(pod("a")); render(x, "b", "10.0.0.1") },
		"the old pod gets another":         func(x *renderer.Changes) { render(x, "a", "10.0.0.9"); render(x, "b", "10.0.0.1") },
		"the new pod comes first":          func(x *renderer.Changes) { render(x, "b", "10.0.0.1"); x.Remove(pod("a")) },
		"the new pod comes before in name": func(x *renderer.Changes) { render(x, "0", "10.0.0.1") },
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t)
			if err := r.commit(t, true, func(x *renderer.Changes) { render(x, "a", "10.0.0.1") }); err != nil {
				t.Fatal(err)
			}
			if err := r.commit(t, false, step); err != nil {
				t.Fatal(err)
			}
			if got := r.routes()["10.0.0.1"]; got == "" || got == "pod/demo/a" {
				t.Errorf("the address is routed to %q, want the other pod", got)
			}
		})
	}
}

func TestAttacherOfSharedAddressServesOnePod(t *testing.T) {
	r := newRig(t)
	if err := r.commit(t, true, func(x *renderer.Changes) { render(x, "b", "10.0.0.1"); render(x, "a", "10.0.0.1") }); err != nil {
		t.Fatal(err)
	}
	want(t, "both claim it", r.routes(), map[string]string{"10.0.0.1": "pod/demo/a"})
	if err := r.commit(t, false, func(x *renderer.Changes) { x.Remove(pod("a")) }); err != nil {
		t.Fatal(err)
	}
	want(t, "one has left", r.routes(), map[string]string{"10.0.0.1": "pod/demo/b"})
}

func TestAttacherResyncDetachesOtherPods(t *testing.T) {
	r := newRig(t)
	if err := r.commit(t, true, func(x *renderer.Changes) { render(x, "a", "10.0.0.1"); render(x, "b", "10.0.0.2") }); err != nil {
		t.Fatal(err)
	}
	before, _ := r.a.At(ips("10.0.0.2")[0])
	if err := r.commit(t, true, func(x *renderer.Changes) { render(x, "b", "10.0.0.2") }); err != nil {
		t.Fatal(err)
	}
	want(t, "interfaces", r.pods(), []string{acl.InterfaceTag(pod("b"))})
	want(t, "routes", r.routes(), map[string]string{"10.0.0.2": "pod/demo/b"})
	if after, _ := r.a.At(ips("10.0.0.2")[0]); after != before {
		t.Errorf("the pod that stays has interface %d, had %d", after, before)
	}
}

func TestAttacherRestoresAddressesOfReturningPod(t *testing.T) {
	r := newRig(t)
	for range 3 {
		if err := r.commit(t, false, func(x *renderer.Changes) { render(x, "a", "10.0.0.1") }); err != nil {
			t.Fatal(err)
		}
		want(t, "routes", r.routes(), map[string]string{"10.0.0.1": "pod/demo/a"})
		if err := r.commit(t, false, func(x *renderer.Changes) { x.Remove(pod("a")) }); err != nil {
			t.Fatal(err)
		}
		want(t, "interfaces", r.pods(), []string(nil))
	}
}

// TestAttacherAddsNothingAfterFailedCommit: no packet gets to a pod that is not protected, nor to
// one that lost the address; interfaces stay as long as the renderer may bind to them.
func TestAttacherAddsNothingAfterFailedCommit(t *testing.T) {
	r := newRig(t)
	if err := r.commit(t, true, func(x *renderer.Changes) { render(x, "a", "10.0.0.1"); render(x, "b", "10.0.0.2") }); err != nil {
		t.Fatal(err)
	}
	r.recorder.FailNext(renderertest.FailBefore)
	err := r.commit(t, false, func(x *renderer.Changes) {
		x.Remove(pod("a"))
		render(x, "b", "10.0.0.1")
		render(x, "c", "10.0.0.3")
	})
	if !errors.Is(err, renderertest.ErrInjected) {
		t.Fatalf("the error is %v, want the renderer's", err)
	}
	want(t, "routes after the failure", r.routes(), map[string]string{})
	want(t, "interfaces after the failure", r.pods(), []string{acl.InterfaceTag(pod("a")), acl.InterfaceTag(pod("b")), acl.InterfaceTag(pod("c"))})
	if err := r.commit(t, false, func(*renderer.Changes) {}); err != nil {
		t.Fatal(err)
	}
	want(t, "routes after the retry", r.routes(), map[string]string{"10.0.0.1": "pod/demo/b", "10.0.0.3": "pod/demo/c"})
	want(t, "interfaces after the retry", r.pods(), []string{acl.InterfaceTag(pod("b")), acl.InterfaceTag(pod("c"))})
}

// TestAttacherRoutesDependOnStateOnly: whatever transactions, failures and resyncs led to
// a state, after an Apply that worked the routes and interfaces are those of the state.
func TestAttacherRoutesDependOnStateOnly(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		r := newRig(rt)
		state := map[string][]string{}
		for range rapid.IntRange(1, 12).Draw(rt, "steps") {
			if rapid.Bool().Draw(rt, "fails") {
				r.recorder.FailNext(rapid.SampledFrom([]renderertest.Failure{renderertest.FailBefore, renderertest.FailAfter}).Draw(rt, "how"))
			}
			resync := rapid.Bool().Draw(rt, "resync")
			change := rapid.MapOfN(rapid.SampledFrom([]string{"a", "b", "c"}), addresses(), 0, 3).Draw(rt, "change")
			if resync {
				clear(state)
			}
			maps.Copy(state, change)
			err := r.commit(t, resync, func(x *renderer.Changes) {
				for _, name := range slices.Sorted(maps.Keys(change)) {
					if len(change[name]) == 0 {
						delete(state, name)
						x.Remove(pod(name))
						continue
					}
					render(x, name, change[name]...)
				}
			})
			if err != nil {
				continue
			}
			routes, tags := map[string]string{}, []string(nil)
			for _, name := range slices.Backward(slices.Sorted(maps.Keys(state))) {
				tags = append(tags, acl.InterfaceTag(pod(name)))
				for _, ip := range state[name] {
					routes[ip] = "pod/demo/" + name
				}
			}
			slices.Sort(tags)
			if d := cmp.Diff(routes, r.routes()) + cmp.Diff(tags, r.pods()); d != "" {
				rt.Fatalf("state %v (-want +got):\n%s", state, d)
			}
		}
	})
}

// addresses draws some of a few addresses, so that pods often share one.
func addresses() *rapid.Generator[[]string] {
	return rapid.Custom(func(t *rapid.T) (out []string) {
		for i := range 3 {
			if rapid.Bool().Draw(t, "has") {
				out = append(out, fmt.Sprintf("10.0.0.%d", i+1))
			}
		}
		return out
	})
}
