package acl_test

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"go.fd.io/govpp/binapi/acl"
	"go.fd.io/govpp/binapi/acl_types"
	interfaces "go.fd.io/govpp/binapi/interface"
	"go.fd.io/govpp/binapi/interface_types"
	"go.fd.io/govpp/binapi/ip_types"
	"go.fd.io/govpp/core"

	"github.com/sluice-net/sluice/api"
	"github.com/sluice-net/sluice/internal/vswitch"
	"github.com/sluice-net/sluice/renderer"
	sluiceacl "github.com/sluice-net/sluice/renderer/acl"
	vpptag "github.com/sluice-net/sluice/renderer/vpp"
)

// connect connects to the vswitch like a CNI plugin.
func (s *subject) connect(t *testing.T, do func(*core.Connection) error) {
	t.Helper()
	conn, err := core.Connect(s.sw.Adapter())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Disconnect()
	if err := do(conn); err != nil {
		t.Fatal(err)
	}
}

// down creates an interface that is down, like a CNI plugin.
func (s *subject) down(t *testing.T, name, tag string) (index uint32) {
	t.Helper()
	index = s.sw.AddInterface(name, tag)
	s.connect(t, func(conn *core.Connection) error {
		_, err := interfaces.NewServiceClient(conn).SwInterfaceSetFlags(t.Context(), &interfaces.SwInterfaceSetFlags{SwIfIndex: interface_types.InterfaceIndex(index)})
		return err
	})
	return index
}

// makes creates an interface with its MACIP list, like sluice-cni.
func (s *subject) makes(t *testing.T, name, tag, uid string, ips ...string) (index uint32) {
	t.Helper()
	index = s.down(t, name, tag)
	_, hostIf, _ := strings.Cut(name, "-")
	list := &acl.MacipACLAdd{Tag: vpptag.SourceTag(hostIf, uid)}
	for _, ip := range slices.Concat(ips, []string{"fe80::/10", "0.0.0.0/0", "::/0"}) {
		p, err := netip.ParsePrefix(ip)
		if err != nil {
			p = netip.PrefixFrom(netip.MustParseAddr(ip), netip.MustParseAddr(ip).BitLen())
		}
		action := acl_types.ACL_ACTION_API_PERMIT
		if p.Bits() == 0 {
			action = acl_types.ACL_ACTION_API_DENY
		}
		list.R = append(list.R, acl_types.MacipACLRule{IsPermit: action, SrcPrefix: ip_types.Prefix{Address: ip_types.NewAddress(p.Addr().AsSlice()), Len: uint8(p.Bits())}})
	}
	s.connect(t, func(conn *core.Connection) error {
		client := acl.NewServiceClient(conn)
		added, err := client.MacipACLAdd(t.Context(), list)
		if err == nil {
			_, err = client.MacipACLInterfaceAddDel(t.Context(), &acl.MacipACLInterfaceAddDel{IsAdd: true, SwIfIndex: interface_types.InterfaceIndex(index), ACLIndex: added.ACLIndex})
		}
		return err
	})
	return index
}

// TestRaiseSetsUpInterfacesOfCNIPlugin: only interfaces of a CNI plugin are set up, once they have
// the rules of their pod or are blocked.
func TestRaiseSetsUpInterfacesOfCNIPlugin(t *testing.T) {
	for name, hold := range map[string]bool{"blocked until the pod is known": true, "open until the pod is known": false} {
		t.Run(name, func(t *testing.T) {
			s := openWith(t, nil, hold, shopPods[1:]...)
			tap, memory := s.makes(t, "tap-slu4", sluiceacl.InterfaceTag(shopPods[1]), ""), s.makes(t, "memif-slu5", sluiceacl.InterfaceTag(shopPods[2]), "")
			pods, stranger, other := s.makes(t, "host-slu1", sluiceacl.InterfaceTag(shopPods[0]), ""), s.makes(t, "host-slu2", sluiceacl.InterfaceTag(pod("stranger")), ""), s.down(t, "memif7", "")
			theirs, unfinished := s.down(t, "host-eth7", sluiceacl.InterfaceTag(shopPods[0])), s.down(t, "host-slu3", sluiceacl.InterfaceTag(shopPods[0]))
			listed := s.makes(t, "host-eth8", sluiceacl.InterfaceTag(shopPods[0]), "") // only its MACIP list is like the plugin's
			ticket := s.r.Ask()
			if b, known := s.r.Bound("host-slu1", ticket); known {
				t.Errorf("before an Apply it has %+v", b)
			}
			if err := try(t, s.r, true, shop); err != nil && !errors.Is(err, renderer.ErrNoInterface) {
				t.Fatal(err)
			}
			want := map[uint32]bool{pods: true, tap: true, memory: true, stranger: hold, other: false, theirs: false, listed: false, unfinished: false}
			for index, up := range want {
				all := s.sw.Interfaces()
				i := slices.IndexFunc(all, func(n vswitch.Interface) bool { return n.Index == index })
				if all[i].Up != up {
					t.Errorf("interface %s is up: %t, want %t", all[i].Name, all[i].Up, up)
				}
			}
			if b, known := s.r.Bound("host-slu1", ticket); !known || b.Pod != shopPods[0] || b.State != vpptag.BoundEnforced || b.Index != pods || b.Reason != "" {
				t.Errorf("after the Apply it has %+v, %t", b, known)
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

// TestRaiseRefusesInterfaceOfOtherLife: the interface is blocked until the state knows the pod
// that it was made for. Policy gets the addresses of that pod.
func TestRaiseRefusesInterfaceOfOtherLife(t *testing.T) {
	s := newSubjectWith(t, nil, false, shopPods[1:]...)
	var lives sluiceacl.PodIdentities
	s.options.Pods.Refuses = lives.Refuses
	if err := s.r.Close(); err != nil {
		t.Fatal(err)
	}
	s.r = s.open()
	t.Cleanup(func() { _ = s.Close() })
	say := func(uid string, ips ...string) {
		life := &sluiceacl.PodIdentity{UID: uid}
		for _, ip := range ips {
			life.IPs = append(life.IPs, netip.MustParseAddr(ip))
		}
		if !lives.Identify(map[api.PodID]*sluiceacl.PodIdentity{shopPods[0]: life}, false) {
			t.Fatal("nothing is to be looked at")
		}
		s.r.InterfacesChanged()
	}
	want := func(state, reason string, registered ...string) {
		t.Helper()
		if err := try(t, s.r, false, shop); err != nil && !errors.Is(err, renderer.ErrNoInterface) {
			t.Fatal(err)
		}
		all := s.r.Endpoints()
		i := slices.IndexFunc(all, func(b vpptag.Bound) bool { return b.Name == "host-slu1" })
		if i < 0 || all[i].State != state || !strings.Contains(all[i].Reason, reason) || all[i].UID != "new" {
			t.Errorf("endpoints are %+v, want %s: %s", all, state, reason)
		}
		if got := fmt.Sprint(lives.Registered(s.r.Made())[shopPods[0]]); got != fmt.Sprint(registered) {
			t.Errorf("registered are %s, want %v", got, registered)
		}
	}
	say("old", "10.0.0.9")
	s.makes(t, "host-slu1", sluiceacl.InterfaceTag(shopPods[0]), "new", "10.0.0.7", "fd00::7")
	if err := try(t, s.r, true, shop); err != nil && !errors.Is(err, renderer.ErrNoInterface) {
		t.Fatal(err)
	}
	want(vpptag.BoundPending, "policy knows another pod of this name, uid old")
	say("new")
	want(vpptag.BoundEnforced, "", "10.0.0.7", "fd00::7")
	since := s.r.Endpoints()[0].Since
	want(vpptag.BoundEnforced, "", "10.0.0.7", "fd00::7")
	if s.r.Endpoints()[0].Since != since {
		t.Error("a Commit that changes nothing begins a state")
	}
	say("new", "10.0.0.8")
	want(vpptag.BoundPending, "policy knows its pod by other addresses, [10.0.0.8]")
	say("newer")
	want(vpptag.BoundPending, "policy knows another pod of this name, uid newer")
	lives.Identify(nil, true)
	s.r.InterfacesChanged()
	want(vpptag.BoundEnforced, "")
}
