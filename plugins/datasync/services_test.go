package datasync_test

import (
	"strings"
	"testing"

	"google.golang.org/protobuf/proto"

	"github.com/sluice-net/sluice/api/model"
	"github.com/sluice-net/sluice/internal/kvstore/embedded"
	"github.com/sluice-net/sluice/plugins/datasync"
	"github.com/sluice-net/sluice/plugins/ksr/reflect"
	"github.com/sluice-net/sluice/tests/lab/etcd/inprocess"
)

// TestWatcherSkipsServices: policy does not depend on them, so they are not delivered. They are held
// and counted as all other objects, and their errors are reported.
func TestWatcherSkipsServices(t *testing.T) {
	s := inprocess.Start(t, embedded.Config{ClientURL: inprocess.Loopback})
	client := s.Client()
	reflector := reflect.NewReflector(client, model.DefaultPrefix, quiet)
	objects := []proto.Message{
		&model.Service{Namespace: "shop", Name: "web"}, &model.EndpointSlice{Namespace: "shop", Name: "web"},
	}
	if _, err := reflector.Apply(t.Context(), append(objects, newPod("a", ""))); err != nil {
		t.Fatal(err)
	}
	c := runBare(t, datasync.Config{Store: dial(t, s)})
	want := state{}.add(newPod("a", ""))
	c.reach(t, want)
	if _, err := reflector.Apply(t.Context(), []proto.Message{&model.Service{Namespace: "shop", Name: "web", Headless: true}, &model.Service{Namespace: "shop", Name: "db"}, newPod("b", "")}); err != nil {
		t.Fatal(err)
	}
	want.add(newPod("b", ""))
	c.reach(t, want)
	c.await(t, "the count of all objects", func(s datasync.Status) bool {
		return s.Marker != nil && s.Marker.Counts[model.KindService] == 2 && s.Marker.Counts[model.KindEndpointSlice] == 1 && s.Objects == 5
	})
	key := model.Key(model.DefaultPrefix, model.ID{Kind: model.KindService, Namespace: "shop", Name: "web"})
	writeRaw(t, client, []model.Entry{{Key: key, Value: []byte("garbage")}})
	if p := <-c.problems; p.Object != "Service shop/web" || !strings.Contains(p.Reason, "decode") {
		t.Errorf("the problem is %v", p)
	}
	if _, err := reflector.Delete(t.Context(), []model.ID{{Kind: model.KindService, Namespace: "shop", Name: "web"}, {Kind: model.KindService, Namespace: "shop", Name: "db"}}); err != nil {
		t.Fatal(err)
	}
	c.await(t, "the count without services", func(s datasync.Status) bool {
		return s.Marker.Counts[model.KindService] == 0 && s.Problems == 0 && s.Incomplete == ""
	})
	if len(c.view) != 2 {
		t.Errorf("the view is %v", c.view)
	}
}
