package keeper_test

import (
	"context"
	"errors"
	"net/netip"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"testing"
	"time"

	"github.com/vishvananda/netlink"

	"github.com/sluice-net/sluice/api"
	"github.com/sluice-net/sluice/plugins/endpoints"
	"github.com/sluice-net/sluice/plugins/endpoints/gate"
	"github.com/sluice-net/sluice/plugins/endpoints/keeper"
	"github.com/sluice-net/sluice/plugins/endpoints/wire"
	"github.com/sluice-net/sluice/tests/lab/wires"
)

// station is a node with a keeper.
type station struct {
	*wires.Cable
	cfg    keeper.Config
	k      *keeper.Keeper
	netns  string
	stop   func()
	pins   string
	prompt chan struct{}
}

// newStation makes a node with pods and a keeper that is not started.
func newStation(t *testing.T, pods ...string) *station {
	t.Helper()
	s := &station{Cable: wires.New(t, pods...), prompt: make(chan struct{}, 1)}
	s.netns, s.pins = s.Names(), filepath.Join(wires.BPFFS(t), "sluice")
	dir := t.TempDir()
	s.cfg = keeper.Config{
		BlockNew: true, Results: filepath.Join(dir, "results"), NetNS: s.netns, CNIConf: filepath.Join(dir, "net.d"),
		File: filepath.Join(dir, "endpoints"), Node: "node-1",
	}
	for _, folder := range []string{s.cfg.Results, s.cfg.CNIConf} {
		s.Must(os.Mkdir(folder, 0o700))
	}
	s.stop = func() {}
	t.Cleanup(func() { s.stop() })
	return s
}

// start starts a keeper, as an agent does at its start, and stops the previous one.
func (s *station) start() {
	s.T.Helper()
	s.stop()
	g := gate.New(s.pins)
	s.cfg.Gate = g
	var err error
	s.k, err = keeper.New(s.cfg)
	s.Must(err)
	ctx, cancel := context.WithCancel(context.Background())
	started, ended := make(chan error, 1), make(chan error, 1)
	go func() {
		ended <- wires.Inside(s.Node, func() error {
			err := s.k.Start()
			started <- err
			if err != nil {
				return err
			}
			return s.k.Run(ctx)
		})
	}()
	s.Must(<-started)
	s.stop = func() {
		cancel()
		if err := <-ended; !errors.Is(err, context.Canceled) {
			s.T.Errorf("following ended with %v", err)
		}
		s.Must(g.Close())
		s.stop = func() {}
	}
}

// in calls f at the node.
func (s *station) in(f func() error) {
	s.T.Helper()
	s.Must(wires.Inside(s.Node, f))
}

// state returns the endpoint of the interface of a pod.
func (s *station) state(pod string) (out endpoints.Endpoint) {
	for _, e := range s.k.Endpoints() {
		if e.Link.Index == uint32(s.Pods[pod].Index) {
			out = e
		}
	}
	return out
}

// becomes waits for a state until a deadline.
func (s *station) becomes(pod string, want endpoints.State) {
	s.T.Helper()
	for end := time.Now().Add(wires.Patience); ; time.Sleep(time.Millisecond) {
		e := s.state(pod)
		if e.State == want {
			return
		}
		if time.Now().After(end) {
			s.T.Fatalf("interface of %s is %+v, want %s; there are %+v", pod, e, want, s.k.Endpoints())
		}
	}
}

// enforce does what an Apply with these pods does.
func (s *station) enforce(pods ...string) {
	s.T.Helper()
	s.in(func() error {
		known, ends := map[api.PodID]bool{}, map[uint32]api.PodID{}
		for _, pod := range pods {
			id := api.PodID{Namespace: "demo", Name: pod}
			known[id] = true
			for _, index := range s.k.Interfaces(id, []netip.Addr{s.Pods[pod].V4, s.Pods[pod].V6}) {
				ends[index] = id
			}
		}
		s.k.Enforced(known, ends)
		return nil
	})
}

func (s *station) registration(pod, container string) wire.Registration {
	h := s.Pods[pod]
	r := wire.Registration{
		Attachment: wire.Attachment{ContainerID: container, IfName: "eth0"}, Namespace: "demo", Name: pod,
		HostIf: "h-" + pod, HostIndex: uint32(h.Index), Addresses: []netip.Addr{h.V4, h.V6},
	}
	s.in(func() error {
		l, err := netlink.LinkByIndex(h.Index)
		if err == nil {
			r.HostMAC = l.Attrs().HardwareAddr.String()
		}
		return err
	})
	return r
}

func (s *station) register(pod, container string) {
	s.T.Helper()
	s.in(func() error { _, err := s.k.Register(s.registration(pod, container)); return err })
}

func TestKeeperFindsPodsByRecordedNamespaces(t *testing.T) {
	s := newStation(t, "a", "b")
	s.start()
	s.Can(true, "what nobody looks after", "a", "b", "icmp", 4, 0)
	s.Result(s.cfg.Results, s.netns, "a", "c1")
	s.becomes("a", endpoints.StatePending)
	s.Can(false, "a pod without policy yet", "b", "a", "icmp", 4, 0)
	s.enforce("a")
	s.becomes("a", endpoints.StateEnforced)
	s.Can(true, "an enforced pod", "b", "a", "icmp", 4, 0)
	if e := s.state("a"); e.Source != endpoints.SourceNamespace || e.Pod.String() != "demo/a" {
		t.Errorf("the endpoint is %+v", e)
	}
	if e, err := s.k.Wait(t.Context(), wire.Attachment{ContainerID: "c1", IfName: "eth0"}, time.Minute); err != nil || e.State != "enforced" {
		t.Errorf("waiting for an attachment that only CNI's result names: %+v, %v", e, err)
	}
	if e := s.state("b"); e.State != "" {
		t.Errorf("what is no pod's is %+v", e)
	}
	s.enforce() // the pod is gone, its interface is not
	s.becomes("a", endpoints.StateOrphaned)
	s.Can(false, "an orphan", "b", "a", "icmp", 6, 0)
}

// TestKeeperFailureChangesNothing breaks everything that a keeper reads.
func TestKeeperFailureChangesNothing(t *testing.T) {
	s := newStation(t, "a", "b")
	s.Result(s.cfg.Results, s.netns, "a", "c1")
	s.start()
	s.enforce("a")
	s.becomes("a", endpoints.StateEnforced)
	s.Must(os.WriteFile(filepath.Join(s.cfg.Results, "pods-c1-eth0"), []byte(`{"kind": "cniCacheV1", "contai`), 0o600))
	s.Must(os.WriteFile(filepath.Join(s.cfg.Results, "other"), make([]byte, 2<<20), 0o600))
	for range 2 {
		s.start() // which reads the saved claims
		s.enforce("a")
		s.becomes("a", endpoints.StateEnforced)
		s.Must(os.RemoveAll(s.cfg.Results))
	}
	if len(s.k.Problems()) == 0 {
		t.Error("nothing is said of results that are not there")
	}
	s.in(func() error { // routes and neighbours are ignored
		l, err := netlink.LinkByIndex(s.Pods["a"].Index)
		if err != nil {
			return err
		}
		routes, err := netlink.RouteList(l, netlink.FAMILY_ALL)
		if err != nil {
			return err
		}
		for _, r := range routes {
			err = errors.Join(err, netlink.RouteDel(&r))
		}
		return err
	})
	s.enforce("a")
	s.becomes("a", endpoints.StateEnforced)
}

func TestKeeperBlocksNewInterfacesOfPods(t *testing.T) {
	for _, scope := range []string{"named", "learned"} {
		t.Run(scope, func(t *testing.T) {
			s := newStation(t, "a", "b")
			if scope == "named" {
				s.cfg.Scope = keeper.Scope{Prefixes: []string{"h-"}}
			} else {
				s.Must(os.WriteFile(filepath.Join(s.cfg.CNIConf, "10.conflist"), []byte(`{"plugins": [{"type": "bridge", "bridge": "pods0"}, {"type": "portmap"}]}`), 0o600))
				s.bridge("pods0", "a")
				s.bridge("other0", "b")
			}
			s.start()
			s.becomes("a", endpoints.StateUnknown)
			s.Can(false, "an interface of nobody", "a", "b", "icmp", 4, 0)
			s.in(func() error { return wires.Unplug(s.Pods["a"].Index) })
			s.Plug(s.Pods["a"])
			if scope == "learned" {
				if e := s.state("b"); e.State != "" {
					t.Errorf("a port of another bridge is %+v", e)
				}
				s.join("pods0", "a")
			}
			s.becomes("a", endpoints.StateUnknown)
			s.blocked("a")
			if scope == "learned" { // it gets another owner
				s.join("other0", "a")
				for end := time.Now().Add(wires.Patience); s.state("a").State != "" && time.Now().Before(end); {
					runtime.Gosched()
				}
				s.open("a")
			}
		})
	}
}

// blocked waits until the gate of a pod is closed, and open until it is open.
func (s *station) blocked(pod string) { s.T.Helper(); s.gate(pod, true) }
func (s *station) open(pod string)    { s.T.Helper(); s.gate(pod, false) }

func (s *station) gate(pod string, want bool) {
	s.T.Helper()
	for end := time.Now().Add(wires.Patience); ; time.Sleep(time.Millisecond) {
		var got []uint32
		s.in(func() (err error) {
			got, err = gate.New(s.pins).Blocked()
			return err
		})
		if slices.Contains(got, uint32(s.Pods[pod].Index)) == want {
			return
		}
		if time.Now().After(end) {
			s.T.Fatalf("interfaces %v are blocked; of %s that must be %t", got, pod, want)
		}
	}
}

// bridge creates a bridge with a pod as its port.
func (s *station) bridge(name, pod string) {
	s.in(func() error {
		a := netlink.NewLinkAttrs()
		a.Name = name
		b := &netlink.Bridge{LinkAttrs: a}
		return errors.Join(netlink.LinkAdd(b), netlink.LinkSetUp(b))
	})
	s.join(name, pod)
}

func (s *station) join(bridge, pod string) {
	s.in(func() error {
		b, err := netlink.LinkByName(bridge)
		if err != nil {
			return err
		}
		l, err := netlink.LinkByIndex(s.Pods[pod].Index)
		if err != nil {
			return err
		}
		return netlink.LinkSetMaster(l, b)
	})
}

// TestKeeperTracksInterfacesFromBirthToDeath covers the life of a pod that a plugin registers.
func TestKeeperTracksInterfacesFromBirthToDeath(t *testing.T) {
	s := newStation(t, "a", "b")
	s.start()
	a := wire.Attachment{ContainerID: "c1", IfName: "eth0"}
	if _, err := s.k.Wait(t.Context(), a, time.Minute); !errors.Is(err, keeper.ErrUnregistered) {
		t.Errorf("waiting for nothing: %v", err)
	}
	for range 2 {
		s.register("a", "c1")
		s.Can(false, "what was just registered", "b", "a", "icmp", 4, 0)
	}
	if e, err := s.k.Wait(t.Context(), a, time.Millisecond); err != nil || e.State != "pending" || e.Pod != "demo/a" {
		t.Errorf("waiting without policy: %+v, %v", e, err)
	}
	waited := make(chan wire.Endpoint)
	go func() {
		e, err := s.k.Wait(context.Background(), a, time.Minute)
		if err != nil {
			t.Error(err)
		}
		waited <- e
	}()
	s.enforce("a")
	if e := <-waited; e.State != wire.Enforced {
		t.Errorf("waiting ended with %+v", e)
	}
	s.Can(true, "an enforced pod", "b", "a", "icmp", 4, 0)
	s.in(func() error { // a renamed interface stays the same
		l, err := netlink.LinkByIndex(s.Pods["a"].Index)
		if err != nil {
			return err
		}
		return errors.Join(netlink.LinkSetDown(l), netlink.LinkSetName(l, "renamed"), netlink.LinkSetUp(l))
	})
	for end := time.Now().Add(wires.Patience); s.state("a").Link.Name != "renamed" && time.Now().Before(end); {
		time.Sleep(time.Millisecond)
	}
	s.becomes("a", endpoints.StateEnforced)
	s.in(func() error { return s.k.Remove(a) })
	s.becomes("a", endpoints.StateOrphaned)
	s.Can(false, "what was given up", "b", "a", "icmp", 4, 0)
	s.in(func() error { return s.k.Remove(a) })
	s.enforce("a")
	s.becomes("a", endpoints.StateOrphaned)

	h := s.Pods["a"] // recreated with the same name, addresses, and even index
	index := h.Index
	s.in(func() error { return wires.Unplug(index) })
	s.PlugAs(h, index)
	s.register("a", "c2")
	s.becomes("a", endpoints.StatePending)
	s.Can(false, "the next life of the pod", "b", "a", "icmp", 4, 0)
	s.enforce("a")
	s.becomes("a", endpoints.StateEnforced)
	s.Can(true, "the next life of the pod", "b", "a", "icmp", 4, 0)
	s.in(func() error { return wires.Unplug(index) })
	for end := time.Now().Add(wires.Patience); len(s.k.Endpoints()) > 0 && time.Now().Before(end); {
		time.Sleep(time.Millisecond)
	}
	s.stop()
	if pins, _ := filepath.Glob(filepath.Join(s.pins, "*")); len(pins) > 0 {
		t.Errorf("%v is left behind", pins)
	}
}

func TestKeeperBlocksInterfacesClaimedTwice(t *testing.T) {
	s := newStation(t, "a", "b")
	s.start()
	s.register("a", "c1")
	s.register("b", "c2")
	s.enforce("a", "b")
	s.Can(true, "before", "b", "a", "icmp", 4, 0)
	r := s.registration("a", "c3")
	r.Name = "b"
	s.in(func() error { _, err := s.k.Register(r); return err })
	for _, pod := range []string{"a", "b"} {
		s.becomes(pod, endpoints.StateConflicting)
		s.blocked(pod)
	}
	s.enforce("a", "b")
	s.becomes("a", endpoints.StateConflicting)
	s.in(func() error { return s.k.Remove(r.Attachment) })
	s.enforce("a", "b")
	s.becomes("a", endpoints.StateEnforced)
	s.Can(true, "after", "b", "a", "icmp", 4, 0)
}

func TestKeeperRefusesMissingInterface(t *testing.T) {
	s := newStation(t, "a")
	s.start()
	for name, change := range map[string]func(*wire.Registration){
		"index":     func(r *wire.Registration) { r.HostIndex++ },
		"no index":  func(r *wire.Registration) { r.HostIndex = 0 },
		"mac":       func(r *wire.Registration) { r.HostMAC = "02:00:00:00:00:99" },
		"no mac":    func(r *wire.Registration) { r.HostMAC = "x" },
		"loopback":  func(r *wire.Registration) { r.HostIndex, r.HostMAC = 1, "00:00:00:00:00:00" },
		"no name":   func(r *wire.Registration) { r.Name = "" },
		"a path":    func(r *wire.Registration) { r.ContainerID = "../x" },
		"long name": func(r *wire.Registration) { r.Name = string(make([]byte, 300)) },
	} {
		r := s.registration("a", "c1")
		change(&r)
		s.in(func() error {
			if _, err := s.k.Register(r); err == nil {
				t.Errorf("%s: %+v is accepted", name, r)
			}
			return nil
		})
	}
	if len(s.k.Endpoints()) > 0 {
		t.Errorf("what was refused left %+v", s.k.Endpoints())
	}
}

// TestKeeperReleasesNoAllowedInterface releases interfaces, as an Apply does.
func TestKeeperReleasesNoAllowedInterface(t *testing.T) {
	s := newStation(t, "a", "b")
	s.start()
	s.in(func() error { return s.k.Release(uint32(s.Pods["a"].Index)) })
	s.Can(false, "what was let go of", "b", "a", "icmp", 4, 0)
	s.becomes("a", endpoints.StateUnknown)
	s.in(func() error { return s.k.Release(9999) }) // which does not exist
}

// TestKeeperMovesGatesAgain lets another process open a gate, and close one.
func TestKeeperMovesGatesAgain(t *testing.T) {
	s := newStation(t, "a", "b")
	s.start()
	s.register("a", "c1")
	s.register("b", "c2")
	s.enforce("a")
	s.blocked("b")
	g := gate.New(s.pins)
	s.in(func() error {
		return errors.Join(g.Open(uint32(s.Pods["b"].Index)), g.Block(uint32(s.Pods["a"].Index)), g.Close())
	})
	s.in(s.k.LookAround)
	s.blocked("b")
	s.open("a")
}
