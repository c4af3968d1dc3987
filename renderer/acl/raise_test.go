package acl_test

import (
	"errors"
	"slices"
	"testing"

	interfaces "go.fd.io/govpp/binapi/interface"
	"go.fd.io/govpp/binapi/interface_types"
	"go.fd.io/govpp/core"

	"github.com/sluice-net/sluice/api"
	"github.com/sluice-net/sluice/internal/vswitch"
	"github.com/sluice-net/sluice/renderer"
	sluiceacl "github.com/sluice-net/sluice/renderer/acl"
)

// down makes an interface that is down, as a CNI plugin does.
func (s *subject) down(t *testing.T, name, tag string) (index uint32) {
	t.Helper()
	index = s.sw.AddInterface(name, tag)
	conn, err := core.Connect(s.sw.Adapter())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Disconnect()
	if _, err := interfaces.NewServiceClient(conn).SwInterfaceSetFlags(t.Context(), &interfaces.SwInterfaceSetFlags{SwIfIndex: interface_types.InterfaceIndex(index)}); err != nil {
		t.Fatal(err)
	}
	return index
}

// TestRaiseSetsUpWhatACNIPluginMade once it has the rules of its pod or is blocked, and nothing else.
func TestRaiseSetsUpWhatACNIPluginMade(t *testing.T) {
	for name, hold := range map[string]bool{"blocked until the pod is known": true, "open until the pod is known": false} {
		t.Run(name, func(t *testing.T) {
			s := openWith(t, nil, hold, shopPods[1:]...)
			pods, stranger, other := s.down(t, "host-slu1", sluiceacl.InterfaceTag(shopPods[0])), s.down(t, "host-slu2", sluiceacl.InterfaceTag(pod("stranger"))), s.down(t, "memif7", "")
			theirs := s.down(t, "host-eth7", sluiceacl.InterfaceTag(shopPods[0]))
			ticket := s.r.Ask()
			if b, known := s.r.Bound("host-slu1", ticket); known {
				t.Errorf("before a commit it has %+v", b)
			}
			if err := try(t, s.r, true, shop); err != nil && !errors.Is(err, renderer.ErrNoInterface) {
				t.Fatal(err)
			}
			want := map[uint32]bool{pods: true, stranger: hold, other: false, theirs: false}
			for index, up := range want {
				all := s.sw.Interfaces()
				i := slices.IndexFunc(all, func(n vswitch.Interface) bool { return n.Index == index })
				if all[i].Up != up {
					t.Errorf("interface %s is up: %t, want %t", all[i].Name, all[i].Up, up)
				}
			}
			if b, known := s.r.Bound("host-slu1", ticket); !known || b != (sluiceacl.Bound{Pod: shopPods[0]}) {
				t.Errorf("after the commit it has %+v, %t", b, known)
			}
			if b, known := s.r.Bound("host-slu2", ticket); known != hold || hold && (b.Pod != (api.PodID{}) || b.Reason == "") {
				t.Errorf("the interface of a pod that is not known has %+v, %t", b, known)
			}
			if b, known := s.r.Bound("host-slu1", s.r.Ask()); known {
				t.Errorf("asked again, before another commit, it has %+v", b)
			}
		})
	}
}
