package neutron

import (
	"fmt"
	"maps"
	"net/http"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/gophercloud/gophercloud/v2/openstack/networking/v2/extensions/security/groups"
	"github.com/gophercloud/gophercloud/v2/openstack/networking/v2/extensions/security/rules"
	"github.com/gophercloud/gophercloud/v2/openstack/networking/v2/ports"

	"github.com/sluice-net/sluice/api"
	"github.com/sluice-net/sluice/renderer"
	"github.com/sluice-net/sluice/renderer/secgroup"
)

var (
	web    = api.PodID{Namespace: "shop", Name: "web"}
	db     = api.PodID{Namespace: "shop", Name: "db"}
	client = api.PodID{Namespace: "shop", Name: "client"}

	webAt    = []netip.Addr{netip.MustParseAddr("10.0.0.10"), netip.MustParseAddr("fd00::10")}
	dbAt     = []netip.Addr{netip.MustParseAddr("10.0.0.11"), netip.MustParseAddr("fd00::11")}
	clientAt = []netip.Addr{netip.MustParseAddr("10.0.0.12"), netip.MustParseAddr("fd00::12")}
)

const clients = api.SetID(77)

func lists(rules ...api.ContivRule) *renderer.RuleList {
	return renderer.NewRuleList(append(slices.Clone(rules), api.ContivRule{Action: api.Deny}), nil)
}

func members(addrs ...netip.Addr) (out []netip.Prefix) {
	for _, a := range addrs {
		out = append(out, netip.PrefixFrom(a, a.BitLen()))
	}
	return out
}

func tcp(a api.Action, n api.Net, port api.PortRange) api.ContivRule {
	return api.ContivRule{Action: a, Src: n, Protocol: api.TCP, DstPort: port}
}

// village is a state with a set, a deny before a permit, ICMP, SCTP and both families.
func village() map[api.PodID]renderer.PodConfig {
	sctp := api.ContivRule{Action: api.Permit, Src: api.SetNet(clients), Protocol: api.SCTP, DstPort: api.Ports(7000, 7010)}
	ping := api.ContivRule{Action: api.Permit, Protocol: api.ICMP}
	ping6 := api.ContivRule{Action: api.Permit, Protocol: api.ICMPv6}
	return map[api.PodID]renderer.PodConfig{
		web:    {IPs: webAt, Egress: lists(tcp(api.Deny, api.SetNet(clients), api.Port(22)), tcp(api.Permit, api.Net{}, api.Ports(1, 100)), sctp, ping, ping6)},
		db:     {IPs: dbAt, Egress: lists(tcp(api.Permit, api.SetNet(clients), api.Port(5432)))},
		client: {IPs: clientAt},
	}
}

func villageSets() map[api.SetID][]netip.Prefix {
	return map[api.SetID][]netip.Prefix{clients: members(clientAt...)}
}

func flow(src, dst netip.Addr, p api.Protocol, port uint16) api.Flow {
	return api.Flow{Src: src, Dst: dst, Protocol: p, SrcPort: 40000, DstPort: port}
}

// probes are flows of the village, and whether it permits them.
func probes() map[api.Flow]bool {
	out := map[api.Flow]bool{}
	for i := range 2 {
		icmp := []api.Protocol{api.ICMP, api.ICMPv6}[i]
		out[flow(clientAt[i], webAt[i], api.TCP, 80)] = true
		out[flow(clientAt[i], webAt[i], api.TCP, 22)] = false
		out[flow(dbAt[i], webAt[i], api.TCP, 22)] = true
		out[flow(clientAt[i], webAt[i], api.TCP, 101)] = false
		out[flow(clientAt[i], webAt[i], api.SCTP, 7010)] = true
		out[flow(dbAt[i], webAt[i], api.SCTP, 7010)] = false
		out[flow(clientAt[i], webAt[i], api.UDP, 80)] = false
		out[api.Flow{Src: dbAt[i], Dst: webAt[i], Protocol: icmp}] = true
		out[flow(clientAt[i], dbAt[i], api.TCP, 5432)] = true
		out[flow(webAt[i], dbAt[i], api.TCP, 5432)] = false
		out[flow(webAt[i], clientAt[i], api.TCP, 1)] = true
	}
	return out
}

func (f *fixture) check(want map[api.Flow]bool) {
	f.t.Helper()
	n := f.held()
	for fl, permitted := range want {
		if n.Passes(fl) != permitted {
			f.t.Errorf("%s: permitted %t, want %t, by\n%s", fl, !permitted, permitted, n.Installed())
			return
		}
	}
}

// defaultGroup makes a foreign group that permits everything.
func (f *fixture) defaultGroup() string {
	f.t.Helper()
	g, err := groups.Create(f.t.Context(), f.admin, groups.CreateOpts{Name: "ours"}).Extract()
	f.must(err)
	var open []rules.CreateOpts
	for _, v := range []rules.RuleEtherType{rules.EtherType4, rules.EtherType6} {
		open = append(open, rules.CreateOpts{SecGroupID: g.ID, Direction: rules.DirIngress, EtherType: v})
	}
	_, err = rules.CreateBulk(f.t.Context(), f.admin, open).Extract()
	f.must(err)
	return g.ID
}

func TestNeutronHoldsWhatPoliciesPermit(t *testing.T) {
	for _, grouped := range []bool{false, true} {
		t.Run(fmt.Sprintf("address groups %t", grouped), func(t *testing.T) {
			f := newFixture(t, need(t, false), secgroup.Options{AddressGroups: grouped})
			f.must(f.commit(true, village(), villageSets()))
			reads, writes := f.tap.take()
			t.Logf("the first state took %d reads and %d writes", reads, writes)
			f.check(probes())
			f.restart()
			f.must(f.commit(true, village(), villageSets()))
			if reads, writes := f.tap.take(); writes > 0 {
				t.Errorf("a restart with nothing changed took %d reads and %d writes", reads, writes)
			}
			changes := renderer.Changes{}
			changes.UpdateSet(clients, members(dbAt...), members(clientAt...))
			f.must(f.r.Apply(t.Context(), changes))
			reads, writes = f.tap.take()
			t.Logf("an exchange of two members took %d reads and %d writes", reads, writes)
			f.check(map[api.Flow]bool{flow(clientAt[0], webAt[0], api.TCP, 22): true, flow(dbAt[1], webAt[1], api.TCP, 22): false})
			f.must(f.commit(true, nil, nil))
			for id, g := range f.own() {
				if !f.used(id) {
					t.Errorf("group %s, %s is left", id, g.Name)
				}
			}
		})
	}
}

// used reports whether a port of the fixture has a group.
func (f *fixture) used(group string) bool {
	f.t.Helper()
	all, err := f.options.API.Ports(f.t.Context())
	f.must(err)
	return slices.ContainsFunc(all, func(p secgroup.Port) bool { return slices.Contains(p.Groups, group) })
}

func faults() []fault {
	return []fault{
		{name: "500", status: http.StatusInternalServerError, body: "<html>" + strings.Repeat("x", 1<<20)},
		{name: "409", status: http.StatusConflict, body: `{"NeutronError": {"type": "X\u001b[2J", "message": "busy", "detail": ""}}`},
		{name: "429", status: http.StatusTooManyRequests},
		{name: "lost", late: true},
	}
}

// TestNeutronFailuresAreRepaired makes each call of a change fail in each way. Whatever fails, no
// flow passes that neither the old nor the new rules permit, and none is denied that both permit;
// the next commit enforces the new rules.
func TestNeutronFailuresAreRepaired(t *testing.T) {
	s := need(t, false)
	for _, bad := range faults() {
		if testing.Short() && bad.status == http.StatusTooManyRequests {
			continue // the renderer treats it as the status 500
		}
		t.Run(bad.name, func(t *testing.T) {
			f := newFixture(t, s, secgroup.Options{})
			f.options.DefaultGroups = []string{f.defaultGroup()}
			f.restart()
			pods := village()
			f.must(f.commit(true, pods, villageSets()))
			old, changed := f.verdicts(), map[api.PodID]renderer.PodConfig{
				web: {IPs: webAt, Egress: lists(tcp(api.Permit, api.SetNet(clients), api.Ports(20, 30)))}, client: {IPs: clientAt, Egress: lists()},
			}
			failed := 0
			for n := 1; ; n++ {
				f.restart() // so that reads are among the calls
				f.tap.failAt, f.tap.fault = n, bad
				err := f.commit(true, merged(pods, changed), villageSets())
				done := f.tap.failAt > 0
				f.tap.failAt = 0
				if done {
					f.must(err)
					break
				}
				if err != nil && (len(err.Error()) > 1000 || strings.ContainsAny(err.Error(), "\x1b<")) {
					t.Errorf("call %d: the error is long, or repeats what Neutron sent: %.300q", n, err)
				}
				failed++
				between := f.verdicts()
				f.must(f.commit(false, nil, nil))
				now := f.verdicts()
				for fl, is := range between {
					if is != old[fl] && is != now[fl] {
						t.Errorf("after a failure of call %d %s is permitted: %t, before it was %t, then %t", n, fl, is, old[fl], now[fl])
					}
				}
				for fl, want := range map[api.Flow]bool{
					flow(clientAt[0], webAt[0], api.TCP, 22): true, flow(clientAt[1], webAt[1], api.TCP, 80): false, flow(webAt[0], clientAt[0], api.TCP, 1): false,
				} {
					if now[fl] != want {
						t.Errorf("after the repair of call %d %s is permitted: %t, want %t", n, fl, now[fl], want)
					}
				}
				f.must(f.commit(true, pods, villageSets()))
			}
			if failed < 8 {
				t.Errorf("only %d calls failed", failed)
			}
			t.Logf("%d calls failed, one after the other", failed)
		})
	}
}

func (f *fixture) verdicts() map[api.Flow]bool {
	n, out := f.held(), map[api.Flow]bool{}
	for fl := range probes() {
		out[fl] = n.Passes(fl)
	}
	return out
}

func merged(a, b map[api.PodID]renderer.PodConfig) map[api.PodID]renderer.PodConfig {
	out := maps.Clone(a)
	maps.Copy(out, b)
	return out
}

// TestNeutronRepairsWhatOthersChange: two renderers that do not know of each other want the same,
// and another process deletes rules and groups.
func TestNeutronRepairsWhatOthersChange(t *testing.T) {
	f := newFixture(t, need(t, false), secgroup.Options{})
	f.must(f.commit(true, village(), villageSets()))
	second, err := secgroup.New(f.options)
	f.must(err)
	first := f.r
	f.r = second
	other := village()
	other[db] = renderer.PodConfig{IPs: dbAt, Egress: lists()}
	f.must(f.commit(true, other, villageSets()))
	f.r = first
	first.Refresh()
	f.must(f.commit(false, nil, nil)) // it knows nothing of what the other has made
	f.check(probes())

	for id, g := range f.own() {
		for _, r := range g.Rules[:1] {
			f.must(rules.Delete(t.Context(), f.admin, r.ID).ExtractErr())
		}
		_, err := rules.Create(t.Context(), f.admin, rules.CreateOpts{SecGroupID: id, Direction: rules.DirIngress, EtherType: rules.EtherType4, RemoteGroupID: id}).Extract()
		f.must(err)
		_, err = rules.Create(t.Context(), f.admin, rules.CreateOpts{
			SecGroupID: id, Direction: rules.DirIngress, EtherType: rules.EtherType4, Protocol: "tcp", PortRangeMin: 22, PortRangeMax: 22, RemoteIPPrefix: "10.7.7.7/24",
		}).Extract()
		f.must(err)
	}
	first.Refresh()
	f.must(f.commit(false, nil, nil))
	f.check(probes())
	if d := first.State().Drift; d["delete security group rule"] == 0 {
		t.Errorf("drift is %v", d)
	}
	open := f.defaultGroup()
	for _, p := range f.ports {
		_, err := ports.Update(t.Context(), f.admin, p.ID, ports.UpdateOpts{SecurityGroups: &[]string{open}}).Extract()
		f.must(err)
	}
	for id := range f.own() {
		f.must(groups.Delete(t.Context(), f.admin, id).ExtractErr())
	}
	// It does not know: the revisions of the ports keep it from doing harm.
	pods := village()
	delete(pods, db)
	begin := time.Now()
	for err := f.commit(false, pods, nil); err != nil; err = f.commit(false, nil, nil) {
		if time.Since(begin) > time.Minute {
			t.Fatal(err)
		}
	}
	first.Refresh()
	f.must(f.commit(false, nil, nil))
	f.check(probes())
	if g, err := groups.Get(t.Context(), f.admin, open).Extract(); err != nil || len(g.Rules) != 4 {
		t.Errorf("the group of another owner is %+v, %v", g, err)
	}
}

// TestNeutronProtocols: every protocol that rules can have is one that Neutron takes.
func TestNeutronProtocols(t *testing.T) {
	f := newFixture(t, need(t, false), secgroup.Options{})
	deny := tcp(api.Deny, api.PrefixNet(netip.MustParsePrefix("10.0.0.12/32")), api.Port(22))
	begin := time.Now()
	f.must(f.commit(true, map[api.PodID]renderer.PodConfig{web: {IPs: webAt, Egress: lists(deny, api.ContivRule{Action: api.Permit, Src: api.PrefixNet(netip.MustParsePrefix("10.0.0.12/32"))})}}, nil))
	reads, writes := f.tap.take()
	rules := 0
	for _, g := range f.own() {
		rules += len(g.Rules)
	}
	t.Logf("%d rules took %s, %d reads and %d writes", rules, time.Since(begin).Round(time.Millisecond), reads, writes)
	f.check(map[api.Flow]bool{flow(clientAt[0], webAt[0], api.TCP, 22): false, flow(clientAt[0], webAt[0], api.TCP, 23): true, {Src: clientAt[0], Dst: webAt[0], Protocol: 47}: true})
}
