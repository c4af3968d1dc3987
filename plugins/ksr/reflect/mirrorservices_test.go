package reflect

import (
	"slices"
	"testing"

	"github.com/sluice-net/sluice/api/model"
	"github.com/sluice-net/sluice/tests/lab/memstore"
)

// TestMirrorWritesPolicyWithoutServices: without the right to list services, policy is reflected,
// and services in the store stay until they are listed.
func TestMirrorWritesPolicyWithoutServices(t *testing.T) {
	service := func(name string) *model.Service { return &model.Service{Namespace: "shop", Name: name} }
	inBench(t, func(t *testing.T, b *mirrorBench) {
		kinds := append(slices.Clone(mirrorKinds), model.KindService, model.KindEndpointSlice)
		b.Mirror = NewMirror(memstore.Prefix, kinds, discard())
		b.Identify(Identity{Cluster: "test", Writer: "test"})
		for _, name := range []string{"kept", "old"} {
			value, err := model.Encode(service(name))
			if err != nil {
				t.Fatal(err)
			}
			b.store.Values[model.Key(memstore.Prefix, model.ID{Kind: model.KindService, Namespace: "shop", Name: name})] = value
		}
		b.fill(t)
		b.run(t)
		b.wantOps(t, "put networkpolicy/shop/p", "put namespace/_/shop", "put pod/shop/a", "put pod/shop/b")
		if s := b.Status(); len(s.Missing) != 0 || !slices.Equal(s.Late, kinds[3:]) || !s.Synced || s.Objects[model.KindService] != 2 {
			t.Errorf("status is %+v", s)
		}
		if c := b.store.Marker().Counts; c[model.KindService] != 2 || c[model.KindPod] != 2 {
			t.Errorf("the marker counts %v", c)
		}
		b.replace(t, model.KindService, service("new"), service("kept"))
		b.wantOps(t, "put service/shop/new", "delete service/shop/old")
		b.replace(t, model.KindPod, pods("a", "b", "c")...)
		b.wantOps(t, "put pod/shop/c")
		b.replace(t, model.KindEndpointSlice)
		if s := b.Status(); len(s.Late) != 0 || s.Objects[model.KindService] != 2 {
			t.Errorf("status is %+v", s)
		}
	})
}
