package cache

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"google.golang.org/protobuf/proto"
	"pgregory.net/rapid"

	"github.com/sluice-net/sluice/api"
	"github.com/sluice-net/sluice/api/model"
	_ "github.com/sluice-net/sluice/renderer/renderertest" // defines how much rapid draws
)

func registeredAs(ips ...string) map[api.PodID][]netip.Addr {
	out := map[api.PodID][]netip.Addr{}
	for _, pair := range ips {
		name, ip, _ := strings.Cut(pair, "=")
		id := api.PodID{Namespace: "ns", Name: name}
		out[id] = append(out[id], netip.MustParseAddr(ip))
	}
	return out
}

// ipsOf returns the addresses of all pods, as "name[addresses]".
func ipsOf(c *Cache) (out []string) {
	for _, p := range c.Pods() {
		out = append(out, fmt.Sprint(p.ID.Name, p.IPs))
	}
	return out
}

func podIn(name, node string, ips ...string) *model.Pod {
	return &model.Pod{Namespace: "ns", Name: name, NodeName: node, Ips: ips}
}

func TestRegisteredAddressesCountUntilState(t *testing.T) {
	c, d := New(), &diary{}
	step := func(want string, ms ...proto.Message) {
		t.Helper()
		c.Update(changes(ms...), d)
		if got := strings.Join(ipsOf(c), " "); got != want {
			t.Errorf("pods have %s, want %s", got, want)
		}
	}
	c.Register("n1", registeredAs("a=10.0.0.1", "other=10.0.0.2", "late=10.0.0.3"))
	step("a[10.0.0.1] other[]", podIn("a", "n1"), podIn("other", "n2"))
	step("a[10.0.0.1] late[10.0.0.3] other[]", podIn("late", "n1"))
	d.take()
	step("a[10.0.0.1] late[10.0.0.3] other[]", podIn("late", "n1"))
	if reported := d.take(); len(reported) > 0 {
		t.Errorf("what changes nothing is reported: %v", reported)
	}
	step("a[10.0.0.1] late[10.0.0.4] other[]", podIn("late", "n1", "10.0.0.4"))
	step("a[10.0.0.1] late[10.0.0.3] other[]", podIn("late", "n1"))
	c.Register("n1", nil)
	step("a[] late[] other[]")
}

// TestRegisteredAddressOfNodeIsNotUsed: the address of the pod's node, in the pod's status
// or in the Node object.
func TestRegisteredAddressOfNodeIsNotUsed(t *testing.T) {
	c := New()
	a, b := podIn("a", "n1"), podIn("b", "n1")
	a.NodeIps = []string{"192.168.0.1"}
	c.Register("n1", registeredAs("a=192.168.0.1", "b=192.168.0.2", "c=169.254.1.1", "d=255.255.255.255"))
	found := c.Update(changes(&model.Node{Name: "n1", Addresses: []string{"192.168.0.2"}}, a, b, podIn("c", "n1"), podIn("d", "n1")), &diary{})
	if got := strings.Join(ipsOf(c), " "); got != "a[] b[] c[] d[]" || len(found) != 4 {
		t.Errorf("pods have %s, problems %v", got, found)
	}
}

func TestRegisteredAddressOfOtherPodIsNotUsed(t *testing.T) {
	c, d := New(), &diary{}
	c.Register("", registeredAs("a=10.0.0.1", "b=10.0.0.2", "c=10.0.0.2", "d=127.0.0.1"))
	found := c.Update(changes(podIn("a", ""), podIn("b", ""), podIn("c", ""), podIn("d", ""), podIn("victim", "", "10.0.0.1")), d)
	if got := strings.Join(ipsOf(c), " "); got != "a[] b[] c[] d[] victim[10.0.0.1]" || len(found) != 4 {
		t.Errorf("pods have %s, problems %v", got, found)
	}
	if !strings.Contains(found[0].Reason, "10.0.0.1 is registered for this pod, and is that of pod ns/victim") {
		t.Errorf("the problem is %v", found[0])
	}
	gone := changes(podIn("a", ""))
	gone.Deltas = append(gone.Deltas, model.Delta{ID: model.ID{Kind: model.KindPod, Namespace: "ns", Name: "victim"}})
	c.Register("", registeredAs("a=10.0.0.1", "b=10.0.0.2", "d=127.0.0.1"))
	if found := c.Update(gone, d); len(found) != 0 || len(c.Solved()) != 3 {
		t.Errorf("found %v, solved %v", found, c.Solved())
	}
	if got := strings.Join(ipsOf(c), " "); got != "a[10.0.0.1] b[10.0.0.2] c[] d[]" {
		t.Errorf("pods have %s", got)
	}
	c.Update(changes(podIn("victim", "", "10.0.0.1")), d)
	if got := strings.Join(ipsOf(c), " "); got != "a[] b[10.0.0.2] c[] d[] victim[10.0.0.1]" {
		t.Errorf("pods have %s: the state comes before what is registered", got)
	}
}

func TestRegisteredAddressesAreBounded(t *testing.T) {
	c, d := New(), &diary{}
	id, a := api.PodID{Namespace: "ns", Name: "a"}, netip.MustParseAddr("10.0.0.1")
	var all []netip.Addr
	for range model.MaxAddresses + 1 {
		all = append(all, a)
		a = a.Next()
	}
	c.Register("", map[api.PodID][]netip.Addr{id: all})
	found := c.Update(changes(podIn("a", "")), d)
	if got := strings.Join(ipsOf(c), " "); got != "a[]" || len(found) != 1 || !strings.Contains(found[0].Reason, fmt.Sprintf("the limit is %d", model.MaxAddresses)) {
		t.Errorf("pods have %s, problems %v", got, found)
	}
	c.Register("", map[api.PodID][]netip.Addr{id: all[1:]})
	if c.Update(model.Changes{}, d); len(c.Pods()[0].IPs) != model.MaxAddresses {
		t.Errorf("a pod has %d addresses", len(c.Pods()[0].IPs))
	}
}

// TestRegisteredAddressesHaveNoHistory compares with the result for the current state and
// registrations, whatever came before.
func TestRegisteredAddressesHaveNoHistory(t *testing.T) {
	names, addrs := []string{"a", "b", "c", "d"}, []string{"10.0.0.1", "10.0.0.2", "fd00::3"}
	rapid.Check(t, func(t *rapid.T) {
		c, d := New(), &diary{}
		pods, given := map[string]*model.Pod{}, map[string][]string{}
		some := rapid.SliceOfNDistinct(rapid.SampledFrom(addrs), 0, 2, rapid.ID[string])
		for range rapid.IntRange(1, 12).Draw(t, "steps") {
			name := rapid.SampledFrom(names).Draw(t, "name")
			var ch model.Changes
			switch rapid.IntRange(0, 4).Draw(t, "what") {
			case 0:
				delete(pods, name)
				ch.Deltas = []model.Delta{{ID: model.ID{Kind: model.KindPod, Namespace: "ns", Name: name}}}
			case 1:
				if given[name] = some.Draw(t, "given"); len(given[name]) == 0 {
					delete(given, name)
				}
			case 2:
				ch.Resync = true
				for _, p := range pods {
					ch.Deltas = append(ch.Deltas, changes(p).Deltas...)
				}
			default:
				p := podIn(name, rapid.SampledFrom([]string{"n1", "n1", "n2"}).Draw(t, "node"), some.Draw(t, "ips")...)
				p.HostNetwork = rapid.IntRange(0, 5).Draw(t, "host network") == 0
				pods[name] = p
				ch = changes(p)
			}
			var list []string
			for name, ips := range given {
				for _, ip := range ips {
					list = append(list, name+"="+ip)
				}
			}
			c.Register("n1", registeredAs(list...))
			c.Update(ch, d)
			for _, p := range c.Pods() {
				if want := naiveIPs(pods, given, p.ID.Name); fmt.Sprint(p.IPs) != fmt.Sprint(want) {
					t.Fatalf("%s has %v, want %v; state %v, registered %v", p.ID.Name, p.IPs, want, pods, given)
				}
			}
		}
	})
}

// naiveIPs returns the addresses that a pod must have.
func naiveIPs(pods map[string]*model.Pod, given map[string][]string, name string) []string {
	p := pods[name]
	candidate := func(name string) bool {
		p := pods[name]
		return p != nil && !p.HostNetwork && len(p.Ips) == 0 && p.NodeName == "n1" && len(given[name]) > 0
	}
	switch {
	case p.HostNetwork:
		return nil
	case !candidate(name):
		return slices.DeleteFunc(slices.Sorted(slices.Values(p.Ips)), func(a string) bool {
			owner := naiveOwner(pods, given, a)
			return owner != "" && owner != name
		})
	}
	for _, a := range given[name] {
		for other, o := range pods {
			if other != name && (!o.HostNetwork && slices.Contains(o.Ips, a) || candidate(other) && slices.Contains(given[other], a)) {
				return nil
			}
		}
	}
	return slices.Sorted(slices.Values(given[name]))
}

// naiveOwner returns the only local pod that has an address both in the state and at the node.
func naiveOwner(pods map[string]*model.Pod, given map[string][]string, a string) string {
	var owners []string
	for name, p := range pods {
		if !p.HostNetwork && p.NodeName == "n1" && slices.Contains(p.Ips, a) && slices.Contains(given[name], a) {
			owners = append(owners, name)
		}
	}
	if len(owners) != 1 {
		return ""
	}
	return owners[0]
}

// TestRegisteredAddressIsItsPodsAlone: a pod that has gone, or has no interface here, still lists
// an address that a pod of the node has now.
func TestRegisteredAddressIsItsPodsAlone(t *testing.T) {
	c, d := New(), &diary{}
	step := func(want string, problems int, ms ...proto.Message) {
		t.Helper()
		c.Update(changes(ms...), d)
		if got := strings.Join(ipsOf(c), " "); got != want || len(c.Problems()) != problems {
			t.Errorf("pods have %s, want %s; problems %v", got, want, c.Problems())
		}
	}
	step("gone[10.0.0.1 fd00::1] stale[10.0.0.1]", 0, podIn("gone", "n1", "10.0.0.1", "fd00::1"), podIn("stale", "n2", "10.0.0.1"))
	c.Register("n1", registeredAs("new=10.0.0.1", "new=fd00::2"))
	step("gone[10.0.0.1 fd00::1] new[] stale[10.0.0.1]", 1, podIn("new", "n1")) // the state is older than the node
	step("gone[fd00::1] new[10.0.0.1] stale[]", 2, podIn("new", "n1", "10.0.0.1"))
	step("gone[fd00::1] new[10.0.0.1] stale[]", 2, podIn("stale", "n2", "10.0.0.1"))
	step("gone[fd00::1] new[10.0.0.1] stale[10.0.0.9]", 1, podIn("stale", "n2", "10.0.0.1", "10.0.0.9"), podIn("stale", "n2", "10.0.0.9"))
	d.take()
	step("gone[fd00::1] new[10.0.0.1] stale[10.0.0.9]", 1)
	if reported := d.take(); len(reported) > 0 {
		t.Errorf("what changes nothing is reported: %v", reported)
	}
	step("gone[fd00::1] new[10.0.0.1] stale[]", 2, podIn("stale", "n2", "10.0.0.1"))
	c.Register("n1", nil)
	step("gone[10.0.0.1 fd00::1] new[10.0.0.1] stale[10.0.0.1]", 0)
	c.Register("n1", registeredAs("new=10.0.0.1", "gone=10.0.0.1"))
	step("gone[10.0.0.1 fd00::1] new[10.0.0.1] stale[10.0.0.1]", 0) // two interfaces: neither owns it
}
